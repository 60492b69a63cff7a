/* SPDX-License-Identifier: BSD-3-Clause */
/* memory/device_pool.h - memory of devices that is kept for whoever needs as
 * much next, as pool.h keeps the host's. */
#ifndef TMSG_MEMORY_DEVICE_POOL_H
#define TMSG_MEMORY_DEVICE_POOL_H

#include <pthread.h>

#include <tensormsg/domain.h>

#define TMSG_DEVICE_POOL_BLOCKS 8
#define TMSG_DEVICE_POOL_ALIGNMENT 64

typedef struct {
    const tmsg_domain_t *domain;
    tmsg_device_t device;
    tmsg_stream_t stream; /* that it was allocated on; such is not kept */
    void *data;
    uint64_t capacity;
} tmsg_device_block_t;

typedef struct {
    pthread_mutex_t lock;
    tmsg_device_block_t blocks[TMSG_DEVICE_POOL_BLOCKS]; /* oldest first */
    size_t count;
    uint64_t kept;
    uint64_t most;
} tmsg_device_pool_t;

/* Keeps `most` bytes at most. */
void tmsg_device_pool_init(tmsg_device_pool_t *pool, uint64_t most);
void tmsg_device_pool_free(tmsg_device_pool_t *pool);

/* From any thread. Domain, device and stream are those of *block_p; the rest
 * is filled in. Errors: the domain's. */
tmsg_status_t tmsg_device_pool_take(tmsg_device_pool_t *pool, uint64_t bytes,
                                    tmsg_device_block_t *block_p);
void tmsg_device_pool_give(tmsg_device_pool_t *pool, tmsg_device_block_t block);

#endif
