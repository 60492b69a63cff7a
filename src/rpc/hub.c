/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/hub.h"

#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
#include "rpc/caller.h"
#include "rpc/server.h"

void tmsg_hub_hold(tmsg_hub_t *hub)
{
    atomic_fetch_add_explicit(&hub->refs, 1, memory_order_relaxed);
}

void tmsg_hub_drop(tmsg_hub_t *hub)
{
    if (atomic_fetch_sub_explicit(&hub->refs, 1, memory_order_acq_rel) == 1) {
        pthread_mutex_destroy(&hub->lock);
        free(hub->slots);
        free(hub);
    }
}

static void *create(tmsg_calls_t *calls)
{
    tmsg_hub_t *hub = calloc(1, sizeof(*hub));

    if (hub == NULL) {
        tmsg_error_memory("what calls need");
        return NULL;
    }
    atomic_init(&hub->refs, 1);
    pthread_mutex_init(&hub->lock, NULL);
    hub->calls = calls;
    return hub;
}

static void *meet(void *start, tmsg_endpoint_t *endpoint)
{
    tmsg_hub_t *hub = start;
    tmsg_rpc_peer_t *peer = calloc(1, sizeof(*peer));

    if (peer == NULL) {
        tmsg_error_memory("what calls need of an endpoint");
        return NULL;
    }
    peer->hub = hub;
    peer->endpoint = endpoint;
    tmsg_hub_hold(hub);
    return peer;
}

static void forget(void *arg)
{
    tmsg_rpc_peer_t *peer = arg;

    tmsg_hub_drop(peer->hub);
    free(peer);
}

void tmsg_hub_tell(tmsg_hub_t *hub, tmsg_rpc_event_t *event)
{
    tmsg_list_push(&hub->events, &event->node);
}

bool tmsg_hub_expect(tmsg_hub_t *hub, tmsg_expiry_t *expiry, uint64_t at_ns)
{
    tmsg_node_t *before = hub->deadlines.tail;
    bool first = hub->alarm_ns == 0 || at_ns < hub->alarm_ns;

    while (before != NULL &&
           TMSG_CONTAINER_OF(before, tmsg_expiry_t, node)->at_ns > at_ns) {
        before = before->previous;
    }
    expiry->at_ns = at_ns;
    tmsg_list_insert(&hub->deadlines, before, &expiry->node);
    if (first) {
        hub->alarm_ns = at_ns;
    }
    return first;
}

void tmsg_hub_forgo(tmsg_hub_t *hub, tmsg_expiry_t *expiry)
{
    if (expiry->at_ns != 0) {
        expiry->at_ns = 0;
        tmsg_list_remove(&hub->deadlines, &expiry->node);
    }
}

void tmsg_hub_wake(tmsg_hub_t *hub)
{
    if (!atomic_load(&hub->over)) {
        tmsg_calls_wake(hub->calls);
    }
}

/* Ends what is to end by now. Gives the time of the next; 0: there is none. */
static uint64_t expire(tmsg_hub_t *hub, uint64_t now)
{
    uint64_t next = 0;

    tmsg_hub_lock(hub);
    while (hub->deadlines.head != NULL && next == 0) {
        tmsg_expiry_t *expiry =
            TMSG_CONTAINER_OF(hub->deadlines.head, tmsg_expiry_t, node);

        if (expiry->at_ns > now) {
            next = expiry->at_ns;
        } else {
            tmsg_hub_forgo(hub, expiry);
            expiry->expire(expiry);
        }
    }
    hub->alarm_ns = next;
    tmsg_hub_unlock(hub);
    return next;
}

static void fire_all(tmsg_hub_t *hub)
{
    tmsg_node_t *node;

    tmsg_hub_lock(hub);
    while ((node = tmsg_list_pop(&hub->events)) != NULL) {
        tmsg_rpc_event_t *event =
            TMSG_CONTAINER_OF(node, tmsg_rpc_event_t, node);

        tmsg_hub_unlock(hub);
        event->fire(event);
        tmsg_hub_lock(hub);
    }
    tmsg_hub_unlock(hub);
}

static void run(void *start)
{
    tmsg_hub_t *hub = start;
    uint64_t next = expire(hub, tmsg_calls_now_ns());

    if (next != 0) {
        tmsg_calls_alarm(hub->calls, next);
    }
    tmsg_hub_hold(hub); /* a callback may destroy the server */
    fire_all(hub);
    tmsg_server_run(hub);
    tmsg_hub_drop(hub);
}

static void over(void *start)
{
    tmsg_hub_t *hub = start;

    atomic_store(&hub->over, true);
    fire_all(hub);
    tmsg_hub_drop(hub);
}

static void ended(void *arg, tmsg_status_t status, const char *error)
{
    tmsg_rpc_peer_t *peer = arg;
    tmsg_hub_t *hub = peer->hub;

    tmsg_hub_lock(hub);
    peer->over = true;
    tmsg_calls_lost(peer, status, error);
    tmsg_tasks_lost(peer);
    tmsg_hub_unlock(hub);
    fire_all(hub);
    tmsg_server_run(hub);
}

static tmsg_status_t begins(void *arg, const tmsg_call_head_t *head,
                            tmsg_call_in_t **in_p)
{
    return head->type == TMSG_CALL_REQUEST ? tmsg_task_begins(arg, head, in_p)
                                           : tmsg_reply_begins(arg, head, in_p);
}

const tmsg_calls_ops_t tmsg_hub_ops = {
    .create = create,
    .over = over,
    .meet = meet,
    .ended = ended,
    .forget = forget,
    .begins = begins,
    .canceled = tmsg_task_canceled,
    .bounced = tmsg_call_bounces,
    .run = run,
};

tmsg_status_t tmsg_method_check(const char *method, size_t *bytes_p)
{
    size_t bytes = method == NULL ? 0 : strlen(method);

    if (bytes == 0 || bytes > TMSG_METHOD_BYTES_MAX ||
        !tmsg_utf8_valid(method, bytes)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "a method's name is 1 to %d bytes of UTF-8%s",
                              TMSG_METHOD_BYTES_MAX,
                              method == NULL ? ", not NULL" : "");
    }
    *bytes_p = bytes;
    return TMSG_OK;
}
