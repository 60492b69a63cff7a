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

/* A hash table of positions. All zero bits is an empty one; short arrays are
 * searched without. The hash is keyed by a secret of the process, so a peer
 * cannot choose names that collide. */
typedef struct {
    uint32_t *slots; /* position + 1; 0 is free */
    size_t mask;
} tmsg_index_t;

/* The position of a name, or TMSG_INDEX_NONE. */
size_t tmsg_index_find(const tmsg_index_t *index, const tmsg_names_t *names,
                       const char *name, size_t name_bytes);

/* Takes in the last of names->items, whose name must be new. */
tmsg_status_t tmsg_index_add(tmsg_index_t *index, const tmsg_names_t *names);

/* Starts over, after items were removed. Cannot fail: the table never grows
 * here. */
void tmsg_index_rebuild(tmsg_index_t *index, const tmsg_names_t *names);

void tmsg_index_free(tmsg_index_t *index);

#endif
