/* SPDX-License-Identifier: BSD-3-Clause */
/* The orderly end. Each side says BYE with the number of messages it sent, when
 * it has sent all it will. It says FIN when it has received all messages that
 * the peer's BYE counted. Once both FINs are seen, nothing is under way in
 * either direction. */
#include "am/connect/close.h"

#include <string.h>

#include "am/boot/hello.h"
#include "am/connect/link.h"
#include "am/connect/liveness.h"
#include "am/endpoint/consumer.h"
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/scheme.h"
#include "am/path/ipc.h"
#include "am/send/consumer.h"
#include "am/worker/engine.h"
#include "core/bytes.h"

/* The data of an end is [sequence u32]. A BYE also lists the sequence on each
 * channel except 0 that may have been used: [number u16][sequence u32],
 * ascending. */
#define ENTRY_BYTES 6
#define DATA_BYTES_MOST                                                        \
    (4 + ENTRY_BYTES * (TMSG_CHANNELS_MOST + 1 + 2 * TMSG_STREAMS_MOST))

/* Says BYE or FIN: through the socket, if there is one, else as a message with
 * the sequence in its preamble and the rest as payload. */
static void say_end(tmsg_endpoint_t *endpoint, uint8_t kind,
                    const uint8_t *data, size_t bytes)
{
    tmsg_preamble_t head = {.endpoint_id = endpoint->peer_id,
                            .sequence = (uint32_t)tmsg_get_le(data, 4)};
    tmsg_status_t status;

    if (endpoint->link.fd >= 0) {
        tmsg_link_send(endpoint, kind, data, bytes);
        return;
    }
    status =
        tmsg_control_post(endpoint, kind, &head, NULL, 0, data + 4, bytes - 4);
    if (status != TMSG_OK) {
        tmsg_endpoint_break(endpoint, status, tmsg_error_message());
    }
}

static uint8_t *put_end(const tmsg_channel_t *channel, uint8_t *to)
{
    to = tmsg_put_le(to, channel->number, 2);
    return tmsg_put_le(to, channel->tx_sequence, 4);
}

/* Says BYE. Nothing was sent on channels that the peer does not have, so they
 * are left out. */
static void say_bye(tmsg_endpoint_t *endpoint)
{
    const tmsg_channels_t *channels = &endpoint->channels;
    uint8_t data[DATA_BYTES_MOST];
    uint8_t *to = tmsg_put_le(data, channels->zero.tx_sequence, 4);

    for (uint32_t i = 0;
         i < channels->slots && i + 1 < endpoint->peer_hello.channels; i++) {
        const tmsg_channel_t *channel = channels->further[i];

        if (channel != NULL) {
            to = put_end(channel, to);
        }
    }
    if (channels->calls != NULL && /* a peer may not know calls */
        endpoint->peer_hello.features & TMSG_FEATURE_CALLS) {
        to = put_end(channels->calls, to);
    }
    for (uint32_t i = 0; i < channels->stream_slots; i++) {
        const tmsg_channel_t *channel = channels->streams[i];

        if (channel != NULL && /* a peer may not know streams */
            endpoint->peer_hello.features & TMSG_FEATURE_STREAMS) {
            to = put_end(channel, to);
        }
    }
    say_end(endpoint, TMSG_KIND_BYE, data, (size_t)(to - data));
}

/* The data of a FIN: whether the server of its sender shuts down. */
#define FIN_STAYS 0u
#define FIN_LEAVES 1u

static void say_fin(tmsg_endpoint_t *endpoint)
{
    uint8_t data[4];

    tmsg_put_le(data, tmsg_server_leaves(endpoint) ? FIN_LEAVES : FIN_STAYS, 4);
    say_end(endpoint, TMSG_KIND_FIN, data, sizeof(data));
}

static bool all_sent(const tmsg_endpoint_t *endpoint)
{
    return endpoint->channels.queued == 0 && endpoint->posted.count == 0 &&
           !tmsg_control_waits(endpoint);
}

static bool all_received(const tmsg_endpoint_t *endpoint)
{
    const tmsg_channel_t *channel = &endpoint->channels.zero;

    while (channel != NULL && channel->rx_sequence == channel->bye_sequence) {
        channel = channel->next;
    }
    return endpoint->bye_received && channel == NULL;
}

void tmsg_close_advance(tmsg_endpoint_t *endpoint)
{
    if ((endpoint->close_wanted || endpoint->bye_received) &&
        endpoint->state == TMSG_EP_OPEN) {
        endpoint->state = TMSG_EP_CLOSING;
    }
    if (endpoint->state != TMSG_EP_CLOSING) {
        return;
    }
    if (endpoint->channels.queued_streams > 0) {
        tmsg_calls_closing(endpoint);
    }
    if (!endpoint->conn.bye_sent && all_sent(endpoint)) {
        endpoint->conn.bye_sent = true;
        say_bye(endpoint);
    }
    /* The peer may free its device memory when FIN has come. */
    if (!endpoint->fin_sent && endpoint->conn.bye_sent &&
        all_received(endpoint) && tmsg_ipc_leave(endpoint)) {
        endpoint->fin_sent = true;
        tmsg_liveness_after_fin(endpoint);
        say_fin(endpoint);
    }
    /* Nothing can be lost any more: the peer finds our FIN before the socket's
     * end. Without a socket UCX still has to deliver our FIN. */
    if (endpoint->fin_sent && endpoint->conn.fin_received &&
        endpoint->broken == TMSG_OK &&
        (endpoint->link.fd >= 0 || endpoint->in_ucx == 0)) {
        tmsg_engine.end(endpoint, TMSG_ERR_CLOSED, "closed");
    }
}

/* Reads what a BYE says of the channels into their bye_read. Returns what is
 * wrong with it, or NULL. */
static const char *read_bye(tmsg_endpoint_t *endpoint, uint32_t sequence,
                            const uint8_t *list, size_t list_bytes)
{
    const uint8_t *end = list + list_bytes;
    uint32_t last = 0;

    if (list_bytes % ENTRY_BYTES != 0) {
        return "an end that is cut short";
    }
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        channel->bye_read = 0;
    }
    endpoint->channels.zero.bye_read = sequence;
    for (; list < end; list += ENTRY_BYTES) {
        uint16_t number = (uint16_t)tmsg_get_le(list, 2);
        tmsg_channel_t *channel;

        if (number <= last) {
            return "an end whose channels do not ascend";
        }
        channel = tmsg_channel_of(endpoint, number);
        if (channel == NULL) {
            return "an end of an impossible channel";
        }
        channel->bye_read = (uint32_t)tmsg_get_le(list + 2, 4);
        last = number;
    }
    return NULL;
}

/* Judges what a BYE says of one channel: it counts at least what has come, and
 * at most what was allowed. Returns what is wrong with it, or NULL. */
static const char *judge_bye(const tmsg_channel_t *channel)
{
    const tmsg_endpoint_t *endpoint = channel->endpoint;
    const tmsg_message_t *message = channel->rx;
    uint32_t sequence = channel->bye_read;

    if (endpoint->bye_received && sequence != channel->bye_sequence) {
        return "a second end that counts other messages";
    }
    if ((int32_t)(sequence - channel->rx_sequence) < 0 ||
        sequence - channel->rx_credited > endpoint->worker->queue_depth) {
        return "an end with an impossible count of messages";
    }
    for (; message != NULL; message = message->next_in_order) {
        if ((int32_t)(message->head.sequence - sequence) >= 0) {
            return "an end before a message that came";
        }
    }
    return NULL;
}

void tmsg_close_bye(tmsg_endpoint_t *endpoint, uint32_t sequence,
                    const uint8_t *list, size_t list_bytes)
{
    const char *wrong = read_bye(endpoint, sequence, list, list_bytes);
    tmsg_channel_t *channel = &endpoint->channels.zero;

    for (; wrong == NULL && channel != NULL; channel = channel->next) {
        wrong = judge_bye(channel);
        channel->bye_sequence = channel->bye_read;
    }
    if (wrong != NULL) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, wrong);
        return;
    }
    endpoint->bye_received = true;
    tmsg_worker_chore(endpoint->worker, endpoint);
}

bool tmsg_close_is_over(const tmsg_endpoint_t *endpoint)
{
    return endpoint->fin_sent && endpoint->conn.fin_received;
}

void tmsg_close_forget(tmsg_endpoint_t *endpoint)
{
    endpoint->conn.bye_sent = false;
    endpoint->bye_received = false;
    endpoint->peer_leaves = false;
    endpoint->fin_sent = false;
    endpoint->conn.fin_received = false;
}

void tmsg_close_fin(tmsg_endpoint_t *endpoint, uint32_t value)
{
    if (!endpoint->conn.bye_sent) {
        tmsg_endpoint_break(
            endpoint, TMSG_ERR_MALFORMED,
            "the peer confirms an end that this side has not sent");
        return;
    }
    endpoint->conn.fin_received = true;
    endpoint->peer_leaves = value == FIN_LEAVES;
    tmsg_worker_chore(endpoint->worker, endpoint);
}

/* Returns whether an end may come by message. If there is a socket, that
 * carries the end: a message could overtake what was said before it. */
static bool ends_by_message(tmsg_endpoint_t *endpoint)
{
    bool by_socket = tmsg_schemes[endpoint->link.url.kind]->socket;

    if (by_socket) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "an end by message where there is a socket");
    }
    return !by_socket;
}

tmsg_ucx_status_t tmsg_bye_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);

    if (endpoint != NULL && ends_by_message(endpoint)) {
        tmsg_close_bye(endpoint, arrival->head.sequence, arrival->data,
                       arrival->data_bytes);
    }
    return TMSG_UCX_OK;
}

tmsg_ucx_status_t tmsg_fin_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);

    if (endpoint != NULL && ends_by_message(endpoint)) {
        tmsg_close_fin(endpoint, arrival->head.sequence);
    }
    return TMSG_UCX_OK;
}
