/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/presence.h"

#include "am/endpoint/endpoint.h"

static void stop_telling(tmsg_endpoint_t *endpoint)
{
    tmsg_list_remove(&endpoint->place.teller->told, &endpoint->place.told_node);
    endpoint->place.teller = NULL;
}

static void run_peer(tmsg_due_t *due)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(due, tmsg_endpoint_t, place.peer_due);
    const tmsg_listener_t *listener;
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_peer_fn on_peer = NULL;
    void *arg = NULL;

    tmsg_worker_lock(worker);
    listener = endpoint->place.teller;
    if (listener != NULL) {
        on_peer = listener->on_peer;
        arg = listener->on_peer_arg;
    }
    tmsg_worker_unlock(worker);
    if (on_peer != NULL) {
        on_peer(arg, endpoint);
    }
    tmsg_endpoint_drop(endpoint);
}

static void run_lost(tmsg_due_t *due)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(due, tmsg_endpoint_t, place.lost_due);
    const tmsg_listener_t *listener;
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_closed_fn on_lost = NULL;
    void *arg = NULL;

    tmsg_worker_lock(worker);
    listener = endpoint->place.teller;
    if (listener != NULL) {
        on_lost = listener->on_lost;
        arg = listener->on_peer_arg;
        stop_telling(endpoint);
    }
    tmsg_worker_unlock(worker);
    if (on_lost != NULL) {
        on_lost(arg, endpoint, endpoint->status, endpoint->error);
    }
    tmsg_endpoint_drop(endpoint);
}

static void call(tmsg_endpoint_t *endpoint, tmsg_due_t *due,
                 void (*run)(tmsg_due_t *due))
{
    due->run = run;
    tmsg_endpoint_hold(endpoint);
    tmsg_worker_due(endpoint->worker, due);
}

void tmsg_presence_began(tmsg_listener_t *listener, tmsg_endpoint_t *endpoint)
{
    if (listener->on_peer == NULL && listener->on_lost == NULL) {
        return;
    }
    endpoint->place.teller = listener;
    tmsg_list_push(&listener->told, &endpoint->place.told_node);
    call(endpoint, &endpoint->place.peer_due, run_peer);
}

void tmsg_presence_ended(tmsg_endpoint_t *endpoint)
{
    if (endpoint->place.teller != NULL) {
        call(endpoint, &endpoint->place.lost_due, run_lost);
    }
}

void tmsg_presence_forget(tmsg_listener_t *listener)
{
    while (listener->told.count > 0) {
        stop_telling(TMSG_CONTAINER_OF(listener->told.head, tmsg_endpoint_t,
                                       place.told_node));
    }
}
