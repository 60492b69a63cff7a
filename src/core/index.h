/* SPDX-License-Identifier: BSD-3-Clause */
/* core/index.h - finding one of many names. */
#ifndef TMSG_CORE_INDEX_H
#define TMSG_CORE_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#define TMSG_INDEX_NONE SIZE_MAX

/* An array that the index looks into: each item, `stride` bytes long, begins
 * with a `const char *name` and a `size_t name_bytes`. */
typedef struct {
    const void *items;
    size_t stride;
    size_t count;
} tmsg_names_t;

typedef struct {
    uint32_t place; /* position + 1; 0 is free */
    uint32_t hash;
} tmsg_index_slot_t;

/* A hash table of positions. All zero bits is an empty one; short arrays are
 * searched without. The hash is keyed by a secret of the process, so a peer
 * cannot choose names that collide. */
typedef struct {
    tmsg_index_slot_t *slots;
    size_t mask;
} tmsg_index_t;

/* The position of a name, or TMSG_INDEX_NONE. */
size_t tmsg_index_find(const tmsg_index_t *index, const tmsg_names_t *names,
                       const char *name, size_t name_bytes);

/* Takes in the last of names->items, whose name must be new. An array that
 * became empty starts over by this alone, with the memory that there is. */
tmsg_status_t tmsg_index_add(tmsg_index_t *index, const tmsg_names_t *names);

/* Lets go of `position`, after the item was taken out of names->items and those
 * behind it moved up. */
void tmsg_index_remove(tmsg_index_t *index, const tmsg_names_t *names,
                       size_t position);

/* Makes *copy_p the index of a copied array of `count`. Errors: NO_MEMORY. */
tmsg_status_t tmsg_index_copy(const tmsg_index_t *index, size_t count,
                              tmsg_index_t *copy_p);

void tmsg_index_free(tmsg_index_t *index);

#endif
