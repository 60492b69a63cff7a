/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/receive.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/control.h"
#include "am/endpoint/dialect.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/log.h"
#include "am/path/loans.h"
#include "am/recv/abort.h"
#include "am/recv/consumer.h"
#include "am/recv/deliver.h"
#include "am/recv/fetch.h"
#include "am/recv/fetch_queue.h"
#include "am/recv/fragments_in.h"
#include "am/recv/incoming.h"
#include "am/recv/posted.h"
#include "am/recv/scatter.h"
#include "am/recv/schemas.h"
#include "am/recv/stage_in.h"
#include "am/recv/template_in.h"
#include "am/recv/trace.h"
#include "core/error.h"
#include "core/log.h"
#include "core/map.h"
#include "serialize/checksum.h"

tmsg_status_t tmsg_message_check(const tmsg_message_t *message,
                                 size_t data_bytes)
{
    const tmsg_preamble_t *head = &message->head;
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;
    tmsg_status_t status = tmsg_payload_check(head, data_bytes, limits);

    if (status != TMSG_OK) {
        return status;
    }
    if (!tmsg_incoming_may_be_placed(message) &&
        !tmsg_budget_fits(message->budget, head->payload_bytes,
                          tmsg_payload_spill(head))) {
        return tmsg_budget_too_small(message->budget, head->payload_bytes);
    }
    return TMSG_OK;
}

/* Keeps the preamble for TMSG_WORKER_CAPTURE, with room for the body. */
static tmsg_status_t capture_header(tmsg_message_t *message,
                                    const tmsg_arrival_t *arrival)
{
    const tmsg_preamble_t *head = &arrival->head;
    size_t bytes = (size_t)head->bytes + head->body_bytes;
    tmsg_status_t status;

    if (!(message->endpoint->worker->flags & TMSG_WORKER_CAPTURE)) {
        return TMSG_OK;
    }
    status = tmsg_message_note(message, bytes);
    if (status != TMSG_OK) {
        return status;
    }
    message->raw = malloc(bytes);
    if (message->raw == NULL) {
        return tmsg_error_memory("a captured header");
    }
    memcpy(message->raw, arrival->body - head->bytes, head->bytes);
    return TMSG_OK;
}

/* Copies the checksums, because UCX takes the body back before the payload is
 * here. */
static tmsg_status_t keep_checksums(tmsg_message_t *message)
{
    tmsg_body_extra_t *extra = &message->extra;
    size_t bytes;

    if (extra->checksum == NULL) {
        return TMSG_OK;
    }
    bytes = extra->checksum_count * extra->checksum->bytes;
    message->checksums = malloc(bytes + 1);
    if (message->checksums == NULL) {
        return tmsg_error_memory("a message's checksums");
    }
    memcpy(message->checksums, extra->checksums, bytes);
    extra->checksums = message->checksums;
    return TMSG_OK;
}

/* Decodes the map. A refused message waits for its turn without being counted
 * against held_bytes, so the map gives up its memory then. */
static tmsg_status_t decode_map(tmsg_message_t *message, const uint8_t *body)
{
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;
    tmsg_status_t status = tmsg_body_decode(
        body, message->head.body_bytes, limits, message->map, &message->extra);

    if (status == TMSG_OK && message->raw != NULL) {
        memcpy(message->raw + message->head.bytes, body,
               message->head.body_bytes);
    }
    if (status == TMSG_OK) {
        status = tmsg_schemas_decoded(message);
    }
    if (status == TMSG_OK) {
        status = tmsg_message_note(message, sizeof(*message) +
                                                tmsg_map_memory(message->map));
    }
    if (status == TMSG_OK) {
        status =
            message->extra.lent.count > 0
                ? tmsg_payload_check_lent(&message->head, message->map, limits)
                : tmsg_payload_check_map(&message->head, message->map,
                                         &message->extra.split, limits);
    }
    if (status == TMSG_OK &&
        (message->extra.lent.count > 0) != (message->loan != NULL)) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                message->loan == NULL
                                    ? "a loan that is not to be given back"
                                    : "a loan without places");
    }
    if (status != TMSG_OK) {
        tmsg_map_shed(message->map);
    }
    return status;
}

static tmsg_status_t decode_arrived_map(tmsg_message_t *message,
                                        const uint8_t *body)
{
    tmsg_status_t status = decode_map(message, body);

    if (status == TMSG_OK) {
        status = tmsg_stage_in_decoded(message);
    }
    message->decoded = status == TMSG_OK;
    return status == TMSG_OK ? tmsg_fragments_expect(message) : status;
}

bool tmsg_message_file(tmsg_message_t *message)
{
    tmsg_channel_t *channel = message->channel;
    tmsg_message_t **place = &channel->rx;
    uint32_t ahead = message->head.sequence - channel->rx_sequence;
    uint32_t next = tmsg_channel_next(channel, channel->rx_sequence);

    while (*place != NULL &&
           (*place)->head.sequence - channel->rx_sequence < ahead) {
        if ((*place)->head.sequence == next) {
            next = tmsg_channel_next(channel, next + 1);
        }
        place = &(*place)->next_in_order;
    }
    if (ahead > INT32_MAX ||
        tmsg_channel_overtook(channel, message->head.sequence) ||
        (*place != NULL && (*place)->head.sequence == message->head.sequence)) {
        return false;
    }
    message->behind_gap =
        message->head.sequence != next && !tmsg_message_may_overtake(message);
    message->next_in_order = *place;
    *place = message;
    return true;
}

tmsg_message_t **tmsg_message_place(const tmsg_message_t *message)
{
    tmsg_message_t **place = &message->channel->rx;

    while (*place != message) {
        place = &(*place)->next_in_order;
    }
    return place;
}

tmsg_message_t *tmsg_message_find(const tmsg_channel_t *channel,
                                  uint32_t sequence)
{
    tmsg_message_t *message = channel->rx;

    while (message != NULL && message->head.sequence != sequence) {
        message = message->next_in_order;
    }
    return message;
}

static void keep_words(tmsg_message_t *message, const char *why)
{
    size_t bytes = strlen(why) + 1;

    message->why = malloc(bytes);
    if (message->why != NULL) {
        memcpy(message->why, why, bytes);
    }
}

/* Returns whether somebody here is told why a message did not come. */
static bool has_hearer(const tmsg_message_t *message)
{
    return message->endpoint->worker->on_refused != NULL ||
           message->call != NULL || message->stream != NULL;
}

void tmsg_message_refuse(tmsg_message_t *message, tmsg_status_t status,
                         const char *why)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    message->state = TMSG_RX_FAILED;
    tmsg_stage_in_stop(message);
    tmsg_posted_return(message);
    tmsg_fragments_refuse(message);
    tmsg_message_drop_loan(message);
    if (message->aborted) {
        return; /* the sender knows */
    }
    message->refusal = status;
    if (has_hearer(message)) {
        keep_words(message, why);
    }
    endpoint->stats.refused_messages++;
    tmsg_trace_received(message, TMSG_TRACE_RECV_REFUSED, status);
    if (status == TMSG_ERR_PEER_LOST) { /* nobody refused the message */
        tmsg_endpoint_log(endpoint, TMSG_LOG_NOT_ARRIVED_KIND, TMSG_LOG_INFO,
                          "message %u did not arrive: %s",
                          message->head.message_id, why);
    } else {
        tmsg_endpoint_log(endpoint, TMSG_LOG_REFUSED_KIND,
                          message->head.kind != TMSG_KIND_MAP ? TMSG_LOG_DEBUG
                                                              : TMSG_LOG_WARN,
                          "message %u is refused: %s", message->head.message_id,
                          why);
    }
    endpoint->dialect->answer(endpoint, message->head.message_id, status, why);
}

void tmsg_message_refuse_at(tmsg_message_t *message, const void *place,
                            const char *blame)
{
    const tmsg_map_entry_t *entry = tmsg_map_find_at(message->map, place);
    char why[TMSG_ERROR_BYTES];

    if (entry == NULL) {
        snprintf(why, sizeof(why), "a tensor of it: %s", blame);
    } else {
        snprintf(why, sizeof(why), "tensor '%s': %s (byte %zu of %llu)",
                 tmsg_error_name(entry->name, entry->name_bytes).text, blame,
                 (size_t)((const uint8_t *)place -
                          (const uint8_t *)entry->tensor.data),
                 (unsigned long long)entry->bytes);
    }
    tmsg_message_refuse(message, TMSG_ERR_IO, why);
}

static uint8_t kind_on(uint16_t channel)
{
    return channel == TMSG_CHANNEL_CALLS     ? TMSG_KIND_CALL
           : tmsg_channel_is_stream(channel) ? TMSG_KIND_STREAM
                                             : TMSG_KIND_MAP;
}

tmsg_status_t tmsg_message_lost(tmsg_channel_t *channel, uint32_t sequence)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    const tmsg_preamble_t head = {.kind = kind_on(channel->number),
                                  .channel = channel->number,
                                  .sequence = sequence};
    tmsg_message_t *message;
    tmsg_status_t status =
        tmsg_message_create(&head, endpoint->ucx, channel, &message);

    if (status != TMSG_OK) {
        return status;
    }
    message->state = TMSG_RX_FAILED;
    message->refusal = TMSG_ERR_PEER_LOST;
    if (endpoint->worker->on_refused != NULL) {
        keep_words(message, "it was under way when the connection broke, and "
                            "was not to be acknowledged");
    }
    if (!tmsg_message_file(message)) {
        /* The message is here, and was refused. */
        tmsg_message_discard(message);
    }
    tmsg_fetch_close_gap(channel);
    return TMSG_OK;
}

void tmsg_message_abort(tmsg_message_t *message, tmsg_status_t status,
                        const char *why)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    if (message->aborted || message->state == TMSG_RX_FAILED) {
        return;
    }
    message->aborted = true;
    message->refusal = status;
    if (has_hearer(message)) {
        keep_words(message, why);
    }
    endpoint->stats.aborted_messages++;
    tmsg_endpoint_log(endpoint, TMSG_LOG_NOT_ARRIVED_KIND, TMSG_LOG_INFO,
                      "message %u is given up: %s", message->head.message_id,
                      why);
    switch (message->state) {
    case TMSG_RX_WAITING: /* UCX is to be told outside of UCX's callbacks */
        tmsg_fetch_leave(message);
        tmsg_fetch_go_on(message);
        break;
    case TMSG_RX_WHOLE:
        message->state = TMSG_RX_FAILED;
        tmsg_posted_return(message);
        tmsg_message_drop_loan(message);
        break;
    case TMSG_RX_DELIVERED:
        tmsg_message_take_back(message);
        break;
    default:
        if (message->pending == 0) { /* only fragments are missing */
            message->state = TMSG_RX_FAILED;
            tmsg_stage_in_stop(message);
            tmsg_posted_return(message);
            tmsg_fragments_refuse(message);
        }
        break; /* otherwise the fetch ends it, when UCX has written */
    }
}

/* Refuses a message. If the connection is broken, the message ends with it
 * instead, nobody is told, and the result is false. */
static bool refuse_or_break(tmsg_message_t *message, tmsg_status_t status)
{
    if (message->endpoint->broken != TMSG_OK) {
        message->state = TMSG_RX_BROKEN;
        return false;
    }
    tmsg_message_refuse(message, status, tmsg_error_message());
    return true;
}

void tmsg_message_reject(tmsg_message_t *message, tmsg_status_t status)
{
    if (refuse_or_break(message, status)) {
        tmsg_messages_deliver(message->channel);
    }
}

tmsg_ucx_status_t tmsg_message_keep(tmsg_message_t *message, void *data,
                                    size_t data_bytes, bool rendezvous,
                                    bool fleeting)
{
    tmsg_status_t status;

    if (!rendezvous && tmsg_message_take_small(message, data, data_bytes)) {
        tmsg_credit_free(message->endpoint, &message->charged);
        tmsg_message_whole(message);
        return TMSG_UCX_OK;
    }
    if (rendezvous) {
        /* The sender charged the payload, since it could not know that UCX
         * would use a rendezvous for it. */
        tmsg_credit_free(message->endpoint, &message->charged);
    }
    message->rendezvous = rendezvous;
    if (!rendezvous && message->fragments == NULL && message->stage == NULL &&
        tmsg_message_take_posted(message, data)) {
        tmsg_credit_free(message->endpoint, &message->charged);
        tmsg_message_whole(message);
        return TMSG_UCX_OK;
    }
    status = tmsg_message_keep_data(message, data, data_bytes, fleeting);
    if (status < 0) {
        tmsg_credit_free(message->endpoint, &message->charged);
        tmsg_message_reject(message, status);
        return rendezvous ? TMSG_UCX_REJECTED : TMSG_UCX_OK;
    }
    tmsg_fetch_ask(message);
    return status == TMSG_IN_PROGRESS ? TMSG_UCX_IN_PROGRESS : TMSG_UCX_OK;
}

/* Refuses a message as it comes, while UCX still has its data. Until its turn
 * comes only a tombstone keeps its number: a peer may send many of these, and
 * their memory is not counted. */
static void turn_message_away(tmsg_message_t *message, tmsg_status_t status)
{
    tmsg_channel_t *channel = message->channel;

    if (!refuse_or_break(message, status)) {
        return;
    }
    if (message->state == TMSG_RX_FAILED &&
        message->head.sequence != channel->rx_sequence) {
        tmsg_message_t **place = tmsg_message_place(message);

        *place = tmsg_message_tombstone(message);
    }
    tmsg_messages_deliver(channel);
}

/* Decodes the body that came. A body that heads a rendezvous comes with the
 * payload. */
static tmsg_status_t decode_arrival(tmsg_message_t *message,
                                    const tmsg_arrival_t *arrival)
{
    bool spilled = (arrival->head.flags & TMSG_HEADER_SPILLED) != 0;
    tmsg_status_t status;

    if (spilled && arrival->rendezvous) {
        return TMSG_OK;
    }
    status =
        decode_arrived_map(message, spilled ? arrival->data : arrival->body);
    return status == TMSG_OK ? keep_checksums(message) : status;
}

/* Checks what came, and decodes it. */
static tmsg_status_t read_arrival(tmsg_message_t *message,
                                  const tmsg_arrival_t *arrival)
{
    tmsg_status_t status = tmsg_message_check(message, arrival->data_bytes);

    if (status == TMSG_OK) {
        status = capture_header(message, arrival);
    }
    return status == TMSG_OK ? decode_arrival(message, arrival) : status;
}

/* Returns the channel that a map may come on, or NULL. */
static tmsg_channel_t *admit_map(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    tmsg_channel_t *channel;

    if (endpoint == NULL) {
        tmsg_log_of(TMSG_LOG_IGNORED_KIND, TMSG_LOG_UNKNOWN, TMSG_LOG_WARN,
                    "a map for no endpoint is ignored");
        return NULL;
    }
    channel = tmsg_channel_of(endpoint, arrival->head.channel);
    if (channel == NULL) {
        return NULL;
    }
    if (arrival->head.kind != kind_on(channel->number) &&
        (arrival->head.kind != TMSG_KIND_STREAM_OVER ||
         channel->number != TMSG_CHANNEL_CALLS)) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a call on a channel of messages, or the reverse");
        return NULL;
    }
    if (arrival->head.sequence - channel->rx_credited >=
        endpoint->worker->queue_depth) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a message beyond the window it was given");
        return NULL;
    }
    if (endpoint->bye_received &&
        (int32_t)(arrival->head.sequence - channel->bye_sequence) >= 0) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a message after the last one that was counted");
        return NULL;
    }
    return channel;
}

/* Returns what UCX is told about data that stays with it. */
static tmsg_ucx_status_t not_kept(const tmsg_arrival_t *arrival)
{
    return arrival->rendezvous ? TMSG_UCX_REJECTED : TMSG_UCX_OK;
}

/* Delivers a loan, or has it wait if its tensors may be placed elsewhere. */
static void take_loan_on(tmsg_message_t *message)
{
    uint64_t out;

    (void)tmsg_layout_measure(message->map,
                              &message->endpoint->worker->context->limits,
                              &message->fragments_bytes, &out);
    message->endpoint->stats.received_loan_bytes += message->fragments_bytes;
    if (tmsg_incoming_may_be_placed(message) || message->stage != NULL) {
        tmsg_fetch_ask(message);
        return;
    }
    tmsg_scatter_loan(message);
    tmsg_message_whole(message);
}

/* Begins the record of a loan. The sender waits for it to be given back,
 * whatever becomes of the message. */
static tmsg_status_t begin_loan(tmsg_message_t *message,
                                const tmsg_arrival_t *arrival)
{
    tmsg_status_t status =
        tmsg_loan_arrived(message->endpoint, arrival->head.message_id,
                          arrival->head.kind == TMSG_KIND_CALL, &message->loan);

    if (status == TMSG_OK &&
        (arrival->rendezvous || arrival->to_read != NULL)) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                "a loan whose body does not come with it");
    }
    if (status != TMSG_OK) {
        tmsg_endpoint_break(message->endpoint, status, tmsg_error_message());
    }
    return status;
}

/* Returns whether the application expects that the message cannot be written
 * to. */
static bool takes_loan(const tmsg_message_t *message)
{
    return message->endpoint->worker->flags & TMSG_WORKER_BORROW ||
           (message->call != NULL && message->call->borrows);
}

/* Takes on a message that its sender lends. All of it is here. */
__attribute__((noinline)) static tmsg_ucx_status_t
take_loan_in(tmsg_message_t *message, const tmsg_arrival_t *arrival,
             uint64_t charged)
{
    tmsg_status_t status = begin_loan(message, arrival);

    if (status == TMSG_OK && arrival->head.kind != TMSG_KIND_MAP) {
        status = tmsg_call_begin(message, arrival);
    }
    if (status == TMSG_OK && !takes_loan(message)) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                "a loan that nobody has asked for");
        tmsg_endpoint_break(message->endpoint, status, tmsg_error_message());
    }
    if (status == TMSG_OK) {
        status = read_arrival(message, arrival);
    }
    if (status == TMSG_OK && !message->aborted) {
        status = tmsg_loan_find(message->endpoint, message->loan, message->map,
                                &message->extra.lent);
    }
    tmsg_credit_free(message->endpoint, &charged);
    if (status != TMSG_OK || message->aborted) {
        tmsg_message_drop_loan(message);
        turn_message_away(message, status);
        return not_kept(arrival);
    }
    take_loan_on(message);
    return TMSG_UCX_OK;
}

/* Takes a message on that was filed in its channel's order. */
static tmsg_ucx_status_t take_message_in(tmsg_message_t *message,
                                         const tmsg_arrival_t *arrival,
                                         uint64_t charged)
{
    tmsg_status_t status;

    tmsg_trace_received(message, TMSG_TRACE_RECV_ARRIVED, TMSG_OK);
    tmsg_abort_recall(message);
    if (arrival->head.flags & TMSG_HEADER_LENT) {
        return take_loan_in(message, arrival, charged);
    }
    status = arrival->head.kind != TMSG_KIND_MAP
                 ? tmsg_call_begin(message, arrival)
                 : TMSG_OK;
    if (status == TMSG_OK) {
        status = read_arrival(message, arrival);
    }
    if (status != TMSG_OK || message->aborted) {
        tmsg_credit_free(message->endpoint, &charged);
        turn_message_away(message, status);
        return not_kept(arrival);
    }
    message->charged = charged;
    tmsg_template_note_in(message, arrival);
    if (arrival->to_read != NULL) {
        message->to_read = *arrival->to_read;
        message->is_read = true;
    }
    return tmsg_message_keep(
        message, message->is_read ? &message->to_read : arrival->data,
        arrival->data_bytes, arrival->rendezvous, arrival->fleeting);
}

tmsg_ucx_status_t tmsg_map_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_channel_t *channel = admit_map(arrival);
    tmsg_endpoint_t *endpoint = channel == NULL ? NULL : channel->endpoint;
    tmsg_message_t *message = NULL;
    uint64_t charged;
    bool fills_gap;
    tmsg_status_t status;
    tmsg_ucx_status_t ucs;

    if (channel == NULL || !tmsg_credit_count(endpoint, arrival, &charged)) {
        return not_kept(arrival);
    }
    status =
        tmsg_message_create(&arrival->head, arrival->ucx, channel, &message);
    if (status != TMSG_OK || !tmsg_message_file(message)) {
        /* Without a record nothing can keep the message's turn, so the
         * channel's order is lost. */
        if (status == TMSG_OK) {
            tmsg_message_discard(message);
        }
        tmsg_endpoint_break(endpoint,
                            status == TMSG_OK ? TMSG_ERR_MALFORMED : status,
                            status == TMSG_OK ? "a sequence number came twice"
                                              : tmsg_error_message());
        return not_kept(arrival);
    }
    fills_gap = message->next_in_order != NULL && !message->behind_gap;
    ucs = take_message_in(message, arrival, charged);
    if (fills_gap) {
        tmsg_fetch_close_gap(channel);
    }
    return ucs;
}

void tmsg_message_landed(tmsg_message_t *message)
{
    tmsg_status_t status = decode_arrived_map(message, message->body);

    message->landed = true;
    if (status == TMSG_OK && message->fragments != NULL) {
        status =
            tmsg_error_set(TMSG_ERR_MALFORMED,
                           "fragments of a map whose body came by rendezvous");
    }
    if (status != TMSG_OK || message->aborted) {
        tmsg_message_drop_body(message);
        tmsg_message_reject(message, status);
    } else if (tmsg_incoming_may_be_placed(message) || message->stage != NULL) {
        /* The application has yet to choose places, or tensors go to devices.
         * The memory that is reserved for devices stays reserved. */
        message->state = TMSG_RX_WAITING;
        tmsg_fetch_go_on(message);
    } else {
        tmsg_fetch_take_back(message);
        tmsg_scatter_landed(message);
        tmsg_message_whole(message);
    }
}

void tmsg_message_whole(tmsg_message_t *message)
{
    tmsg_status_t status =
        message->aborted ? message->refusal
                         : tmsg_checksum_verify(message->map, &message->extra,
                                                tmsg_stage_in_sum, message);
    tmsg_channel_t *channel;

    tmsg_message_drop_body(message);
    if (status != TMSG_OK) {
        tmsg_message_reject(message, status);
        return;
    }
    tmsg_map_show(message->map);
    message->state = TMSG_RX_WHOLE;
    tmsg_trace_received(message, TMSG_TRACE_RECV_FETCHED, TMSG_OK);
    channel = message->channel;
    tmsg_message_overtake(message);
    tmsg_messages_deliver(channel);
}

bool tmsg_message_stays(const tmsg_message_t *message)
{
    return message->endpoint->state == TMSG_EP_AWAY &&
           message->state == TMSG_RX_FAILED && message->refusal < 0 &&
           message->refusal != TMSG_ERR_PEER_LOST;
}

static void abandon_channel(tmsg_channel_t *channel)
{
    tmsg_message_t *message = channel->rx;
    tmsg_message_t **place = &channel->rx;

    while (message != NULL) {
        tmsg_message_t *next = message->next_in_order;

        if (tmsg_message_stays(message)) {
            tmsg_schemas_drop(message);
            *place = message;
            place = &message->next_in_order;
            message = next;
            continue;
        }
        if (message->state == TMSG_RX_WAITING) {
            tmsg_fetch_leave(message);
            tmsg_message_drop_data(message);
        }
        /* The fetch destroys a message that is being fetched when it ends. UCX
         * may have reported that end while its endpoint was closed. */
        if (message->pending == 0 && !message->discarded) {
            tmsg_message_discard(message);
        }
        message = next;
    }
    *place = NULL;
}

void tmsg_messages_return(tmsg_endpoint_t *endpoint)
{
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        for (tmsg_message_t *message = channel->rx; message != NULL;
             message = message->next_in_order) {
            if (message->pending == 0) {
                tmsg_message_drop_loan(message);
            }
        }
    }
}

void tmsg_messages_abandon(tmsg_endpoint_t *endpoint)
{
    for (tmsg_channel_t *channel = &endpoint->channels.zero; channel != NULL;
         channel = channel->next) {
        abandon_channel(channel);
    }
    tmsg_fragments_abandon(endpoint);
}
