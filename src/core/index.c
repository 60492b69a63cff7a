/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/index.h"

#include <pthread.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/error.h"

/* Comparing beats hashing up to this many names. */
#define LINEAR_MAX 8

typedef struct {
    const char *name;
    size_t name_bytes;
} item_t;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned char secret[crypto_shorthash_KEYBYTES];

static void make_secret(void)
{
    /* Without entropy the names still hash, but predictably. */
    ssize_t got = getrandom(secret, sizeof(secret), GRND_NONBLOCK);

    (void)got;
}

static uint32_t hash_name(const char *name, size_t name_bytes)
{
    uint32_t value;
    unsigned char out[crypto_shorthash_BYTES];

    crypto_shorthash(out, (const unsigned char *)name, name_bytes, secret);
    memcpy(&value, out, sizeof(value));
    return value;
}

static const item_t *item_at(const tmsg_names_t *names, size_t position)
{
    return (const item_t *)((const char *)names->items +
                            position * names->stride);
}

/* Compares eight letters at a time: names of one length in a map soon
 * differ. */
static inline bool same_text(const char *a, const char *b, size_t bytes)
{
    uint64_t word[2];
    size_t at = 0;

    if (bytes < sizeof(word[0])) {
        return memcmp(a, b, bytes) == 0;
    }
    while (at + sizeof(word[0]) < bytes) {
        memcpy(&word[0], a + at, sizeof(word[0]));
        memcpy(&word[1], b + at, sizeof(word[0]));
        if (word[0] != word[1]) {
            return false;
        }
        at += sizeof(word[0]);
    }
    at = bytes - sizeof(word[0]);
    memcpy(&word[0], a + at, sizeof(word[0]));
    memcpy(&word[1], b + at, sizeof(word[0]));
    return word[0] == word[1];
}

static bool is_same_name(const item_t *item, const char *name,
                         size_t name_bytes)
{
    return item->name_bytes == name_bytes &&
           same_text(item->name, name, name_bytes);
}

static void insert_slot(tmsg_index_t *index, tmsg_index_slot_t slot)
{
    size_t at = slot.hash & index->mask;

    while (index->slots[at].place != 0) {
        at = (at + 1) & index->mask;
    }
    index->slots[at] = slot;
}

static void insert_item(tmsg_index_t *index, const tmsg_names_t *names,
                        size_t position)
{
    const item_t *item = item_at(names, position);

    insert_slot(index,
                (tmsg_index_slot_t){(uint32_t)(position + 1),
                                    hash_name(item->name, item->name_bytes)});
}

static size_t look_through(const tmsg_names_t *names, const char *name,
                           size_t name_bytes)
{
    const char *item = names->items;

    for (size_t i = 0; i < names->count; i++, item += names->stride) {
        if (is_same_name((const item_t *)(const void *)item, name,
                         name_bytes)) {
            return i;
        }
    }
    return TMSG_INDEX_NONE;
}

size_t tmsg_index_find(const tmsg_index_t *index, const tmsg_names_t *names,
                       const char *name, size_t name_bytes)
{
    const tmsg_index_slot_t *slot;
    uint32_t wanted;
    size_t at;

    if (names->count <= LINEAR_MAX) {
        return look_through(names, name, name_bytes);
    }
    wanted = hash_name(name, name_bytes);
    at = wanted & index->mask;
    while ((slot = &index->slots[at])->place != 0) {
        if (slot->hash == wanted &&
            is_same_name(item_at(names, slot->place - 1), name, name_bytes)) {
            return slot->place - 1;
        }
        at = (at + 1) & index->mask;
    }
    return TMSG_INDEX_NONE;
}

static tmsg_status_t grow_index(tmsg_index_t *index, size_t size)
{
    tmsg_index_t larger = {calloc(size, sizeof(*larger.slots)), size - 1};

    if (larger.slots == NULL) {
        return tmsg_error_memory("the index of names");
    }
    pthread_once(&once, make_secret);
    for (size_t i = 0; index->slots != NULL && i <= index->mask; i++) {
        if (index->slots[i].place != 0) {
            insert_slot(&larger, index->slots[i]);
        }
    }
    free(index->slots);
    *index = larger;
    return TMSG_OK;
}

tmsg_status_t tmsg_index_add(tmsg_index_t *index, const tmsg_names_t *names)
{
    size_t size = index->slots == NULL ? 0 : index->mask + 1;

    if (names->count <= LINEAR_MAX) {
        return TMSG_OK;
    }
    if (names->count * 2 > size) {
        tmsg_status_t status =
            grow_index(index, size == 0 ? 4 * (size_t)LINEAR_MAX : size * 2);

        if (status != TMSG_OK) {
            return status;
        }
    }
    if (names->count == LINEAR_MAX + 1) { /* the slots are stale */
        memset(index->slots, 0, (index->mask + 1) * sizeof(*index->slots));
        for (size_t i = 0; i < LINEAR_MAX; i++) {
            insert_item(index, names, i);
        }
    }
    insert_item(index, names, names->count - 1);
    return TMSG_OK;
}

/* Frees a slot, and moves up those behind it that could not be found
 * otherwise. */
static void erase_slot(tmsg_index_t *index, size_t at)
{
    tmsg_index_slot_t *slots = index->slots;
    size_t next = (at + 1) & index->mask;

    for (; slots[next].place != 0; next = (next + 1) & index->mask) {
        size_t from_home = (next - slots[next].hash) & index->mask;

        if (from_home >= ((next - at) & index->mask)) {
            slots[at] = slots[next];
            at = next;
        }
    }
    slots[at].place = 0;
}

void tmsg_index_remove(tmsg_index_t *index, const tmsg_names_t *names,
                       size_t position)
{
    size_t gone = 0;

    if (names->count <= LINEAR_MAX) {
        return;
    }
    for (size_t i = 0; i <= index->mask; i++) {
        if (index->slots[i].place == position + 1) {
            gone = i;
        } else if (index->slots[i].place > position + 1) {
            index->slots[i].place--;
        }
    }
    erase_slot(index, gone);
}

tmsg_status_t tmsg_index_copy(const tmsg_index_t *index, size_t count,
                              tmsg_index_t *copy_p)
{
    size_t bytes = (index->mask + 1) * sizeof(*index->slots);
    tmsg_index_t copy = {.mask = index->mask};

    if (count <= LINEAR_MAX) {
        *copy_p = (tmsg_index_t){0};
        return TMSG_OK;
    }
    copy.slots = malloc(bytes);
    if (copy.slots == NULL) {
        return tmsg_error_memory("the index of names");
    }
    memcpy(copy.slots, index->slots, bytes);
    *copy_p = copy;
    return TMSG_OK;
}

void tmsg_index_free(tmsg_index_t *index)
{
    free(index->slots);
    *index = (tmsg_index_t){0};
}
