/* SPDX-License-Identifier: BSD-3-Clause */
/* Brings the tensors of a message to the memory of their devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/recv/fetch.h"
#include "am/recv/fragments_in.h"
#include "am/recv/posted.h"
#include "am/recv/receive.h"
#include "am/recv/stage_in_struct.h"
#include "am/staging/vital.h"
#include "am/ucx/ucx.h"
#include "am/worker/staging.h"
#include "core/device.h"
#include "core/error.h"
#include "core/map.h"
#include "memory/domain.h"

static void note_staged(tmsg_message_t *message, uint64_t bytes)
{
    message->endpoint->stats.received_staged++;
    message->endpoint->stats.received_staged_bytes += bytes;
    tmsg_copy_detour(message->endpoint->worker, TMSG_DETOUR_STAGED,
                     "UCX does not write a device's memory: it is copied "
                     "through the host's");
}

static void note_destinations(tmsg_message_t *message)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    tmsg_stats_t *stats = &message->endpoint->stats;

    for (size_t i = 0; i < message->stage->count; i++) {
        const tmsg_dest_t *dest = &message->stage->dests[i];

        if (dest->on_host) {
            tmsg_stage_in_on_host(message);
        } else if (dest->domain == NULL || entries[i].bytes == 0) {
            continue;
        } else if (dest->direct) {
            stats->received_direct++;
        } else if (dest->gathered && dest->reached) {
            stats->received_gathered++;
        } else if (!dest->ipc) {
            note_staged(message, entries[i].bytes);
        }
    }
}

/* Lets tmsg_message_fetched() decide how the message goes on, which may wait
 * for nothing any more, or be whole. */
static void recheck_message(tmsg_message_t *message)
{
    message->pending++;
    tmsg_message_fetched(message, TMSG_UCX_OK);
}

bool tmsg_stage_in_is_wanted(const tmsg_message_t *message)
{
    return !message->aborted && message->state == TMSG_RX_FETCHING &&
           !tmsg_endpoint_is_down(message->endpoint);
}

void tmsg_stage_in_failed(tmsg_message_t *message, tmsg_status_t status)
{
    char why[200];

    snprintf(why, sizeof(why), "its tensors could not be written: %s",
             tmsg_error_message());
    if (tmsg_stage_in_is_wanted(message)) {
        tmsg_message_refuse(message, status, why);
    }
}

static void dest_stream_done(tmsg_copy_t *copy, tmsg_status_t status)
{
    tmsg_message_t *message =
        TMSG_CONTAINER_OF(copy, tmsg_step_t, copy)->message;

    message->stage->awaited--;
    if (status != TMSG_OK) {
        tmsg_stage_in_failed(message, status);
        recheck_message(message);
    } else if (message->stage->awaited == 0) {
        status = tmsg_fragments_fetch(message);
        if (status != TMSG_OK) {
            tmsg_stage_in_failed(message, status);
        }
        recheck_message(message);
    }
}

tmsg_status_t tmsg_stage_in_begin(tmsg_message_t *message)
{
    tmsg_stage_in_t *stage = message->stage;
    tmsg_worker_t *worker = message->endpoint->worker;

    note_destinations(message);
    stage->begun = true;
    for (size_t i = 0; i < stage->count; i++) {
        const tmsg_dest_t *dest = &stage->dests[i];
        tmsg_step_t *step = &stage->steps[i];
        tmsg_status_t status;

        if (dest->domain == NULL || dest->stream.kind == TMSG_STREAM_NONE) {
            continue;
        }
        *step = (tmsg_step_t){.copy = {.over = dest_stream_done},
                              .message = message};
        status = tmsg_copy_watch(
            worker, &step->copy, dest->domain,
            tmsg_map_entries(message->map)[i].tensor.device, dest->stream);
        if (status != TMSG_OK) {
            tmsg_stage_in_stop(message);
            return status;
        }
        stage->awaited++;
    }
    return stage->awaited == 0 ? tmsg_fragments_fetch(message) : TMSG_OK;
}

static void run_chore(tmsg_soon_t *call)
{
    tmsg_stage_in_t *stage = TMSG_CONTAINER_OF(call, tmsg_stage_in_t, call);
    tmsg_endpoint_t *endpoint = stage->steps[0].message->endpoint;

    tmsg_worker_chore(endpoint->worker, endpoint);
}

static tmsg_chunks_t *chunks_for_receive(const tmsg_message_t *message)
{
    return &message->endpoint->worker->stage.in;
}

static bool needs_chunk(const tmsg_dest_t *dest, bool by_host)
{
    return dest->domain != NULL && (by_host || !dest->direct);
}

bool tmsg_stage_in_has_room(tmsg_message_t *message, size_t index,
                            uint64_t bytes, bool by_host)
{
    tmsg_stage_in_t *stage = message->stage;
    tmsg_status_t status;

    if (stage == NULL || !needs_chunk(&stage->dests[index], by_host)) {
        return true;
    }
    if (bytes > TMSG_CHUNKS_BYTES && stage->dests[index].direct) {
        tmsg_stage_in_failed(
            message,
            tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                           "a fragment of %llu bytes must be read by the CPU",
                           (unsigned long long)bytes));
        recheck_message(message);
        return false;
    }
    if (stage->dests[index].ipc &&
        message->endpoint->worker->context->flags & TMSG_CONTEXT_REQUIRE_PATH) {
        tmsg_stage_in_failed(message, tmsg_stage_in_no_path(message, index));
        recheck_message(message);
        return false;
    }
    if (stage->chunk != NULL &&
        (stage->chunk->capacity < bytes ||
         stage->chunk->domain != stage->dests[index].domain)) {
        tmsg_chunk_give(message->endpoint->worker, chunks_for_receive(message),
                        stage->chunk);
        stage->chunk = NULL;
    }
    if (stage->chunk != NULL) {
        return true;
    }
    stage->steps[0].message = message;
    stage->call.run = run_chore;
    status = tmsg_chunk_take(
        message->endpoint->worker, chunks_for_receive(message),
        stage->dests[index].domain, bytes, &stage->call, &stage->chunk);
    if (status != TMSG_OK && status != TMSG_IN_PROGRESS) {
        tmsg_stage_in_failed(message, status);
        recheck_message(message);
    }
    return status == TMSG_OK;
}

static tmsg_status_t health_of_dests(const tmsg_message_t *message)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < message->stage->count && status == TMSG_OK; i++) {
        const tmsg_domain_t *domain = message->stage->dests[i].domain;

        if (domain != NULL && !tmsg_domain_is_plain(domain)) {
            status = tmsg_vital_device(domain, entries[i].tensor.device);
        }
    }
    return status;
}

/* Refuses a message whose device has failed. UCX never reports what it writes
 * there: connection and UCX worker end, too. */
static void ask_devices_of_message(tmsg_vital_t *vital)
{
    tmsg_message_t *message =
        TMSG_CONTAINER_OF(vital, tmsg_stage_in_t, vital)->message;
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_status_t status = health_of_dests(message);
    char why[200];

    if (status == TMSG_OK) {
        return;
    }
    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    message->stage->lost = true;
    tmsg_stage_in_failed(message, status);
    tmsg_posted_return(message);
    tmsg_endpoint_break(endpoint, status, why);
    tmsg_ucx_numb(endpoint->ucx);
}

bool tmsg_stage_in_is_lost(const tmsg_message_t *message)
{
    return message->stage != NULL && message->stage->lost &&
           message->pending == message->stage->vital.direct;
}

/* Returns whether a tensor without a chunk goes where the CPU cannot write. */
static bool is_direct(const tmsg_stage_in_t *stage, size_t index)
{
    const tmsg_domain_t *domain = stage->dests[index].domain;

    return domain != NULL && !tmsg_domain_is_plain(domain);
}

/* Notes that UCX writes a device's memory. */
static void begin_direct(tmsg_message_t *message, size_t index)
{
    tmsg_stage_in_t *stage = message->stage;

    if (!is_direct(stage, index)) {
        return;
    }
    stage->vital.direct++;
    stage->message = message;
    stage->vital.ask = ask_devices_of_message;
    tmsg_vital_watch(message->endpoint->worker, &stage->vital);
}

/* Refuses a message, and ends the connection: the sender's UCX hears nothing of
 * a fragment that UCX did not write. */
static void fail_unwritten(tmsg_message_t *message, tmsg_ucx_status_t ucs)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_status_t status = health_of_dests(message);
    char why[200];

    if (tmsg_endpoint_is_down(endpoint) || tmsg_ucx_is_loss(ucs)) {
        return;
    }
    if (status == TMSG_OK) {
        tmsg_error_set(TMSG_ERR_IO, "UCX could not write device memory: %s",
                       tmsg_ucx_status_words(ucs));
    } else {
        tmsg_ucx_numb(endpoint->ucx);
    }
    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    tmsg_stage_in_failed(message, TMSG_ERR_IO);
    tmsg_endpoint_break(endpoint, TMSG_ERR_IO, why);
}

void tmsg_stage_in_returned(tmsg_message_t *message, size_t index,
                            tmsg_ucx_status_t ucs)
{
    tmsg_stage_in_t *stage = message->stage;

    if (stage == NULL || !is_direct(stage, index)) {
        return;
    }
    if (--stage->vital.direct == 0) {
        tmsg_vital_forget(message->endpoint->worker, &stage->vital);
    }
    if (ucs != TMSG_UCX_OK) {
        fail_unwritten(message, ucs);
    }
}

bool tmsg_stage_in_is_direct(const tmsg_message_t *message, size_t index)
{
    const tmsg_dest_t *dest = &message->stage->dests[index];

    return dest->domain != NULL && dest->direct;
}

uint8_t *tmsg_stage_in_target(tmsg_message_t *message, size_t index,
                              uint64_t offset, bool by_host, int *memory_type_p,
                              tmsg_chunk_t **chunk_p)
{
    tmsg_stage_in_t *stage = message->stage;
    uint8_t *data = tmsg_map_entries(message->map)[index].tensor.data;

    *chunk_p = NULL;
    *memory_type_p = TMSG_UCX_MEMORY_HOST;
    if (stage == NULL || stage->dests[index].domain == NULL) {
        return data + offset;
    }
    if (!needs_chunk(&stage->dests[index], by_host)) {
        *memory_type_p = stage->dests[index].memory_type;
        begin_direct(message, index);
        return data + offset;
    }
    if (stage->dests[index].ipc && offset == 0) {
        note_staged(message, tmsg_map_entries(message->map)[index].bytes);
    }
    *chunk_p = stage->chunk;
    stage->chunk = NULL;
    return (*chunk_p)->data;
}

tmsg_status_t tmsg_stage_in_copy(tmsg_message_t *message, size_t index,
                                 uint64_t offset, const tmsg_chunk_t *chunk,
                                 uint64_t bytes, tmsg_copy_t *copy)
{
    const tmsg_map_entry_t *entry = &tmsg_map_entries(message->map)[index];
    uint8_t *data = entry->tensor.data;

    return tmsg_copy_in(message->endpoint->worker, copy, chunk->domain,
                        entry->tensor.device, data + offset, chunk->data,
                        bytes);
}

tmsg_status_t tmsg_stage_in_copy_from(tmsg_message_t *message, size_t index,
                                      uint64_t offset,
                                      const tmsg_cma_in_t *place,
                                      uint64_t bytes, tmsg_copy_t *copy)
{
    const tmsg_map_entry_t *entry = &tmsg_map_entries(message->map)[index];
    const tmsg_domain_t *domain =
        message->stage == NULL ? NULL : message->stage->dests[index].domain;
    uint8_t *data = entry->tensor.data;

    if (domain == NULL || tmsg_domain_is_plain(domain)) {
        domain = &tmsg_domain_host;
    }
    message->endpoint->stats.received_ipc += offset == 0;
    return tmsg_copy_from(message->endpoint->worker, copy, place->view,
                          place->address, domain, entry->tensor.device,
                          data + offset, bytes);
}

#define BATCH_MOST 128
#define POUR_ALIGNMENT 64 /* of the tensors in a chunk */

/* Goes on to the next tensor that is copied to its device. Returns NULL if
 * there is none. */
static const tmsg_dest_t *find_next_poured(tmsg_message_t *message)
{
    tmsg_stage_in_t *stage = message->stage;

    for (; stage->pour.next < stage->count; stage->pour.next++) {
        const tmsg_dest_t *dest = &stage->dests[stage->pour.next];

        if (tmsg_dest_is_staged(dest) && dest->host != NULL &&
            tmsg_map_entries(message->map)[stage->pour.next].bytes > 0) {
            return dest;
        }
    }
    return NULL;
}

/* Fills the chunk with the next tensors of one device, and begins to copy
 * them. */
static tmsg_status_t pour_chunk(tmsg_message_t *message, tmsg_device_t device,
                                tmsg_stream_t stream)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    tmsg_pour_t *pour = &message->stage->pour;
    tmsg_chunk_t *chunk = pour->chunk;
    tmsg_domain_copy_t copies[BATCH_MOST];
    const tmsg_dest_t *dest;
    uint64_t at = 0, count = 0;

    while (count < BATCH_MOST && at < chunk->capacity &&
           (dest = find_next_poured(message)) != NULL) {
        const tmsg_map_entry_t *entry = &entries[pour->next];
        uint64_t left = entry->bytes - pour->offset;
        uint64_t room = chunk->capacity - at;
        uint64_t bytes = left < room ? left : room;

        if (!tmsg_device_is(entry->tensor.device, device) ||
            dest->domain != chunk->domain) {
            break;
        }
        memcpy(chunk->data + at, dest->host + pour->offset, bytes);
        copies[count++] =
            (tmsg_domain_copy_t){(uint8_t *)entry->tensor.data + pour->offset,
                                 chunk->data + at, bytes};
        at =
            (at + bytes + POUR_ALIGNMENT - 1) & ~(uint64_t)(POUR_ALIGNMENT - 1);
        pour->offset += bytes;
        if (pour->offset == entry->bytes) {
            pour->offset = 0;
            pour->next++;
        }
    }
    return tmsg_domain_copy(chunk->domain, device, false, copies, count,
                            stream);
}

/* Begins the next copy. Returns IN_PROGRESS if it did, or waits for a chunk,
 * and OK if all are over. */
static tmsg_status_t pour_on(tmsg_message_t *message)
{
    static const tmsg_stream_t none;
    tmsg_worker_t *worker = message->endpoint->worker;
    tmsg_pour_t *pour = &message->stage->pour;
    const tmsg_dest_t *dest = find_next_poured(message);
    tmsg_device_t device;
    void *first;
    tmsg_stream_t stream;
    tmsg_status_t status;

    if (dest == NULL) {
        return TMSG_OK;
    }
    device = tmsg_map_entries(message->map)[pour->next].tensor.device;
    first = tmsg_map_entries(message->map)[pour->next].tensor.data;
    if (pour->chunk != NULL && pour->chunk->domain != dest->domain) {
        tmsg_chunk_give(worker, chunks_for_receive(message), pour->chunk);
        pour->chunk = NULL;
    }
    if (pour->chunk == NULL) {
        status =
            tmsg_chunk_take(worker, chunks_for_receive(message), dest->domain,
                            TMSG_CHUNK_BYTES, &pour->call, &pour->chunk);
        if (status != TMSG_OK) {
            return status;
        }
    }
    status = tmsg_copy_stream(dest->domain, device, &stream);
    if (status != TMSG_OK) {
        return status;
    }
    status = pour_chunk(message, device, stream);
    if (status == TMSG_OK) {
        status = tmsg_copy_watch(worker, &pour->copy, pour->chunk->domain,
                                 device, stream);
    }
    if (status == TMSG_OK) {
        return TMSG_IN_PROGRESS;
    }
    /* What began ends before this copy, which waits. */
    (void)pour->chunk->domain->copy_in(pour->chunk->domain->arg, device, first,
                                       pour->chunk->data, 1, none);
    return status;
}

static void end_pour(tmsg_message_t *message, tmsg_status_t status)
{
    tmsg_stage_in_t *stage = message->stage;
    tmsg_endpoint_t *endpoint = message->endpoint;

    if (status != TMSG_OK) {
        tmsg_stage_in_failed(message, status);
    }
    if (stage->pour.chunk != NULL) {
        tmsg_chunk_give(endpoint->worker, chunks_for_receive(message),
                        stage->pour.chunk);
        stage->pour.chunk = NULL;
    }
    stage->pouring = false;
    tmsg_message_fetched(message, TMSG_UCX_OK);
    tmsg_endpoint_reported(endpoint);
}

static void run_pour(tmsg_soon_t *call)
{
    tmsg_message_t *message =
        TMSG_CONTAINER_OF(call, tmsg_pour_t, call)->message;
    tmsg_status_t status =
        tmsg_stage_in_is_wanted(message) ? pour_on(message) : TMSG_OK;

    if (status != TMSG_IN_PROGRESS) {
        end_pour(message, status);
    }
}

static void chunk_poured(tmsg_copy_t *copy, tmsg_status_t status)
{
    tmsg_pour_t *pour = TMSG_CONTAINER_OF(copy, tmsg_pour_t, copy);

    if (status == TMSG_OK) {
        run_pour(&pour->call);
    } else {
        end_pour(pour->message, status);
    }
}

/* Begins to copy the tensors of the message itself to their devices. Returns
 * whether there are any. */
static bool begin_pour(tmsg_message_t *message)
{
    tmsg_stage_in_t *stage = message->stage;
    tmsg_status_t status;

    if (find_next_poured(message) == NULL) {
        return false;
    }
    stage->pouring = true;
    stage->pour.message = message;
    stage->pour.copy.over = chunk_poured;
    stage->pour.call.run = run_pour;
    message->pending++;
    message->endpoint->in_ucx++; /* the endpoint stays until that is done */
    status = pour_on(message);
    if (status != TMSG_IN_PROGRESS) {
        tmsg_stage_in_failed(message, status);
        tmsg_soon(message->endpoint->worker, &stage->pour.call);
    }
    return true;
}

static void dest_sum_found(tmsg_sums_t *sums, size_t index, uint64_t value)
{
    TMSG_CONTAINER_OF(sums, tmsg_stage_in_t, sums)->dests[index].sum = value;
}

static void dest_sums_over(tmsg_sums_t *sums, tmsg_status_t status)
{
    tmsg_stage_in_t *stage = TMSG_CONTAINER_OF(sums, tmsg_stage_in_t, sums);
    tmsg_message_t *message = stage->message;
    tmsg_endpoint_t *endpoint = message->endpoint;

    stage->summed = status == TMSG_OK;
    if (status != TMSG_OK) {
        tmsg_stage_in_failed(message, status);
    }
    tmsg_message_fetched(message, TMSG_UCX_OK);
    tmsg_endpoint_reported(endpoint);
}

/* Begins to read the checksums back, so that the device's final memory is what
 * is compared. Returns whether it did. */
static bool begin_dest_sums(tmsg_message_t *message)
{
    tmsg_stage_in_t *stage = message->stage;
    tmsg_worker_t *worker = message->endpoint->worker;

    if (message->extra.checksum == NULL || stage->summing) {
        return false;
    }
    stage->summing = true;
    stage->message = message;
    stage->sums = (tmsg_sums_t){.worker = worker,
                                .chunks = &worker->stage.in,
                                .map = message->map,
                                .checksum = message->extra.checksum,
                                .found = dest_sum_found,
                                .over = dest_sums_over};
    message->pending++;
    message->endpoint->in_ucx++; /* the endpoint stays until that is done */
    tmsg_sums_begin(&stage->sums);
    return true;
}

bool tmsg_stage_in_sum(const void *message, size_t index, uint64_t *value_p)
{
    const tmsg_message_t *of = message;
    const tmsg_stage_in_t *stage = of->stage;

    if (stage == NULL || !stage->summed ||
        !tmsg_sums_has(&tmsg_map_entries(of->map)[index])) {
        return false;
    }
    *value_p = stage->dests[index].sum;
    return true;
}

bool tmsg_stage_in_copies(tmsg_message_t *message)
{
    tmsg_stage_in_t *stage = message->stage;

    if (message->aborted) {
        return false;
    }
    if (stage->copied) {
        return begin_dest_sums(message);
    }
    if (stage->awaited > 0 || !stage->begun) {
        return true;
    }
    stage->copied = true;
    return begin_pour(message) || begin_dest_sums(message);
}

void tmsg_stage_in_stop(tmsg_message_t *message)
{
    tmsg_stage_in_t *stage = message->stage;
    tmsg_worker_t *worker = message->endpoint->worker;

    if (stage == NULL) {
        return;
    }
    if (stage->summing) {
        tmsg_sums_stop(&stage->sums);
    }
    if (stage->pouring && stage->pour.call.list != NULL) {
        /* It may wait for a chunk. */
        tmsg_soon(worker, &stage->pour.call);
    }
    tmsg_soon_forget(&stage->call);
    if (stage->chunk != NULL) {
        tmsg_chunk_give(worker, chunks_for_receive(message), stage->chunk);
        stage->chunk = NULL;
    }
    for (size_t i = 0; i < stage->count && stage->awaited > 0; i++) {
        if (stage->steps[i].copy.listed &&
            stage->steps[i].copy.over == dest_stream_done) {
            tmsg_copy_forget(worker, &stage->steps[i].copy);
            stage->awaited--;
        }
    }
}

/* Copies between two domains through the host, which is the only way. */
static tmsg_status_t move_between_domains(const tmsg_domain_t *theirs,
                                          const tmsg_domain_t *ours,
                                          const tmsg_tensor_t *to,
                                          const tmsg_tensor_t *from,
                                          uint64_t bytes)
{
    static const tmsg_stream_t none;
    void *host = malloc(bytes);
    tmsg_status_t status;

    if (host == NULL) {
        return tmsg_error_memory("a copy between two devices");
    }
    status = theirs->copy_out(theirs->arg, from->device, host, from->data,
                              bytes, none);
    if (status == TMSG_OK) {
        status =
            ours->copy_in(ours->arg, to->device, to->data, host, bytes, none);
    }
    free(host);
    return status;
}

tmsg_status_t tmsg_stage_in_move(const tmsg_tensor_t *to,
                                 const tmsg_tensor_t *from, uint64_t bytes)
{
    static const tmsg_stream_t none;
    const tmsg_domain_t *ours = tmsg_domain_of(to->device);
    const tmsg_domain_t *theirs = tmsg_domain_of(from->device);

    if (bytes == 0) {
        return TMSG_OK;
    }
    if (ours == theirs) {
        return ours->copy_within(ours->arg, to->device, to->data, from->data,
                                 bytes, none);
    }
    if (theirs == &tmsg_domain_host) {
        return ours->copy_in(ours->arg, to->device, to->data, from->data, bytes,
                             none);
    }
    if (ours == &tmsg_domain_host) {
        return theirs->copy_out(theirs->arg, from->device, to->data, from->data,
                                bytes, none);
    }
    return move_between_domains(theirs, ours, to, from, bytes);
}
