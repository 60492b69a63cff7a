/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/stage_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/send/cancel.h"
#include "am/send/fragments.h"
#include "am/send/stage_out_struct.h"
#include "am/ucx/ucx.h"
#include "am/worker/staging.h"
#include "core/bytes.h"
#include "core/device.h"

static bool is_same(const tmsg_stage_await_t *await,
                    const tmsg_map_entry_t *entry)
{
    return await->stream.kind == entry->stream.kind &&
           await->stream.handle == entry->stream.handle &&
           tmsg_device_is(await->device, entry->tensor.device);
}

static void run_failed(tmsg_soon_t *call)
{
    tmsg_stage_out_t *stage = TMSG_CONTAINER_OF(call, tmsg_stage_out_t, call);

    tmsg_send_fail(stage->send, stage->failure, stage->why);
}

/* Has the send fail in the next progress, for the caller may be in the middle
 * of other work on it. */
static void fail_stage(tmsg_stage_out_t *stage, tmsg_status_t status)
{
    if (stage->stopped || stage->failure != TMSG_OK) {
        return;
    }
    stage->failure = status;
    snprintf(stage->why, sizeof(stage->why),
             "its tensors could not be read: %s", tmsg_error_message());
    stage->call.run = run_failed;
    tmsg_soon(stage->send->endpoint->worker, &stage->call);
}

static void out_stream_done(tmsg_copy_t *copy, tmsg_status_t status)
{
    tmsg_stage_await_t *await =
        TMSG_CONTAINER_OF(copy, tmsg_stage_await_t, copy);
    tmsg_stage_out_t *stage = await->send->stage;

    stage->awaited--;
    if (status != TMSG_OK) {
        fail_stage(stage, status);
    } else if (stage->awaited == 0) {
        tmsg_worker_chore(await->send->endpoint->worker, await->send->endpoint);
    }
}

static tmsg_status_t await_stream(tmsg_stage_out_t *stage,
                                  const tmsg_map_entry_t *entry)
{
    tmsg_stage_await_t *await = &stage->streams_of[stage->streams];
    tmsg_status_t status;

    for (size_t i = 0; i < stage->streams; i++) {
        if (is_same(&stage->streams_of[i], entry)) {
            return TMSG_OK;
        }
    }
    *await = (tmsg_stage_await_t){.copy = {.over = out_stream_done},
                                  .send = stage->send,
                                  .device = entry->tensor.device,
                                  .stream = entry->stream};
    status =
        tmsg_copy_watch(stage->send->endpoint->worker, &await->copy,
                        tmsg_stage_domain(entry), await->device, await->stream);
    if (status != TMSG_OK) {
        return tmsg_error_set(
            status, "tensor '%s': %s",
            tmsg_error_name(entry->name, entry->name_bytes).text,
            tmsg_error_message());
    }
    stage->streams++;
    stage->awaited++;
    return TMSG_OK;
}

/* Returns what has become of the devices of a map's tensors. */
static tmsg_status_t health_of_map(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    const tmsg_map_entry_t *asked = NULL;
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        const tmsg_domain_t *domain = tmsg_stage_domain(&entries[i]);

        if (domain != NULL && !tmsg_domain_is_plain(domain) &&
            (asked == NULL ||
             !tmsg_device_is(asked->tensor.device, entries[i].tensor.device))) {
            asked = &entries[i];
            status = tmsg_vital_device(domain, asked->tensor.device);
        }
    }
    return status;
}

/* Ends a send whose device has failed. What UCX has of the device's memory
 * nobody reads any more, and UCX never reports it: connection and UCX worker
 * end with the send. */
static void ask_devices_of_send(tmsg_vital_t *vital)
{
    tmsg_stage_out_t *stage = TMSG_CONTAINER_OF(vital, tmsg_stage_out_t, vital);
    tmsg_send_t *send = stage->send;
    tmsg_endpoint_t *endpoint = send->endpoint;
    bool direct = vital->direct > 0;
    char why[sizeof(stage->why)];
    tmsg_status_t status;

    if (send->posted && !send->in_ucx && !tmsg_fragments_pending(send)) {
        return; /* nothing is left to be read */
    }
    status = health_of_map(send->map);
    if (status == TMSG_OK) {
        return;
    }
    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    stage->lost = true;
    tmsg_endpoint_hold(endpoint);
    tmsg_send_fail(send, status, why);
    if (direct) {
        tmsg_endpoint_break(endpoint, status, why);
        tmsg_ucx_numb(endpoint->ucx);
    }
    tmsg_endpoint_drop(endpoint);
}

static size_t count_streams(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t count = 0;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        count += entries[i].stream.kind != TMSG_STREAM_NONE;
    }
    return count;
}

tmsg_status_t tmsg_stage_out_create(tmsg_send_t *send)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(send->map);
    tmsg_stage_out_t *stage =
        calloc(1, sizeof(*stage) +
                      count_streams(send->map) * sizeof(*stage->streams_of));
    tmsg_status_t status = TMSG_OK;

    if (stage == NULL) {
        return tmsg_error_memory("a message's device memory");
    }
    stage->send = send;
    send->stage = stage;
    for (size_t i = 0; i < tmsg_map_size(send->map) && status == TMSG_OK; i++) {
        if (entries[i].stream.kind != TMSG_STREAM_NONE &&
            tmsg_stage_domain(&entries[i]) != NULL) {
            status = await_stream(stage, &entries[i]);
        }
    }
    if (status != TMSG_OK) {
        tmsg_stage_out_free(send);
        return status;
    }
    stage->vital.ask = ask_devices_of_send;
    tmsg_vital_watch(send->endpoint->worker, &stage->vital);
    return TMSG_OK;
}

/* Ends checksums that are not known yet. They begin anew if the message is sent
 * after all. */
static void end_sums(tmsg_stage_out_t *stage)
{
    if (stage->values != NULL && !stage->summed) {
        tmsg_sums_end(&stage->sums);
        free(stage->values);
        stage->values = NULL;
    }
}

void tmsg_stage_out_stop(tmsg_send_t *send)
{
    tmsg_stage_out_t *stage = send->stage;

    if (stage == NULL) {
        return;
    }
    end_sums(stage);
    tmsg_gather_end(&stage->gather);
    if (stage->stopped) {
        return;
    }
    stage->stopped = true;
    tmsg_soon_forget(&stage->call);
    tmsg_stage_give_fills(stage);
}

void tmsg_stage_out_free(tmsg_send_t *send)
{
    tmsg_stage_out_t *stage = send->stage;

    if (stage == NULL) {
        return;
    }
    tmsg_stage_out_stop(send);
    tmsg_vital_forget(send->endpoint->worker, &stage->vital);
    for (size_t i = 0; i < stage->streams; i++) {
        tmsg_copy_forget(send->endpoint->worker, &stage->streams_of[i].copy);
    }
    free(stage->values);
    free(stage->is_copied);
    tmsg_stage_drop_own(stage);
    free(stage);
    send->stage = NULL;
}

static void out_sum_found(tmsg_sums_t *sums, size_t index, uint64_t value)
{
    TMSG_CONTAINER_OF(sums, tmsg_stage_out_t, sums)->values[index] = value;
}

static void out_sums_over(tmsg_sums_t *sums, tmsg_status_t status)
{
    tmsg_stage_out_t *stage = TMSG_CONTAINER_OF(sums, tmsg_stage_out_t, sums);
    tmsg_endpoint_t *endpoint = stage->send->endpoint;

    if (status != TMSG_OK) {
        fail_stage(stage, status);
    } else {
        stage->summed = true;
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
}

static tmsg_status_t begin_sums(tmsg_stage_out_t *stage, const tmsg_map_t *map,
                                const tmsg_checksum_t *checksum)
{
    tmsg_worker_t *worker = stage->send->endpoint->worker;

    stage->values = calloc(tmsg_map_size(map), sizeof(*stage->values));
    if (stage->values == NULL) {
        return tmsg_error_memory("a message's checksums");
    }
    stage->sums = (tmsg_sums_t){.worker = worker,
                                .chunks = &worker->stage.out,
                                .map = map,
                                .checksum = checksum,
                                .found = out_sum_found,
                                .over = out_sums_over};
    tmsg_sums_begin(&stage->sums);
    return TMSG_IN_PROGRESS;
}

tmsg_status_t tmsg_stage_out_sum(const tmsg_send_t *send,
                                 const tmsg_payload_t *payload)
{
    const tmsg_checksum_t *checksum = payload->extra->checksum;
    const tmsg_map_entry_t *entries = tmsg_map_entries(payload->map);
    tmsg_stage_out_t *stage = send->stage;

    if (stage->awaited > 0 || stage->failure != TMSG_OK) {
        return TMSG_IN_PROGRESS;
    }
    if (stage->values == NULL) {
        return begin_sums(stage, payload->map, checksum);
    }
    if (!stage->summed) {
        return TMSG_IN_PROGRESS;
    }
    for (size_t i = 0; i < tmsg_map_size(payload->map); i++) {
        if (tmsg_sums_has(&entries[i])) {
            tmsg_put_le(payload->checksums + i * checksum->bytes,
                        stage->values[i], checksum->bytes);
        }
    }
    return TMSG_OK;
}

void tmsg_stage_out_fail(const tmsg_send_t *send, tmsg_status_t status)
{
    fail_stage(send->stage, status);
}

tmsg_status_t tmsg_stage_out_gather(const tmsg_send_t *send,
                                    tmsg_payload_t *payload)
{
    tmsg_stage_out_t *stage = send->stage;

    if (payload->measures->gathered == 0) {
        return TMSG_OK;
    }
    return stage->awaited > 0 || stage->failure != TMSG_OK
               ? TMSG_IN_PROGRESS
               : tmsg_gather(&stage->gather, stage->send, payload->map,
                             payload->measures->small, &payload->gathered);
}

void tmsg_stage_out_gathered(const tmsg_send_t *send)
{
    tmsg_gather_end(&send->stage->gather);
}

bool tmsg_stage_out_sums(const tmsg_send_t *send)
{
    return send->stage != NULL && send->flags & TMSG_SEND_VERIFY &&
           !send->stage->summed;
}

bool tmsg_stage_out_hands_over(tmsg_send_t *send, size_t index,
                               const tmsg_fill_t *fill)
{
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(tmsg_send_map(send))[index];
    const tmsg_domain_t *domain = tmsg_stage_domain(entry);
    bool direct = domain != NULL && !tmsg_domain_is_plain(domain) &&
                  (fill == NULL || fill->chunk->on_device) &&
                  tmsg_stage_out_memory(send, index, fill) == NULL;

    send->stage->vital.direct += direct;
    return direct;
}

void tmsg_stage_out_returned(tmsg_send_t *send) { send->stage->vital.direct--; }

void tmsg_stage_out_unread(tmsg_send_t *send, tmsg_ucx_status_t ucs)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    tmsg_status_t status = health_of_map(tmsg_send_map(send));
    char why[sizeof(send->stage->why)];

    /* A peer that refuses a message rejects what of it comes, and says why. */
    if (tmsg_endpoint_is_down(endpoint) || tmsg_ucx_is_loss(ucs) ||
        ucs == TMSG_UCX_REJECTED) {
        return;
    }
    snprintf(why, sizeof(why), "%s%s",
             status == TMSG_OK ? "UCX could not read its device memory: " : "",
             status == TMSG_OK ? tmsg_ucx_status_words(ucs)
                               : tmsg_error_message());
    tmsg_send_answer(send, TMSG_ERR_IO, "%s: message %u: %s", endpoint->peer,
                     send->message_id, why);
    tmsg_endpoint_break(endpoint, TMSG_ERR_IO, why);
    if (status != TMSG_OK) {
        tmsg_ucx_numb(endpoint->ucx);
    }
}

bool tmsg_stage_out_is_lost(const tmsg_send_t *send)
{
    return send->stage != NULL && send->stage->lost && !send->in_ucx &&
           tmsg_fragments_in_ucx(send) == send->stage->vital.direct;
}
