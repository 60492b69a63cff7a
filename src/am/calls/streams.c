/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages of streams, which are ordered on channels of their own. What
 * they are for is looked up when their turn has come: heads may arrive in
 * another order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/dialect.h"
#include "am/engine/progress.h"
#include "am/recv/call.h"
#include "am/recv/deliver.h"
#include "am/send/cancel.h"
#include "am/send/send.h"
#include "core/error.h"
#include "core/utf8.h"

static tmsg_send_params_t params_of(const tmsg_endpoint_t *endpoint,
                                    const tmsg_stream_send_t *how)
{
    const tmsg_send_params_t none = {.field_mask = 0};
    tmsg_send_params_t params = how->params == NULL ? none : *how->params;
    uint32_t flags =
        params.field_mask & TMSG_SEND_PARAM_FLAGS ? params.flags : 0;

    params.field_mask |= TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL;
    params.flags = flags & ~(uint32_t)(TMSG_SEND_TRY | TMSG_SEND_UNORDERED);
    params.channel = how->channel;
    if (endpoint->resume != NULL) { /* else it would not be sent again */
        params.flags |= TMSG_SEND_ACKED;
    }
    if (how->call.on_release != NULL) {
        params.field_mask |= TMSG_SEND_PARAM_ON_RELEASE;
        params.on_release = how->call.on_release;
        params.on_release_arg = how->call.on_release_arg;
    }
    if (how->call.on_done != NULL) {
        params.field_mask |= TMSG_SEND_PARAM_ON_DONE;
        params.on_done = how->call.on_done;
        params.on_done_arg = how->call.on_done_arg;
    }
    return params;
}

tmsg_status_t tmsg_stream_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               const tmsg_stream_send_t *how,
                               tmsg_request_t **request_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    const tmsg_send_params_t params = params_of(endpoint, how);
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_enter(worker);
    status = how->may(how->arg, tmsg_stream_waiting(endpoint, how->channel));
    if (status == TMSG_OK) {
        status = tmsg_send_begin(endpoint, map, &params, NULL, &how->call,
                                 request_p);
    }
    tmsg_worker_leave(worker, true);
    return status;
}

size_t tmsg_stream_waiting(tmsg_endpoint_t *endpoint, uint16_t number)
{
    const tmsg_channel_t *channel = tmsg_channel_find(endpoint, number);

    return channel == NULL ? 0 : channel->queued.count;
}

/* The first that waits there of that stream; 0: of any. */
static tmsg_send_t *find_waiting(const tmsg_channel_t *channel, uint64_t id,
                                 bool or_end)
{
    tmsg_node_t *node = channel->queued.head;

    for (; node != NULL; node = node->next) {
        tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);

        if ((id == 0 || send->call.id == id) &&
            (or_end || send->call.type != TMSG_STREAM_END)) {
            return send;
        }
    }
    return NULL;
}

void tmsg_stream_clear(tmsg_endpoint_t *endpoint, uint16_t number, uint64_t id)
{
    tmsg_channel_t *channel;
    tmsg_send_t *send;

    if (atomic_load(&endpoint->life->over)) {
        return;
    }
    tmsg_worker_lock(endpoint->worker);
    channel = tmsg_channel_find(endpoint, number);
    while (channel != NULL &&
           (send = find_waiting(channel, id, true)) != NULL) {
        tmsg_send_fail(send, TMSG_ERR_CANCELED, "its stream is over");
    }
    tmsg_worker_unlock(endpoint->worker);
}

void tmsg_calls_closing(tmsg_endpoint_t *endpoint)
{
    tmsg_channels_t *channels = &endpoint->channels;
    tmsg_send_t *send;

    for (uint32_t i = 0; i < channels->stream_slots; i++) {
        const tmsg_channel_t *channel = channels->streams[i];

        while (channel != NULL && !tmsg_channel_has_credit(channel) &&
               (send = find_waiting(channel, 0, true)) != NULL) {
            tmsg_send_fail(send, TMSG_ERR_CLOSED,
                           "its reader had not read those before it when the "
                           "endpoint was closed");
        }
    }
}

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

static tmsg_stream_key_t key_of(const tmsg_endpoint_t *endpoint,
                                uint16_t channel)
{
    unsigned at = channel - TMSG_CHANNEL_STREAMS;

    return (tmsg_stream_key_t){.ours = (at % 2 == 0) == endpoint->dialling,
                               .index = (uint16_t)(at / 2)};
}

/* Of either kind: 0 where it is of no stream's. */
static uint16_t channel_of(const tmsg_message_t *message)
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
    uint16_t channel = channel_of(message);

    if (channel == 0) {
        tmsg_stream_take(message);
        tmsg_message_destroy(message);
        return;
    }
    endpoint->calls_ops->streamed(endpoint->calls_peer,
                                  key_of(endpoint, channel), message,
                                  message->stream, TMSG_OK, "");
}

void tmsg_stream_failed(tmsg_message_t *message, const char *why)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;
    uint16_t channel = channel_of(message);

    if (message->head.kind == TMSG_KIND_STREAM_OVER &&
        message->stream == NULL && message->refusal == TMSG_ERR_NO_MEMORY) {
        /* Whose stream it ends nobody knows. */
        tmsg_stream_break(message->endpoint, message->refusal, why);
    } else if (endpoint->calls_peer != NULL && channel != 0) {
        endpoint->calls_ops->streamed(endpoint->calls_peer,
                                      key_of(endpoint, channel), NULL,
                                      message->stream, message->refusal, why);
    }
}

/* What the peer is told, in which it is not named. */
static void retell(tmsg_send_t *send, tmsg_status_t status, const char *error)
{
    const char *peer = send->endpoint->peer;
    size_t bytes = strlen(peer);
    char words[TMSG_CALL_TEXT_MOST + 1];
    char *kept;

    if (strncmp(error, peer, bytes) == 0 &&
        strncmp(error + bytes, ": ", 2) == 0) {
        error += bytes + 2;
    }
    snprintf(words, sizeof(words), "%s", error);
    tmsg_utf8_scrub(words);
    kept = strdup(words);
    free(send->call_text);
    send->call_text = kept;
    send->call.text = kept == NULL ? "" : kept;
    send->call.text_bytes = kept == NULL ? 0 : strlen(kept);
    send->call.status = status;
}

/* Behind a message that did not leave nothing goes as if it had: the reader
 * would take what it has for all. An END says so instead, but where it says
 * that the stream has failed; that its server did not end it is no news. */
static void stop_behind(tmsg_channel_t *channel, uint64_t id,
                        tmsg_status_t status, const char *error)
{
    tmsg_send_t *send;

    while ((send = find_waiting(channel, id, false)) != NULL) {
        tmsg_send_fail(send, TMSG_ERR_CANCELED, "its stream is over");
    }
    send = find_waiting(channel, id, true);
    if (send != NULL && (send->call.status == TMSG_OK ||
                         send->call.status == TMSG_ERR_INTERNAL)) {
        retell(send, status, error);
    }
}

void tmsg_stream_unsent(tmsg_channel_t *channel, const tmsg_call_head_t *head,
                        tmsg_status_t status, const char *error)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    uint64_t id = head->id; /* of a send that is about to end */

    if (endpoint->calls_peer != NULL && endpoint->state != TMSG_EP_ENDED &&
        head->type != TMSG_STREAM_OPEN && status != TMSG_ERR_CANCELED &&
        status != TMSG_ERR_TIMED_OUT) {
        endpoint->calls_ops->stuck(endpoint->calls_peer,
                                   key_of(endpoint, channel->number), id,
                                   status, error);
        stop_behind(channel, id, status, error);
    }
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

tmsg_status_t tmsg_stream_side(tmsg_endpoint_t *endpoint, bool *dialled_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    *dialled_p = endpoint->dialling;
    if (endpoint->state != TMSG_EP_CONNECTING || !endpoint->dialect->answers) {
        status = endpoint->state == TMSG_EP_ENDED
                     ? TMSG_OK /* which the send will say better */
                     : tmsg_channel_judge(endpoint, TMSG_CHANNEL_STREAMS);
    }
    tmsg_worker_unlock(worker);
    return status;
}

void tmsg_stream_push(tmsg_list_t *list, tmsg_message_t *message)
{
    tmsg_list_push(list, &message->queue);
}

tmsg_message_t *tmsg_stream_pop(tmsg_list_t *list)
{
    tmsg_node_t *node = tmsg_list_pop(list);

    return node == NULL ? NULL : TMSG_CONTAINER_OF(node, tmsg_message_t, queue);
}
