/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/trace.h"

#include "am/endpoint/endpoint.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/trace.h"
#include "core/map.h"

static void tell_of_send(const tmsg_send_t *send, tmsg_trace_step_t step,
                         tmsg_status_t status, uint64_t time_ns)
{
    tmsg_trace_event_t event = {
        .step = step,
        .status = status,
        .time_ns = time_ns,
        .bytes = send->bytes,
        .message_id = send->message_id,
        .sequence = send->sequence,
        .channel = send->channel->number,
    };

    tmsg_trace_tell(send->endpoint, &event);
}

static bool is_large(const tmsg_send_t *send)
{
    const tmsg_measures_t *known =
        tmsg_send_measured(send->endpoint, send->map);
    const tmsg_map_entry_t *entries = tmsg_map_entries(send->map);
    uint64_t bytes = 0;

    if (known->stamp == tmsg_map_stamp(send->map)) {
        return known->bytes >= TMSG_TIMED_BYTES;
    }
    for (size_t i = 0; i < tmsg_map_size(send->map) && bytes < TMSG_TIMED_BYTES;
         i++) {
        bytes += entries[i].bytes;
    }
    return bytes >= TMSG_TIMED_BYTES;
}

void tmsg_trace_begun(tmsg_send_t *send)
{
    bool traced = tmsg_trace_is_on(send->endpoint);

    if (!traced && send->message_id % TMSG_TIMED_ONE_IN != 0 &&
        !is_large(send)) {
        return;
    }
    send->begun_ns = tmsg_now_ns();
    if (traced) {
        tell_of_send(send, TMSG_TRACE_SEND_QUEUED, TMSG_OK, send->begun_ns);
    }
}

void tmsg_trace_posted(const tmsg_send_t *send)
{
    if (tmsg_trace_is_on(send->endpoint)) {
        tell_of_send(send, TMSG_TRACE_SEND_POSTED, TMSG_OK, tmsg_now_ns());
    }
}

void tmsg_trace_done(tmsg_send_t *send)
{
    uint64_t now;

    if (send->begun_ns == 0 || send->told_done) {
        return;
    }
    now = tmsg_now_ns();
    send->told_done = true;
    tmsg_histogram_note(&send->endpoint->stats.send_ns, now - send->begun_ns);
    if (tmsg_trace_is_on(send->endpoint)) {
        tell_of_send(send, TMSG_TRACE_SEND_DONE, TMSG_OK, now);
    }
}

void tmsg_trace_acked(tmsg_send_t *send, tmsg_status_t status)
{
    uint64_t now;

    if (send->begun_ns == 0) {
        return;
    }
    now = tmsg_now_ns();
    if (status == TMSG_OK) {
        tmsg_histogram_note(&send->endpoint->stats.ack_ns,
                            now - send->begun_ns);
    }
    if (tmsg_trace_is_on(send->endpoint)) {
        tell_of_send(send, TMSG_TRACE_SEND_ACKED, status, now);
    }
}

void tmsg_trace_failed(const tmsg_send_t *send, tmsg_status_t status)
{
    if (tmsg_trace_is_on(send->endpoint)) {
        tell_of_send(send, TMSG_TRACE_SEND_FAILED, status, tmsg_now_ns());
    }
}
