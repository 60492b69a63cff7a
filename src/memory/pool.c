/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/pool.h"

#include <string.h>

#include "memory/domain.h"

#ifdef __SANITIZE_ADDRESS__ /* what is kept is not to be touched */
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) ((void)(data), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) ((void)(data), (void)(bytes))
#endif

#define SLACK 4096 /* a block may be so much larger, however small it is */

void tmsg_pool_init(tmsg_pool_t *pool, uint64_t most)
{
    *pool = (tmsg_pool_t){.most = most};
    pthread_mutex_init(&pool->lock, NULL);
}

static tmsg_pool_block_t remove_at(tmsg_pool_t *pool, size_t i)
{
    tmsg_pool_block_t block = pool->blocks[i];

    pool->count--;
    pool->kept -= block.capacity;
    ASAN_UNPOISON_MEMORY_REGION(block.data, block.capacity);
    memmove(&pool->blocks[i], &pool->blocks[i + 1],
            (pool->count - i) * sizeof(block));
    return block;
}

void tmsg_pool_free(tmsg_pool_t *pool)
{
    while (pool->count > 0) {
        tmsg_pool_block_t block = remove_at(pool, 0);

        tmsg_host_free(block.data);
    }
    pthread_mutex_destroy(&pool->lock);
}

tmsg_status_t tmsg_pool_take(tmsg_pool_t *pool, uint64_t bytes,
                             tmsg_pool_block_t *block_p)
{
    tmsg_pool_block_t block = {NULL, 0};
    tmsg_status_t status = TMSG_OK;

    pthread_mutex_lock(&pool->lock);
    for (size_t i = pool->count; i-- > 0 && block.data == NULL;) {
        uint64_t capacity = pool->blocks[i].capacity;

        if (capacity >= bytes && capacity - bytes <= bytes + SLACK) {
            block = remove_at(pool, i);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (block.data == NULL) {
        block.capacity = bytes;
        status = tmsg_host_alloc(bytes, TMSG_POOL_ALIGNMENT, &block.data);
    }
    if (status == TMSG_OK) {
        *block_p = block;
    }
    return status;
}

void tmsg_pool_give(tmsg_pool_t *pool, tmsg_pool_block_t block)
{
    tmsg_pool_block_t spare[TMSG_POOL_BLOCKS + 1];
    size_t spares = 0;

    if (block.data == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    if (block.capacity > pool->most) {
        spare[spares++] = block;
    } else {
        while (pool->count == TMSG_POOL_BLOCKS ||
               pool->kept > pool->most - block.capacity) {
            spare[spares++] = remove_at(pool, 0);
        }
        ASAN_POISON_MEMORY_REGION(block.data, block.capacity);
        pool->blocks[pool->count++] = block;
        pool->kept += block.capacity;
    }
    pthread_mutex_unlock(&pool->lock);
    while (spares-- > 0) {
        tmsg_host_free(spare[spares].data);
    }
}
