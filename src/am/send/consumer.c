/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/consumer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/consumer_struct.h"
#include "am/endpoint/template.h"
#include "am/recv/consumer.h"
#include "am/send/cancel.h"
#include "am/send/send.h"
#include "core/shown.h"

tmsg_send_t *tmsg_stream_waits(const tmsg_channel_t *channel, uint64_t id,
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

bool tmsg_server_leaves(const tmsg_endpoint_t *endpoint)
{
    const tmsg_calls_t *calls = endpoint->worker->calls;
    tmsg_calls_counts_t counts = {.leaves = false};

    if (calls != NULL) {
        calls->ops->count(calls->start, &counts);
    }
    return counts.leaves;
}

void tmsg_calls_closing(tmsg_endpoint_t *endpoint)
{
    tmsg_channels_t *channels = &endpoint->channels;
    tmsg_send_t *send;

    for (uint32_t i = 0; i < channels->stream_slots; i++) {
        const tmsg_channel_t *channel = channels->streams[i];

        while (channel != NULL && !tmsg_channel_has_credit(channel) &&
               (send = tmsg_stream_waits(channel, 0, true)) != NULL) {
            tmsg_send_fail(send, TMSG_ERR_CLOSED,
                           "its reader had not read those before it when the "
                           "endpoint was closed");
        }
    }
}

/* Sets the words that the peer is told. They do not name the peer. */
static void retell_end(tmsg_send_t *send, tmsg_status_t status,
                       const char *error)
{
    const char *peer = send->endpoint->peer;
    size_t bytes = strlen(peer);
    char words[TMSG_CALL_TEXT_MOST + 1];
    char *kept;

    if (strncmp(error, peer, bytes) == 0 &&
        strncmp(error + bytes, ": ", 2) == 0) {
        error += bytes + 2;
    }
    tmsg_shown_format(words, sizeof(words), "%s", error);
    kept = strdup(words);
    free(send->call_text);
    send->call_text = kept;
    send->call.text = kept == NULL ? "" : kept;
    send->call.text_bytes = kept == NULL ? 0 : strlen(kept);
    send->call.status = status;
}

/* Stops what waits behind a message that did not leave: if it went, the reader
 * would take what it has for all. An END says so instead, unless it says
 * already that the stream has failed. An INTERNAL END, which only says that its
 * server did not end the stream, is replaced, too. */
static void stop_behind(tmsg_channel_t *channel, uint64_t id,
                        tmsg_status_t status, const char *error)
{
    tmsg_send_t *send;

    while ((send = tmsg_stream_waits(channel, id, false)) != NULL) {
        tmsg_send_fail(send, TMSG_ERR_CANCELED, "its stream has ended");
    }
    send = tmsg_stream_waits(channel, id, true);
    if (send != NULL && (send->call.status == TMSG_OK ||
                         send->call.status == TMSG_ERR_INTERNAL)) {
        retell_end(send, status, error);
    }
}

void tmsg_stream_unsent(tmsg_channel_t *channel, const tmsg_call_head_t *head,
                        tmsg_status_t status, const char *error)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    /* *head is in a send that is about to end. */
    uint64_t id = head->id;

    if (endpoint->calls_peer != NULL && endpoint->state != TMSG_EP_ENDED &&
        head->type != TMSG_STREAM_OPEN && status != TMSG_ERR_CANCELED &&
        status != TMSG_ERR_TIMED_OUT) {
        endpoint->calls_ops->stuck(endpoint->calls_peer,
                                   tmsg_stream_key(endpoint, channel->number),
                                   id, status, error);
        stop_behind(channel, id, status, error);
    }
}

bool tmsg_call_bounced(tmsg_endpoint_t *endpoint, const tmsg_call_head_t *head,
                       uint32_t message_id, bool sent, tmsg_status_t status,
                       const char *error)
{
    return endpoint->calls_peer != NULL &&
           endpoint->calls_ops->bounced(endpoint->calls_peer, head, message_id,
                                        sent, status, error);
}
