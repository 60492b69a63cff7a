/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/hub.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/utf8.h"
#include "rpc/builtin.h"
#include "rpc/caller.h"
#include "rpc/intercept.h"
#include "rpc/metrics.h"
#include "rpc/offer.h"
#include "rpc/stall.h"
#include "rpc/stream.h"

/* This function sleeps, because the thread that has the lock must be able to
 * run, whatever the priorities. */
void tmsg_hub_await_lock(tmsg_hub_t *hub)
{
    static const struct timespec pause = {.tv_nsec = 20000};

    while (atomic_exchange_explicit(&hub->locked, true, memory_order_acquire)) {
        nanosleep(&pause, NULL);
    }
}

static void *take_at_hand(const tmsg_hub_t *hub, tmsg_records_t *records)
{
    if (hub->shared) {
        return atomic_exchange_explicit(&records->at_hand, NULL,
                                        memory_order_acquire);
    }
    return tmsg_hub_take_at_hand(records);
}

static bool put_at_hand(const tmsg_hub_t *hub, tmsg_records_t *records,
                        void *record)
{
    void *none = NULL;

    if (TMSG_RPC_SPARES == 0) {
        return false;
    }
    if (hub->shared) {
        return atomic_compare_exchange_strong_explicit(
            &records->at_hand, &none, record, memory_order_release,
            memory_order_relaxed);
    }
    return tmsg_hub_put_at_hand(records, record);
}

void *tmsg_hub_take_record(tmsg_records_t *records, size_t bytes)
{
    void *record = tmsg_list_pop(&records->more);

    return record == NULL ? calloc(1, bytes) : record;
}

void *tmsg_hub_record(tmsg_hub_t *hub, tmsg_records_t *records, size_t bytes)
{
    void *record = take_at_hand(hub, records);

    if (record == NULL) {
        tmsg_hub_lock(hub);
        record = tmsg_list_pop(&records->more);
        tmsg_hub_unlock(hub);
    }
    return record == NULL ? calloc(1, bytes) : record;
}

bool tmsg_hub_keep_record(tmsg_records_t *records, void *record)
{
    /* TMSG_RPC_SPARES may be 0: gcc warns of `count < 0`. */
    bool room = records->more.count + 1 <= TMSG_RPC_SPARES;

    if (room) {
        tmsg_list_push(&records->more, record);
    }
    return room;
}

void tmsg_hub_give_record(tmsg_hub_t *hub, tmsg_records_t *records,
                          void *record, bool own)
{
    bool kept = own && put_at_hand(hub, records, record);

    if (!kept) {
        tmsg_hub_lock(hub);
        kept = tmsg_hub_keep_record(records, record);
        tmsg_hub_unlock(hub);
    }
    if (!kept) {
        free(record);
    }
}

void tmsg_hub_free_records(tmsg_records_t *records)
{
    void *record;

    free(atomic_load(&records->at_hand));
    while ((record = tmsg_list_pop(&records->more)) != NULL) {
        free(record);
    }
}

void tmsg_hub_hold(tmsg_hub_t *hub) { tmsg_refs_take(&hub->refs); }

void tmsg_hub_drop(tmsg_hub_t *hub)
{
    if (tmsg_refs_drop(&hub->refs)) {
        pthread_mutex_destroy(&hub->lock);
        free(hub->call_ready);
        tmsg_hub_free_records(&hub->calls_kept);
        tmsg_hub_free_records(&hub->tasks_kept);
        tmsg_map_destroy(hub->empty);
        tmsg_map_destroy(hub->fetch_kept);
        tmsg_meters_free(hub);
        tmsg_chains_free(hub);
        tmsg_offers_free(hub->offers);
        free(hub->slots);
        free(hub);
    }
}

static void *create_hub(tmsg_calls_t *calls)
{
    tmsg_hub_t *hub = calloc(1, sizeof(*hub));

    if (hub == NULL || tmsg_map_create(&hub->empty) != TMSG_OK) {
        free(hub);
        tmsg_error_memory("the state of calls");
        return NULL;
    }
    tmsg_refs_init(&hub->refs, 1);
    pthread_mutex_init(&hub->lock, NULL);
    hub->shared = tmsg_calls_are_shared(calls);
    hub->lent_most = tmsg_calls_lent_most(calls);
    hub->calls = calls;
    return hub;
}

static void *meet_endpoint(void *start, tmsg_endpoint_t *endpoint)
{
    tmsg_hub_t *hub = start;
    tmsg_rpc_peer_t *peer = calloc(1, sizeof(*peer));

    if (peer == NULL) {
        tmsg_error_memory("the state of calls of an endpoint");
        return NULL;
    }
    peer->hub = hub;
    peer->endpoint = endpoint;
    peer->budget = TMSG_RETRY_BUDGET_DEFAULT;
    tmsg_hub_hold(hub);
    return peer;
}

static void forget_peer(void *arg)
{
    tmsg_rpc_peer_t *peer = arg;

    tmsg_hub_drop(peer->hub);
    tmsg_table_free(&peer->calls_by_message);
    tmsg_table_free(&peer->tasks_by_id);
    free(peer->streams);
    free(peer->slots);
    free(peer);
}

void tmsg_hub_tell(tmsg_hub_t *hub, tmsg_rpc_event_t *event)
{
    tmsg_list_push(&hub->events, &event->node);
}

/* Returns whether an alarm has to be asked for. */
static bool is_next(tmsg_hub_t *hub, uint64_t at_ns)
{
    bool next = hub->alarm_ns == 0 || at_ns < hub->alarm_ns;

    if (next) {
        hub->alarm_ns = at_ns;
    }
    return next;
}

bool tmsg_hub_expect(tmsg_hub_t *hub, tmsg_expiry_t *expiry, uint64_t at_ns)
{
    tmsg_node_t *before = hub->deadlines.tail;

    while (before != NULL &&
           TMSG_CONTAINER_OF(before, tmsg_expiry_t, node)->at_ns > at_ns) {
        before = before->previous;
    }
    expiry->at_ns = at_ns;
    tmsg_list_insert(&hub->deadlines, before, &expiry->node);
    return is_next(hub, at_ns);
}

void tmsg_hub_forgo(tmsg_hub_t *hub, tmsg_expiry_t *expiry)
{
    if (expiry->at_ns != 0) {
        expiry->at_ns = 0;
        tmsg_list_remove(&hub->deadlines, &expiry->node);
    }
}

bool tmsg_lifetime_begin(tmsg_hub_t *hub, tmsg_lifetime_t *lifetime,
                         uint64_t at_ns)
{
    tmsg_heap_add(&hub->lifetimes, &lifetime->node, at_ns);
    return is_next(hub, at_ns);
}

void tmsg_lifetime_end(tmsg_hub_t *hub, tmsg_lifetime_t *lifetime)
{
    if (lifetime->node.number != 0) {
        tmsg_heap_remove(&hub->lifetimes, &lifetime->node);
        lifetime->node.number = 0;
    }
}

void tmsg_hub_wake(tmsg_hub_t *hub)
{
    if (!atomic_load(&hub->over)) {
        tmsg_calls_wake(hub->calls);
    }
}

/* Ends the lifetimes whose time has come. Returns when the next ends; 0: there
 * is none. Lock held. */
static uint64_t expire_lifetimes(tmsg_hub_t *hub, uint64_t now)
{
    while (hub->lifetimes.least != NULL) {
        tmsg_lifetime_t *lifetime =
            TMSG_CONTAINER_OF(hub->lifetimes.least, tmsg_lifetime_t, node);

        if (lifetime->node.number > now) {
            return lifetime->node.number;
        }
        tmsg_lifetime_end(hub, lifetime);
        lifetime->expire(lifetime);
    }
    return 0;
}

/* Runs the expiries whose time has come. Returns the next deadline; 0: there is
 * none. Takes the lock. */
static uint64_t expire_deadlines(tmsg_hub_t *hub, uint64_t now)
{
    uint64_t next = 0, end;

    tmsg_hub_lock(hub);
    end = expire_lifetimes(hub, now);
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
    if (next == 0 || (end != 0 && end < next)) {
        next = end;
    }
    hub->alarm_ns = next;
    tmsg_hub_unlock(hub);
    return next;
}

/* Fires the queued events. Each event begins without a context of the thread,
 * and so does the code that runs next. Events that are queued meanwhile wait
 * behind the worker's other callbacks: if another thread progresses, a peer
 * could keep this loop busy for ever. With `last` they fire at once, because
 * the worker is gone. Lock not held. */
static void fire_all(tmsg_hub_t *hub, bool last)
{
    tmsg_node_t *node;
    size_t left;
    bool more;

    tmsg_hub_lock(hub);
    left = last ? SIZE_MAX : hub->events.count;
    for (; left > 0 && (node = tmsg_list_pop(&hub->events)) != NULL; left--) {
        tmsg_rpc_event_t *event =
            TMSG_CONTAINER_OF(node, tmsg_rpc_event_t, node);

        tmsg_hub_unlock(hub);
        event->fire(event);
        tmsg_calls_clear_context();
        tmsg_hub_lock(hub);
    }
    more = hub->events.count > 0;
    tmsg_hub_unlock(hub);
    if (more) {
        tmsg_hub_wake(hub);
    }
}

static void run_hub(void *start)
{
    tmsg_hub_t *hub = start;
    uint64_t next = expire_deadlines(hub, tmsg_calls_now_ns());

    if (next != 0) {
        tmsg_calls_alarm(hub->calls, next);
    }
    tmsg_hub_hold(hub); /* a callback may destroy the server */
    fire_all(hub, false);
    tmsg_server_run(hub);
    tmsg_hub_drop(hub);
}

static void end_hub(void *start)
{
    tmsg_hub_t *hub = start;
    /* Callbacks do not run in the context of the thread that destroys the
     * worker. */
    const void *before = tmsg_calls_set_context(NULL);

    atomic_store(&hub->over, true);
    tmsg_calls_catch_up(hub);
    fire_all(hub, true);
    tmsg_offers_close(hub);
    tmsg_builtin_leave(hub);
    (void)tmsg_calls_set_context(before);
    tmsg_hub_drop(hub);
}

static void catch_up_hub(void *start) { tmsg_calls_catch_up(start); }

static void endpoint_ended(void *arg, tmsg_status_t status, const char *error)
{
    tmsg_rpc_peer_t *peer = arg;
    tmsg_hub_t *hub = peer->hub;
    bool goes_on;

    tmsg_hub_lock(hub);
    peer->over = true;
    tmsg_calls_lost(peer, status, error);
    goes_on = peer->heir != NULL;
    peer->heir = NULL;
    tmsg_tasks_lost(peer);
    tmsg_hub_unlock(hub);
    if (goes_on) { /* some calls may be made again */
        tmsg_hub_wake(hub);
    }
    tmsg_streams_let_go(peer);
    fire_all(hub, false);
    tmsg_server_run(hub);
}

static tmsg_status_t call_begins(void *arg, const tmsg_call_head_t *head,
                                 tmsg_call_in_t **in_p,
                                 const tmsg_map_t **into_p)
{
    return head->type == TMSG_CALL_REQUEST
               ? tmsg_task_begins(arg, head, NULL, in_p)
               : tmsg_reply_begins(arg, head, in_p, into_p);
}

static bool message_bounced(void *arg, const tmsg_call_head_t *head,
                            uint32_t message_id, bool sent,
                            tmsg_status_t status, const char *error)
{
    return head != NULL && head->type == TMSG_CALL_REPLY
               ? tmsg_reply_bounces(arg, head, sent, status, error)
               : tmsg_call_bounces(arg, message_id, sent, status, error);
}

static void count_served(void *start, tmsg_calls_counts_t *counts)
{
    const tmsg_hub_t *hub = start;

    tmsg_offers_count(start, counts);
    tmsg_stall_count(start, counts);
    counts->leaves = atomic_load(&hub->leaves);
}

const tmsg_calls_ops_t tmsg_hub_ops = {
    .create = create_hub,
    .over = end_hub,
    .meet = meet_endpoint,
    .ended = endpoint_ended,
    .forget = forget_peer,
    .begins = call_begins,
    .streamed = tmsg_stream_came,
    .stuck = tmsg_stream_stuck,
    .canceled = tmsg_task_canceled,
    .bounced = message_bounced,
    .run = run_hub,
    .catch_up = catch_up_hub,
    .count = count_served,
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
