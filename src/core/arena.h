/* SPDX-License-Identifier: BSD-3-Clause */
/* core/arena.h - small things that are freed together. */
#ifndef TMSG_CORE_ARENA_H
#define TMSG_CORE_ARENA_H

#include <stddef.h>

typedef struct tmsg_arena_chunk tmsg_arena_chunk_t;

/* All zero bits is an empty arena. What it gave never moves. */
typedef struct {
    tmsg_arena_chunk_t *chunks;  /* in the order in which they are filled */
    tmsg_arena_chunk_t *current; /* nothing is put into those before */
    size_t used;                 /* bytes given since the last reset */
} tmsg_arena_t;

/* Gives `bytes` aligned to 8, or NULL. */
void *tmsg_arena_alloc(tmsg_arena_t *arena, size_t bytes);

/* Where all that it gave since the last reset lies, one behind the other:
 * arena->used bytes. NULL: it is in several places, or nowhere. */
const void *tmsg_arena_piece(const tmsg_arena_t *arena);

/* What a piece of `bytes` adds to arena->used. */
size_t tmsg_arena_size(size_t bytes);

/* Takes everything back and keeps the chunks that were used since the last
 * reset: the same pieces again cost no allocation. */
void tmsg_arena_reset(tmsg_arena_t *arena);

void tmsg_arena_free(tmsg_arena_t *arena);

#endif
