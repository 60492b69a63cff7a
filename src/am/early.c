/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/early.h"

#include "am/endpoint.h"
#include "am/lane.h"
#include "am/parts_layout.h"
#include "am/resume.h"

typedef enum {
    WHY_NOT_EARLY,
    WHY_ONE_WAITS, /* before it, for the memory that it would take */
    WHY_MUCH_COMES /* and so it is with those behind it */
} why_t;

static tmsg_message_t *message_of(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, tmsg_message_t, queue);
}

/* Memory is taken in the order of messages, for in that order it is released.
 * By the lane they come one behind the other, and each when it is asked for. */
static why_t judge(const tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    bool is_asked_for = (message->head.flags & TMSG_HEADER_PULLED) != 0;
    bool overtakes = (message->head.flags & TMSG_HEADER_UNORDERED) != 0 &&
                     !tmsg_resume_keeps(endpoint);
    uint64_t coming = 0, most = tmsg_lane_ahead(endpoint);

    if (message->aborted || overtakes) {
        return WHY_NOT_EARLY;
    }
    for (const tmsg_message_t *before = message->channel->rx;
         before != NULL && before != message; before = before->next_in_order) {
        if (before->aborted) {
            continue;
        }
        if (before->early || before->state == TMSG_RX_WAITING) {
            return WHY_ONE_WAITS;
        }
        if (before->state == TMSG_RX_FETCHING && before->by_lane &&
            before->parts != NULL) {
            coming += tmsg_parts_layout_coming(before);
        }
        if (is_asked_for && coming > most) {
            return WHY_MUCH_COMES;
        }
    }
    return WHY_NOT_EARLY;
}

bool tmsg_early_keep(tmsg_message_t *message)
{
    message->early = judge(message) != WHY_NOT_EARLY;
    if (message->early) {
        tmsg_list_push(&message->endpoint->worker->early, &message->queue);
    }
    return message->early;
}

bool tmsg_early_is(const tmsg_message_t *message)
{
    return message->endpoint->worker->early.count > 0 &&
           judge(message) != WHY_NOT_EARLY;
}

/* In one look at all of them a channel's are judged until one is early. */
static bool is_early(const tmsg_message_t *message, uint64_t look)
{
    tmsg_channel_t *channel = message->channel;
    why_t why;

    if (channel->early_look == look) {
        return true;
    }
    why = judge(message);
    if (why == WHY_MUCH_COMES) {
        channel->early_look = look;
    }
    return why != WHY_NOT_EARLY;
}

/* Who waits for memory already, and may hold some of it. */
static tmsg_node_t *starved(const tmsg_worker_t *worker)
{
    tmsg_node_t *head = worker->fetch.head;

    return head != NULL && message_of(head)->starved ? head : NULL;
}

void tmsg_early_look(tmsg_worker_t *worker)
{
    tmsg_node_t *next, *last = starved(worker), *node = worker->early.head;
    uint64_t look = ++worker->early_looks;

    for (; node != NULL; node = next) {
        next = node->next;
        if (!is_early(message_of(node), look)) {
            tmsg_message_wait_no_more(message_of(node));
            message_of(node)->channel->early_look = look; /* one at a time */
            tmsg_list_insert(&worker->fetch, last, node);
            last = node;
        }
    }
}

bool tmsg_early_is_due(tmsg_worker_t *worker)
{
    tmsg_node_t *node = worker->early.head;
    uint64_t look = ++worker->early_looks;

    while (node != NULL && is_early(message_of(node), look)) {
        node = node->next;
    }
    return node != NULL;
}

void tmsg_message_wait_no_more(tmsg_message_t *message)
{
    tmsg_worker_t *worker = message->endpoint->worker;

    tmsg_list_remove(message->early ? &worker->early : &worker->fetch,
                     &message->queue);
    message->early = false;
}
