/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/table.h - hash tables of what embeds a link, by a number. */
#ifndef TMSG_RPC_TABLE_H
#define TMSG_RPC_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct tmsg_keyed {
    struct tmsg_keyed *next; /* with the same bucket */
    uint64_t key;
} tmsg_keyed_t;

#define TMSG_TABLE_FEW 8

/* All zero bits is an empty one. Without memory to grow it gets slower, and
 * nothing fails. */
typedef struct {
    tmsg_keyed_t **buckets; /* NULL: `few` */
    size_t bucket_count;    /* a power of 2; 0: TMSG_TABLE_FEW */
    size_t count;
    uint64_t secret; /* so that a peer cannot choose keys that collide */
    tmsg_keyed_t *few[TMSG_TABLE_FEW];
} tmsg_table_t;

/* Keys may be there more than once. */
void tmsg_table_add(tmsg_table_t *table, tmsg_keyed_t *item, uint64_t key);

/* It is there. */
void tmsg_table_remove(tmsg_table_t *table, tmsg_keyed_t *item);

/* One of that key, and those behind it; NULL: there is none. */
tmsg_keyed_t *tmsg_table_find(const tmsg_table_t *table, uint64_t key);
tmsg_keyed_t *tmsg_table_next(const tmsg_keyed_t *item);

/* Its memory, not the items. */
void tmsg_table_free(tmsg_table_t *table);

/* A key for a name. */
uint64_t tmsg_table_key(const char *name, size_t bytes);

#endif
