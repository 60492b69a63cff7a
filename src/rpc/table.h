/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/table.h - hash tables of records that embed a link, by a number. */
#ifndef TMSG_RPC_TABLE_H
#define TMSG_RPC_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct tmsg_keyed {
    struct tmsg_keyed *next; /* next item of the same bucket */
    uint64_t key;
} tmsg_keyed_t;

#define TMSG_TABLE_FEW 8

/* A table of zero bits is empty. A table that lacks memory to grow gets slower,
 * and nothing fails. */
typedef struct {
    tmsg_keyed_t **buckets; /* NULL: `few` has the buckets */
    size_t bucket_count;    /* a power of 2; 0: TMSG_TABLE_FEW */
    size_t count;
    uint64_t secret; /* keeps a peer from choosing keys that collide */
    tmsg_keyed_t *few[TMSG_TABLE_FEW];
} tmsg_table_t;

/* Adds an item. A table may have a key more than once. */
void tmsg_table_add(tmsg_table_t *table, tmsg_keyed_t *item, uint64_t key);

/* Removes an item that is in the table. */
void tmsg_table_remove(tmsg_table_t *table, tmsg_keyed_t *item);

/* tmsg_table_find() returns an item with that key, tmsg_table_next() the next
 * item with the same key; NULL: there is none. */
tmsg_keyed_t *tmsg_table_find(const tmsg_table_t *table, uint64_t key);
tmsg_keyed_t *tmsg_table_next(const tmsg_keyed_t *item);

/* Frees the table's memory, not the items. */
void tmsg_table_free(tmsg_table_t *table);

/* Returns a key for a name. */
uint64_t tmsg_table_key(const char *name, size_t bytes);

#endif
