/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/staging/ipc_block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/worker/worker.h"
#include "core/device.h"
#include "core/error.h"

static tmsg_ipc_block_t *block_of(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_ipc_block_t, node);
}

static void make_slots(tmsg_ipc_block_t *block)
{
    tmsg_status_t status = tmsg_ipc_alloc(block->domain, block->device,
                                          TMSG_IPC_SLOTS * TMSG_IPC_SLOT_BYTES,
                                          block->principal, &block->memory);

    if (status != TMSG_OK) {
        snprintf(block->why, sizeof(block->why), "%s", tmsg_error_message());
        return;
    }
    for (unsigned i = 0; i < TMSG_IPC_SLOTS; i++) {
        block->slots[i] = (tmsg_chunk_t){.domain = block->domain,
                                         .data = tmsg_ipc_data(block->memory) +
                                                 i * TMSG_IPC_SLOT_BYTES,
                                         .capacity = TMSG_IPC_SLOT_BYTES,
                                         .on_device = true,
                                         .device = block->device,
                                         .ipc = block};
    }
}

static tmsg_ipc_block_t *make_block(tmsg_worker_t *worker,
                                    const tmsg_domain_t *domain,
                                    tmsg_device_t device, const char *principal)
{
    tmsg_ipc_block_t *block = calloc(1, sizeof(*block));

    if (block == NULL) {
        return NULL;
    }
    block->principal = strdup(principal);
    if (block->principal == NULL) {
        free(block);
        return NULL;
    }
    block->worker = worker;
    block->domain = domain;
    block->device = device;
    make_slots(block);
    tmsg_list_push(&worker->stage.ipc_blocks, &block->node);
    return block;
}

tmsg_status_t tmsg_ipc_block_find(tmsg_worker_t *worker,
                                  const tmsg_domain_t *domain,
                                  tmsg_device_t device, const char *principal,
                                  tmsg_ipc_block_t **block_p)
{
    tmsg_node_t *node = worker->stage.ipc_blocks.head;
    tmsg_ipc_block_t *block = NULL;

    for (; node != NULL && block == NULL; node = node->next) {
        block = block_of(node);
        if (block->domain != domain || !tmsg_device_is(block->device, device) ||
            strcmp(block->principal, principal) != 0) {
            block = NULL;
        }
    }
    if (block == NULL) {
        block = make_block(worker, domain, device, principal);
    }
    if (block == NULL) {
        return tmsg_error_memory("device memory that a peer opens");
    }
    if (block->memory != NULL && !tmsg_ipc_stands(block->memory) &&
        block->used == 0) { /* what is under way fails first */
        tmsg_ipc_free(block->memory);
        block->memory = NULL;
        make_slots(block);
    }
    if (block->memory == NULL) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED, "%s", block->why);
    }
    *block_p = block;
    return TMSG_OK;
}

tmsg_status_t tmsg_ipc_slot_take(tmsg_ipc_block_t *block, tmsg_soon_t *call,
                                 tmsg_chunk_t **chunk_p)
{
    for (unsigned i = 0; i < TMSG_IPC_SLOTS; i++) {
        if (!(block->used & 1u << i)) {
            block->used |= 1u << i;
            *chunk_p = &block->slots[i];
            return TMSG_OK;
        }
    }
    if (call != NULL && call->list == NULL) {
        call->list = &block->waiting;
        tmsg_list_push(call->list, &call->node);
    }
    return TMSG_IN_PROGRESS;
}

void tmsg_ipc_slot_give(tmsg_chunk_t *chunk)
{
    tmsg_ipc_block_t *block = chunk->ipc;

    block->used &= ~(1u << (chunk - block->slots));
    while (block->waiting.count > 0) {
        tmsg_soon(block->worker,
                  TMSG_CONTAINER_OF(block->waiting.head, tmsg_soon_t, node));
    }
}

void tmsg_ipc_blocks_close(tmsg_worker_t *worker)
{
    tmsg_node_t *node;

    while ((node = tmsg_list_pop(&worker->stage.ipc_blocks)) != NULL) {
        tmsg_ipc_block_t *block = block_of(node);

        tmsg_ipc_free(block->memory);
        free(block->principal);
        free(block);
    }
}
