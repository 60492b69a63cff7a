/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/gather.h"

#include "am/endpoint/endpoint.h"
#include "am/send/send.h"
#include "am/send/stage_out.h"
#include "core/device.h"
#include "core/tensor.h"
#include "memory/domain.h"

#define ALIGNMENT 64 /* of the tensors in the chunk */
#define BATCH_MOST 128

static const tmsg_stream_t none;

bool tmsg_gather_next(tmsg_gather_walk_t *walk, const tmsg_map_entry_t *entry)
{
    const tmsg_domain_t *domain;

    if (entry->bytes == 0 || entry->bytes >= walk->small ||
        tmsg_map_entry_is_on_host(entry) ||
        !tmsg_tensor_is_dense(&entry->tensor)) {
        return false;
    }
    domain = tmsg_domain_of(entry->tensor.device);
    if (domain == NULL || tmsg_domain_is_plain(domain) ||
        (walk->domain != NULL && walk->domain != domain) ||
        walk->end + entry->bytes > TMSG_GATHER_MOST) {
        return false;
    }
    walk->domain = domain;
    walk->at = walk->end;
    walk->end =
        (walk->at + entry->bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
    return true;
}

static tmsg_chunks_t *gather_chunks(const tmsg_gather_t *gather)
{
    return &gather->send->endpoint->worker->stage.out;
}

/* Waits for copies whose end nothing reports: a copy without a stream ends
 * after them. */
static void await_gathered(const tmsg_gather_t *gather)
{
    const tmsg_domain_t *domain = gather->chunk->domain;

    (void)domain->copy_out(domain->arg, gather->device, gather->chunk->data,
                           gather->first, 1, none);
}

/* Begins to copy the next tensors, as long as they are of one device. */
static tmsg_status_t copy_device(tmsg_gather_t *gather, tmsg_stream_t stream)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(gather->map);
    tmsg_domain_copy_t copies[BATCH_MOST];
    tmsg_status_t status = TMSG_OK;
    uint64_t count = 0;

    while (gather->next < tmsg_map_size(gather->map) && status == TMSG_OK) {
        const tmsg_map_entry_t *entry = &entries[gather->next];
        tmsg_gather_walk_t walk = gather->walk;

        if (tmsg_gather_next(&walk, entry)) {
            if (!tmsg_device_is(entry->tensor.device, gather->device)) {
                break;
            }
            copies[count++] =
                (tmsg_domain_copy_t){gather->chunk->data + walk.at,
                                     entry->tensor.data, entry->bytes};
        }
        gather->walk = walk;
        gather->next++;
        if (count == BATCH_MOST) {
            status = tmsg_domain_copy(gather->chunk->domain, gather->device,
                                      true, copies, count, stream);
            count = 0;
        }
    }
    return status == TMSG_OK && count > 0
               ? tmsg_domain_copy(gather->chunk->domain, gather->device, true,
                                  copies, count, stream)
               : status;
}

/* Goes on to the next tensor that is gathered. Returns NULL if there is none.
 */
static const tmsg_map_entry_t *find_next_gathered(tmsg_gather_t *gather)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(gather->map);

    for (; gather->next < tmsg_map_size(gather->map); gather->next++) {
        tmsg_gather_walk_t walk = gather->walk;

        if (tmsg_gather_next(&walk, &entries[gather->next])) {
            return &entries[gather->next];
        }
    }
    return NULL;
}

/* Begins to copy the tensors of the next device. Returns IN_PROGRESS if it
 * did, and OK if there are none left. */
static tmsg_status_t gather_device(tmsg_gather_t *gather)
{
    tmsg_worker_t *worker = gather->send->endpoint->worker;
    const tmsg_map_entry_t *entry = find_next_gathered(gather);
    const tmsg_domain_t *domain = gather->chunk->domain;
    tmsg_stream_t stream;
    tmsg_status_t status;

    if (entry == NULL) {
        gather->done = true;
        return TMSG_OK;
    }
    gather->device = entry->tensor.device;
    gather->first = entry->tensor.data;
    status = tmsg_copy_stream(domain, gather->device, &stream);
    if (status != TMSG_OK) {
        return status;
    }
    status = copy_device(gather, stream);
    if (status == TMSG_OK) {
        status = tmsg_copy_watch(worker, &gather->copy, domain, gather->device,
                                 stream);
    }
    if (status != TMSG_OK) {
        await_gathered(gather);
        return status;
    }
    gather->copying = true;
    return TMSG_IN_PROGRESS;
}

static void device_gathered(tmsg_copy_t *copy, tmsg_status_t status)
{
    tmsg_gather_t *gather = TMSG_CONTAINER_OF(copy, tmsg_gather_t, copy);
    tmsg_endpoint_t *endpoint = gather->send->endpoint;

    gather->copying = false;
    if (status == TMSG_OK) {
        status = gather_device(gather);
    }
    if (status == TMSG_OK) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    } else if (status != TMSG_IN_PROGRESS) {
        tmsg_stage_out_fail(gather->send, status);
    }
}

static void run_gather(tmsg_soon_t *call)
{
    tmsg_gather_t *gather = TMSG_CONTAINER_OF(call, tmsg_gather_t, call);
    tmsg_endpoint_t *endpoint = gather->send->endpoint;

    tmsg_worker_chore(endpoint->worker, endpoint);
}

static uint64_t chunk_bytes(const tmsg_map_t *map, uint64_t small)
{
    tmsg_gather_walk_t walk = {.small = small};

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        (void)tmsg_gather_next(&walk, &tmsg_map_entries(map)[i]);
    }
    return walk.end;
}

static tmsg_status_t begin_gather(tmsg_gather_t *gather, uint64_t small)
{
    tmsg_worker_t *worker = gather->send->endpoint->worker;
    const tmsg_map_entry_t *entry;

    gather->copy.over = device_gathered;
    gather->call.run = run_gather;
    gather->walk = (tmsg_gather_walk_t){.small = small};
    gather->next = 0;
    entry = find_next_gathered(gather);
    return tmsg_chunk_take(
        worker, gather_chunks(gather), tmsg_domain_of(entry->tensor.device),
        chunk_bytes(gather->map, small), &gather->call, &gather->chunk);
}

tmsg_status_t tmsg_gather(tmsg_gather_t *gather, tmsg_send_t *send,
                          const tmsg_map_t *map, uint64_t small,
                          const uint8_t **bytes_p)
{
    tmsg_status_t status = TMSG_OK;

    if (gather->map != map) {
        tmsg_gather_end(gather);
        gather->send = send;
        gather->map = map;
    }
    if (gather->chunk == NULL) {
        status = begin_gather(gather, small);
        if (status == TMSG_OK) {
            status = gather_device(gather);
        }
    } else if (!gather->done) {
        status = TMSG_IN_PROGRESS;
    }
    if (status == TMSG_OK) {
        *bytes_p = gather->chunk->data;
    }
    return status;
}

void tmsg_gather_end(tmsg_gather_t *gather)
{
    if (gather->send == NULL) {
        return;
    }
    tmsg_soon_forget(&gather->call);
    if (gather->copying) {
        await_gathered(gather);
        tmsg_copy_forget(gather->send->endpoint->worker, &gather->copy);
    }
    if (gather->chunk != NULL) {
        tmsg_chunk_give(gather->send->endpoint->worker, gather_chunks(gather),
                        gather->chunk);
    }
    *gather = (tmsg_gather_t){.map = NULL};
}
