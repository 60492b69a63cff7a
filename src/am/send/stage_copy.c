/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "am/endpoint/endpoint.h"
#include "am/send/cancel.h"
#include "am/send/stage_out_struct.h"
#include "am/ucx/ucx.h"
#include "am/worker/staging.h"
#include "core/device.h"
#include "serialize/split.h"

#define FILL_ALIGNMENT 64

static tmsg_chunks_t *out_chunks(const tmsg_send_t *send)
{
    return &send->endpoint->worker->stage.out;
}

static void give_fill(tmsg_fill_t *fill)
{
    if (fill->chunk != NULL && !fill->copying && fill->in_ucx == 0) {
        tmsg_chunk_give(fill->send->endpoint->worker, out_chunks(fill->send),
                        fill->chunk);
        fill->chunk = NULL;
    }
}

void tmsg_stage_give_fills(tmsg_stage_out_t *stage)
{
    for (unsigned i = 0; i < TMSG_STAGE_FILLS; i++) {
        give_fill(&stage->fills[i]);
    }
}

/* Goes on to the next tensor that is copied, from stage->tensor on. */
static const tmsg_domain_t *find_next_staged(tmsg_stage_out_t *stage)
{
    const tmsg_map_entry_t *entries =
        tmsg_map_entries(tmsg_send_map(stage->send));
    size_t size = tmsg_map_size(tmsg_send_map(stage->send));
    const tmsg_domain_t *domain = NULL;

    for (; stage->tensor < size; stage->tensor++) {
        if (tmsg_split_has(stage->split, stage->tensor,
                           entries[stage->tensor].bytes) &&
            (domain = tmsg_stage_staged_domain(
                 stage->send, &entries[stage->tensor])) != NULL) {
            break;
        }
    }
    return domain;
}

void tmsg_stage_out_begin(tmsg_send_t *send, const tmsg_split_t *split)
{
    tmsg_stage_out_t *stage = send->stage;

    stage->split = split;
    stage->tensor = 0;
    stage->offset = 0;
    stage->first = 0;
    stage->filled = 0;
    stage->stopped = false;
}

static uint64_t next_bytes(const tmsg_stage_out_t *stage)
{
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(stage->send))[stage->tensor];
    uint64_t left = entry->bytes - stage->offset;
    uint64_t chunk = tmsg_split_chunk(stage->split, stage->tensor);

    return left < chunk ? left : chunk;
}

static uint64_t align_fill(uint64_t offset)
{
    return (offset + FILL_ALIGNMENT - 1) & ~(uint64_t)(FILL_ALIGNMENT - 1);
}

static void fill_copied(tmsg_copy_t *copy, tmsg_status_t status)
{
    tmsg_fill_t *fill = TMSG_CONTAINER_OF(copy, tmsg_fill_t, copy);
    tmsg_send_t *send = fill->send;
    tmsg_endpoint_t *endpoint = send->endpoint;
    tmsg_stage_out_t *stage = send->stage;

    tmsg_endpoint_hold(endpoint);
    fill->copying = false;
    stage->copying--;
    if (stage->stopped) {
        give_fill(fill);
        /* The send may have waited for this copy. */
        tmsg_send_settle(send);
    } else if (status != TMSG_OK) {
        tmsg_stage_out_fail(stage->send, status);
    } else {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_endpoint_reported(endpoint);
    tmsg_endpoint_drop(endpoint);
}

static tmsg_status_t copy_fragment(const tmsg_chunk_t *chunk,
                                   const tmsg_domain_t *domain,
                                   tmsg_device_t device, uint64_t at,
                                   const uint8_t *from, uint64_t bytes,
                                   tmsg_stream_t stream)
{
    return chunk->on_device
               ? domain->copy_within(domain->arg, device, chunk->data + at,
                                     from, bytes, stream)
               : domain->copy_out(domain->arg, device, chunk->data + at, from,
                                  bytes, stream);
}

/* Begins to copy the next fragments that fit, as long as they are of one
 * device. */
static tmsg_status_t copy_fragments_out(tmsg_stage_out_t *stage,
                                        tmsg_fill_t *fill,
                                        const tmsg_domain_t *domain,
                                        tmsg_device_t device,
                                        tmsg_stream_t stream)
{
    const tmsg_map_entry_t *entries =
        tmsg_map_entries(tmsg_send_map(stage->send));
    uint64_t at = 0;
    tmsg_status_t status = TMSG_OK;

    while (status == TMSG_OK && find_next_staged(stage) == domain &&
           domain != NULL) {
        const tmsg_map_entry_t *entry = &entries[stage->tensor];
        uint64_t bytes = next_bytes(stage);
        const uint8_t *from = entry->tensor.data;

        if (!tmsg_device_is(entry->tensor.device, device) ||
            at + bytes > fill->chunk->capacity) {
            break;
        }
        status = copy_fragment(fill->chunk, domain, device, at,
                               from + stage->offset, bytes, stream);
        if (tmsg_stage_is_copied(stage->send, entry) &&
            !fill->chunk->on_device) {
            stage->send->endpoint->stats.sent_staged_bytes += bytes;
        }
        at = align_fill(at + bytes);
        fill->bytes = at;
        stage->offset += bytes;
        if (stage->offset == entry->bytes) {
            stage->offset = 0;
            stage->tensor++;
        }
    }
    return status;
}

/* Begins a copy: from here on the map's memory is read. If nothing can tell the
 * end of the copy, this waits for it: a second copy, without a stream, comes
 * behind the first. */
static tmsg_status_t begin_fill(tmsg_stage_out_t *stage, tmsg_fill_t *fill,
                                const tmsg_domain_t *domain)
{
    static const tmsg_stream_t none;
    tmsg_endpoint_t *endpoint = stage->send->endpoint;
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(stage->send))[stage->tensor];
    tmsg_stream_t stream;
    tmsg_status_t status =
        tmsg_copy_stream(domain, entry->tensor.device, &stream);
    tmsg_status_t watched;

    if (status != TMSG_OK) {
        return status;
    }
    fill->copy.over = fill_copied;
    status =
        copy_fragments_out(stage, fill, domain, entry->tensor.device, stream);
    watched = fill->bytes == 0
                  ? TMSG_OK
                  : tmsg_copy_watch(endpoint->worker, &fill->copy, domain,
                                    entry->tensor.device, stream);
    if (status == TMSG_OK) {
        status = watched;
    }
    if (watched != TMSG_OK) {
        (void)copy_fragment(fill->chunk, domain, entry->tensor.device, 0,
                            entry->tensor.data, 1, none);
        return status;
    }
    fill->copying = true;
    stage->copying++;
    /* The endpoint stays until the copy is done. */
    endpoint->in_ucx++;
    return status;
}

static void run_pump(tmsg_soon_t *call)
{
    tmsg_send_t *send = TMSG_CONTAINER_OF(call, tmsg_stage_out_t, call)->send;

    tmsg_worker_chore(send->endpoint->worker, send->endpoint);
}

static bool has_chunk(const tmsg_stage_out_t *stage)
{
    bool has = false;

    for (unsigned i = 0; i < TMSG_STAGE_FILLS; i++) {
        has |= stage->fills[i].chunk != NULL;
    }
    return has;
}

/* A fragment that there is no block for goes by the host, unless a path is
 * required. */
static tmsg_status_t lack_block(const tmsg_send_t *send,
                                const tmsg_map_entry_t *entry)
{
    tmsg_worker_t *worker = send->endpoint->worker;
    char words[240];

    snprintf(words, sizeof(words),
             "there is no device memory to copy memory to that only this "
             "process can map, so it is copied through the host's: %s",
             tmsg_error_message());
    if (worker->context->flags & TMSG_CONTEXT_REQUIRE_PATH) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED, "tensor '%s': %s, and a path is required",
            tmsg_error_name(entry->name, entry->name_bytes).text, words);
    }
    tmsg_copy_detour(worker, TMSG_DETOUR_UNSHARED, words);
    return TMSG_OK;
}

/* Returns the device that a tensor's blocks are on. */
static tmsg_device_t block_device(const tmsg_map_entry_t *entry)
{
    tmsg_device_t device = entry->tensor.device;

    if (device.type == TMSG_DEVICE_CUDA_MANAGED) {
        device.type = TMSG_DEVICE_CUDA;
    }
    return device;
}

/* Takes a chunk for the next fragments. If others wait for the message (`must`)
 * and there is no slot, the host's memory serves, unless a path is required. */
static tmsg_status_t take_chunk(tmsg_stage_out_t *stage,
                                const tmsg_domain_t *domain, bool must,
                                tmsg_chunk_t **chunk_p)
{
    tmsg_send_t *send = stage->send;
    tmsg_worker_t *worker = send->endpoint->worker;
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[stage->tensor];
    bool waits =
        !must || has_chunk(stage) ||
        (stage->ipc && worker->context->flags & TMSG_CONTEXT_REQUIRE_PATH);
    tmsg_soon_t *call = waits ? &stage->call : NULL;
    tmsg_status_t status;

    if (tmsg_stage_is_copied(send, entry)) {
        status =
            tmsg_block_take(worker, domain, block_device(entry), call, chunk_p);
        if (status == TMSG_OK || status == TMSG_IN_PROGRESS) {
            return status;
        }
        status = lack_block(send, entry);
        if (status != TMSG_OK) {
            return status;
        }
    } else if (stage->ipc) {
        status = tmsg_stage_take_slot(stage, domain, call, chunk_p);
        if (status == TMSG_OK || (status == TMSG_IN_PROGRESS && waits)) {
            return status;
        }
        send->endpoint->stats.sent_staged_bytes += next_bytes(stage);
    }
    return tmsg_chunk_take(worker, out_chunks(send), domain, next_bytes(stage),
                           call, chunk_p);
}

void tmsg_stage_out_pump(tmsg_send_t *send, bool must)
{
    tmsg_stage_out_t *stage = send->stage;
    const tmsg_domain_t *domain;
    tmsg_status_t status = TMSG_OK;

    if (stage->awaited > 0 || stage->stopped || stage->failure != TMSG_OK) {
        return;
    }
    stage->call.run = run_pump;
    while (status == TMSG_OK && stage->filled < TMSG_STAGE_FILLS &&
           (domain = find_next_staged(stage)) != NULL) {
        tmsg_fill_t *fill =
            &stage->fills[(stage->first + stage->filled) % TMSG_STAGE_FILLS];

        /* UCX still has the chunk. */
        if (fill->chunk != NULL) {
            return;
        }
        *fill = (tmsg_fill_t){.send = send};
        status = take_chunk(stage, domain, must, &fill->chunk);
        if (status == TMSG_OK) {
            stage->filled++;
            status = begin_fill(stage, fill, domain);
        }
    }
    if (status != TMSG_OK && status != TMSG_IN_PROGRESS) {
        tmsg_stage_out_fail(stage->send, status);
    }
}

bool tmsg_stage_out_ready(const tmsg_send_t *send, size_t index)
{
    const tmsg_stage_out_t *stage = send->stage;
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[index];

    if (tmsg_stage_domain(entry) == NULL) {
        return true;
    }
    if (stage->awaited > 0 || stage->failure != TMSG_OK) {
        return false;
    }
    return tmsg_stage_staged_domain(send, entry) == NULL ||
           (stage->filled > 0 && !stage->fills[stage->first].copying);
}

const uint8_t *tmsg_stage_out_take(tmsg_send_t *send, size_t index,
                                   uint64_t offset, uint64_t bytes,
                                   int *memory_type_p, tmsg_fill_t **fill_p)
{
    tmsg_stage_out_t *stage = send->stage;
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[index];
    const tmsg_domain_t *domain = tmsg_stage_domain(entry);
    const uint8_t *data = entry->tensor.data;
    tmsg_fill_t *fill = &stage->fills[stage->first];

    *fill_p = NULL;
    if (domain == NULL) {
        return data + offset;
    }
    if ((tmsg_stage_is_reached(send, entry, domain, memory_type_p) &&
         !tmsg_stage_is_copied(send, entry)) ||
        tmsg_stage_own_memory(send, entry) != NULL) {
        return data + offset;
    }
    if (!fill->chunk->on_device) {
        *memory_type_p = TMSG_UCX_MEMORY_HOST;
    } else {
        (void)tmsg_ucx_reaches(send->endpoint->ucx, domain, fill->chunk->device,
                               memory_type_p);
    }
    data = fill->chunk->data + fill->at;
    fill->at = align_fill(fill->at + bytes);
    fill->in_ucx++;
    if (fill->at == fill->bytes) {
        stage->first = (stage->first + 1) % TMSG_STAGE_FILLS;
        stage->filled--;
    }
    *fill_p = fill;
    return data;
}

void tmsg_stage_out_reported(tmsg_send_t *send, tmsg_fill_t *fill)
{
    fill->in_ucx--;
    if (fill->at == fill->bytes || send->stage->stopped) {
        give_fill(fill);
        if (!send->stage->stopped) {
            tmsg_worker_chore(send->endpoint->worker, send->endpoint);
        }
    }
}

bool tmsg_stage_out_copies(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->copying > 0;
}
