/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory/device_pool.h"

#include <stdbool.h>
#include <string.h>

#include "core/device.h"
#include "memory/device_ipc.h"
#include "memory/domain.h"

#define SLACK 4096    /* limit of a block: twice the request plus SLACK */
#define SETTLE_MS 250 /* the process may be about to end, and the driver */

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

static void forget_event(tmsg_device_block_t *block)
{
    if (block->event != NULL) {
        block->domain->event_free(block->domain->arg, block->event);
        block->event = NULL;
    }
}

static uint32_t epoch_of(const tmsg_device_block_t *block)
{
    return block->domain == &tmsg_domain_cuda ? tmsg_cuda_epoch(block->device)
                                              : 0;
}

/* Frees a block, unless it has gone with its device's context: its address may
 * be the application's now. */
static void free_block(tmsg_device_block_t *block)
{
    forget_event(block);
    if (block->epoch != epoch_of(block)) {
        return;
    }
    block->domain->free(block->domain->arg, block->device, block->data,
                        block->capacity, block->stream);
}

void tmsg_device_pool_free(tmsg_device_pool_t *pool)
{
    while (pool->count > 0) {
        tmsg_device_block_t block = remove_device_block(pool, 0);

        free_block(&block);
    }
    /* What the first row frees goes through the second one. */
    (void)(tmsg_ipc_settle(SETTLE_MS) && tmsg_cuda_settle(SETTLE_MS));
    pthread_mutex_destroy(&pool->lock);
}

/* Returns whether a block of that stream is like one of none. */
static bool has_no_order(const tmsg_device_block_t *block)
{
    return block->stream.kind == TMSG_STREAM_NONE ||
           (block->domain == &tmsg_domain_cuda && tmsg_cuda_shares());
}

/* Returns whether the work is done that used a kept block. A stream that failed
 * does no more. */
static bool is_done(const tmsg_device_block_t *block)
{
    return block->event == NULL ||
           block->domain->event_query(block->domain->arg, block->event) !=
               TMSG_IN_PROGRESS;
}

static bool device_block_fits(const tmsg_device_block_t *block,
                              const tmsg_device_block_t *wanted, uint64_t bytes)
{
    return block->domain == wanted->domain &&
           tmsg_device_is(block->device, wanted->device) &&
           block->capacity >= bytes &&
           block->capacity - bytes <= bytes + SLACK && is_done(block);
}

/* Forgets the blocks that have gone with their device's context. */
static void forget_gone(tmsg_device_pool_t *pool, tmsg_device_t device,
                        uint32_t epoch)
{
    for (size_t i = pool->count; i-- > 0;) {
        if (tmsg_device_is(pool->blocks[i].device, device) &&
            pool->blocks[i].epoch != epoch) {
            tmsg_device_block_t block = remove_device_block(pool, i);

            forget_event(&block);
        }
    }
}

static bool take_kept(tmsg_device_pool_t *pool, uint64_t bytes,
                      tmsg_device_block_t *block_p)
{
    tmsg_device_block_t block;
    bool found = false;

    pthread_mutex_lock(&pool->lock);
    forget_gone(pool, block_p->device, block_p->epoch);
    for (size_t i = pool->count; i-- > 0 && !found;) {
        found = device_block_fits(&pool->blocks[i], block_p, bytes);
        if (found) {
            block = remove_device_block(pool, i);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (found) {
        forget_event(&block);
        block.stream = block_p->stream;
        *block_p = block;
    }
    return found;
}

tmsg_status_t tmsg_device_pool_take(tmsg_device_pool_t *pool, uint64_t bytes,
                                    tmsg_device_block_t *block_p)
{
    const tmsg_domain_t *domain = block_p->domain;
    tmsg_status_t status;

    block_p->event = NULL;
    block_p->epoch = epoch_of(block_p);
    if (has_no_order(block_p) && take_kept(pool, bytes, block_p)) {
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

/* Returns whether the block can be kept. One whose stream cannot be asked is
 * freed. */
static bool prepare_to_keep(const tmsg_device_pool_t *pool,
                            tmsg_device_block_t *block)
{
    if (!has_no_order(block) || block->capacity > pool->most ||
        block->epoch != epoch_of(block)) {
        return false;
    }
    return block->stream.kind == TMSG_STREAM_NONE ||
           block->domain->event_record(block->domain->arg, block->device,
                                       block->stream, &block->event) == TMSG_OK;
}

void tmsg_device_pool_give(tmsg_device_pool_t *pool, tmsg_device_block_t block)
{
    tmsg_device_block_t spare[TMSG_DEVICE_POOL_BLOCKS + 1];
    size_t spares = 0;

    if (!prepare_to_keep(pool, &block)) {
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
