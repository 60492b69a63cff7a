/* SPDX-License-Identifier: BSD-3-Clause */
/* waits.c - who waits for what. */
#include "waits.h"

#include <stdlib.h>
#include <string.h>

static void *grown(void *memory, size_t bytes)
{
    void *more = realloc(memory, bytes);
    if (more == NULL) {
        abort();
    }
    return more;
}

static tmsggo_group_t **bucket(const tmsggo_waits_t *waits, int kind,
                               const void *thing)
{
    uint64_t hash = ((uint64_t)(uintptr_t)thing + (uint64_t)kind) *
                    0x9e3779b97f4a7c15; /* 2^64 over the golden ratio */
    return &waits->buckets[(hash >> 32) & (waits->bucket_count - 1)];
}

tmsggo_group_t *tmsggo_waits_find(const tmsggo_waits_t *waits, int kind,
                                  const void *thing)
{
    if (waits->group_count == 0) {
        return NULL;
    }
    tmsggo_group_t *group = *bucket(waits, kind, thing);
    while (group != NULL && (group->kind != kind || group->thing != thing)) {
        group = group->next;
    }
    return group;
}

static void add_bucket(tmsggo_waits_t *waits, tmsggo_group_t *group)
{
    tmsggo_group_t **first = bucket(waits, group->kind, group->thing);
    group->next = *first;
    *first = group;
}

static void more_buckets(tmsggo_waits_t *waits)
{
    size_t count = waits->bucket_count;
    tmsggo_group_t **old = waits->buckets;
    waits->bucket_count = count > 0 ? 2 * count : 16;
    waits->buckets = grown(NULL, waits->bucket_count * sizeof(*old));
    memset(waits->buckets, 0, waits->bucket_count * sizeof(*old));
    for (size_t i = 0; i < count; i++) {
        for (tmsggo_group_t *group = old[i], *next; group; group = next) {
            next = group->next;
            add_bucket(waits, group);
        }
    }
    free(old);
}

static tmsggo_group_t *new_group(tmsggo_waits_t *waits, int kind, void *thing,
                                 tmsggo_list_t list)
{
    if (waits->group_count == waits->bucket_count) {
        more_buckets(waits);
    }
    tmsggo_group_t *group = grown(NULL, sizeof(*group));
    *group = (tmsggo_group_t){.kind = kind, .thing = thing, .list = list};
    add_bucket(waits, group);
    waits->group_count++;
    tmsggo_groups_t *groups = &waits->lists[list];
    if (list != TMSGGO_NEVER) {
        if (groups->count == groups->room) {
            groups->room = groups->room > 0 ? 2 * groups->room : 16;
            groups->all =
                grown(groups->all, groups->room * sizeof(*groups->all));
        }
        group->index = groups->count;
        groups->all[groups->count++] = group;
    }
    return group;
}

static void free_group(tmsggo_waits_t *waits, tmsggo_group_t *group)
{
    tmsggo_group_t **at = bucket(waits, group->kind, group->thing);
    while (*at != group) {
        at = &(*at)->next;
    }
    *at = group->next;
    waits->group_count--;
    tmsggo_groups_t *groups = &waits->lists[group->list];
    if (group->list != TMSGGO_NEVER) {
        tmsggo_group_t *last = groups->all[--groups->count];
        groups->all[group->index] = last;
        last->index = group->index;
    }
    free(group);
}

void tmsggo_waits_mark(tmsggo_waits_t *waits, int kind, void *thing)
{
    if (tmsggo_waits_find(waits, kind, thing) == NULL) {
        new_group(waits, kind, thing, TMSGGO_NEVER);
    }
}

void tmsggo_waits_unmark(tmsggo_waits_t *waits, int kind, const void *thing)
{
    tmsggo_group_t *group = tmsggo_waits_find(waits, kind, thing);
    if (group != NULL) {
        free_group(waits, group);
    }
}

static uint32_t place_of(uint64_t id)
{
    return (uint32_t)(id & ((1u << TMSGGO_PLACE_BITS) - 1));
}

/* Returns whether its group is gone with it. */
static int unlink_wait(tmsggo_waits_t *waits, tmsggo_wait_t *wait)
{
    tmsggo_group_t *group = wait->group;
    if (wait->prev > 0) {
        waits->places[wait->prev - 1].next = wait->next;
    } else {
        group->first = wait->next;
    }
    if (wait->next > 0) {
        waits->places[wait->next - 1].prev = wait->prev;
    } else {
        group->last = wait->prev;
    }
    wait->id = 0;
    if (--group->count == 0) {
        free_group(waits, group);
        return 1;
    }
    return 0;
}

void tmsggo_waits_add(tmsggo_waits_t *waits, int kind, void *thing,
                      tmsggo_list_t list, uint64_t id)
{
    uint32_t place = place_of(id);
    if (place >= waits->place_room) {
        size_t room = waits->place_room > 0 ? waits->place_room : 16;
        while (room <= place) {
            room *= 2;
        }
        waits->places = grown(waits->places, room * sizeof(*waits->places));
        memset(waits->places + waits->place_room, 0,
               (room - waits->place_room) * sizeof(*waits->places));
        waits->place_room = room;
    }
    if (waits->places[place].id != 0) { /* who left without a word */
        unlink_wait(waits, &waits->places[place]);
    }
    tmsggo_group_t *group = tmsggo_waits_find(waits, kind, thing);
    if (group == NULL) {
        group = new_group(waits, kind, thing, list);
    }
    waits->places[place] = (tmsggo_wait_t){id, group, 0, group->last};
    if (group->last > 0) {
        waits->places[group->last - 1].next = place + 1;
    } else {
        group->first = place + 1;
    }
    group->last = place + 1;
    group->count++;
}

int tmsggo_waits_remove(tmsggo_waits_t *waits, uint64_t id)
{
    uint32_t place = place_of(id);
    if (place >= waits->place_room || waits->places[place].id != id) {
        return 0;
    }
    unlink_wait(waits, &waits->places[place]);
    return 1;
}

void tmsggo_waits_end(tmsggo_waits_t *waits, tmsggo_group_t *group, size_t most)
{
    for (int gone = 0; most > 0 && !gone; most--) {
        tmsggo_wait_t *wait = &waits->places[group->first - 1];
        if (waits->over_count == waits->over_room && waits->taken > 0) {
            waits->over_count -= waits->taken;
            memmove(waits->over, waits->over + waits->taken,
                    waits->over_count * sizeof(*waits->over));
            waits->taken = 0;
        }
        if (waits->over_count == waits->over_room) {
            waits->over_room = waits->over_room > 0 ? 2 * waits->over_room : 64;
            waits->over =
                grown(waits->over, waits->over_room * sizeof(*waits->over));
        }
        waits->over[waits->over_count++] = wait->id;
        gone = unlink_wait(waits, wait);
    }
}

size_t tmsggo_waits_take(tmsggo_waits_t *waits, uint64_t *ids, size_t most)
{
    size_t left = waits->over_count - waits->taken;
    size_t count = left < most ? left : most;
    if (count > 0) {
        memcpy(ids, waits->over + waits->taken, count * sizeof(*ids));
    }
    waits->taken += count;
    if (waits->taken == waits->over_count) {
        waits->taken = waits->over_count = 0;
    }
    return count;
}

void tmsggo_waits_free(tmsggo_waits_t *waits)
{
    for (size_t i = 0; i < waits->bucket_count; i++) {
        for (tmsggo_group_t *group = waits->buckets[i], *next; group;
             group = next) {
            next = group->next;
            free(group);
        }
    }
    free(waits->buckets);
    free(waits->places);
    for (size_t i = 0; i <= TMSGGO_ARRIVALS; i++) {
        free(waits->lists[i].all);
    }
    free(waits->over);
}
