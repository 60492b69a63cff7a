/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/table.h"

#include <stdlib.h>
#include <sys/random.h>

static size_t buckets_of(const tmsg_table_t *table)
{
    return table->buckets == NULL ? TMSG_TABLE_FEW : table->bucket_count;
}

static tmsg_keyed_t **bucket_in(tmsg_keyed_t **buckets, size_t count,
                                uint64_t secret, uint64_t key)
{
    uint64_t mixed = (key ^ secret) * UINT64_C(0x9e3779b97f4a7c15);

    mixed ^= mixed >> 29;
    mixed *= secret | 1;
    return &buckets[(mixed >> 32) & (count - 1)];
}

static tmsg_keyed_t **bucket(tmsg_table_t *table, uint64_t key)
{
    return bucket_in(table->buckets == NULL ? table->few : table->buckets,
                     buckets_of(table), table->secret, key);
}

static void grow(tmsg_table_t *table)
{
    size_t before = buckets_of(table), count = before * 2;
    tmsg_keyed_t **old = table->buckets == NULL ? table->few : table->buckets;
    tmsg_keyed_t **buckets = calloc(count, sizeof(tmsg_keyed_t *));

    if (buckets == NULL) {
        return;
    }
    for (size_t i = 0; i < before; i++) {
        while (old[i] != NULL) {
            tmsg_keyed_t *item = old[i];
            tmsg_keyed_t **place =
                bucket_in(buckets, count, table->secret, item->key);

            old[i] = item->next;
            item->next = *place;
            *place = item;
        }
    }
    free(table->buckets);
    table->buckets = buckets;
    table->bucket_count = count;
}

void tmsg_table_add(tmsg_table_t *table, tmsg_keyed_t *item, uint64_t key)
{
    tmsg_keyed_t **place;

    if (table->count == 0 && table->secret == 0) {
        /* Without entropy the table still hashes, but predictably. */
        ssize_t got =
            getrandom(&table->secret, sizeof(table->secret), GRND_NONBLOCK);

        (void)got;
    }
    if (table->count >= 2 * buckets_of(table)) {
        grow(table);
    }
    place = bucket(table, key);
    item->key = key;
    item->next = *place;
    *place = item;
    table->count++;
}

void tmsg_table_remove(tmsg_table_t *table, tmsg_keyed_t *item)
{
    tmsg_keyed_t **place = bucket(table, item->key);

    while (*place != item) {
        place = &(*place)->next;
    }
    *place = item->next;
    table->count--;
}

static tmsg_keyed_t *first_with_key(tmsg_keyed_t *item, uint64_t key)
{
    while (item != NULL && item->key != key) {
        item = item->next;
    }
    return item;
}

tmsg_keyed_t *tmsg_table_find(const tmsg_table_t *table, uint64_t key)
{
    tmsg_keyed_t *const *buckets =
        table->buckets == NULL ? table->few : table->buckets;

    return first_with_key(*bucket_in((tmsg_keyed_t **)(uintptr_t)buckets,
                                     buckets_of(table), table->secret, key),
                          key);
}

tmsg_keyed_t *tmsg_table_next(const tmsg_keyed_t *item)
{
    return first_with_key(item->next, item->key);
}

void tmsg_table_free(tmsg_table_t *table)
{
    free(table->buckets);
    table->buckets = NULL;
}

uint64_t tmsg_table_key(const char *name, size_t bytes)
{
    uint64_t key = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (size_t i = 0; i < bytes; i++) {
        key = (key ^ (unsigned char)name[i]) * UINT64_C(0x100000001b3);
    }
    return key;
}
