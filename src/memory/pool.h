/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/pool.h - host memory that is kept for whoever needs as much next.
 *
 * A stream of like messages then touches the same pages again, where the heap
 * would give large blocks back to the kernel and fetch zeroed ones. */
#ifndef TMSG_MEMORY_POOL_H
#define TMSG_MEMORY_POOL_H

#include <pthread.h>
#include <stdint.h>

#include <tensormsg/status.h>

#define TMSG_POOL_BLOCKS 8
#define TMSG_POOL_ALIGNMENT 64

typedef struct {
    void *data;
    uint64_t capacity;
} tmsg_pool_block_t;

typedef struct {
    pthread_mutex_t lock;
    tmsg_pool_block_t blocks[TMSG_POOL_BLOCKS]; /* oldest first */
    size_t count;
    uint64_t kept; /* bytes of these */
    uint64_t most;
} tmsg_pool_t;

/* Keeps `most` bytes at most. */
void tmsg_pool_init(tmsg_pool_t *pool, uint64_t most);
void tmsg_pool_free(tmsg_pool_t *pool);

/* From any thread. The newest block that fits without wasting half of it, or a
 * new one. Errors: NO_MEMORY. */
tmsg_status_t tmsg_pool_take(tmsg_pool_t *pool, uint64_t bytes,
                             tmsg_pool_block_t *block_p);
void tmsg_pool_give(tmsg_pool_t *pool, tmsg_pool_block_t block);

#endif
