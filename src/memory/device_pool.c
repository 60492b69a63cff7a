/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/device_pool.h"

#include <stdbool.h>
#include <string.h>

#include "core/device.h"

#define SLACK 4096 /* limit of a block: twice the request plus SLACK */

void tmsg_device_pool_init(tmsg_device_pool_t *pool, uint64_t most)
{
    *pool = (tmsg_device_pool_t){.most = most};
    pthread_mutex_init(&pool->lock, NULL);
}

static tmsg_device_block_t remove_device_block(tmsg_device_pool_t *pool,
                                               size_t i)
{
    tmsg_device_block_t block = pool->blocks[i];

    pool->count--;
    pool->kept -= block.capacity;
    memmove(&pool->blocks[i], &pool->blocks[i + 1],
            (pool->count - i) * sizeof(block));
    return block;
}

static void free_block(const tmsg_device_block_t *block)
{
    block->domain->free(block->domain->arg, block->device, block->data,
                        block->capacity, block->stream);
}

void tmsg_device_pool_free(tmsg_device_pool_t *pool)
{
    while (pool->count > 0) {
        tmsg_device_block_t block = remove_device_block(pool, 0);

        free_block(&block);
    }
    pthread_mutex_destroy(&pool->lock);
}

static bool device_block_fits(const tmsg_device_block_t *block,
                              const tmsg_device_block_t *wanted, uint64_t bytes)
{
    return block->domain == wanted->domain &&
           tmsg_device_is(block->device, wanted->device) &&
           block->capacity >= bytes && block->capacity - bytes <= bytes + SLACK;
}

tmsg_status_t tmsg_device_pool_take(tmsg_device_pool_t *pool, uint64_t bytes,
                                    tmsg_device_block_t *block_p)
{
    const tmsg_domain_t *domain = block_p->domain;
    bool found = false;
    tmsg_status_t status;

    if (block_p->stream.kind == TMSG_STREAM_NONE) {
        pthread_mutex_lock(&pool->lock);
        for (size_t i = pool->count; i-- > 0 && !found;) {
            found = device_block_fits(&pool->blocks[i], block_p, bytes);
            if (found) {
                *block_p = remove_device_block(pool, i);
            }
        }
        pthread_mutex_unlock(&pool->lock);
    }
    if (found) {
        return TMSG_OK;
    }
    status = domain->alloc(domain->arg, block_p->device, bytes,
                           TMSG_DEVICE_POOL_ALIGNMENT, block_p->stream,
                           &block_p->data);
    if (status == TMSG_OK) {
        block_p->capacity = bytes;
    }
    return status;
}

void tmsg_device_pool_give(tmsg_device_pool_t *pool, tmsg_device_block_t block)
{
    tmsg_device_block_t spare[TMSG_DEVICE_POOL_BLOCKS + 1];
    size_t spares = 0;

    if (block.stream.kind != TMSG_STREAM_NONE || block.capacity > pool->most) {
        free_block(&block);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    while (pool->count == TMSG_DEVICE_POOL_BLOCKS ||
           pool->kept > pool->most - block.capacity) {
        spare[spares++] = remove_device_block(pool, 0);
    }
    pool->blocks[pool->count++] = block;
    pool->kept += block.capacity;
    pthread_mutex_unlock(&pool->lock);
    while (spares-- > 0) {
        free_block(&spare[spares]);
    }
}
