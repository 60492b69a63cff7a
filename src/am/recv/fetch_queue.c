/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/fetch_queue.h"

#include "am/endpoint/endpoint.h"
#include "am/path/bulk.h"
#include "am/recv/deliver.h"
#include "am/recv/fragments_layout.h"

/* Messages that wait for memory one after the other have no more between
 * them. */
#define GONE_NS UINT64_C(1000000000)

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

static tmsg_message_t *early_message(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_message_t, early_queue);
}

static tmsg_message_t *filling_message(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_message_t, fills_queue);
}

/* Takes an early message out of the lists of its channel and endpoint. */
static void leave_early(tmsg_message_t *message)
{
    tmsg_fetch_queue_t *queue = queue_of(message);
    tmsg_channel_t *channel = message->channel;
    tmsg_endpoint_t *endpoint = message->endpoint;

    channel->early_look = 0; /* those behind it may be behind no more */
    if (message->early_in_channel) {
        tmsg_list_remove(&channel->early, &message->early_queue);
        if (channel->early.count == 0) {
            tmsg_list_remove(&queue->early_channels, &channel->early_queue);
        }
    }
    if (message->early_fills) {
        tmsg_list_remove(&endpoint->early.fills, &message->fills_queue);
        if (endpoint->early.fills.count == 0) {
            tmsg_list_remove(&queue->early_endpoints, &endpoint->early.queue);
        }
    }
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
    if (message->fetch == TMSG_FETCH_EARLY) {
        leave_early(message);
    }
    tmsg_list_remove(&queue_of(message)->in[message->fetch], &message->queue);
    message->fetch = TMSG_FETCH_NONE;
    if (message->starved) {
        message->endpoint->worker->rx.starved_ns = tmsg_now_ns();
    }
}

/* A message that closes a gap takes the turn of those that waited for it, since
 * turns never fall along a channel. */
void tmsg_fetch_ask(tmsg_message_t *message)
{
    tmsg_fetch_queue_t *queue = queue_of(message);

    message->turn = queue->turns++;
    for (const tmsg_message_t *behind = message->next_in_order; behind != NULL;
         behind = behind->next_in_order) {
        if (behind->fetch == TMSG_FETCH_GAPPED) { /* the first of them */
            message->turn = behind->turn;
            break;
        }
    }
    enter_state(message,
                message->behind_gap ? TMSG_FETCH_GAPPED : TMSG_FETCH_ARRIVED);
}

static bool comes_after(const tmsg_message_t *message,
                        const tmsg_message_t *other)
{
    return message->turn == other->turn
               ? (int32_t)(message->head.sequence - other->head.sequence) > 0
               : message->turn > other->turn;
}

/* Lists an early message of its channel. Turns never fall along a channel, so
 * that its place is mostly the last. */
static void file_early(tmsg_message_t *message)
{
    tmsg_channel_t *channel = message->channel;
    tmsg_node_t *before = channel->early.tail;

    while (before != NULL && comes_after(early_message(before), message)) {
        before = before->previous;
    }
    tmsg_list_insert(&channel->early, before, &message->early_queue);
    channel->early_look = 0;
    if (channel->early.count == 1) {
        tmsg_list_push(&queue_of(message)->early_channels,
                       &channel->early_queue);
    }
}

/* Lists an early message that fills the window. `hint` is one that it comes
 * after; NULL: not known. */
static void file_filling(tmsg_message_t *message, tmsg_message_t *hint)
{
    tmsg_list_t *fills = &message->endpoint->early.fills;
    tmsg_node_t *before = hint == NULL ? fills->tail : &hint->fills_queue;

    if (hint == NULL) {
        while (before != NULL &&
               comes_after(filling_message(before), message)) {
            before = before->previous;
        }
    } else {
        while (before->next != NULL &&
               !comes_after(filling_message(before->next), message)) {
            before = before->next;
        }
    }
    tmsg_list_insert(fills, before, &message->fills_queue);
    if (fills->count == 1) {
        tmsg_list_push(&queue_of(message)->early_endpoints,
                       &message->endpoint->early.queue);
    }
}

/* Makes a message early. `hint` is a message that fills the window and comes
 * before it; NULL: not known. */
static void enter_early(tmsg_message_t *message, tmsg_message_t *hint)
{
    message->early_in_channel = !tmsg_message_may_overtake(message);
    message->early_fills = fills_window(message);
    enter_state(message, TMSG_FETCH_EARLY);
    if (message->early_in_channel) {
        file_early(message);
    }
    if (message->early_fills) {
        file_filling(message, hint);
    }
}

void tmsg_fetch_close_gap(tmsg_channel_t *channel)
{
    uint32_t next = tmsg_channel_next(channel, channel->rx_sequence);
    tmsg_message_t *last = NULL;

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
            last = message->early_fills ? message : last;
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

/* Returns whether a message that is early, and fills the window, is the first
 * of its endpoint that does. */
static bool is_first_to_fill(const tmsg_message_t *message)
{
    return message->endpoint->rx.with_fragments[TMSG_FETCH_GAPPED] == 0 &&
           message->endpoint->early.fills.head == &message->fills_queue;
}

/* Returns the first early message of a channel, if it may ask now. All others
 * of the channel wait for it. Whether it is behind is asked once in a look. */
static tmsg_message_t *due_of_channel(tmsg_channel_t *channel, uint64_t look)
{
    tmsg_message_t *message = early_message(channel->early.head);

    queue_of(message)->asked++;
    if (message->early_fills && !is_first_to_fill(message)) {
        return NULL;
    }
    if (channel->early_look != look) {
        channel->early_look = look;
        channel->early_behind = is_behind(message);
    }
    return channel->early_behind ? NULL : message;
}

/* Returns the first message of an endpoint that fills the window, if it
 * overtakes, and may ask now. */
static tmsg_message_t *due_of_endpoint(tmsg_endpoint_t *endpoint)
{
    tmsg_message_t *message = filling_message(endpoint->early.fills.head);

    queue_of(message)->asked++;
    return !message->early_in_channel && is_first_to_fill(message) ? message
                                                                   : NULL;
}

static tmsg_message_t *earlier_of(tmsg_message_t *one, tmsg_message_t *other)
{
    return one == NULL || (other != NULL && comes_after(one, other)) ? other
                                                                     : one;
}

/* Returns the first message by turn of those that are early no more, or NULL.
 * It looks at the first of each channel and of each endpoint alone: a peer may
 * have made thousands wait. */
static tmsg_message_t *find_due(const tmsg_fetch_queue_t *queue, uint64_t look)
{
    tmsg_message_t *due = NULL;

    for (tmsg_node_t *node = queue->early_channels.head; node != NULL;
         node = node->next) {
        due = earlier_of(
            due,
            due_of_channel(TMSG_CONTAINER_OF(node, tmsg_channel_t, early_queue),
                           look));
    }
    for (tmsg_node_t *node = queue->early_endpoints.head; node != NULL;
         node = node->next) {
        due = earlier_of(due, due_of_endpoint(TMSG_CONTAINER_OF(
                                  node, tmsg_endpoint_t, early.queue)));
    }
    return due;
}

void tmsg_fetch_look(tmsg_worker_t *worker)
{
    tmsg_fetch_queue_t *queue = &worker->fetch;
    uint64_t look = ++queue->looks;
    tmsg_message_t *message;

    while ((message = find_due(queue, look)) != NULL) {
        tmsg_fetch_leave(message);
        enter_state(message, TMSG_FETCH_ASKING);
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

void tmsg_fetch_starves(tmsg_worker_t *worker)
{
    tmsg_worker_rx_t *rx = &worker->rx;
    uint64_t now_ns = tmsg_now_ns();

    if (rx->starving_ns == 0 || now_ns - rx->starved_ns > GONE_NS) {
        rx->starving_ns = now_ns;
    }
}

uint64_t tmsg_fetch_starving_ns(const tmsg_worker_t *worker)
{
    const tmsg_list_t *asking = &worker->fetch.in[TMSG_FETCH_ASKING];
    bool starves = asking->count > 0 && message_of(asking->head)->starved &&
                   worker->rx.starving_ns != 0;

    return starves ? tmsg_now_ns() - worker->rx.starving_ns : 0;
}

bool tmsg_fetch_is_due(tmsg_worker_t *worker)
{
    tmsg_fetch_queue_t *queue = &worker->fetch;

    return queue->in[TMSG_FETCH_READY].count > 0 || may_ask(worker) ||
           find_due(queue, ++queue->looks) != NULL;
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
