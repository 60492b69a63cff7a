/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/pool.h - keeps freed host memory for reuse.
 *
 * A stream of similar messages then touches the same pages again. The heap
 * would return large blocks to the kernel and fetch zeroed ones. The pool keeps
 * few bytes for good, and many only as long as they are used. */
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
    size_t idle;   /* number of oldest blocks, kept since the last trim */
    uint64_t kept; /* bytes of all kept blocks */
    uint64_t most;
    uint64_t lasting;
    uint64_t huge_least; /* least size in bytes of a block of huge pages; 0
                          * means no huge pages. The initial value is
                          * TMSG_HUGE_LEAST, and the owner may set another. */
    atomic_bool hoards;  /* kept > lasting */
} tmsg_pool_t;

/* Initializes a pool that keeps `most` bytes at most. Trimming keeps up to
 * `lasting` bytes when nobody takes blocks. */
void tmsg_pool_init(tmsg_pool_t *pool, uint64_t most, uint64_t lasting);
void tmsg_pool_free(tmsg_pool_t *pool);

/* Takes the newest block that fits without wasting half of it, or allocates a
 * new one. Any thread may call this function. Errors: NO_MEMORY. */
tmsg_status_t tmsg_pool_take(tmsg_pool_t *pool, uint64_t bytes,
                             tmsg_pool_block_t *block_p);

/* Does what tmsg_pool_take() does, but prefers the block at `liked` if that
 * block is kept and fits. */
tmsg_status_t tmsg_pool_take_at(tmsg_pool_t *pool, const void *liked,
                                uint64_t bytes, tmsg_pool_block_t *block_p);

/* Gives a block back, from any thread. The pool keeps it, and frees the oldest
 * blocks beyond its limits. A block larger than `most` is freed. A block
 * without data is ignored. */
void tmsg_pool_give(tmsg_pool_t *pool, tmsg_pool_block_t block);

/* Tells whether the pool keeps more than `lasting` bytes. If so, the owner
 * calls tmsg_pool_trim() now and then. Trimming frees the oldest blocks that
 * nobody took since the previous trim, until the pool keeps no more than
 * `lasting` bytes. Any thread may call both functions. */
static inline bool tmsg_pool_hoards(const tmsg_pool_t *pool)
{
    return atomic_load_explicit(&pool->hoards, memory_order_relaxed);
}
void tmsg_pool_trim(tmsg_pool_t *pool);

/* Frees the oldest blocks until the pool keeps no more than the larger of
 * `most` and `lasting` bytes. The limit of the pool stays as it is. */
void tmsg_pool_shrink(tmsg_pool_t *pool, uint64_t most);

#endif
