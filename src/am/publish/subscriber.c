/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is published to: from when an endpoint is added until it leaves. */
#include <stdlib.h>

#include "am/publish/delivery.h"
#include "am/publish/publisher.h"
#include "am/worker/engine.h"
#include "core/error.h"
#include "core/params.h"

#define MESSAGES_DEFAULT 16
#define WINDOW_DEFAULT 32

#define FLAGS_KNOWN ((uint32_t)(TMSG_SUBSCRIBER_NEWEST | TMSG_SUBSCRIBER_OWNED))

static tmsg_status_t check_subscriber(const tmsg_subscriber_params_t *read)
{
    if (read->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "subscriber: unknown flags 0x%x", read->flags);
    }
    if (read->messages == 0) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "subscriber: messages is 0: it must be 1 or more");
    }
    if (read->window == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "subscriber: window is 0: it must be 1 or more");
    }
    if (read->most_ms == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "subscriber: most_ms is 0: it must be 1 or more");
    }
    if (read->slow < TMSG_SLOW_DROP_OLDEST || read->slow > TMSG_SLOW_WAIT) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "subscriber: slow %d is not a tmsg_slow_t",
                              read->slow);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_subscriber_read(const tmsg_subscriber_params_t *params,
                                   tmsg_subscriber_params_t *read)
{
    static const tmsg_param_t rows[] = {
        TMSG_PARAM(tmsg_subscriber_params_t, TMSG_SUBSCRIBER_PARAM_FLAGS,
                   flags),
        TMSG_PARAM(tmsg_subscriber_params_t, TMSG_SUBSCRIBER_PARAM_MESSAGES,
                   messages),
        TMSG_PARAM(tmsg_subscriber_params_t, TMSG_SUBSCRIBER_PARAM_BYTES,
                   bytes),
        TMSG_PARAM(tmsg_subscriber_params_t, TMSG_SUBSCRIBER_PARAM_WINDOW,
                   window),
        TMSG_PARAM(tmsg_subscriber_params_t, TMSG_SUBSCRIBER_PARAM_SLOW, slow),
        TMSG_PARAM(tmsg_subscriber_params_t, TMSG_SUBSCRIBER_PARAM_MOST_MS,
                   most_ms)};
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_status_t status;

    *read = (tmsg_subscriber_params_t){.field_mask = mask,
                                       .messages = MESSAGES_DEFAULT,
                                       .bytes = UINT64_MAX,
                                       .window = WINDOW_DEFAULT,
                                       .most_ms = UINT32_MAX};
    status = tmsg_params_read("subscriber", params, mask, rows,
                              sizeof(rows) / sizeof(rows[0]), read);
    return status == TMSG_OK ? check_subscriber(read) : status;
}

void tmsg_subscriber_drop(tmsg_subscriber_t *subscriber)
{
    if (--subscriber->refs == 0) {
        tmsg_endpoint_drop(subscriber->endpoint);
        tmsg_publisher_drop(subscriber->publisher);
        free(subscriber);
    }
}

static void run_peer(tmsg_due_t *due)
{
    tmsg_subscriber_t *subscriber =
        TMSG_CONTAINER_OF(due, tmsg_subscriber_t, peer_due);
    tmsg_publisher_t *publisher = subscriber->publisher;
    tmsg_worker_t *worker = publisher->worker;
    tmsg_endpoint_t *face;
    tmsg_peer_fn on_peer;
    void *arg = publisher->on_peer_arg;

    tmsg_worker_lock(worker);
    on_peer = publisher->on_peer;
    face = subscriber->endpoint->face;
    tmsg_worker_unlock(worker);
    if (on_peer != NULL) {
        on_peer(arg, face);
    }
    tmsg_worker_lock(worker);
    tmsg_subscriber_drop(subscriber);
    tmsg_worker_unlock(worker);
}

static void run_lost(tmsg_due_t *due)
{
    tmsg_subscriber_t *subscriber =
        TMSG_CONTAINER_OF(due, tmsg_subscriber_t, lost_due);
    tmsg_publisher_t *publisher = subscriber->publisher;
    tmsg_endpoint_t *endpoint;
    tmsg_worker_t *worker = publisher->worker;
    tmsg_closed_fn on_lost;
    void *arg = publisher->on_peer_arg;
    bool ended;

    tmsg_worker_lock(worker);
    on_lost = publisher->on_lost;
    endpoint = subscriber->endpoint;
    ended = endpoint->state == TMSG_EP_ENDED;
    tmsg_worker_unlock(worker);
    if (on_lost != NULL) {
        on_lost(arg, endpoint->face, ended ? endpoint->status : TMSG_OK,
                ended ? endpoint->error : "");
    }
    tmsg_worker_lock(worker);
    tmsg_subscriber_drop(subscriber);
    tmsg_worker_unlock(worker);
}

/* Tells of a subscriber once it is connected. */
static void tell_peer(tmsg_subscriber_t *subscriber)
{
    const tmsg_publisher_t *publisher = subscriber->publisher;

    if (!subscriber->told && subscriber->endpoint->state == TMSG_EP_OPEN &&
        (publisher->on_peer != NULL || publisher->on_lost != NULL)) {
        subscriber->told = true;
        subscriber->peer_due.run = run_peer;
        subscriber->refs++;
        tmsg_worker_due(publisher->worker, &subscriber->peer_due);
    }
}

static void tell_lost(tmsg_subscriber_t *subscriber)
{
    if (subscriber->told) {
        subscriber->lost_due.run = run_lost;
        subscriber->refs++;
        tmsg_worker_due(subscriber->publisher->worker, &subscriber->lost_due);
    }
}

tmsg_status_t tmsg_subscriber_create(tmsg_publisher_t *publisher,
                                     tmsg_endpoint_t *endpoint,
                                     const tmsg_subscriber_params_t *params)
{
    tmsg_subscriber_t *subscriber = calloc(1, sizeof(*subscriber));

    if (subscriber == NULL) {
        return tmsg_error_memory("a subscriber");
    }
    subscriber->refs = 1;
    subscriber->publisher = publisher;
    publisher->refs++;
    subscriber->endpoint = endpoint;
    tmsg_endpoint_hold(endpoint);
    subscriber->params = *params;
    subscriber->nearest_ns = UINT64_MAX;
    subscriber->adapts = params->slow == TMSG_SLOW_DROP_OLDEST &&
                         !(params->field_mask & TMSG_SUBSCRIBER_PARAM_WINDOW);
    subscriber->adapts_room =
        !(params->field_mask & TMSG_SUBSCRIBER_PARAM_MESSAGES);
    tmsg_list_push(&publisher->subscribers, &subscriber->node);
    subscriber->next = endpoint->subscriptions;
    endpoint->subscriptions = subscriber;
    tell_peer(subscriber);
    tmsg_deliveries_begin(subscriber);
    return TMSG_OK;
}

tmsg_subscriber_t *tmsg_subscriber_find(const tmsg_publisher_t *publisher,
                                        const tmsg_endpoint_t *endpoint)
{
    tmsg_subscriber_t *subscriber = endpoint->subscriptions;

    while (subscriber != NULL && subscriber->publisher != publisher) {
        subscriber = subscriber->next;
    }
    return subscriber;
}

void tmsg_subscriber_leave(tmsg_subscriber_t *subscriber)
{
    tmsg_subscriber_t **place = &subscriber->endpoint->subscriptions;

    while (*place != subscriber) {
        place = &(*place)->next;
    }
    *place = subscriber->next;
    tmsg_list_remove(&subscriber->publisher->subscribers, &subscriber->node);
    tmsg_deliveries_end(subscriber);
    tell_lost(subscriber);
    tmsg_subscriber_drop(subscriber);
}

void tmsg_subscribers_flush(tmsg_endpoint_t *endpoint)
{
    tmsg_subscriber_t *subscriber = endpoint->subscriptions;

    for (; subscriber != NULL; subscriber = subscriber->next) {
        tell_peer(subscriber);
        tmsg_deliveries_go_on(subscriber);
    }
}

void tmsg_subscribers_move(tmsg_endpoint_t *heir, tmsg_endpoint_t *old)
{
    tmsg_subscriber_t *subscriber = old->subscriptions;

    old->subscriptions = NULL;
    heir->subscriptions = subscriber;
    for (; subscriber != NULL; subscriber = subscriber->next) {
        subscriber->endpoint = heir;
        tmsg_endpoint_hold(heir);
        tmsg_endpoint_drop(old);
        subscriber->anew = true;
        /* The new peer may be slower, and farther away. */
        subscriber->nearest_ns = UINT64_MAX;
        subscriber->overrun = false;
    }
}

static void run_release_owned(tmsg_due_t *due)
{
    tmsg_subscriber_t *subscriber =
        TMSG_CONTAINER_OF(due, tmsg_subscriber_t, due);
    tmsg_worker_t *worker = subscriber->publisher->worker;

    tmsg_worker_lock(worker);
    if (subscriber->endpoint->face->handle) {
        tmsg_engine.release(subscriber->endpoint->face);
    }
    tmsg_subscriber_drop(subscriber);
    tmsg_worker_unlock(worker);
}

/* An owned endpoint is released by a callback, when whoever ends it no longer
 * uses it. */
void tmsg_subscribers_ended(tmsg_endpoint_t *endpoint)
{
    while (endpoint->subscriptions != NULL) {
        tmsg_subscriber_t *subscriber = endpoint->subscriptions;
        tmsg_publisher_t *publisher = subscriber->publisher;

        if (subscriber->params.flags & TMSG_SUBSCRIBER_OWNED &&
            endpoint->face->handle) {
            subscriber->due.run = run_release_owned;
            subscriber->refs++;
            tmsg_worker_due(endpoint->worker, &subscriber->due);
        }
        publisher->refs++;
        tmsg_subscriber_leave(subscriber);
        tmsg_publisher_advance(publisher);
        tmsg_publisher_drop(publisher);
    }
}
