/* SPDX-License-Identifier: BSD-3-Clause */
/* Gives back what names and values that are gone still take in a map's
 * arena. */
#include <stdlib.h>

#include "core/map_struct.h"

/* Packing is not worth it below this many bytes. */
#define WASTE_MIN 4096

/* Moves everything that lives into a fresh arena. If there is no memory for
 * that, the old arena stays: packing only saves memory. */
static void pack_map(tmsg_map_t *map)
{
    tmsg_map_t fresh = {0};

    fresh.entries = calloc(map->capacity + 1, sizeof(*fresh.entries));
    fresh.meta = calloc(map->meta_capacity + 1, sizeof(*fresh.meta));
    if (fresh.entries == NULL || fresh.meta == NULL) {
        goto err_free;
    }
    for (size_t i = 0; i < map->size; i++) {
        fresh.entries[i] = tmsg_map_entries(map)[i];
        if (!tmsg_map_adopt(&fresh, &fresh.entries[i])) {
            goto err_free;
        }
    }
    for (size_t i = 0; i < map->meta_size; i++) {
        tmsg_map_meta_entry_t *entry = &fresh.meta[i];

        *entry = map->meta[i];
        entry->key = tmsg_map_copy(&fresh, entry->key, entry->key_bytes);
        if (entry->key != NULL && entry->value.data != NULL) {
            entry->value.data =
                tmsg_map_copy(&fresh, entry->value.data, entry->value.bytes);
        }
        if (entry->key == NULL ||
            (map->meta[i].value.data != NULL && entry->value.data == NULL)) {
            goto err_free;
        }
    }
    tmsg_arena_free(&map->arena);
    free(map->entries);
    free(map->meta);
    map->arena = fresh.arena;
    map->entries = fresh.entries;
    map->borrowed = false;
    map->placed_at = NULL;
    map->meta = fresh.meta;
    map->wasted = 0;
    return;

err_free:
    tmsg_arena_free(&fresh.arena);
    free(fresh.entries);
    free(fresh.meta);
}

void tmsg_map_waste(tmsg_map_t *map, size_t bytes)
{
    map->wasted += bytes;
    if (map->wasted > WASTE_MIN && map->wasted > map->arena.used / 2) {
        pack_map(map);
    }
}
