/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#define CHUNK_MIN ((size_t)512)
#define CHUNK_MAX ((size_t)1 << 20)

struct tmsg_arena_chunk {
    tmsg_arena_chunk_t *next;
    size_t size;
    size_t used;
    alignas(8) unsigned char bytes[];
};

/* Makes a chunk that doubles the memory of the arena, within bounds. */
static tmsg_arena_chunk_t *chunk_create(size_t at_least, size_t so_far)
{
    size_t size = so_far < CHUNK_MIN ? CHUNK_MIN : so_far;
    tmsg_arena_chunk_t *chunk;

    if (size > CHUNK_MAX) {
        size = CHUNK_MAX;
    }
    if (size < at_least) {
        size = at_least;
    }
    chunk = malloc(sizeof(*chunk) + size);
    if (chunk != NULL) {
        *chunk = (tmsg_arena_chunk_t){.size = size};
    }
    return chunk;
}

size_t tmsg_arena_size(size_t bytes) { return (bytes + 7) & ~(size_t)7; }

/* Returns the first chunk, from the current one on, that has room for `bytes`.
 * If there is none, a new chunk is made behind all others. NULL: no memory. */
static tmsg_arena_chunk_t *find_chunk(tmsg_arena_t *arena, size_t bytes)
{
    tmsg_arena_chunk_t **link =
        arena->current == NULL ? &arena->chunks : &arena->current;
    tmsg_arena_chunk_t *chunk;

    while ((chunk = *link) != NULL && chunk->size - chunk->used < bytes) {
        link = &chunk->next;
    }
    if (chunk == NULL) {
        chunk = *link = chunk_create(bytes, arena->used);
    }
    return chunk;
}

void *tmsg_arena_alloc(tmsg_arena_t *arena, size_t bytes)
{
    tmsg_arena_chunk_t *chunk = arena->current;
    void *given;

    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = tmsg_arena_size(bytes);
    if (chunk == NULL || chunk->size - chunk->used < bytes) {
        chunk = find_chunk(arena, bytes);
        if (chunk == NULL) {
            return NULL;
        }
        arena->current = chunk;
    }
    given = chunk->bytes + chunk->used;
    chunk->used += bytes;
    arena->used += bytes;
    return given;
}

const void *tmsg_arena_piece(const tmsg_arena_t *arena)
{
    const tmsg_arena_chunk_t *first = arena->chunks;

    return first != NULL && first->used == arena->used ? first->bytes : NULL;
}

void tmsg_arena_reset(tmsg_arena_t *arena)
{
    tmsg_arena_chunk_t **link = &arena->chunks;

    if (arena->used == 0) {
        return;
    }
    while (*link != NULL) {
        tmsg_arena_chunk_t *chunk = *link;

        if (chunk->used == 0) {
            *link = chunk->next;
            free(chunk);
        } else {
            chunk->used = 0;
            link = &chunk->next;
        }
    }
    arena->current = NULL;
    arena->used = 0;
}

void tmsg_arena_free(tmsg_arena_t *arena)
{
    while (arena->chunks != NULL) {
        tmsg_arena_chunk_t *next = arena->chunks->next;

        free(arena->chunks);
        arena->chunks = next;
    }
    *arena = (tmsg_arena_t){0};
}
