/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/index.h"

#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/error.h"

#define LINEAR_MAX 8 /* up to here comparing beats hashing */

typedef struct {
    const char *name;
    size_t name_bytes;
} item_t;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned char secret[crypto_shorthash_KEYBYTES];

static void make_secret(void)
{
    /* Without entropy the names still hash, only predictably. */
    ssize_t got = getrandom(secret, sizeof(secret), GRND_NONBLOCK);

    (void)got;
}

static size_t hash(const char *name, size_t name_bytes)
{
    uint64_t value;
    unsigned char out[crypto_shorthash_BYTES];

    crypto_shorthash(out, (const unsigned char *)name, name_bytes, secret);
    memcpy(&value, out, sizeof(value));
    return (size_t)value;
}

static const item_t *item_at(const tmsg_names_t *names, size_t position)
{
    return (const item_t *)((const char *)names->items +
                            position * names->stride);
}

static int same(const item_t *item, const char *name, size_t name_bytes)
{
    return item->name_bytes == name_bytes &&
           memcmp(item->name, name, name_bytes) == 0;
}

static void insert(tmsg_index_t *index, const item_t *item, size_t position)
{
    size_t at = hash(item->name, item->name_bytes) & index->mask;

    while (index->slots[at] != 0) {
        at = (at + 1) & index->mask;
    }
    index->slots[at] = (uint32_t)(position + 1);
}

size_t tmsg_index_find(const tmsg_index_t *index, const tmsg_names_t *names,
                       const char *name, size_t name_bytes)
{
    size_t at;

    if (index->slots == NULL) {
        for (size_t i = 0; i < names->count; i++) {
            if (same(item_at(names, i), name, name_bytes)) {
                return i;
            }
        }
        return TMSG_INDEX_NONE;
    }
    at = hash(name, name_bytes) & index->mask;
    while (index->slots[at] != 0) {
        size_t position = index->slots[at] - 1;

        if (same(item_at(names, position), name, name_bytes)) {
            return position;
        }
        at = (at + 1) & index->mask;
    }
    return TMSG_INDEX_NONE;
}

tmsg_status_t tmsg_index_add(tmsg_index_t *index, const tmsg_names_t *names)
{
    size_t size = index->slots == NULL ? 0 : index->mask + 1;

    if (names->count <= LINEAR_MAX) {
        return TMSG_OK;
    }
    if (names->count * 2 > size) {
        uint32_t *slots;

        pthread_once(&once, make_secret);
        size = size == 0 ? 4 * (size_t)LINEAR_MAX : size * 2;
        slots = calloc(size, sizeof(*slots));
        if (slots == NULL) {
            return tmsg_error_memory("the index of names");
        }
        free(index->slots);
        index->slots = slots;
        index->mask = size - 1;
        tmsg_index_rebuild(index, names);
        return TMSG_OK;
    }
    insert(index, item_at(names, names->count - 1), names->count - 1);
    return TMSG_OK;
}

void tmsg_index_rebuild(tmsg_index_t *index, const tmsg_names_t *names)
{
    if (names->count <= LINEAR_MAX) {
        tmsg_index_free(index);
        return;
    }
    memset(index->slots, 0, (index->mask + 1) * sizeof(*index->slots));
    for (size_t i = 0; i < names->count; i++) {
        insert(index, item_at(names, i), i);
    }
}

void tmsg_index_free(tmsg_index_t *index)
{
    free(index->slots);
    index->slots = NULL;
    index->mask = 0;
}
