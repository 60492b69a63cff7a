/* SPDX-License-Identifier: BSD-3-Clause */
/* Delivers whole messages to the application, in their order. */
#include "am/recv/deliver.h"

#include "am/endpoint/channel.h"
#include "am/endpoint/dialect.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/session.h"
#include "am/recv/consumer.h"
#include "am/recv/outcomes.h"
#include "am/recv/posted.h"
#include "am/recv/receive.h"
#include "am/recv/schemas.h"
#include "am/recv/trace.h"
#include "core/error.h"

/* Notes the number of the next message to be taken. A stream's messages are
 * taken in another order than they came in: its end at once, earlier ones when
 * they are read. */
static void note_taken(tmsg_message_t *message)
{
    tmsg_channel_t *channel = message->channel;

    if (message->head.kind != TMSG_KIND_STREAM) {
        channel->rx_taken = message->head.sequence + 1;
        return;
    }
    tmsg_list_remove(&channel->rx_unread, &message->own_queue);
    channel->rx_taken = channel->rx_unread.count == 0
                            ? channel->rx_sequence
                            : TMSG_CONTAINER_OF(channel->rx_unread.head,
                                                tmsg_message_t, own_queue)
                                  ->head.sequence;
}

/* Returns whether the peer may have to be told of credit. The bytes of a
 * template message were credited when it came, so only its number is left. */
static bool may_owe_credit(const tmsg_message_t *message)
{
    const tmsg_channel_t *channel = message->channel;

    return message->by_template == 0 ||
           channel->rx_consumed - channel->rx_credited >=
               tmsg_worker_credit_batch(message->endpoint->worker);
}

void tmsg_message_answer(const tmsg_message_t *message, tmsg_status_t status)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    if (message->head.flags & TMSG_HEADER_ACKED &&
        endpoint->state != TMSG_EP_ENDED) {
        endpoint->dialect->answer(endpoint, message->head.message_id, status,
                                  status == TMSG_OK ? ""
                                                    : tmsg_error_message());
    }
}

void tmsg_message_taken(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    tmsg_trace_received(message, TMSG_TRACE_RECV_TAKEN, TMSG_OK);
    if (endpoint->state == TMSG_EP_ENDED) {
        return;
    }
    message->channel->rx_consumed++;
    note_taken(message);
    if (!message->answered_later) {
        tmsg_message_answer(message, TMSG_OK);
    }
    if (may_owe_credit(message)) {
        endpoint->dialect->credit(message->channel);
    }
}

/* Notes that the application has the message. Returns false if nobody has the
 * endpoint any more. */
static bool take_wanted(tmsg_message_t *message)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;
    bool wanted;

    tmsg_worker_lock(endpoint->worker);
    wanted = endpoint->face->handle;
    if (wanted) {
        tmsg_message_taken(message);
    }
    tmsg_worker_unlock(endpoint->worker);
    return wanted;
}

static void run_handler(tmsg_due_t *due)
{
    tmsg_message_t *message = TMSG_CONTAINER_OF(due, tmsg_message_t, due);
    const tmsg_worker_t *worker = message->endpoint->worker;

    if (take_wanted(message)) {
        worker->handler(worker->handler_arg, message);
    } else {
        tmsg_message_destroy(message);
    }
}

static void run_call_now(tmsg_due_t *due)
{
    tmsg_message_t *message = TMSG_CONTAINER_OF(due, tmsg_message_t, due);

    if (take_wanted(message)) {
        tmsg_call_arrived(message);
    } else {
        tmsg_call_dropped(message);
        tmsg_message_destroy(message);
    }
}

/* Delivers a call or a reply, which the application's handler never sees. */
static void run_call(tmsg_due_t *due)
{
    due->run = run_call_now;
    if (!tmsg_posted_awaits(TMSG_CONTAINER_OF(due, tmsg_message_t, due))) {
        run_call_now(due);
    }
}

/* Delivers a stream's message, which is taken when it is read. */
static void run_stream(tmsg_due_t *due)
{
    tmsg_message_t *message = TMSG_CONTAINER_OF(due, tmsg_message_t, due);
    tmsg_worker_t *worker = message->endpoint->worker;
    bool wanted;

    tmsg_worker_lock(worker);
    wanted = message->endpoint->face->handle;
    tmsg_worker_unlock(worker);
    if (wanted) {
        tmsg_stream_arrived(message);
    } else {
        tmsg_message_destroy(message);
    }
}

static bool is_streams(const tmsg_message_t *message)
{
    return message->head.kind == TMSG_KIND_STREAM ||
           message->head.kind == TMSG_KIND_STREAM_OVER;
}

static void run_refused(tmsg_due_t *due)
{
    tmsg_message_t *message = TMSG_CONTAINER_OF(due, tmsg_message_t, due);
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_worker_t *worker = endpoint->worker;
    const char *why = message->why;
    bool wanted;

    tmsg_worker_lock(worker);
    wanted = endpoint->face->handle && worker->on_refused != NULL;
    tmsg_worker_unlock(worker);
    if (is_streams(message)) {
        tmsg_stream_failed(
            message, why != NULL ? why : tmsg_status_name(message->refusal));
    } else if (message->head.kind == TMSG_KIND_CALL) {
        tmsg_call_failed(
            message, why != NULL ? why : tmsg_status_name(message->refusal));
    } else if (wanted) {
        worker->on_refused(
            worker->on_refused_arg, endpoint->face, message->head.channel,
            message->head.sequence, message->refusal,
            why != NULL ? why : tmsg_status_name(message->refusal));
    }
    tmsg_message_destroy(message);
}

static void pass_over(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    endpoint->stats.lost_messages += message->refusal == TMSG_ERR_PEER_LOST;
    tmsg_resume_note(message->channel, message->head.sequence,
                     message->refusal);
    message->due.run = run_refused;
    tmsg_worker_due(endpoint->worker, &message->due);
}

/* Gives up a message that nobody takes any more, and tells its sender. The
 * chores give the credit back: UCX may be in the middle of a callback. */
static void discard_untaken(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    endpoint->stats.refused_messages++;
    if (endpoint->state != TMSG_EP_ENDED) {
        message->channel->rx_consumed++;
        note_taken(message);
        tmsg_resume_note(message->channel, message->head.sequence,
                         TMSG_ERR_REFUSED);
        tmsg_message_answer(
            message, tmsg_error_set(TMSG_ERR_REFUSED,
                                    "its receiver takes no more messages"));
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_message_discard(message);
}

void tmsg_message_hand_over(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_worker_t *worker = endpoint->worker;
    uint64_t bytes = tmsg_message_bytes(message);

    tmsg_message_delivered(message);
    message->channel->received_messages++;
    endpoint->stats.received_messages++;
    endpoint->stats.received_by_bulk += message->by_bulk;
    endpoint->stats.received_bytes += bytes;
    tmsg_histogram_note(&endpoint->stats.received_sizes, bytes);
    tmsg_trace_received(message, TMSG_TRACE_RECV_DELIVERED, TMSG_OK);
    if (message->call != NULL) {
        message->due.run = run_call;
        tmsg_worker_due(worker, &message->due);
        return;
    }
    if (message->head.kind == TMSG_KIND_STREAM) {
        tmsg_list_push(&message->channel->rx_unread, &message->own_queue);
    }
    if (is_streams(message)) {
        message->due.run = run_stream;
        tmsg_worker_due(worker, &message->due);
        return;
    }
    if (worker->handler != NULL) {
        message->due.run = run_handler;
        tmsg_worker_due(worker, &message->due);
        return;
    }
    if (endpoint->face->discards) {
        discard_untaken(message);
        return;
    }
    tmsg_list_push(&worker->ready, &message->queue);
    tmsg_list_push(&endpoint->face->ready, &message->own_queue);
    tmsg_worker_arrived(worker);
}

void tmsg_messages_refuse(tmsg_endpoint_t *face)
{
    tmsg_message_t *message;

    face->discards = true;
    while ((message = tmsg_message_unqueue(face)) != NULL) {
        discard_untaken(message);
    }
}

void tmsg_messages_deliver(tmsg_channel_t *channel)
{
    tmsg_endpoint_t *endpoint = channel->endpoint;
    bool news = false; /* the peer is owed credit */

    for (;;) {
        tmsg_message_t *message = channel->rx;

        if (tmsg_channel_pass(channel)) {
            news = true;
            continue;
        }
        if (message == NULL || message->state < TMSG_RX_WHOLE ||
            message->pending > 0 ||
            message->head.sequence != channel->rx_sequence) {
            break;
        }
        channel->rx = message->next_in_order;
        channel->rx_sequence++;
        tmsg_schemas_in_turn(message);
        if (message->state == TMSG_RX_FAILED) {
            channel->rx_consumed++;
            news = true;
            pass_over(message);
        } else {
            tmsg_message_hand_over(message);
        }
    }
    if (news || tmsg_close_waits(endpoint)) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
}

bool tmsg_message_may_overtake(const tmsg_message_t *message)
{
    return (message->head.flags & TMSG_HEADER_UNORDERED) != 0 &&
           /* A session counts prefixes. */
           !tmsg_resume_keeps(message->endpoint);
}

/* The message waits for no earlier one, but its definition of a schema does. */
void tmsg_message_overtake(tmsg_message_t *message)
{
    tmsg_channel_t *channel = message->channel;

    if (!tmsg_message_may_overtake(message) ||
        message->head.sequence == channel->rx_sequence ||
        !tmsg_channel_may_overtake(channel) || !tmsg_schemas_keep(message)) {
        return;
    }
    *tmsg_message_place(message) = message->next_in_order;
    tmsg_channel_overtake(channel, message->head.sequence);
    tmsg_message_hand_over(message);
}

void tmsg_message_take_back(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    uint64_t bytes = tmsg_message_bytes(message);

    message->channel->received_messages--;
    endpoint->stats.received_messages--;
    endpoint->stats.received_by_bulk -= message->by_bulk;
    endpoint->stats.received_bytes -= bytes;
    tmsg_histogram_forget(&endpoint->stats.received_sizes, bytes);
    message->channel->rx_consumed++;
    endpoint->dialect->credit(message->channel);
    pass_over(message);
}

bool tmsg_channel_pass(tmsg_channel_t *channel)
{
    uint64_t mask;

    if (!tmsg_channel_overtook(channel, channel->rx_sequence)) {
        return false;
    }
    *tmsg_channel_overtaking(channel, channel->rx_sequence, &mask) &= ~mask;
    tmsg_schemas_passed(channel, channel->rx_sequence);
    channel->rx_sequence++;
    return true;
}
