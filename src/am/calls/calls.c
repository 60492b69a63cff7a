/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/calls/calls.h"

#include <stdio.h>
#include <stdlib.h>

#include "am/endpoint/consumer.h"
#include "am/endpoint/consumer_struct.h"
#include "am/endpoint/control.h"
#include "am/path/loans.h"
#include "am/recv/consumer.h"
#include "am/recv/fetch_queue.h"
#include "am/recv/posted.h"
#include "am/send/cancel.h"
#include "am/send/send.h"
#include "am/send/template_out.h"
#include "am/worker/context.h"
#include "am/worker/lead.h"
#include "am/worker/memory.h"
#include "core/bytes.h"
#include "core/error.h"

static void run_calls(tmsg_due_t *due)
{
    tmsg_calls_t *calls = TMSG_CONTAINER_OF(due, tmsg_calls_t, due);
    tmsg_worker_t *worker = calls->worker;

    tmsg_worker_lock(worker);
    calls->queued = false;
    tmsg_worker_unlock(worker);
    calls->ops->run(calls->start);
}

void tmsg_calls_wake_held(tmsg_calls_t *calls)
{
    if (!calls->queued) {
        calls->queued = true;
        calls->due.run = run_calls;
        tmsg_worker_due(calls->worker, &calls->due);
    }
}

void tmsg_calls_wake(tmsg_calls_t *calls)
{
    tmsg_worker_lock(calls->worker);
    tmsg_calls_wake_held(calls);
    tmsg_worker_unlock(calls->worker);
}

void tmsg_calls_put_off(tmsg_calls_t *calls)
{
    calls->worker->calls_behind = true;
}

void tmsg_call_catch_up(tmsg_worker_t *worker)
{
    worker->calls_behind = false;
    worker->calls->ops->catch_up(worker->calls->start);
}

static void ring_alarm(tmsg_timer_t *timer)
{
    tmsg_calls_wake_held(TMSG_CONTAINER_OF(timer, tmsg_calls_t, alarm));
}

uint64_t tmsg_calls_now_ns(void) { return tmsg_now_ns(); }

void tmsg_calls_alarm_held(tmsg_calls_t *calls, uint64_t at_ns)
{
    uint64_t now = tmsg_now_ns();
    uint64_t ms = at_ns <= now ? 0 : (at_ns - now + 999999) / 1000000;

    if (calls->alarm.deadline_ns != 0 && calls->alarm.deadline_ns <= at_ns) {
        return;
    }
    calls->alarm.expired = ring_alarm;
    tmsg_loop_set_timer(&calls->worker->loop, &calls->alarm, ms);
}

void tmsg_calls_alarm(tmsg_calls_t *calls, uint64_t at_ns)
{
    tmsg_worker_lock(calls->worker);
    tmsg_calls_alarm_held(calls, at_ns);
    tmsg_worker_unlock(calls->worker);
}

void tmsg_calls_stir(tmsg_calls_t *calls)
{
    tmsg_worker_lock(calls->worker);
    tmsg_worker_changed(calls->worker);
    tmsg_worker_unlock(calls->worker);
}

tmsg_status_t tmsg_calls_until(tmsg_calls_t *calls, bool (*done)(void *arg),
                               void *arg, int timeout_ms, const char *missing,
                               const char *of)
{
    tmsg_worker_t *worker = calls->worker;
    tmsg_status_t status;

    tmsg_worker_enter(worker);
    status = tmsg_worker_until(worker, done, arg, timeout_ms, missing, of);
    tmsg_worker_leave(worker, false);
    return status;
}

void tmsg_calls_starve(tmsg_calls_t *calls, char *why, size_t room)
{
    tmsg_worker_lock(calls->worker);
    tmsg_worker_is_starving(calls->worker, why, room);
    tmsg_worker_unlock(calls->worker);
}

bool tmsg_calls_starve_for(tmsg_calls_t *calls, uint64_t ns, char *words,
                           size_t room)
{
    bool starves;

    tmsg_worker_lock(calls->worker);
    starves = tmsg_fetch_starving_ns(calls->worker) >= ns;
    if (starves) {
        tmsg_worker_starving_words(calls->worker, words, room);
    }
    tmsg_worker_unlock(calls->worker);
    return starves;
}

const void *tmsg_calls_context(void) { return tmsg_thread_context(); }

const void *tmsg_calls_set_context(const void *context)
{
    return tmsg_thread_set_context(context);
}

void tmsg_calls_clear_context(void) { tmsg_thread_clear_context(); }

tmsg_status_t tmsg_calls_enter(tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status == TMSG_OK) {
        tmsg_worker_stay(endpoint->worker);
    }
    return status;
}

void tmsg_calls_leave(tmsg_endpoint_t *endpoint)
{
    tmsg_worker_lock(endpoint->worker);
    tmsg_worker_leave(endpoint->worker, false);
}

bool tmsg_calls_are_shared(const tmsg_calls_t *calls)
{
    return tmsg_worker_is_shared(calls->worker);
}

tmsg_worker_t *tmsg_calls_worker(const tmsg_calls_t *calls)
{
    return calls->worker;
}

const char *tmsg_calls_observers(const tmsg_calls_t *calls)
{
    return calls->worker->context->observers;
}

bool tmsg_calls_was_accepted(const tmsg_endpoint_t *endpoint)
{
    return endpoint->accepted;
}

uint64_t tmsg_calls_lent_most(const tmsg_calls_t *calls)
{
    return calls->worker->context->limits.lent_bytes;
}

static tmsg_status_t start_calls(tmsg_worker_t *worker,
                                 const tmsg_calls_ops_t *ops)
{
    tmsg_status_t status = tmsg_worker_check(worker);

    return status == TMSG_OK ? tmsg_calls_begin(worker, ops) : status;
}

tmsg_status_t tmsg_calls_start(tmsg_worker_t *worker,
                               const tmsg_calls_ops_t *ops, void **start_p)
{
    tmsg_status_t status;

    tmsg_worker_lock(worker);
    status = start_calls(worker, ops);
    if (status == TMSG_OK) {
        *start_p = worker->calls->start;
    }
    tmsg_worker_unlock(worker);
    return status;
}

/* This function is not inlined, so that a caller who has met the peer before
 * saves no registers for it. */
__attribute__((noinline)) static tmsg_status_t
meet_at_first(tmsg_endpoint_t *endpoint, const tmsg_calls_ops_t *ops,
              void **peer_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_status_t status;

    tmsg_worker_lock(worker);
    status = start_calls(worker, ops);
    endpoint = tmsg_endpoint_now(endpoint);
    if (status == TMSG_OK) {
        status = tmsg_calls_meet(endpoint);
    }
    if (status == TMSG_OK) {
        *peer_p = endpoint->calls_peer;
        tmsg_calls_borrow(endpoint);
    }
    tmsg_worker_unlock(worker);
    return status;
}

tmsg_status_t tmsg_calls_peer(tmsg_endpoint_t *endpoint,
                              const tmsg_calls_ops_t *ops, void **peer_p)
{
    const tmsg_worker_t *worker = endpoint->worker;
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    if (tmsg_worker_is_shared(worker) ||
        tmsg_endpoint_now(endpoint)->calls_peer == NULL || worker->ending) {
        return meet_at_first(endpoint, ops, peer_p);
    }
    endpoint = tmsg_endpoint_now(endpoint);
    *peer_p = endpoint->calls_peer;
    tmsg_endpoint_borrow(endpoint);
    return TMSG_OK;
}

tmsg_endpoint_t *tmsg_calls_face(const tmsg_endpoint_t *endpoint)
{
    return endpoint->face;
}

const char *tmsg_calls_name(const tmsg_endpoint_t *endpoint)
{
    return atomic_load(&endpoint->peer);
}

/* Returns the endpoint by which a request goes whose own endpoint has ended
 * since the call was made. */
static tmsg_endpoint_t *carry_over(tmsg_endpoint_t *endpoint,
                                   const tmsg_call_head_t *head)
{
    tmsg_endpoint_t *heir = tmsg_endpoint_heir(endpoint);

    return heir != endpoint && head->type == TMSG_CALL_REQUEST &&
                   tmsg_calls_meet(heir) == TMSG_OK &&
                   tmsg_hub_carry.carried(endpoint->calls_peer,
                                          heir->calls_peer, head->id,
                                          UINT64_MAX)
               ? heir
               : endpoint;
}

/* Sends a call by the general way. This function is not inlined either. */
__attribute__((noinline)) static tmsg_status_t
send_generally(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
               const tmsg_call_send_t *how)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL |
                      TMSG_SEND_PARAM_ON_RELEASE | TMSG_SEND_PARAM_ON_DONE,
        /* A session sends again only what is to be acknowledged. */
        .flags = TMSG_SEND_UNORDERED |
                 (endpoint->resume != NULL || how->flags & TMSG_CALL_SEND_ACKED
                      ? TMSG_SEND_ACKED
                      : 0) |
                 (how->flags & TMSG_CALL_SEND_LEND ? TMSG_SEND_LEND : 0),
        .channel = TMSG_CHANNEL_CALLS,
        .on_release = how->on_release,
        .on_release_arg = how->on_release_arg,
        .on_done = how->on_done,
        .on_done_arg = how->on_done_arg,
    };

    if (endpoint->state == TMSG_EP_ENDED) {
        endpoint = carry_over(endpoint, how->head);
    }
    if (how->flags & TMSG_CALL_SEND_ASKS) {
        tmsg_loans_ask(endpoint);
    }
    return tmsg_send_begin(endpoint, map, &params, NULL, how, NULL);
}

tmsg_status_t tmsg_calls_send(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                              const tmsg_call_send_t *how)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_enter(worker);
    status =
        how->flags == 0 && tmsg_template_send(endpoint, map, NULL, how, NULL)
            ? TMSG_OK
            : send_generally(endpoint, map, how);
    tmsg_worker_leave(worker, true);
    return status;
}

void tmsg_calls_unlend(tmsg_calls_t *calls, struct tmsg_lending **lending_p)
{
    tmsg_worker_lock(calls->worker);
    tmsg_lending_leave(*lending_p);
    *lending_p = NULL;
    tmsg_worker_unlock(calls->worker);
}

bool tmsg_calls_are_full_held(const tmsg_endpoint_t *endpoint)
{
    return endpoint->queue.answers >= TMSG_CALLS_ANSWERS_MOST;
}

bool tmsg_calls_are_full(tmsg_endpoint_t *endpoint)
{
    bool full;

    if (atomic_load(&endpoint->life->over)) {
        return false;
    }
    tmsg_worker_lock(endpoint->worker);
    full = tmsg_calls_are_full_held(endpoint);
    tmsg_worker_unlock(endpoint->worker);
    return full;
}

tmsg_status_t tmsg_calls_check_into(const tmsg_map_t *map)
{
    return tmsg_posted_check(map);
}

/* Returns the first send of a call, or of the reply to one, that has not ended.
 * A peer may use an id twice, and earlier sends with it may have been given
 * up. */
static tmsg_send_t *find_call_send(const tmsg_list_t *list, uint8_t type,
                                   uint64_t id)
{
    for (tmsg_node_t *node = list->head; node != NULL; node = node->next) {
        tmsg_send_t *send = TMSG_CONTAINER_OF(node, tmsg_send_t, node);

        if (send->call.type == type && send->call.id == id &&
            tmsg_request_test(&send->request) == TMSG_IN_PROGRESS) {
            return send;
        }
    }
    return NULL;
}

/* Returns the send of a call, or of the reply to one, that has not ended; NULL:
 * there is none. */
static tmsg_send_t *find_unended(tmsg_endpoint_t *endpoint, uint8_t type,
                                 uint64_t id)
{
    const tmsg_channel_t *channel =
        tmsg_channel_find(endpoint, TMSG_CHANNEL_CALLS);
    tmsg_send_t *send = find_call_send(&endpoint->posted, type, id);

    return send != NULL || channel == NULL
               ? send
               : find_call_send(&channel->queued, type, id);
}

static void give_up_call(tmsg_endpoint_t *endpoint, uint64_t id)
{
    tmsg_send_t *send = find_unended(endpoint, TMSG_CALL_REQUEST, id);

    if (send != NULL) {
        tmsg_send_cancel(&send->request);
    }
}

/* Returns how many sends wait before this one. */
static int count_before(const tmsg_send_t *send)
{
    int count = 0;

    for (const tmsg_node_t *node = send->node.previous; node != NULL;
         node = node->previous) {
        count++;
    }
    return count;
}

/* Takes a request that waits back, without a word to its call. */
static void take_back(tmsg_send_t *send)
{
    send->last = true; /* its call is not told */
    tmsg_send_cancel(&send->request);
}

bool tmsg_calls_awaited(tmsg_endpoint_t *endpoint, uint64_t id, bool *taken_p,
                        char *words, size_t room)
{
    tmsg_worker_t *worker = endpoint->worker;
    const tmsg_channel_t *channel;
    tmsg_send_t *send = NULL;
    bool waits;
    int before = 0;

    if (atomic_load(&endpoint->life->over)) {
        return false;
    }
    tmsg_worker_lock(worker);
    channel = tmsg_channel_find(endpoint, TMSG_CHANNEL_CALLS);
    if (channel != NULL) {
        send = find_call_send(&channel->queued, TMSG_CALL_REQUEST, id);
    }
    if (send != NULL) {
        before = count_before(send);
    }
    waits = send != NULL || endpoint->state == TMSG_EP_CONNECTING ||
            endpoint->state == TMSG_EP_AWAY;
    if (endpoint->state == TMSG_EP_CONNECTING) {
        snprintf(words, room, "; the connection is not made yet");
    } else if (endpoint->state == TMSG_EP_AWAY) {
        snprintf(words, room, "; the connection broke, and is not back yet");
    } else if (waits) {
        snprintf(words, room,
                 "; its request was not sent: the peer takes no more messages, "
                 "and %d wait before it",
                 before);
    }
    if (send != NULL && taken_p != NULL) {
        take_back(send);
        *taken_p = true;
    }
    tmsg_worker_unlock(worker);
    return waits;
}

void tmsg_calls_recall(tmsg_endpoint_t *endpoint, uint64_t id, const char *why)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_send_t *send;

    if (atomic_load(&endpoint->life->over)) {
        return;
    }
    tmsg_worker_lock(worker);
    send = find_unended(endpoint, TMSG_CALL_REPLY, id);
    if (send != NULL) {
        tmsg_send_fail(send, TMSG_ERR_CANCELED, why);
    }
    tmsg_worker_unlock(worker);
}

void tmsg_calls_cancel(tmsg_endpoint_t *endpoint, uint64_t id)
{
    tmsg_worker_t *worker = endpoint->worker;
    uint8_t body[TMSG_UNCALL_BYTES];

    if (atomic_load(&endpoint->life->over)) {
        return;
    }
    tmsg_worker_lock(worker);
    give_up_call(endpoint, id);
    if ((endpoint->state == TMSG_EP_OPEN ||
         endpoint->state == TMSG_EP_CLOSING) &&
        endpoint->peer_hello.features & TMSG_FEATURE_CALLS) {
        tmsg_put_le(body, id, TMSG_UNCALL_BYTES);
        tmsg_control_uncall(endpoint, body, sizeof(body));
    }
    tmsg_worker_unlock(worker);
}

void tmsg_calls_hold(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_hold(endpoint);
}

void tmsg_calls_drop(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_drop(endpoint);
}

void tmsg_calls_borrow(tmsg_endpoint_t *endpoint)
{
    if (tmsg_worker_is_shared(endpoint->worker)) {
        tmsg_endpoint_hold(endpoint);
    } else {
        tmsg_endpoint_borrow(endpoint);
    }
}

void tmsg_calls_return(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_return(endpoint);
}

void tmsg_call_over(tmsg_worker_t *worker)
{
    tmsg_calls_t *calls = worker->calls;

    if (calls != NULL) {
        tmsg_loop_clear_timer(&worker->loop, &calls->alarm);
        calls->ops->over(calls->start);
        free(calls);
    }
}
