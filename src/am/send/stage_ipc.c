/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>

#include "am/endpoint/endpoint.h"
#include "am/send/stage_out_struct.h"

tmsg_ipc_memory_t *tmsg_stage_own_memory(const tmsg_send_t *send,
                                         const tmsg_map_entry_t *entry)
{
    tmsg_ipc_memory_t **own = send->stage->own;

    return own == NULL ? NULL
                       : own[entry - tmsg_map_entries(tmsg_send_map(send))];
}

void tmsg_stage_drop_own(tmsg_stage_out_t *stage)
{
    for (size_t i = 0; i < stage->own_count; i++) {
        tmsg_ipc_free(stage->own[i]);
    }
    free(stage->own);
    stage->own = NULL;
    stage->own_count = 0;
}

bool tmsg_stage_wants_ipc(const tmsg_send_t *send,
                          const tmsg_map_entry_t *entry)
{
    return tmsg_stage_staged_domain(send, entry) != NULL &&
           !tmsg_stage_is_copied(send, entry);
}

/* Returns whether the message has so many bytes that device memory which the
 * peer opens is worth its while. Any number has where a path is required. */
static bool is_worth_ipc(const tmsg_send_t *send)
{
    const tmsg_endpoint_t *endpoint = send->endpoint;
    const tmsg_context_t *context = endpoint->worker->context;
    uint64_t least = context->tuning.of[endpoint->transport].device_ipc_bytes;

    return least != UINT64_MAX && (send->stage->staged_bytes >= least ||
                                   context->flags & TMSG_CONTEXT_REQUIRE_PATH);
}

static tmsg_status_t make_own(tmsg_stage_out_t *stage)
{
    size_t count = tmsg_map_size(tmsg_send_map(stage->send));

    stage->own = calloc(count, sizeof(*stage->own));
    if (stage->own == NULL) {
        return tmsg_error_memory("a message's device memory");
    }
    stage->own_count = count;
    return TMSG_OK;
}

/* Offers the memory of the application's that a tensor lies in, if it does.
 * Where the peer does not open that, a slot serves. Errors: IN_PROGRESS,
 * NO_MEMORY. */
static tmsg_status_t offer_own(tmsg_send_t *send, size_t index)
{
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[index];
    tmsg_stage_out_t *stage = send->stage;
    tmsg_ipc_memory_t *memory = tmsg_ipc_find(entry->tensor.data, entry->bytes);
    tmsg_status_t status;

    if (memory == NULL) {
        return TMSG_OK;
    }
    status = tmsg_ipc_offer(send->endpoint, memory);
    if (status == TMSG_OK && stage->own == NULL) {
        status = make_own(stage);
    }
    if (status == TMSG_OK) {
        stage->own[index] = memory;
        return TMSG_OK;
    }
    tmsg_ipc_free(memory);
    return status == TMSG_ERR_UNSUPPORTED || status == TMSG_ERR_LIMIT_EXCEEDED
               ? TMSG_OK
               : status;
}

tmsg_status_t tmsg_stage_choose_ipc(tmsg_send_t *send)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(tmsg_send_map(send));
    tmsg_stage_out_t *stage = send->stage;
    tmsg_status_t status = TMSG_OK;
    tmsg_ipc_block_t *block;

    if (!is_worth_ipc(send)) {
        return TMSG_OK;
    }
    for (size_t i = 0;
         i < tmsg_map_size(tmsg_send_map(send)) && status == TMSG_OK; i++) {
        if (tmsg_stage_wants_ipc(send, &entries[i])) {
            status = offer_own(send, i);
        }
        if (status == TMSG_OK && tmsg_stage_wants_ipc(send, &entries[i])) {
            stage->slots++;
            status =
                tmsg_ipc_ready(send->endpoint, tmsg_stage_domain(&entries[i]),
                               entries[i].tensor.device, &block);
        }
    }
    stage->ipc = status == TMSG_OK;
    if (!stage->ipc) {
        tmsg_stage_drop_own(stage);
    }
    return status == TMSG_IN_PROGRESS && !(send->flags & TMSG_SEND_TRY)
               ? TMSG_IN_PROGRESS
               : TMSG_OK;
}

tmsg_status_t tmsg_stage_take_slot(tmsg_stage_out_t *stage,
                                   const tmsg_domain_t *domain,
                                   tmsg_soon_t *call, tmsg_chunk_t **chunk_p)
{
    const tmsg_map_entry_t *entries =
        tmsg_map_entries(tmsg_send_map(stage->send));
    tmsg_ipc_block_t *block;
    tmsg_status_t status =
        tmsg_ipc_ready(stage->send->endpoint, domain,
                       entries[stage->tensor].tensor.device, &block);

    return status == TMSG_OK ? tmsg_ipc_slot_take(block, call, chunk_p)
                             : status;
}

bool tmsg_stage_out_is_ipc(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->ipc;
}

bool tmsg_stage_out_has_slots(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->slots > 0;
}

const tmsg_ipc_memory_t *tmsg_stage_out_memory(const tmsg_send_t *send,
                                               size_t index,
                                               const tmsg_fill_t *fill)
{
    if (fill == NULL) {
        return tmsg_stage_own_memory(
            send, &tmsg_map_entries(tmsg_send_map(send))[index]);
    }
    return fill->chunk->ipc == NULL ? NULL : fill->chunk->ipc->memory;
}
