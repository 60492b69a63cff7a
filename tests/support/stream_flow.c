/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/stream_flow.h"

#include <string.h>

#include "support/must.h"
#include "support/seeded_maps.h"

void flow_init(flow_t *flow, uint64_t out, uint64_t in, unsigned sends)
{
    pthread_mutexattr_t recursive;

    memset(flow, 0, sizeof(*flow));
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&flow->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    flow->out = out;
    flow->in = in;
    flow->sends = sends;
    flow->bytes = 64;
    flow->status = TMSG_IN_PROGRESS;
}

size_t flow_bytes(const flow_t *flow, unsigned number)
{
    return number % 50 == 49 ? flow->bytes : number % 64;
}

static void pump(flow_t *flow);

static void sent(void *arg, tmsg_status_t status, const char *error)
{
    flow_t *flow = arg;

    (void)error;
    pthread_mutex_lock(&flow->lock);
    flow->released++;
    if (status == TMSG_OK) {
        pump(flow);
    }
    pthread_mutex_unlock(&flow->lock);
}

static tmsg_status_t send_one(flow_t *flow)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_ON_DONE,
                                       .flags = TMSG_SEND_TRY,
                                       .on_done = sent,
                                       .on_done_arg = flow};
    tmsg_map_t *map =
        sample_bytes(flow->out + flow->sent, flow_bytes(flow, flow->sent));
    tmsg_status_t status =
        tmsg_call_stream_send(flow->stream, map, &params, NULL);

    tmsg_map_destroy(map);
    return status;
}

static void end(flow_t *flow)
{
    tmsg_map_t *details = sample_bytes(flow->out, 100);

    flow->finished = true;
    must(tmsg_call_stream_end(flow->stream, TMSG_OK, 7, NULL, details));
    tmsg_map_destroy(details);
}

/* Sends what it can, and finishes behind the last. */
static void pump(flow_t *flow)
{
    tmsg_status_t status = TMSG_OK;

    if (flow->stream == NULL || flow->finished) {
        return;
    }
    while (flow->sent < flow->sends && status == TMSG_OK) {
        status = send_one(flow);
        flow->sent += status == TMSG_OK;
    }
    flow->full += status == TMSG_ERR_WOULD_BLOCK;
    if (status != TMSG_ERR_WOULD_BLOCK && status != TMSG_OK) {
        return; /* it is over */
    }
    if (flow->sent == flow->sends && !flow->serves) {
        flow->finished = true;
        (void)tmsg_call_stream_finish(flow->stream);
    }
    if (flow->sent == flow->sends && flow->serves && flow->peer_ended) {
        end(flow);
    }
}

static void read_all(flow_t *flow)
{
    tmsg_message_t *message = NULL;
    tmsg_status_t status = TMSG_OK;

    while (!flow->stalls && !flow->peer_ended && status == TMSG_OK) {
        status = tmsg_call_stream_try_recv(flow->stream, &message);
        if (status == TMSG_OK && message == NULL) {
            flow->peer_ended = true;
        } else if (status == TMSG_OK) {
            sample_check_bytes(flow->in + flow->got,
                               flow_bytes(flow, flow->got),
                               tmsg_message_map(message));
            tmsg_message_destroy(message);
            flow->got++;
        }
    }
}

static void on_readable(void *arg, tmsg_call_stream_t *stream)
{
    flow_t *flow = arg;

    pthread_mutex_lock(&flow->lock);
    if (flow->stream == stream) {
        read_all(flow);
        pump(flow);
    }
    pthread_mutex_unlock(&flow->lock);
}

static void on_over(void *arg, tmsg_call_stream_t *stream, tmsg_status_t status)
{
    flow_t *flow = arg;

    must_be(tmsg_call_stream_status(stream), status);
    flow->status = status;
    flow->overs++;
}

void flow_start(flow_t *flow, tmsg_call_stream_t *stream)
{
    const tmsg_call_stream_events_t events = {
        .field_mask =
            TMSG_CALL_STREAM_EVENT_READABLE | TMSG_CALL_STREAM_EVENT_OVER,
        .on_readable = on_readable,
        .on_over = on_over,
        .arg = flow};

    pthread_mutex_lock(&flow->lock);
    flow->stream = stream;
    must(tmsg_call_stream_set_events(stream, &events));
    pump(flow);
    pthread_mutex_unlock(&flow->lock);
}

void flow_read(flow_t *flow)
{
    pthread_mutex_lock(&flow->lock);
    flow->stalls = false;
    read_all(flow);
    pump(flow);
    pthread_mutex_unlock(&flow->lock);
}

void flow_handler(void *flow, tmsg_call_stream_t *stream)
{
    flow_start(flow, tmsg_call_stream_keep(stream));
}

void flow_drop(flow_t *flow)
{
    tmsg_call_stream_t *stream;

    pthread_mutex_lock(&flow->lock);
    stream = flow->stream;
    flow->stream = NULL;
    pthread_mutex_unlock(&flow->lock);
    tmsg_call_stream_destroy(stream);
}

bool flow_is_over(void *arg)
{
    flow_t *flow = arg;

    return flow->overs > 0 && (flow->peer_ended || flow->status < 0);
}
