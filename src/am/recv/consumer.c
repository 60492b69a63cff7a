/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/consumer.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/consumer_struct.h"
#include "am/endpoint/control.h"
#include "am/endpoint/fail.h"
#include "am/recv/deliver.h"
#include "am/recv/posted.h"
#include "am/worker/lead.h"
#include "core/bytes.h"
#include "core/error.h"

tmsg_status_t tmsg_stream_keep(tmsg_message_t *message,
                               const tmsg_call_head_t *head)
{
    tmsg_call_head_t *kept = malloc(sizeof(*kept) + head->text_bytes + 1);
    char *text = (char *)(kept + 1);

    if (kept == NULL) {
        return tmsg_error_memory("a stream's message");
    }
    *kept = *head;
    memcpy(text, head->text, head->text_bytes);
    text[head->text_bytes] = '\0';
    kept->text = text;
    message->stream = kept;
    return TMSG_OK;
}

tmsg_stream_key_t tmsg_stream_key(const tmsg_endpoint_t *endpoint,
                                  uint16_t channel)
{
    unsigned at = channel - TMSG_CHANNEL_STREAMS;

    return (tmsg_stream_key_t){.ours = (at % 2 == 0) == endpoint->dialling,
                               .index = (uint16_t)(at / 2)};
}

/* Returns the stream's channel for either kind of stream message, or 0 if the
 * message belongs to no stream. */
static uint16_t stream_channel_of(const tmsg_message_t *message)
{
    uint16_t channel = message->head.kind == TMSG_KIND_STREAM
                           ? message->channel->number
                       : message->stream != NULL ? message->stream->stream
                                                 : 0;

    return tmsg_channel_is_stream(channel) ? channel : 0;
}

void tmsg_stream_arrived(tmsg_message_t *message)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;
    uint16_t channel = stream_channel_of(message);

    if (channel == 0) {
        tmsg_stream_take(message);
        tmsg_message_destroy(message);
        return;
    }
    endpoint->calls_ops->streamed(endpoint->calls_peer,
                                  tmsg_stream_key(endpoint, channel), message,
                                  message->stream, TMSG_OK, "");
}

void tmsg_stream_failed(tmsg_message_t *message, const char *why)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;
    uint16_t channel = stream_channel_of(message);

    if (message->head.kind == TMSG_KIND_STREAM_OVER &&
        message->stream == NULL && message->refusal == TMSG_ERR_NO_MEMORY) {
        /* Nobody knows which stream this message ends. */
        tmsg_stream_break(message->endpoint, message->refusal, why);
    } else if (endpoint->calls_peer != NULL && channel != 0) {
        endpoint->calls_ops->streamed(endpoint->calls_peer,
                                      tmsg_stream_key(endpoint, channel), NULL,
                                      message->stream, message->refusal, why);
    }
}

static tmsg_status_t check_type(uint8_t kind, uint8_t type)
{
    bool agree = kind == TMSG_KIND_STREAM        ? tmsg_call_is_stream(type)
                 : kind == TMSG_KIND_STREAM_OVER ? tmsg_call_is_over(type)
                                                 : type <= TMSG_CALL_REPLY;

    return agree
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                "call: type %u is not of kind %u", type, kind);
}

/* Returns whether the message comes again with the next connection of its
 * session. It is taken or refused only then, because others are told of that
 * and counts are made. */
static bool comes_again(const tmsg_endpoint_t *endpoint,
                        const tmsg_call_head_t *call)
{
    return endpoint->broken != TMSG_OK && endpoint->resume != NULL &&
           (call->type == TMSG_CALL_REQUEST || call->type == TMSG_STREAM_OPEN);
}

tmsg_status_t tmsg_call_begin(tmsg_message_t *message,
                              const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    const tmsg_preamble_t *head = &arrival->head;
    tmsg_call_head_t call;
    tmsg_status_t status =
        tmsg_call_decode(arrival->body - head->bytes, head->bytes, &call);

    if (status == TMSG_OK) {
        status = check_type(head->kind, call.type);
    }
    if (status == TMSG_OK) {
        status = tmsg_calls_begin(endpoint->worker, &tmsg_hub_ops);
    }
    if (status == TMSG_OK && comes_again(endpoint, &call)) {
        status = tmsg_error_set(endpoint->broken, "%s", endpoint->broken_why);
    }
    if (status == TMSG_OK) {
        status = tmsg_calls_meet(endpoint);
    }
    if (status != TMSG_OK) {
        return status;
    }
    return head->kind == TMSG_KIND_CALL
               ? endpoint->calls_ops->begins(endpoint->calls_peer, &call,
                                             &message->call, &message->posted)
               : tmsg_stream_keep(message, &call);
}

tmsg_status_t tmsg_call_begin_here(tmsg_message_t *message,
                                   const tmsg_call_head_t *call)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;

    return endpoint->calls_ops->begins(endpoint->calls_peer, call,
                                       &message->call, NULL);
}

void tmsg_call_arrived(tmsg_message_t *message)
{
    tmsg_call_in_t *call = message->call;
    tmsg_status_t status = message->refusal;

    if (status == TMSG_OK) {
        status = tmsg_posted_finish(message);
    } else {
        tmsg_error_set(status, "%s",
                       message->why != NULL ? message->why
                                            : tmsg_status_name(status));
    }
    message->call = NULL;
    if (status == TMSG_OK) {
        call->arrived(call, message);
    } else {
        call->failed(call, status, tmsg_error_message());
        tmsg_message_destroy(message);
    }
}

void tmsg_call_failed(tmsg_message_t *message, const char *why)
{
    tmsg_call_in_t *call = message->call;

    message->call = NULL;
    if (call != NULL) {
        call->failed(call, message->refusal, why);
    }
}

void tmsg_call_dropped(tmsg_message_t *message)
{
    tmsg_call_in_t *call = message->call;

    message->call = NULL;
    if (call != NULL) {
        call->dropped(call);
    }
}

static void run_ended(tmsg_due_t *due)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(due, tmsg_endpoint_t, rx.calls_due);

    endpoint->calls_ops->ended(endpoint->calls_peer, endpoint->status,
                               endpoint->error);
    if (endpoint->rx.calls_heir != NULL) {
        tmsg_endpoint_drop(endpoint->rx.calls_heir);
    }
    tmsg_endpoint_drop(endpoint);
}

tmsg_status_t tmsg_call_inherit(tmsg_endpoint_t *heir,
                                const tmsg_endpoint_t *old)
{
    return old->calls_peer == NULL ? TMSG_OK : tmsg_calls_meet(heir);
}

size_t tmsg_call_left(tmsg_endpoint_t *heir, tmsg_endpoint_t *old)
{
    if (old->calls_peer == NULL || heir->calls_peer == NULL) {
        return 0;
    }
    old->rx.calls_heir = heir;
    tmsg_endpoint_hold(heir);
    return tmsg_hub_carry.left(old->calls_peer, heir->calls_peer);
}

void tmsg_call_ended(tmsg_endpoint_t *endpoint)
{
    if (endpoint->calls_peer != NULL && endpoint->rx.calls_due.run == NULL) {
        endpoint->rx.calls_due.run = run_ended;
        tmsg_endpoint_hold(endpoint);
        tmsg_worker_due(endpoint->worker, &endpoint->rx.calls_due);
    }
}

void tmsg_call_forget(tmsg_endpoint_t *endpoint)
{
    if (endpoint->calls_peer != NULL) {
        endpoint->calls_ops->forget(endpoint->calls_peer);
    }
}

tmsg_ucx_status_t tmsg_uncall_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);

    if (endpoint != NULL && endpoint->worker->calls != NULL &&
        arrival->head.body_bytes >= TMSG_UNCALL_BYTES &&
        tmsg_calls_meet(endpoint) == TMSG_OK) {
        /* The cancellation may come before its call, as the first message for
         * calls. */
        endpoint->calls_ops->canceled(
            endpoint->calls_peer,
            tmsg_get_le(arrival->body, TMSG_UNCALL_BYTES));
    }
    return TMSG_UCX_OK;
}

tmsg_status_t tmsg_calls_begin(tmsg_worker_t *worker,
                               const tmsg_calls_ops_t *ops)
{
    tmsg_calls_t *calls;

    if (worker->calls != NULL) {
        return TMSG_OK;
    }
    calls = calloc(1, sizeof(*calls));
    if (calls == NULL) {
        return tmsg_error_memory("the state of calls");
    }
    calls->ops = ops;
    calls->worker = worker;
    calls->start = ops->create(calls);
    if (calls->start == NULL) {
        free(calls);
        return TMSG_ERR_NO_MEMORY;
    }
    worker->calls = calls;
    return TMSG_OK;
}

tmsg_status_t tmsg_calls_meet(tmsg_endpoint_t *endpoint)
{
    tmsg_calls_t *calls = endpoint->worker->calls;

    if (endpoint->calls_peer == NULL) {
        endpoint->calls_peer = calls->ops->meet(calls->start, endpoint);
        endpoint->calls_ops = calls->ops;
    }
    return endpoint->calls_peer != NULL ? TMSG_OK : TMSG_ERR_NO_MEMORY;
}

void tmsg_stream_break(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                       const char *why)
{
    if (!atomic_load(&endpoint->life->over)) {
        tmsg_worker_lock(endpoint->worker);
        if (!tmsg_endpoint_is_down(endpoint)) {
            tmsg_endpoint_break(endpoint, status, why);
        }
        tmsg_worker_unlock(endpoint->worker);
    }
}

void tmsg_stream_take(tmsg_message_t *message)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;

    if (!atomic_load(&endpoint->life->over)) {
        tmsg_worker_enter(endpoint->worker);
        tmsg_message_taken(message);
        tmsg_worker_leave(endpoint->worker, true);
    }
}
