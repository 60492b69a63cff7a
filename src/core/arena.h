/* SPDX-License-Identifier: BSD-3-Clause */
/* core/arena.h - memory for small things that are freed together. */
#ifndef TMSG_CORE_ARENA_H
#define TMSG_CORE_ARENA_H

#include <stddef.h>

typedef struct tmsg_arena_chunk tmsg_arena_chunk_t;

/* Gives memory that is freed together and never moves. All zero bits: the arena
 * is empty. */
typedef struct {
    /* Lists the chunks in the order in which they are filled. */
    tmsg_arena_chunk_t *chunks;
    tmsg_arena_chunk_t *current; /* chunks before this one get nothing more */
    size_t used;                 /* bytes given since the last reset */
} tmsg_arena_t;

/* Returns `bytes` of memory aligned to 8, or NULL. */
void *tmsg_arena_alloc(tmsg_arena_t *arena, size_t bytes);

/* Returns where everything lies that the arena gave since the last reset, in
 * one piece of arena->used bytes. NULL: it lies in several places, or there is
 * nothing. */
const void *tmsg_arena_piece(const tmsg_arena_t *arena);

/* Returns what a piece of `bytes` adds to arena->used. */
size_t tmsg_arena_size(size_t bytes);

/* Takes back everything that the arena gave. It keeps the chunks that were used
 * since the last reset, so that the same pieces cost no allocation the next
 * time. */
void tmsg_arena_reset(tmsg_arena_t *arena);

void tmsg_arena_free(tmsg_arena_t *arena);

#endif
