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

/* Counts the endpoint's messages that fill UCX's window and may not ask. */
static void count_fragments_waiting(const tmsg_message_t *message, int by)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    if (!fills_window(message)) {
        return;
    }
    if (message->listed == &queue_of(message)->early) {
        endpoint->rx.fragments_early += (unsigned)by;
    } else if (message->listed == &queue_of(message)->gapped) {
        endpoint->rx.fragments_gapped += (unsigned)by;
    }
}

static void list_message(tmsg_message_t *message, tmsg_list_t *where)
{
    tmsg_list_push(where, &message->queue);
    message->listed = where;
    count_fragments_waiting(message, 1);
}

void tmsg_fetch_leave(tmsg_message_t *message)
{
    count_fragments_waiting(message, -1);
    tmsg_list_remove(message->listed, &message->queue);
    message->listed = NULL;
}

/* A message that closes a gap takes the turn of those that waited for it, since
 * turns never fall along a channel. */
void tmsg_fetch_ask(tmsg_message_t *message)
{
    tmsg_fetch_queue_t *queue = queue_of(message);

    message->turn = queue->turns++;
    for (const tmsg_message_t *behind = message->next_in_order; behind != NULL;
         behind = behind->next_in_order) {
        if (behind->listed == &queue->gapped && behind->turn < message->turn) {
            message->turn = behind->turn;
        }
    }
    list_message(message,
                 message->behind_gap ? &queue->gapped : &queue->arrived);
}

static bool comes_after(tmsg_node_t *node, const tmsg_message_t *other)
{
    const tmsg_message_t *message = message_of(node);

    return message->turn == other->turn
               ? (int32_t)(message->head.sequence - other->head.sequence) > 0
               : message->turn > other->turn;
}

/* Lists an early message in the order of turns, so that no message waits for
 * one behind it in the list. `before` is a message that it comes after; NULL:
 * not known. */
static void list_early(tmsg_message_t *message, tmsg_node_t *before)
{
    tmsg_list_t *early = &queue_of(message)->early;

    if (before == NULL) {
        before = early->tail;
        while (before != NULL && comes_after(before, message)) {
            before = before->previous;
        }
    } else {
        while (before->next != NULL && !comes_after(before->next, message)) {
            before = before->next;
        }
    }
    tmsg_list_insert(early, before, &message->queue);
    message->listed = early;
    count_fragments_waiting(message, 1);
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
        if (message->listed == &queue_of(message)->gapped) {
            tmsg_fetch_leave(message);
            list_early(message, last);
            last = &message->queue;
        }
    }
}

void tmsg_fetch_go_on(tmsg_message_t *message)
{
    list_message(message, &queue_of(message)->first);
}

void tmsg_fetch_put_back(tmsg_message_t *message)
{
    message->listed = &queue_of(message)->asking;
    tmsg_list_insert(message->listed, NULL, &message->queue);
}

/* Returns whether an earlier message of its channel may not ask yet, or the
 * bulk stream already has more bytes to bring than it should. A bulk stream
 * brings one message after the other. */
static bool is_behind(const tmsg_message_t *message)
{
    const tmsg_fetch_queue_t *queue = queue_of(message);
    uint64_t most =
        is_asked_for(message) ? tmsg_bulk_ahead(message->endpoint) : UINT64_MAX;
    uint64_t coming = 0;

    for (const tmsg_message_t *before = message->channel->rx;
         before != NULL && before != message && coming <= most;
         before = before->next_in_order) {
        if (before->listed == &queue->early ||
            before->listed == &queue->arrived) {
            return true;
        }
        if (before->aborted) {
            continue;
        }
        if (before->state == TMSG_RX_FETCHING && before->by_bulk &&
            before->fragments != NULL) {
            coming += tmsg_fragments_layout_coming(before);
        } else if (before->listed == &queue->asking && is_asked_for(before)) {
            coming += before->fragments_bytes;
        }
    }
    return coming > most;
}

/* Returns whether a message that is not listed as early should be. */
static bool is_early(const tmsg_message_t *message)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;

    if (fills_window(message) &&
        endpoint->rx.fragments_early + endpoint->rx.fragments_gapped > 0) {
        return true;
    }
    return !tmsg_message_may_overtake(message) && is_behind(message);
}

bool tmsg_fetch_is_late(const tmsg_message_t *message)
{
    return message->behind_gap || tmsg_budget_is_missed(message->budget) ||
           (queue_of(message)->early.count +
                    message->endpoint->rx.fragments_gapped >
                0 &&
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
    bool early = fills && (endpoint->rx.fragments_gapped > 0 ||
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
    tmsg_node_t *next, *node = find_due(queue->early.head, look);

    for (; node != NULL; node = find_due(next, look)) {
        next = node->next;
        tmsg_fetch_leave(message_of(node));
        list_message(message_of(node), &queue->asking);
    }
}

/* Returns whether the next message that asks need not wait for memory to be
 * released. */
static bool may_ask(const tmsg_worker_t *worker)
{
    const tmsg_fetch_queue_t *queue = &worker->fetch;

    return queue->asking.count == 0
               ? queue->arrived.count > 0
               : !message_of(queue->asking.head)->starved ||
                     !tmsg_budget_is_missed(worker->budget);
}

bool tmsg_fetch_is_due(tmsg_worker_t *worker)
{
    tmsg_fetch_queue_t *queue = &worker->fetch;

    return queue->first.count > 0 || may_ask(worker) ||
           find_due(queue->early.head, ++queue->looks) != NULL;
}

/* Takes off the first asking message that is not early. */
static tmsg_node_t *next_asking(tmsg_fetch_queue_t *queue)
{
    while (queue->arrived.head != NULL) {
        tmsg_message_t *message = message_of(queue->arrived.head);

        tmsg_fetch_leave(message);
        if (!is_early(message)) {
            return &message->queue;
        }
        list_early(message, NULL);
    }
    return NULL;
}

tmsg_message_t *tmsg_fetch_next(tmsg_worker_t *worker, bool may_ask)
{
    tmsg_fetch_queue_t *queue = &worker->fetch;
    tmsg_node_t *node = queue->first.head;

    if (node == NULL && may_ask) {
        node = queue->asking.head;
    }
    if (node != NULL) {
        tmsg_fetch_leave(message_of(node));
    } else if (may_ask) {
        node = next_asking(queue);
    }
    return node == NULL ? NULL : message_of(node);
}
