/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/device_pool.h - keeps freed device memory for reuse. The file pool.h
 * does this for host memory. */
#ifndef TMSG_MEMORY_DEVICE_POOL_H
#define TMSG_MEMORY_DEVICE_POOL_H

#include <pthread.h>

#include <tensormsg/domain.h>

#define TMSG_DEVICE_POOL_BLOCKS 64
#define TMSG_DEVICE_POOL_ALIGNMENT 64

typedef struct {
    const tmsg_domain_t *domain;
    tmsg_device_t device;
    tmsg_stream_t stream; /* stream of the allocation */
    void *data;
    uint64_t capacity;
    uint32_t epoch; /* of CUDA's device, when it was allocated */
    void *event;    /* of a kept block: what its stream held; NULL: nothing */
} tmsg_device_block_t;

typedef struct {
    pthread_mutex_t lock;
    tmsg_device_block_t blocks[TMSG_DEVICE_POOL_BLOCKS]; /* oldest first */
    size_t count;
    uint64_t kept;
    uint64_t most;
} tmsg_device_pool_t;

/* Initializes a pool that keeps `most` bytes at most. */
void tmsg_device_pool_init(tmsg_device_pool_t *pool, uint64_t most);
void tmsg_device_pool_free(tmsg_device_pool_t *pool);

/* Takes a kept block or allocates one. The caller sets domain, device and
 * stream of *block_p; this function fills in the rest. Any thread may call it.
 * Errors: those of the domain.
 *
 * A block that is allocated in the order of a stream is not kept, but for
 * CUDA's where blocks are shared (tmsg_cuda_shares()): these have no order, and
 * are taken again when the stream's work is done. */
tmsg_status_t tmsg_device_pool_take(tmsg_device_pool_t *pool, uint64_t bytes,
                                    tmsg_device_block_t *block_p);

/* Gives a block back, from any thread. The pool keeps it, and frees the oldest
 * blocks beyond its limits. A block larger than `most` is freed. */
void tmsg_device_pool_give(tmsg_device_pool_t *pool, tmsg_device_block_t block);

#endif
