/* SPDX-License-Identifier: BSD-3-Clause */
/* core/index.h - finds one of many names. */
#ifndef TMSG_CORE_INDEX_H
#define TMSG_CORE_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#define TMSG_INDEX_NONE SIZE_MAX

/* Describes the array that an index looks into. Each item has `stride` bytes
 * and begins with a `const char *name` and a `size_t name_bytes`. */
typedef struct {
    const void *items;
    size_t stride;
    size_t count;
} tmsg_names_t;

typedef struct {
    uint32_t place; /* position + 1; 0 is free */
    uint32_t hash;
} tmsg_index_slot_t;

/* Maps names to positions by a hash table. All zero bits: it is empty. Short
 * arrays are searched without the table. A secret of the process keys the hash,
 * so that a peer cannot choose names that collide. */
typedef struct {
    tmsg_index_slot_t *slots;
    size_t mask;
} tmsg_index_t;

/* Returns the position of a name, or TMSG_INDEX_NONE. */
size_t tmsg_index_find(const tmsg_index_t *index, const tmsg_names_t *names,
                       const char *name, size_t name_bytes);

/* Adds the last of names->items, whose name must be new. If the array became
 * empty, adding starts the index over, with the memory that it has. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_index_add(tmsg_index_t *index, const tmsg_names_t *names);

/* Removes `position`. The caller has taken the item out of names->items and
 * moved up those behind it. */
void tmsg_index_remove(tmsg_index_t *index, const tmsg_names_t *names,
                       size_t position);

/* Makes *copy_p the index of a copied array with `count` items. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_index_copy(const tmsg_index_t *index, size_t count,
                              tmsg_index_t *copy_p);

void tmsg_index_free(tmsg_index_t *index);

#endif
