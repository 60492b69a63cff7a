/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/fetch_queue.h"

#include "am/endpoint/endpoint.h"
#include "am/path/bulk.h"
#include "am/recv/deliver.h"
#include "am/recv/fragments_layout.h"

static tmsg_message_t *message_of(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_message_t, queue);
}

static tmsg_fetch_queue_t *queue_of(const tmsg_message_t *message)
{
    return &message->endpoint->worker->fetch;
}

static bool is_asked_for(const tmsg_message_t *message)
{
    return (message->head.flags & TMSG_HEADER_PULLED) != 0;
}

/* Returns whether a message has fragments that its sender hands to UCX unasked.
 */
static bool fills_window(const tmsg_message_t *message)
{
    return message->fragments != NULL && !is_asked_for(message);
}

/* Counts a message that may not ask for memory yet in or out of its state. */
static void count_with_fragments(const tmsg_message_t *message, int by)
{
    if (message->fetch <= TMSG_FETCH_EARLY && fills_window(message)) {
        message->endpoint->rx.with_fragments[message->fetch] += (uint32_t)by;
    }
}

/* Returns whether an endpoint has messages that fill UCX's window and may not
 * ask yet. */
static bool has_fragments_waiting(const tmsg_endpoint_t *endpoint)
{
    const uint32_t *with_fragments = endpoint->rx.with_fragments;

    return with_fragments[TMSG_FETCH_EARLY] +
               with_fragments[TMSG_FETCH_GAPPED] >
           0;
}

/* Puts a message into a state, behind another one; `before` NULL: as the first.
 */
static void enter_behind(tmsg_message_t *message, tmsg_fetch_state_t state,
                         tmsg_node_t *before)
{
    tmsg_list_insert(&queue_of(message)->in[state], before, &message->queue);
    message->fetch = state;
    count_with_fragments(message, 1);
}

static void enter_state(tmsg_message_t *message, tmsg_fetch_state_t state)
{
    enter_behind(message, state, queue_of(message)->in[state].tail);
}

void tmsg_fetch_leave(tmsg_message_t *message)
{
    count_with_fragments(message, -1);
    tmsg_list_remove(&queue_of(message)->in[message->fetch], &message->queue);
    message->fetch = TMSG_FETCH_NONE;
}

/* A message that closes a gap takes the turn of those that waited for it, since
 * turns never fall along a channel. */
void tmsg_fetch_ask(tmsg_message_t *message)
{
    tmsg_fetch_queue_t *queue = queue_of(message);

    message->turn = queue->turns++;
    for (const tmsg_message_t *behind = message->next_in_order; behind != NULL;
         behind = behind->next_in_order) {
        if (behind->fetch == TMSG_FETCH_GAPPED &&
            behind->turn < message->turn) {
            message->turn = behind->turn;
        }
    }
    enter_state(message,
                message->behind_gap ? TMSG_FETCH_GAPPED : TMSG_FETCH_ARRIVED);
}

static bool comes_after(tmsg_node_t *node, const tmsg_message_t *other)
{
    const tmsg_message_t *message = message_of(node);

    return message->turn == other->turn
               ? (int32_t)(message->head.sequence - other->head.sequence) > 0
               : message->turn > other->turn;
}

/* Makes a message early, in the order of turns, so that no message waits for
 * one behind it in the list. `before` is a message that it comes after; NULL:
 * not known. */
static void enter_early(tmsg_message_t *message, tmsg_node_t *before)
{
    if (before == NULL) {
        before = queue_of(message)->in[TMSG_FETCH_EARLY].tail;
        while (before != NULL && comes_after(before, message)) {
            before = before->previous;
        }
    } else {
        while (before->next != NULL && !comes_after(before->next, message)) {
            before = before->next;
        }
    }
    enter_behind(message, TMSG_FETCH_EARLY, before);
}

void tmsg_fetch_close_gap(tmsg_channel_t *channel)
{
    uint32_t next = tmsg_channel_next(channel, channel->rx_sequence);
    tmsg_node_t *last = NULL;

    for (tmsg_message_t *message = channel->rx; message != NULL;
         message = message->next_in_order) {
        if (message->head.sequence != next) {
            return;
        }
        next = tmsg_channel_next(channel, next + 1);
        message->behind_gap = false;
        if (message->fetch == TMSG_FETCH_GAPPED) {
            tmsg_fetch_leave(message);
            enter_early(message, last);
            last = &message->queue;
        }
    }
}

void tmsg_fetch_go_on(tmsg_message_t *message)
{
    enter_state(message, TMSG_FETCH_READY);
}

void tmsg_fetch_put_back(tmsg_message_t *message)
{
    enter_behind(message, TMSG_FETCH_ASKING, NULL);
}

/* Returns whether an earlier message of its channel may not ask yet, or the
 * bulk stream already has more bytes to bring than it should. A bulk stream
 * brings one message after the other. */
static bool is_behind(const tmsg_message_t *message)
{
    uint64_t most =
        is_asked_for(message) ? tmsg_bulk_ahead(message->endpoint) : UINT64_MAX;
    uint64_t coming = 0;

    for (const tmsg_message_t *before = message->channel->rx;
         before != NULL && before != message && coming <= most;
         before = before->next_in_order) {
        if (before->fetch == TMSG_FETCH_EARLY ||
            before->fetch == TMSG_FETCH_ARRIVED) {
            return true;
        }
        if (before->aborted) {
            continue;
        }
        if (before->state == TMSG_RX_FETCHING && before->by_bulk &&
            before->fragments != NULL) {
            coming += tmsg_fragments_layout_coming(before);
        } else if (before->fetch == TMSG_FETCH_ASKING && is_asked_for(before)) {
            coming += before->fragments_bytes;
        }
    }
    return coming > most;
}

/* Returns whether a message that is not in the state EARLY should be. */
static bool is_early(const tmsg_message_t *message)
{
    return (fills_window(message) &&
            has_fragments_waiting(message->endpoint)) ||
           (!tmsg_message_may_overtake(message) && is_behind(message));
}

bool tmsg_fetch_is_late(const tmsg_message_t *message)
{
    return message->behind_gap || tmsg_budget_is_missed(message->budget) ||
           ((queue_of(message)->in[TMSG_FETCH_EARLY].count > 0 ||
             has_fragments_waiting(message->endpoint)) &&
            is_early(message));
}

/* Returns whether an early message remains early. The messages before it were
 * asked in the same look. Once a message of a channel is still early, so are
 * all behind it on that channel. The same holds for messages that fill the
 * window. */
static bool is_still_early(const tmsg_message_t *message, uint64_t look)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_channel_t *channel = message->channel;
    bool overtakes = tmsg_message_may_overtake(message);
    bool fills = fills_window(message);
    bool early = fills && (endpoint->rx.with_fragments[TMSG_FETCH_GAPPED] > 0 ||
                           endpoint->rx.early_look == look);

    if (!early && !overtakes) {
        early = channel->early_look == look || is_behind(message);
    }
    if (early && fills) {
        endpoint->rx.early_look = look;
    }
    if (early && !overtakes) {
        channel->early_look = look;
    }
    return early;
}

static tmsg_node_t *find_due(tmsg_node_t *node, uint64_t look)
{
    while (node != NULL && is_still_early(message_of(node), look)) {
        node = node->next;
    }
    return node;
}

void tmsg_fetch_look(tmsg_worker_t *worker)
{
    tmsg_fetch_queue_t *queue = &worker->fetch;
    uint64_t look = ++queue->looks;
    tmsg_node_t *next, *node = find_due(queue->in[TMSG_FETCH_EARLY].head, look);

    for (; node != NULL; node = find_due(next, look)) {
        next = node->next;
        tmsg_fetch_leave(message_of(node));
        enter_state(message_of(node), TMSG_FETCH_ASKING);
    }
}

/* Returns whether the next message that asks need not wait for memory to be
 * released. */
static bool may_ask(const tmsg_worker_t *worker)
{
    const tmsg_list_t *in = worker->fetch.in;

    return in[TMSG_FETCH_ASKING].count == 0
               ? in[TMSG_FETCH_ARRIVED].count > 0
               : !message_of(in[TMSG_FETCH_ASKING].head)->starved ||
                     !tmsg_budget_is_missed(worker->budget);
}

bool tmsg_fetch_is_due(tmsg_worker_t *worker)
{
    tmsg_fetch_queue_t *queue = &worker->fetch;

    return queue->in[TMSG_FETCH_READY].count > 0 || may_ask(worker) ||
           find_due(queue->in[TMSG_FETCH_EARLY].head, ++queue->looks) != NULL;
}

/* Takes off the first asking message that is not early. */
static tmsg_node_t *next_asking(tmsg_fetch_queue_t *queue)
{
    tmsg_list_t *arrived = &queue->in[TMSG_FETCH_ARRIVED];

    while (arrived->head != NULL) {
        tmsg_message_t *message = message_of(arrived->head);

        tmsg_fetch_leave(message);
        if (!is_early(message)) {
            return &message->queue;
        }
        enter_early(message, NULL);
    }
    return NULL;
}

tmsg_message_t *tmsg_fetch_next(tmsg_worker_t *worker, bool may_ask)
{
    tmsg_fetch_queue_t *queue = &worker->fetch;
    tmsg_node_t *node = queue->in[TMSG_FETCH_READY].head;

    if (node == NULL && may_ask) {
        node = queue->in[TMSG_FETCH_ASKING].head;
    }
    if (node != NULL) {
        tmsg_fetch_leave(message_of(node));
    } else if (may_ask) {
        node = next_asking(queue);
    }
    return node == NULL ? NULL : message_of(node);
}
