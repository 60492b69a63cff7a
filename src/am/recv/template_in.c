/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives messages by their channel's template; see template.h. */
#include "am/recv/template_in.h"

#include <string.h>

#include "am/endpoint/credit.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/trace.h"
#include "am/recv/consumer.h"
#include "am/recv/deliver.h"
#include "am/recv/fetch_queue.h"
#include "am/recv/fragments_in.h"
#include "am/recv/incoming.h"
#include "am/recv/message.h"
#include "am/recv/posted.h"
#include "am/recv/receive.h"

#define LINE_BYTES 64   /* bytes of a cache line */
#define AHEAD_BYTES 512 /* bytes that are prefetched */

void tmsg_template_forget_in(tmsg_channel_t *channel)
{
    channel->template_in.header_bytes = 0;
}

/* Returns whether the message's body was a reference to a schema and nothing
 * else. */
static bool body_refers(const tmsg_message_t *message)
{
    const tmsg_body_extra_t *extra = &message->extra;

    return extra->schema.form == TMSG_SCHEMA_REFERS &&
           extra->schema.count == 0 && extra->checksum == NULL &&
           extra->split.large == 0 && tmsg_map_meta_size(message->map) == 0;
}

/* Returns whether neither the worker nor the application wants to be asked or
 * told. A posted map may wait: later messages are copied into it. */
static bool is_unwatched(const tmsg_message_t *message)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;

    return !tmsg_budget_asks(message->budget) && message->raw == NULL &&
           (!tmsg_incoming_may_be_placed(message) ||
            (message->head.kind == TMSG_KIND_MAP &&
             tmsg_posted_is_simple(message))) &&
           !tmsg_trace_is_on(endpoint) && endpoint->resume == NULL;
}

static bool is_kind(uint8_t kind)
{
    return kind == TMSG_KIND_MAP || kind == TMSG_KIND_CALL;
}

void tmsg_template_note_in(tmsg_message_t *message,
                           const tmsg_arrival_t *arrival)
{
    tmsg_template_in_t *template = &message->channel->template_in;
    const tmsg_map_t *layout = tmsg_map_layout(message->map);
    size_t bytes = (size_t)arrival->head.bytes + arrival->head.body_bytes;

    if (!is_kind(arrival->head.kind) || arrival->rendezvous ||
        (arrival->head.flags &
         ~(TMSG_HEADER_UNORDERED | TMSG_HEADER_CHARGED)) != 0 ||
        bytes > sizeof(template->header) || arrival->data_bytes == 0 ||
        arrival->data_bytes > TMSG_TEMPLATE_BYTES || !body_refers(message) ||
        !is_unwatched(message) || !tmsg_map_is_of_host(layout) ||
        tmsg_map_has_spans(layout) ||
        tmsg_map_memory(layout) > TMSG_TEMPLATE_LAYOUT_BYTES) {
        return;
    }
    memcpy(template->header, arrival->body - arrival->head.bytes, bytes);
    template->header_bytes = bytes;
    template->head = arrival->head;
    template->layout = layout;
    template->room_bytes =
        arrival->data_bytes > TMSG_MESSAGE_SMALL ? arrival->data_bytes : 0;
    template->noted = message->noted + template->room_bytes;
    template->charge = message->charged;
    template->number = ++message->endpoint->worker->templates;
    /* A payload that is not small, or that a posted map takes, does not lie in
     * the record's room. */
    message->laid =
        template->room_bytes == 0 && !tmsg_incoming_may_be_placed(message);
}

/* Returns the channel that a message is for, or NULL. Does not judge the state
 * of its endpoint. */
static tmsg_channel_t *find_template_channel(tmsg_ucx_t *ucx,
                                             const void *header, size_t bytes)
{
    uint32_t id;
    uint16_t number;
    tmsg_endpoint_t *endpoint = tmsg_preamble_peek(header, bytes, &id, &number)
                                    ? tmsg_endpoint_by_id(ucx->worker, id)
                                    : NULL;

    return endpoint != NULL && endpoint->ucx == ucx && endpoint->ep != NULL
               ? tmsg_channel_find(endpoint, number)
               : NULL;
}

/* Returns whether the message of that number is the next one, waits for
 * nothing, and no abort, receive into a device's memory or fragment concerns
 * it. */
static bool is_next_and_plain(const tmsg_channel_t *channel, uint32_t sequence)
{
    const tmsg_endpoint_t *endpoint = channel->endpoint;
    const tmsg_posted_t *posted = &endpoint->face->rx.posted;

    return sequence == channel->rx_sequence && channel->rx == NULL &&
           channel->overtook == NULL &&
           sequence - channel->rx_credited < endpoint->worker->queue_depth &&
           endpoint->state == TMSG_EP_OPEN && !endpoint->close_wanted &&
           !endpoint->bye_received && endpoint->broken == TMSG_OK &&
           endpoint->rx.aborts == 0 &&
           (posted->map == NULL || !posted->foreign) &&
           (endpoint->rx.kept_fragments.count == 0 ||
            !tmsg_fragments_precede(channel, sequence));
}

/* Returns whether the message has credit, and no earlier message waits for
 * memory. */
static bool has_template_room(const tmsg_channel_t *channel)
{
    const tmsg_template_in_t *template = &channel->template_in;
    const tmsg_worker_t *worker = channel->endpoint->worker;

    return tmsg_credit_allows(channel->endpoint, template->charge) &&
           (template->room_bytes == 0 || tmsg_fetch_count(worker) == 0);
}

/* A template message's header differs from the template's in these numbers. */
typedef struct {
    uint32_t message_id;
    uint32_t sequence;
    tmsg_call_head_t call;
} numbers_t;

static bool repeats_last(const tmsg_template_in_t *template, const void *header,
                         size_t bytes, numbers_t *numbers)
{
    if (template->header_bytes != bytes) {
        return false;
    }
    return template->head.kind == TMSG_KIND_CALL
               ? tmsg_call_repeats(template->header, header, bytes,
                                   &numbers->message_id, &numbers->sequence,
                                   &numbers->call)
               : tmsg_preamble_repeats(template->header, header, bytes,
                                       &numbers->message_id,
                                       &numbers->sequence);
}

static void deliver_by_template(tmsg_message_t *message)
{
    message->channel->rx_sequence++;
    message->endpoint->stats.received_by_template++;
    tmsg_message_hand_over(message);
}

/* Hands a call, or a reply, to the room above. Returns false if it cannot go
 * this way. */
static bool deliver_call(tmsg_message_t *message, const tmsg_call_head_t *call)
{
    tmsg_status_t status = tmsg_call_begin_here(message, call);

    if (status == TMSG_OK) {
        deliver_by_template(message);
    } else if (status == TMSG_IN_PROGRESS) {
        tmsg_template_forget_in(message->channel);
        tmsg_message_discard(message);
    } else {
        (void)tmsg_message_file(message); /* the message is the next in order */
        tmsg_message_reject(message, status);
    }
    return status != TMSG_IN_PROGRESS;
}

/* Prefetches the data, which the sender's processor has written. All cache
 * lines are requested before anything waits for one; reading the header is the
 * first thing that waits. */
static void prefetch_payload(const uint8_t *data, size_t bytes)
{
#pragma GCC unroll 4
    for (size_t at = 0; at < bytes; at += LINE_BYTES) {
        __builtin_prefetch(data + at);
    }
}

bool tmsg_template_arrived(tmsg_ucx_t *ucx, const void *header,
                           size_t header_bytes, const void *data,
                           size_t data_bytes)
{
    const tmsg_template_in_t *template;
    tmsg_channel_t *channel;
    tmsg_message_t *message;
    numbers_t numbers;

    if (data_bytes > TMSG_TEMPLATE_BYTES) {
        return false;
    }
    prefetch_payload(data, data_bytes < AHEAD_BYTES ? data_bytes : AHEAD_BYTES);
    channel = find_template_channel(ucx, header, header_bytes);
    template = channel == NULL ? NULL : &channel->template_in;
    if (template == NULL || template->head.payload_bytes != data_bytes ||
        !repeats_last(template, header, header_bytes, &numbers) ||
        !is_next_and_plain(channel, numbers.sequence) ||
        (data_bytes > TMSG_TEMPLATE_SMALL && !has_template_room(channel))) {
        return false;
    }
    message = tmsg_message_by_template(ucx, channel);
    if (message == NULL) {
        return false;
    }
    message->head.message_id = numbers.message_id;
    message->head.sequence = numbers.sequence;
    memcpy(tmsg_message_room(message, data_bytes), data, data_bytes);
    if (template->head.kind != TMSG_KIND_CALL) {
        deliver_by_template(message);
    } else if (!deliver_call(message, &numbers.call)) {
        return false;
    }
    if (template->charge > 0) {
        tmsg_credit_pass(channel->endpoint, template->charge);
    }
    return true;
}
