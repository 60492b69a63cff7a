/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#define FIRST_CHUNK 512
#define CHUNK_MAX ((size_t)1 << 20)

struct tmsg_arena_chunk {
    tmsg_arena_chunk_t *next;
    size_t size;
    size_t used;
    alignas(8) unsigned char bytes[];
};

static tmsg_arena_chunk_t *chunk_create(size_t at_least, size_t previous)
{
    size_t size = previous == 0 ? FIRST_CHUNK : previous * 2;
    tmsg_arena_chunk_t *chunk;

    if (size > CHUNK_MAX) {
        size = CHUNK_MAX;
    }
    if (size < at_least) {
        size = at_least;
    }
    chunk = malloc(sizeof(*chunk) + size);
    if (chunk != NULL) {
        chunk->size = size;
        chunk->used = 0;
    }
    return chunk;
}

void *tmsg_arena_alloc(tmsg_arena_t *arena, size_t bytes)
{
    tmsg_arena_chunk_t *chunk = arena->chunks;
    void *given;

    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = (bytes + 7) & ~(size_t)7;
    if (chunk == NULL || chunk->size - chunk->used < bytes) {
        chunk = chunk_create(bytes, chunk == NULL ? 0 : chunk->size);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    given = chunk->bytes + chunk->used;
    chunk->used += bytes;
    arena->used += bytes;
    return given;
}

void tmsg_arena_reset(tmsg_arena_t *arena)
{
    tmsg_arena_chunk_t *largest = NULL;
    tmsg_arena_chunk_t *chunk = arena->chunks;

    while (chunk != NULL) {
        tmsg_arena_chunk_t *next = chunk->next;

        if (largest == NULL || chunk->size > largest->size) {
            free(largest);
            largest = chunk;
        } else {
            free(chunk);
        }
        chunk = next;
    }
    if (largest != NULL) {
        largest->next = NULL;
        largest->used = 0;
    }
    arena->chunks = largest;
    arena->used = 0;
}

void tmsg_arena_free(tmsg_arena_t *arena)
{
    tmsg_arena_reset(arena);
    free(arena->chunks);
    arena->chunks = NULL;
}
