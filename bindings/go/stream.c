/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.c - streams as Go holds them. */
#include "stream.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct tmsggo_stream {
    atomic_int lent; /* first: as of a call */
    atomic_int readable;
    tmsg_call_stream_t *stream;
};

static void readable(void *arg, tmsg_call_stream_t *handle)
{
    tmsggo_stream_t *stream = arg;
    (void)handle;
    atomic_store(&stream->readable, 1);
}

static void ask_for_events(tmsggo_stream_t *stream)
{
    const tmsg_call_stream_events_t events = {
        .field_mask = TMSG_CALL_STREAM_EVENT_READABLE,
        .on_readable = readable,
        .arg = stream,
    };
    (void)tmsg_call_stream_set_events(stream->stream, &events);
}

static void released(void *arg) { atomic_store((atomic_int *)arg, 0); }

tmsggo_result_t tmsggo_stream_open(tmsg_endpoint_t *endpoint,
                                   const char *method, const tmsg_map_t *map,
                                   int timeout_ms, tmsggo_stream_t **stream_p)
{
    tmsggo_stream_t *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return (tmsggo_result_t){TMSG_ERR_NO_MEMORY, NULL};
    }
    atomic_store(&stream->lent, 1);
    const tmsg_call_stream_params_t params = {
        .field_mask = TMSG_CALL_STREAM_PARAM_TIMEOUT |
                      TMSG_CALL_STREAM_PARAM_QUEUE |
                      TMSG_CALL_STREAM_PARAM_ON_RELEASE,
        .timeout_ms = timeout_ms,
        .queue = TMSGGO_STREAM_QUEUE,
        .on_release = released,
        .on_release_arg = &stream->lent,
    };
    tmsg_status_t status = tmsg_endpoint_open_stream(endpoint, method, map,
                                                     &params, &stream->stream);
    tmsggo_result_t answer = tmsggo_result(status);
    if (status == TMSG_OK) {
        ask_for_events(stream);
        *stream_p = stream;
    } else {
        free(stream);
    }
    return answer;
}

tmsggo_stream_t *tmsggo_stream_keep(tmsg_call_stream_t *handle)
{
    tmsggo_stream_t *stream = calloc(1, sizeof(*stream));
    if (stream != NULL) {
        stream->stream = tmsg_call_stream_keep(handle);
        ask_for_events(stream);
    }
    return stream;
}

int tmsggo_stream_is_over(const tmsggo_stream_t *stream)
{
    return tmsg_call_stream_status(stream->stream) != TMSG_IN_PROGRESS;
}

int tmsggo_stream_is_readable(const tmsggo_stream_t *stream)
{
    return atomic_load(&stream->readable) || tmsggo_stream_is_over(stream);
}

tmsggo_sent_t tmsggo_stream_send(tmsggo_stream_t *stream, const tmsg_map_t *map,
                                 uint32_t flags, int timeout_ms)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_TIMEOUT,
        .flags = flags | TMSG_SEND_TRY,
        .timeout_ms = timeout_ms,
    };
    tmsg_request_t *request = NULL;
    tmsg_status_t status =
        tmsg_call_stream_send(stream->stream, map, &params, &request);
    return tmsggo_sent(status, request);
}

tmsggo_result_t tmsggo_stream_finish(tmsggo_stream_t *stream)
{
    return tmsggo_result(tmsg_call_stream_finish(stream->stream));
}

tmsggo_received_t tmsggo_stream_recv(tmsggo_hub_t *hub, tmsggo_stream_t *stream,
                                     uint32_t spin_us, tmsggo_over_t *over)
{
    tmsg_message_t *message = NULL;
    uint64_t end = 0;
    for (int more = spin_us > 0;;
         more = tmsggo_spin(hub, &end, spin_us, over)) {
        /* What comes after a read that found nothing sets it again. */
        atomic_store(&stream->readable, 0);
        tmsggo_result_t result =
            tmsggo_result(tmsg_call_stream_try_recv(stream->stream, &message));
        if (result.status != TMSG_IN_PROGRESS || !more) {
            return tmsggo_received(result, message);
        }
    }
}

tmsggo_result_t tmsggo_stream_outcome(const tmsggo_stream_t *stream,
                                      int32_t *code_p,
                                      const tmsg_map_t **details_p)
{
    tmsggo_result_t answer = {tmsg_call_stream_status(stream->stream), NULL};
    if (answer.status < 0) {
        answer.words = strdup(tmsg_call_stream_error(stream->stream));
    }
    *code_p = tmsg_call_stream_code(stream->stream);
    *details_p = tmsg_call_stream_details(stream->stream);
    return answer;
}

tmsg_endpoint_t *tmsggo_stream_endpoint(const tmsggo_stream_t *stream)
{
    return tmsg_call_stream_endpoint(stream->stream);
}

int tmsggo_stream_may_have_run(const tmsggo_stream_t *stream)
{
    return tmsg_call_stream_may_have_run(stream->stream);
}

const tmsg_map_t *tmsggo_stream_map(const tmsggo_stream_t *stream)
{
    return tmsg_call_stream_map(stream->stream);
}

int tmsggo_stream_remaining_ms(const tmsggo_stream_t *stream)
{
    return tmsg_call_stream_remaining_ms(stream->stream);
}

void tmsggo_stream_end(tmsggo_stream_t *stream, tmsg_status_t status,
                       int32_t code, const char *words,
                       const tmsg_map_t *details)
{
    /* It harms nobody where the stream is over already. */
    (void)tmsg_call_stream_end(stream->stream, status, code, words, details);
}

void tmsggo_stream_cancel(tmsggo_stream_t *stream)
{
    tmsg_call_stream_cancel(stream->stream);
}

void tmsggo_stream_abort(tmsggo_stream_t *stream, const char *words)
{
    tmsg_endpoint_abort(tmsg_call_stream_endpoint(stream->stream),
                        TMSG_ERR_TIMED_OUT, words);
}

void tmsggo_stream_leave(tmsggo_hub_t *hub, tmsggo_stream_t *stream)
{
    tmsggo_forget(hub, stream);
    (void)tmsg_call_stream_set_events(stream->stream, NULL);
}

void tmsggo_stream_destroy(tmsggo_stream_t *stream)
{
    tmsg_call_stream_destroy(stream->stream);
    free(stream);
}
