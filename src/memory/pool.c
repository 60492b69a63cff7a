/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/pool.h"

#include <string.h>

#include "memory/domain.h"

#ifdef __SANITIZE_ADDRESS__ /* reports access to kept blocks */
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) ((void)(data), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) ((void)(data), (void)(bytes))
#endif

#define SLACK 4096 /* limit of a block: twice the request plus SLACK */

void tmsg_pool_init(tmsg_pool_t *pool, uint64_t most, uint64_t lasting)
{
    *pool = (tmsg_pool_t){
        .most = most, .lasting = lasting, .huge_least = TMSG_HUGE_LEAST};
    pthread_mutex_init(&pool->lock, NULL);
}

static void note_kept(tmsg_pool_t *pool, uint64_t kept)
{
    bool hoards = kept > pool->lasting;

    pool->kept = kept;
    if (hoards != tmsg_pool_hoards(pool)) {
        atomic_store_explicit(&pool->hoards, hoards, memory_order_relaxed);
    }
}

static tmsg_pool_block_t remove_block(tmsg_pool_t *pool, size_t i)
{
    tmsg_pool_block_t block = pool->blocks[i];

    pool->count--;
    pool->idle -= i < pool->idle ? 1 : 0;
    note_kept(pool, pool->kept - block.capacity);
    ASAN_UNPOISON_MEMORY_REGION(block.data, block.capacity);
    memmove(&pool->blocks[i], &pool->blocks[i + 1],
            (pool->count - i) * sizeof(block));
    return block;
}

void tmsg_pool_free(tmsg_pool_t *pool)
{
    while (pool->count > 0) {
        tmsg_pool_block_t block = remove_block(pool, 0);

        tmsg_host_free(block.data);
    }
    pthread_mutex_destroy(&pool->lock);
}

/* Returns the index of the block to take, or `count` if none fits. */
static size_t choose_block(const tmsg_pool_t *pool, const void *liked,
                           uint64_t bytes)
{
    size_t chosen = pool->count;

    for (size_t i = pool->count; i-- > 0;) {
        const tmsg_pool_block_t *block = &pool->blocks[i];

        if (block->capacity < bytes ||
            block->capacity - bytes > bytes + SLACK) {
            continue;
        }
        if (block->data == liked) {
            return i;
        }
        chosen = chosen == pool->count ? i : chosen;
    }
    return chosen;
}

tmsg_status_t tmsg_pool_take_at(tmsg_pool_t *pool, const void *liked,
                                uint64_t bytes, tmsg_pool_block_t *block_p)
{
    tmsg_pool_block_t block = {NULL, bytes};
    tmsg_status_t status = TMSG_OK;
    size_t chosen;

    pthread_mutex_lock(&pool->lock);
    chosen = choose_block(pool, liked, bytes);
    if (chosen < pool->count) {
        block = remove_block(pool, chosen);
    }
    pthread_mutex_unlock(&pool->lock);
    if (block.data == NULL) {
        status = tmsg_host_alloc(bytes, TMSG_POOL_ALIGNMENT, pool->huge_least,
                                 &block.data);
    }
    if (status == TMSG_OK) {
        *block_p = block;
    }
    return status;
}

tmsg_status_t tmsg_pool_take(tmsg_pool_t *pool, uint64_t bytes,
                             tmsg_pool_block_t *block_p)
{
    return tmsg_pool_take_at(pool, NULL, bytes, block_p);
}

static void free_blocks(const tmsg_pool_block_t *spare, size_t spares)
{
    while (spares-- > 0) {
        tmsg_host_free(spare[spares].data);
    }
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
            spare[spares++] = remove_block(pool, 0);
        }
        ASAN_POISON_MEMORY_REGION(block.data, block.capacity);
        pool->blocks[pool->count++] = block;
        note_kept(pool, pool->kept + block.capacity);
    }
    pthread_mutex_unlock(&pool->lock);
    free_blocks(spare, spares);
}

/* Removes some of the `count` oldest blocks, until the pool keeps no more than
 * `most` bytes. */
static size_t take_oldest(tmsg_pool_t *pool, size_t count, uint64_t most,
                          tmsg_pool_block_t *spare)
{
    size_t spares = 0;

    while (spares < count && pool->kept > most) {
        spare[spares++] = remove_block(pool, 0);
    }
    return spares;
}

void tmsg_pool_trim(tmsg_pool_t *pool)
{
    tmsg_pool_block_t spare[TMSG_POOL_BLOCKS];
    size_t spares;

    pthread_mutex_lock(&pool->lock);
    spares = take_oldest(pool, pool->idle, pool->lasting, spare);
    pool->idle = pool->count;
    pthread_mutex_unlock(&pool->lock);
    free_blocks(spare, spares);
}

void tmsg_pool_shrink(tmsg_pool_t *pool, uint64_t most)
{
    tmsg_pool_block_t spare[TMSG_POOL_BLOCKS];
    size_t spares;

    pthread_mutex_lock(&pool->lock);
    spares = take_oldest(pool, pool->count,
                         most > pool->lasting ? most : pool->lasting, spare);
    pthread_mutex_unlock(&pool->lock);
    free_blocks(spare, spares);
}
