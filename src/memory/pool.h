/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/pool.h - host memory that is kept for whoever needs as much next.
 *
 * A stream of like messages then touches the same pages again, where the heap
 * would give large blocks back to the kernel and fetch zeroed ones. Little is
 * kept for good, and much only as long as it is used. */
#ifndef TMSG_MEMORY_POOL_H
#define TMSG_MEMORY_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
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
    size_t idle;   /* of these, the first: here since the last trim */
    uint64_t kept; /* bytes of these */
    uint64_t most;
    uint64_t lasting;
    uint64_t huge_least; /* a block of so many bytes is of huge pages; 0: none;
                          * as in domain.h, until its owner sets it */
    atomic_bool hoards;  /* kept > lasting */
} tmsg_pool_t;

/* Keeps `most` bytes at most, and `lasting` of them when nobody takes any. */
void tmsg_pool_init(tmsg_pool_t *pool, uint64_t most, uint64_t lasting);
void tmsg_pool_free(tmsg_pool_t *pool);

/* From any thread. The newest block that fits without wasting half of it, or a
 * new one. Errors: NO_MEMORY. */
tmsg_status_t tmsg_pool_take(tmsg_pool_t *pool, uint64_t bytes,
                             tmsg_pool_block_t *block_p);

/* The same, but rather the block at `liked`, where that is kept and fits. */
tmsg_status_t tmsg_pool_take_at(tmsg_pool_t *pool, const void *liked,
                                uint64_t bytes, tmsg_pool_block_t *block_p);
void tmsg_pool_give(tmsg_pool_t *pool, tmsg_pool_block_t block);

/* Whether more is kept than may last: then trim() is to be called now and then.
 * It frees what nobody took since the call before. From any thread. */
static inline bool tmsg_pool_hoards(const tmsg_pool_t *pool)
{
    return atomic_load_explicit(&pool->hoards, memory_order_relaxed);
}
void tmsg_pool_trim(tmsg_pool_t *pool);

/* Keeps no more than that now, or than may last, if that is more. */
void tmsg_pool_shrink(tmsg_pool_t *pool, uint64_t most);

#endif
