/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps what waits for one subscriber, and what is on its way to it. */
#include "am/publish/delivery.h"

#include <stdio.h>
#include <stdlib.h>

#include "am/endpoint/dialect.h"
#include "am/endpoint/log.h"
#include "am/send/send.h"
#include "am/session/resume.h"
#include "am/worker/age.h"
#include "am/worker/engine.h"
#include "core/error.h"

/* A subscriber for whom nobody chose a window is behind if a message takes so
 * much longer than the fastest one until it is taken. */
#define BEHIND_NS 100000000ULL
#define PACE_FIRST 2

/* This record is one publication on its way to one subscriber. */
typedef struct {
    tmsg_node_t node; /* in the subscriber's `waiting`, then in `under_way` */
    tmsg_subscriber_t *subscriber;
    tmsg_publication_t *publication;
    uint64_t since_ns; /* when it came into that list, where that matters */
    bool kept;         /* it waits, and counts as one of `kept_waiting` */
} delivery_t;

static void note_fate(tmsg_subscriber_t *subscriber, tmsg_fate_t fate)
{
    subscriber->fates[fate]++;
    subscriber->publisher->fates[fate]++;
}

static void note_drop(tmsg_subscriber_t *subscriber, tmsg_drop_t reason)
{
    note_fate(subscriber, TMSG_FATE_DROPPED);
    subscriber->drops[reason]++;
    subscriber->publisher->drops[reason]++;
}

/* Returns whether the subscriber gets the newest message only. The peer may ask
 * for that, which is known once it is connected. */
static bool wants_newest(const tmsg_subscriber_t *subscriber)
{
    return subscriber->params.flags & TMSG_SUBSCRIBER_NEWEST ||
           subscriber->endpoint->peer_hello.subscribe & TMSG_SUBSCRIBE_NEWEST;
}

/* Returns how many messages may wait. What is kept for a newcomer does not take
 * the place of others, unless somebody chose how many may wait. */
static uint32_t messages_of(const tmsg_subscriber_t *subscriber)
{
    return wants_newest(subscriber)
               ? 1
               : subscriber->kept_waiting + (subscriber->overrun
                                                 ? subscriber->room
                                                 : subscriber->params.messages);
}

static uint32_t subscriber_window(const tmsg_subscriber_t *subscriber)
{
    return wants_newest(subscriber) ? 1
           : subscriber->overrun    ? subscriber->pace
                                    : subscriber->params.window;
}

static int32_t policy_of(const tmsg_subscriber_t *subscriber)
{
    return wants_newest(subscriber) ? (int32_t)TMSG_SLOW_DROP_OLDEST
                                    : subscriber->params.slow;
}

const char *tmsg_subscriber_mode(const tmsg_subscriber_t *subscriber)
{
    return wants_newest(subscriber)                    ? "live"
           : subscriber->params.slow == TMSG_SLOW_WAIT ? "all"
                                                       : "";
}

static bool has_age_bound(const tmsg_subscriber_t *subscriber)
{
    return tmsg_age_is_bound(subscriber->params.most_ms);
}

static uint64_t ns_since(tmsg_node_t *node)
{
    return tmsg_now_ns() - TMSG_CONTAINER_OF(node, delivery_t, node)->since_ns;
}

/* Returns for how long the oldest message that waits may still wait. */
static uint64_t wait_left_ns(const tmsg_subscriber_t *subscriber)
{
    return tmsg_age_left_ns(
        subscriber->params.most_ms,
        TMSG_CONTAINER_OF(subscriber->waiting.head, delivery_t, node)
            ->since_ns);
}

/* Returns whether the oldest message that waits has waited for too long. */
static bool is_too_old(const tmsg_subscriber_t *subscriber)
{
    return has_age_bound(subscriber) && subscriber->waiting.count > 0 &&
           wait_left_ns(subscriber) == 0;
}

static delivery_t *take_waiting(tmsg_subscriber_t *subscriber,
                                tmsg_node_t *node)
{
    delivery_t *delivery = TMSG_CONTAINER_OF(node, delivery_t, node);

    tmsg_list_remove(&subscriber->waiting, node);
    subscriber->waiting_bytes -= delivery->publication->bytes;
    subscriber->kept_waiting -= delivery->kept;
    return delivery;
}

static void free_delivery(delivery_t *delivery)
{
    tmsg_publication_unuse(delivery->publication);
    free(delivery);
}

static void drop_delivery(delivery_t *delivery, tmsg_drop_t reason)
{
    note_drop(delivery->subscriber, reason);
    free_delivery(delivery);
}

static void flush_subscriber(tmsg_subscriber_t *subscriber);

/* Notes what became of a delivery by its send's status. The endpoint's own
 * queue, which others fill too, may drop a send. */
static void note_end(tmsg_subscriber_t *subscriber, tmsg_status_t status)
{
    if (status == TMSG_ERR_DROPPED) {
        note_drop(subscriber, TMSG_DROP_MESSAGES);
    } else {
        note_fate(subscriber,
                  status == TMSG_OK ? TMSG_FATE_DELIVERED : TMSG_FATE_FAILED);
    }
}

static bool took_too_long(const tmsg_subscriber_t *subscriber, uint64_t ns)
{
    return ns >= BEHIND_NS && ns - BEHIND_NS >= subscriber->nearest_ns;
}

/* Widens the bounds of a subscriber that was overrun, or narrows them, by the
 * time that a message took until it was taken. */
static void note_taken(tmsg_subscriber_t *subscriber, tmsg_node_t *node)
{
    uint64_t ns;

    if (!subscriber->adapts) {
        return;
    }
    ns = ns_since(node);
    if (ns < subscriber->nearest_ns) {
        subscriber->nearest_ns = ns;
    }
    if (took_too_long(subscriber, ns)) {
        subscriber->pace -= subscriber->pace > 1;
        subscriber->room -= subscriber->adapts_room ? subscriber->room / 4 : 0;
    } else {
        subscriber->pace += subscriber->pace < subscriber->params.window;
        subscriber->room += subscriber->room < subscriber->params.messages;
    }
}

/* Called by the send when it has ended, as on_done. */
static void delivery_sent(void *arg, tmsg_status_t status, const char *error)
{
    delivery_t *delivery = arg;
    tmsg_subscriber_t *subscriber = delivery->subscriber;
    tmsg_publisher_t *publisher = subscriber->publisher;
    tmsg_worker_t *worker = publisher->worker;

    (void)error; /* the error is logged already */
    tmsg_worker_lock(worker);
    tmsg_list_remove(&subscriber->under_way, &delivery->node);
    note_taken(subscriber, &delivery->node);
    note_end(subscriber, status);
    free_delivery(delivery);
    publisher->refs++;
    flush_subscriber(subscriber);
    tmsg_subscriber_drop(subscriber);
    tmsg_publisher_advance(publisher);
    tmsg_publisher_drop(publisher);
    tmsg_worker_unlock(worker);
}

/* Returns what is left of the publication's time. Returns 0 if nothing is left
 * and its timer is late. */
static int32_t timeout_of(const tmsg_publication_t *publication)
{
    uint64_t now;

    if (publication->timeout_ms < 0) {
        return -1;
    }
    now = tmsg_now_ns();
    return publication->deadline_ns <= now
               ? 0
               : (int32_t)((publication->deadline_ns - now + 999999) / 1000000);
}

static void post_delivery(tmsg_subscriber_t *subscriber, delivery_t *delivery)
{
    const tmsg_publication_t *publication = delivery->publication;
    tmsg_endpoint_t *endpoint = subscriber->endpoint;
    tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_POLICY |
                      TMSG_SEND_PARAM_ON_DONE | TMSG_SEND_PARAM_CHANNEL |
                      TMSG_SEND_PARAM_TIMEOUT | TMSG_SEND_PARAM_WAY,
        .flags = publication->flags,
        .policy = publication->policy,
        .way = publication->way,
        .protocol = publication->protocol,
        .timeout_ms = timeout_of(publication),
        .channel = publication->channel,
        .on_done = delivery_sent,
        .on_done_arg = delivery,
    };
    tmsg_status_t status;

    if (params.timeout_ms == 0) {
        drop_delivery(delivery, TMSG_DROP_TIMEOUT);
        return;
    }
    if (endpoint->dialect->answers) {
        params.flags |= TMSG_SEND_ACKED;
    }
    if (subscriber->adapts) {
        delivery->since_ns = tmsg_now_ns();
    }
    tmsg_list_push(&subscriber->under_way, &delivery->node);
    subscriber->refs++;
    status = tmsg_send_begin(endpoint, publication->map, &params,
                             publication->shared_plan, NULL, NULL);
    if (status != TMSG_OK) {
        tmsg_endpoint_log(endpoint, TMSG_LOG_UNPUBLISHED_KIND, TMSG_LOG_WARN,
                          "a published map is not sent: %s",
                          tmsg_error_message());
        tmsg_list_remove(&subscriber->under_way, &delivery->node);
        note_fate(subscriber, TMSG_FATE_FAILED);
        free_delivery(delivery);
        tmsg_subscriber_drop(subscriber);
    }
}

/* Returns whether the subscriber has left untaken for long what went to it.
 * More of that would only grow old on the way. */
static bool is_behind(const tmsg_subscriber_t *subscriber)
{
    return subscriber->adapts && subscriber->under_way.count > 0 &&
           took_too_long(subscriber, ns_since(subscriber->under_way.head));
}

static bool takes_more(const tmsg_subscriber_t *subscriber)
{
    return subscriber->endpoint->state == TMSG_EP_OPEN &&
           !subscriber->endpoint->close_wanted &&
           subscriber->under_way.count < subscriber_window(subscriber) &&
           !is_behind(subscriber);
}

/* Adds a delivery to those that wait, behind `before`, or in front of all.
 * `kept`: it is one that is kept for newcomers. */
static bool wait_behind(tmsg_subscriber_t *subscriber, tmsg_node_t *before,
                        tmsg_publication_t *publication, bool kept)
{
    delivery_t *delivery = malloc(sizeof(*delivery));

    if (delivery == NULL) {
        tmsg_endpoint_log(subscriber->endpoint, TMSG_LOG_UNPUBLISHED_KIND,
                          TMSG_LOG_WARN,
                          "a published map is dropped: no memory");
        note_drop(subscriber, TMSG_DROP_MEMORY);
        return false;
    }
    delivery->subscriber = subscriber;
    delivery->publication = publication;
    delivery->since_ns = has_age_bound(subscriber) ? tmsg_now_ns() : 0;
    delivery->kept = kept && subscriber->adapts_room;
    subscriber->kept_waiting += delivery->kept;
    tmsg_publication_use(publication);
    tmsg_list_insert(&subscriber->waiting, before, &delivery->node);
    subscriber->waiting_bytes += publication->bytes;
    return true;
}

/* Returns whether the subscriber is about to get a publication. */
static bool has_coming(const tmsg_subscriber_t *subscriber,
                       const tmsg_publication_t *publication)
{
    const tmsg_channel_t *channel =
        tmsg_channel_find(subscriber->endpoint, publication->channel);

    for (tmsg_node_t *node = subscriber->waiting.head; node != NULL;
         node = node->next) {
        if (TMSG_CONTAINER_OF(node, delivery_t, node)->publication ==
            publication) {
            return true;
        }
    }
    for (tmsg_node_t *node = channel == NULL ? NULL : channel->queued.head;
         node != NULL; node = node->next) {
        if (TMSG_CONTAINER_OF(node, tmsg_send_t, node)->shared_plan ==
            publication->shared_plan) {
            return true;
        }
    }
    return false;
}

/* Returns whether one more message of `bytes` may wait. */
static bool is_within_bounds(const tmsg_subscriber_t *subscriber,
                             uint64_t bytes)
{
    uint64_t most = subscriber->params.bytes;

    return subscriber->waiting.count == 0 ||
           (subscriber->waiting.count < messages_of(subscriber) &&
            subscriber->waiting_bytes <= most &&
            bytes <= most - subscriber->waiting_bytes);
}

/* Has a new peer get what is kept, oldest first and before what waits. Where
 * there is no room for all, the oldest that are kept are left out: what waits
 * is not dropped for them. */
static void offer_kept_again(tmsg_subscriber_t *subscriber)
{
    const tmsg_list_t *kept = &subscriber->publisher->kept;

    for (tmsg_node_t *node = kept->tail; node != NULL; node = node->previous) {
        tmsg_publication_t *publication =
            TMSG_CONTAINER_OF(node, tmsg_publication_t, node);

        if (has_coming(subscriber, publication)) {
            continue;
        }
        if (!is_within_bounds(subscriber, publication->bytes)) {
            break;
        }
        wait_behind(subscriber, NULL, publication, true);
    }
}

static void flush_subscriber(tmsg_subscriber_t *subscriber)
{
    if (subscriber->anew && subscriber->endpoint->state == TMSG_EP_OPEN) {
        subscriber->anew = false;
        offer_kept_again(subscriber);
    }
    while (subscriber->waiting.count > 0 && takes_more(subscriber)) {
        bool late = policy_of(subscriber) == TMSG_SLOW_DROP_OLDEST &&
                    is_too_old(subscriber);
        delivery_t *delivery =
            take_waiting(subscriber, subscriber->waiting.head);

        if (late) {
            drop_delivery(delivery, TMSG_DROP_AGE);
        } else {
            post_delivery(subscriber, delivery);
        }
    }
    if (subscriber->waiting.count == 0) {
        subscriber->overrun = false;
    }
}

/* Returns whether more waits than the bounds allow, and which of them. */
static bool has_too_much(const tmsg_subscriber_t *subscriber,
                         tmsg_drop_t *reason_p)
{
    const tmsg_list_t *waiting = &subscriber->waiting;

    *reason_p = waiting->count > messages_of(subscriber) ? TMSG_DROP_MESSAGES
                : waiting->count > 1 &&
                        subscriber->waiting_bytes > subscriber->params.bytes
                    ? TMSG_DROP_BYTES
                    : TMSG_DROP_AGE;
    return *reason_p != TMSG_DROP_AGE || is_too_old(subscriber);
}

bool tmsg_subscriber_has_room(const tmsg_subscriber_t *subscriber,
                              uint64_t bytes)
{
    return policy_of(subscriber) != TMSG_SLOW_WAIT ||
           (is_within_bounds(subscriber, bytes) && !is_too_old(subscriber));
}

static void drop_waiting(tmsg_subscriber_t *subscriber, tmsg_node_t *node,
                         tmsg_drop_t reason)
{
    drop_delivery(take_waiting(subscriber, node), reason);
}

void tmsg_subscriber_drop_late(tmsg_subscriber_t *subscriber,
                               const tmsg_publication_t *publication)
{
    tmsg_node_t *node = subscriber->waiting.head;

    while (node != NULL) {
        tmsg_node_t *next = node->next;

        if (TMSG_CONTAINER_OF(node, delivery_t, node)->publication ==
            publication) {
            drop_waiting(subscriber, node, TMSG_DROP_TIMEOUT);
        }
        node = next;
    }
}

static void disconnect_slow(tmsg_subscriber_t *subscriber)
{
    char words[128];

    snprintf(words, sizeof(words),
             "too slow: %zu messages of %llu bytes wait for it",
             subscriber->waiting.count,
             (unsigned long long)subscriber->waiting_bytes);
    tmsg_resume_forgo(subscriber->endpoint);
    tmsg_engine.end(subscriber->endpoint, TMSG_ERR_LIMIT_EXCEEDED, words);
}

static void set_age_timer(tmsg_subscriber_t *subscriber);

static bool is_kept(tmsg_node_t *node)
{
    return TMSG_CONTAINER_OF(node, delivery_t, node)->kept;
}

/* Returns the oldest delivery of those that the bound on messages is for. Those
 * that are kept for a newcomer come before them. */
static tmsg_node_t *oldest_counted(const tmsg_subscriber_t *subscriber)
{
    tmsg_node_t *node = subscriber->waiting.tail;

    if (subscriber->kept_waiting == 0 || wants_newest(subscriber)) {
        return subscriber->waiting.head;
    }
    while (node->previous != NULL && !is_kept(node->previous)) {
        node = node->previous;
    }
    return node;
}

/* Drops the oldest deliveries until the bounds are met. */
static void trim_waiting(tmsg_subscriber_t *subscriber)
{
    tmsg_drop_t reason;

    while (has_too_much(subscriber, &reason)) {
        drop_waiting(subscriber,
                     reason == TMSG_DROP_MESSAGES ? oldest_counted(subscriber)
                                                  : subscriber->waiting.head,
                     reason);
    }
}

/* From now on no more goes to the subscriber than it takes in BEHIND_NS: the
 * rest would only grow old on the way. */
static void note_overrun(tmsg_subscriber_t *subscriber)
{
    if (subscriber->adapts && !subscriber->overrun) {
        subscriber->overrun = true;
        subscriber->pace = PACE_FIRST;
        subscriber->room = subscriber->params.messages;
    }
}

/* Applies the policy for slow subscribers to one that has too much waiting. */
static void enforce_bounds(tmsg_subscriber_t *subscriber)
{
    tmsg_drop_t reason;

    if (has_too_much(subscriber, &reason)) {
        switch (policy_of(subscriber)) {
        case TMSG_SLOW_DROP_OLDEST:
            trim_waiting(subscriber);
            note_overrun(subscriber);
            break;
        case TMSG_SLOW_DROP_NEWEST:
            drop_waiting(subscriber, subscriber->waiting.tail, reason);
            break;
        case TMSG_SLOW_DISCONNECT:
            disconnect_slow(subscriber);
            return;
        default:
            break; /* tmsg_publisher_publish() has waited for room */
        }
    }
    set_age_timer(subscriber);
}

static void waited_too_long(tmsg_timer_t *timer)
{
    tmsg_subscriber_t *subscriber =
        TMSG_CONTAINER_OF(timer, tmsg_subscriber_t, timer);
    tmsg_publisher_t *publisher = subscriber->publisher;

    publisher->refs++;
    enforce_bounds(subscriber);
    tmsg_publisher_advance(publisher);
    tmsg_publisher_drop(publisher);
}

/* Has the oldest message that waits looked at when it has waited for too
 * long. */
static void set_age_timer(tmsg_subscriber_t *subscriber)
{
    int32_t policy = policy_of(subscriber);

    if (!has_age_bound(subscriber) || subscriber->waiting.count == 0 ||
        subscriber->timer.deadline_ns != 0 ||
        (policy != TMSG_SLOW_DROP_OLDEST && policy != TMSG_SLOW_DISCONNECT)) {
        return;
    }
    subscriber->timer.expired = waited_too_long;
    tmsg_loop_set_alarm(&subscriber->endpoint->worker->loop, &subscriber->timer,
                        wait_left_ns(subscriber));
}

static bool wait_for(tmsg_subscriber_t *subscriber,
                     tmsg_publication_t *publication, bool kept)
{
    return wait_behind(subscriber, subscriber->waiting.tail, publication, kept);
}

void tmsg_subscriber_offer(tmsg_subscriber_t *subscriber,
                           tmsg_publication_t *publication)
{
    if (wait_for(subscriber, publication, false)) {
        flush_subscriber(subscriber);
        enforce_bounds(subscriber);
    }
}

void tmsg_deliveries_begin(tmsg_subscriber_t *subscriber)
{
    const tmsg_list_t *kept = &subscriber->publisher->kept;

    for (tmsg_node_t *node = kept->head; node != NULL; node = node->next) {
        wait_for(subscriber, TMSG_CONTAINER_OF(node, tmsg_publication_t, node),
                 true);
    }
    trim_waiting(subscriber);
    flush_subscriber(subscriber);
    set_age_timer(subscriber);
}

void tmsg_deliveries_go_on(tmsg_subscriber_t *subscriber)
{
    if (wants_newest(subscriber)) { /* as the peer may only now have said */
        trim_waiting(subscriber);
    }
    flush_subscriber(subscriber);
    set_age_timer(subscriber);
}

void tmsg_deliveries_end(tmsg_subscriber_t *subscriber)
{
    while (subscriber->waiting.count > 0) {
        drop_waiting(subscriber, subscriber->waiting.head, TMSG_DROP_LEFT);
    }
    tmsg_loop_clear_timer(&subscriber->endpoint->worker->loop,
                          &subscriber->timer);
}
