/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements tensormsg/call.h: makes calls, waits for them, gives them up. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/map.h"
#include "core/params.h"
#include "rpc/caller.h"
#include "rpc/intercept.h"
#include "rpc/metrics.h"
#include "rpc/stream.h"

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_CALL_PARAM_TIMEOUT | TMSG_CALL_PARAM_ON_DONE |            \
                TMSG_CALL_PARAM_ON_RELEASE | TMSG_CALL_PARAM_REPLY_INTO |      \
                TMSG_CALL_PARAM_FLAGS | TMSG_CALL_PARAM_RETRY))

/* Most calls set only these parameters. Any other one makes `extras` true. */
#define PARAMS_USUAL                                                           \
    ((uint64_t)(TMSG_CALL_PARAM_TIMEOUT | TMSG_CALL_PARAM_ON_DONE |            \
                TMSG_CALL_PARAM_ON_RELEASE))

/* Inlined, this function would slow down calls that have no timeout. */
TMSG_RPC_RARE tmsg_status_t take_timeout(tmsg_call_t *call, int32_t timeout_ms)
{
    if (timeout_ms == 0 || timeout_ms < -1) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "call: timeout_ms %d is neither above 0 nor -1",
                              timeout_ms);
    }
    call->timeout_ms = timeout_ms;
    if (timeout_ms > 0) {
        call->deadline_ns =
            tmsg_calls_now_ns() + (uint64_t)timeout_ms * 1000000;
        call->how.deadline_ns = call->deadline_ns;
    }
    return TMSG_OK;
}

/* Notes that the reply may be a loan; the request has to tell the peer. */
static void ask_for_loan(tmsg_call_t *call)
{
    call->in.borrows = true;
    call->how.flags |= TMSG_CALL_SEND_ASKS;
}

TMSG_RPC_RARE tmsg_status_t take_extras(tmsg_call_t *call,
                                        const tmsg_call_params_t *params)
{
    uint64_t mask = params->field_mask;
    tmsg_status_t status;

    if (mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("call", mask & ~PARAMS_KNOWN);
    }
    call->extras = true;
    status = tmsg_retry_read(params, call);
    if (status == TMSG_OK && mask & TMSG_CALL_PARAM_REPLY_INTO &&
        params->reply_into != NULL) {
        status = tmsg_calls_check_into(params->reply_into);
        if (status == TMSG_OK) {
            call->into = params->reply_into;
            tmsg_map_hold(call->into);
        }
    }
    if (call->flags & TMSG_CALL_LEND) {
        call->how.flags |= TMSG_CALL_SEND_LEND;
    }
    /* What goes into memory of the caller's is copied in any case. */
    if (call->flags & TMSG_CALL_BORROW && call->into == NULL) {
        ask_for_loan(call);
        call->head.flags |= TMSG_CALL_ASKS_LOAN;
    }
    return status;
}

TMSG_RPC_STEP tmsg_status_t take_params(tmsg_call_t *call,
                                        const tmsg_call_params_t *params)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_status_t status = TMSG_OK;

    if (mask & TMSG_CALL_PARAM_ON_DONE) {
        call->on_done = params->on_done;
        call->on_done_arg = params->on_done_arg;
    }
    if (mask & TMSG_CALL_PARAM_ON_RELEASE) {
        call->how.on_release = params->on_release;
        call->how.on_release_arg = params->on_release_arg;
    }
    if (mask & ~PARAMS_USUAL) {
        status = take_extras(call, params);
    }
    return status == TMSG_OK && mask & TMSG_CALL_PARAM_TIMEOUT
               ? take_timeout(call, params->timeout_ms)
               : status;
}

TMSG_RPC_STEP void take_name(tmsg_call_t *call, const char *method,
                             size_t bytes)
{
    call->method_bytes = bytes;
    memcpy(call->method, method, bytes + 1);
    call->head.text_bytes = bytes;
}

/* Stores the name of the method. Usually the last call of the record had the
 * same method, and the name was checked then. */
TMSG_RPC_STEP tmsg_status_t take_method(tmsg_call_t *call, const char *method)
{
    size_t bytes;
    tmsg_status_t status = TMSG_OK;

    if (call->method_bytes == 0 || method == NULL ||
        strcmp(call->method, method) != 0) {
        status = tmsg_method_check(method, &bytes);
        if (status == TMSG_OK) {
            take_name(call, method, bytes);
        }
    }
    return status;
}

/* Returns a record with the fields set that are the same in all calls; NULL: no
 * memory. */
static tmsg_call_t *new_record(tmsg_hub_t *hub)
{
    tmsg_call_t *call = tmsg_hub_record(hub, &hub->calls_kept, sizeof(*call));

    if (call != NULL) {
        tmsg_zero(call, offsetof(tmsg_call_t, method_bytes));
        call->error[0] = '\0';
        tmsg_refs_init(&call->refs, 2);
        atomic_init(&call->status, TMSG_IN_PROGRESS);
        atomic_init(&call->attempts, 1);
        tmsg_call_init(call);
        call->timeout_ms = -1;
        call->head.text_bytes = call->method_bytes;
    }
    return call;
}

TMSG_RPC_STEP tmsg_call_t *take_record(tmsg_hub_t *hub)
{
    tmsg_call_t *call = hub->call_ready;

    if (call == NULL) {
        return new_record(hub);
    }
    hub->call_ready = NULL;
    return call;
}

/* Prepares a record for the next call, which usually has the same method.
 * `like` was sent before, so that the peer has work meanwhile. */
static void prepare_next_call(const tmsg_call_t *like)
{
    tmsg_hub_t *hub = like->peer->hub;

    if (hub->shared || hub->call_ready != NULL) {
        return;
    }
    hub->call_ready = new_record(hub);
    if (hub->call_ready != NULL && hub->call_ready->method_bytes == 0) {
        take_name(hub->call_ready, like->method, like->method_bytes);
    }
}

TMSG_RPC_STEP tmsg_status_t make_call(tmsg_rpc_peer_t *peer, const char *method,
                                      const tmsg_call_params_t *params,
                                      tmsg_call_t **call_p)
{
    tmsg_call_t *call = take_record(peer->hub);
    tmsg_status_t status;

    if (call == NULL) {
        tmsg_calls_drop(peer->endpoint);
        return tmsg_error_memory("a call");
    }
    call->peer = peer;
    call->current = peer;
    call->endpoint = peer->endpoint;
    status = take_method(call, method);
    if (status == TMSG_OK) {
        status = take_params(call, params);
    }
    if (status == TMSG_OK) {
        *call_p = call;
    } else {
        tmsg_call_drop_own(call, 2);
    }
    return status;
}

tmsg_status_t tmsg_call_make(tmsg_rpc_peer_t *peer, const char *method,
                             const tmsg_call_params_t *params,
                             tmsg_call_t **call_p)
{
    return make_call(peer, method, params, call_p);
}

TMSG_RPC_RARE void enlist_extras(tmsg_call_t *call, const tmsg_map_t *map)
{
    if (call->stream != NULL) {
        call->stream->id = call->id;
    }
    call->meter = tmsg_meter_begin(call->peer->hub, TMSG_SIDE_CALLER,
                                   call->method, call->method_bytes);
    if (call->meter != NULL) {
        call->extras = true;
        call->begun_ns = tmsg_calls_now_ns();
        call->meter->counts.sent_bytes += tmsg_meter_bytes(map);
    }
}

/* *id_p is the id of the first attempt. */
TMSG_RPC_STEP tmsg_status_t enlist(tmsg_call_t *call, const tmsg_map_t *map,
                                   uint64_t *id_p)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool alarm = false;
    tmsg_status_t status;

    tmsg_hub_lock_live(hub);
    status = tmsg_call_take_slot(hub, call);
    if (status == TMSG_OK) {
        if (call->extras || hub->counts) {
            enlist_extras(call, map);
        }
        *id_p = call->id;
        tmsg_list_push(&call->current->calls, &call->node);
        alarm = call->deadline_ns != 0 &&
                tmsg_hub_expect(hub, &call->expiry, call->deadline_ns);
    }
    tmsg_hub_unlock_live(hub);
    if (alarm) {
        tmsg_calls_alarm(hub->calls, call->deadline_ns);
    }
    return status;
}

tmsg_status_t tmsg_call_enlist(tmsg_call_t *call, const tmsg_map_t *map)
{
    uint64_t id;

    return enlist(call, map, &id);
}

/* Ends a call whose attempt of that id was not sent. Returns false if the call
 * has ended otherwise, or goes on by another attempt. */
static bool delist(tmsg_call_t *call, uint64_t id, tmsg_status_t status)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool mine;

    tmsg_hub_lock(hub);
    mine = !tmsg_call_has_ended(call) && call->id == id;
    if (mine) {
        tmsg_call_end(call, status);
    }
    tmsg_hub_unlock(hub);
    return mine;
}

bool tmsg_call_delist(tmsg_call_t *call, tmsg_status_t status)
{
    return delist(call, call->id, status); /* it has no other attempts */
}

/* Sends an attempt of a call with retries, with copies of its head and `how`:
 * an earlier attempt may still read those of the record. */
TMSG_RPC_RARE tmsg_status_t send_lent(tmsg_call_t *call,
                                      tmsg_endpoint_t *endpoint, uint64_t id,
                                      const tmsg_map_t *map)
{
    tmsg_call_head_t head = call->head;
    tmsg_call_send_t how = call->how;
    tmsg_status_t status;

    head.id = id;
    how.head = &head;
    tmsg_retry_lend(call, &how);
    status = tmsg_calls_send(endpoint, map, &how);
    if (status != TMSG_OK) {
        tmsg_retry_unlend(call);
    }
    return status;
}

TMSG_RPC_STEP tmsg_status_t send_attempt(tmsg_call_t *call,
                                         tmsg_endpoint_t *endpoint, uint64_t id,
                                         const tmsg_map_t *map)
{
    if (map == NULL) {
        map = call->peer->hub->empty;
    }
    if (call->retry.attempts > 0) {
        return send_lent(call, endpoint, id, map);
    }
    call->head.id = id;
    return tmsg_calls_send(endpoint, map, &call->how);
}

tmsg_status_t tmsg_call_send(tmsg_call_t *call, tmsg_endpoint_t *endpoint,
                             uint64_t id, const tmsg_map_t *map)
{
    return send_attempt(call, endpoint, id, map);
}

/* Settles a send that returned `status`. Returns TMSG_OK if the call was sent,
 * has ended otherwise, which is told, or goes on; else `status`. */
TMSG_RPC_STEP tmsg_status_t check_sent(tmsg_call_t *call, uint64_t id,
                                       tmsg_status_t status)
{
    if (status != TMSG_OK && !delist(call, id, status)) {
        if (call->retry.attempts == 0 && call->how.on_release != NULL) {
            call->how.on_release(call->how.on_release_arg);
        }
        return TMSG_OK;
    }
    if (status == TMSG_OK && tmsg_call_has_ended(call)) {
        tmsg_call_uncall(call, id);
    }
    return status;
}

TMSG_RPC_STEP tmsg_status_t launch_call(tmsg_call_t *call,
                                        const tmsg_map_t *map)
{
    tmsg_status_t status;
    uint64_t id;

    if (call->retry.attempts > 0) {
        tmsg_retry_init(call, map);
    }
    if (call->extras || call->peer->hub->shared || call->peer->refuses) {
        call->how.began = tmsg_call_began;
    }
    status = enlist(call, map, &id);
    return status == TMSG_OK
               ? check_sent(call, id,
                            send_attempt(call, call->endpoint, id, map))
               : status;
}

/* Gives the application its handle, or drops it if the application wants none.
 * Drops a call that was not sent, too. */
static void finish_launch(tmsg_call_t *call, tmsg_status_t status,
                          tmsg_call_t **call_p)
{
    prepare_next_call(call);
    if (status != TMSG_OK) {
        tmsg_hooks_unsent(call->hooks, status);
        tmsg_call_drop_own(call, 2);
    } else if (call_p != NULL) {
        *call_p = call;
    } else {
        tmsg_call_drop_unseen(call);
    }
}

/* Launches a call that interceptors see first. They may add to its metadata. */
TMSG_RPC_RARE tmsg_status_t launch_intercepted(tmsg_call_t *call,
                                               const tmsg_map_t *map)
{
    tmsg_status_t status = tmsg_hooks_begin_call(call, map);

    if (status == TMSG_OK) {
        call->how.more = tmsg_hooks_more(call->hooks);
        call->how.spares_more = tmsg_hooks_spare_more(call->hooks);
        status = launch_call(call, map);
    }
    return status;
}

/* `about`: as for tmsg_call_about(), or NULL and false. */
TMSG_RPC_STEP tmsg_status_t begin_call(tmsg_endpoint_t *endpoint,
                                       const char *method,
                                       const tmsg_map_t *map,
                                       const tmsg_call_params_t *params,
                                       const char *about, bool borrows,
                                       tmsg_call_t **call_p)
{
    tmsg_call_t *call = NULL;
    void *peer;
    tmsg_status_t status = tmsg_calls_peer(endpoint, &tmsg_hub_ops, &peer);

    if (status == TMSG_OK) {
        status = make_call(peer, method, params, &call);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (about != NULL) {
        call->has_about = true;
        snprintf(call->reply_text, sizeof(call->reply_text), "%s", about);
    }
    if (borrows) {
        ask_for_loan(call);
    }
    status = tmsg_is_intercepted(call->peer->hub, TMSG_SIDE_CALLER)
                 ? launch_intercepted(call, map)
                 : launch_call(call, map);
    finish_launch(call, status, call_p);
    return status;
}

tmsg_status_t tmsg_endpoint_call(tmsg_endpoint_t *endpoint, const char *method,
                                 const tmsg_map_t *map,
                                 const tmsg_call_params_t *params,
                                 tmsg_call_t **call_p)
{
    return begin_call(endpoint, method, map, params, NULL, false, call_p);
}

tmsg_status_t tmsg_call_about(tmsg_endpoint_t *endpoint, const char *method,
                              const tmsg_map_t *map,
                              const tmsg_call_params_t *params,
                              const char *about, bool borrows,
                              tmsg_call_t **call_p)
{
    return begin_call(endpoint, method, map, params, about, borrows, call_p);
}

tmsg_status_t tmsg_call_status(const tmsg_call_t *call)
{
    return (tmsg_status_t)atomic_load_explicit(&call->status,
                                               memory_order_acquire);
}

static bool wait_is_over(void *arg) { return tmsg_call_has_ended(arg); }

tmsg_status_t tmsg_call_wait(tmsg_call_t *call, int timeout_ms)
{
    tmsg_hub_t *hub = call->peer->hub;
    tmsg_status_t status = TMSG_OK;

    tmsg_call_hold(call); /* a callback may destroy the handle */
    if (!tmsg_call_has_ended(call)) {
        status =
            tmsg_calls_until(hub->calls, wait_is_over, call, timeout_ms,
                             "no reply from ", tmsg_calls_name(call->endpoint));
    }
    if (tmsg_call_has_ended(call)) {
        status = tmsg_call_status(call);
        if (status != TMSG_OK) {
            tmsg_error_set(status, "%s", call->error);
        }
    }
    tmsg_call_drop(call);
    return status;
}

void tmsg_call_give_up(tmsg_call_t *call, bool abandon)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool wake = false;

    tmsg_hub_lock(hub);
    call->abandoned = call->abandoned || abandon;
    if (!tmsg_call_has_ended(call)) {
        tmsg_call_quit(call, TMSG_ERR_CANCELED, true, "canceled by this side");
        wake = true;
    }
    tmsg_hub_unlock(hub);
    if (wake) {
        tmsg_hub_wake(hub);
    }
}

void tmsg_call_cancel(tmsg_call_t *call) { tmsg_call_give_up(call, false); }

void tmsg_call_destroy(tmsg_call_t *call)
{
    tmsg_message_t *reply;

    if (call == NULL) {
        return;
    }
    tmsg_call_give_up(call, true);
    tmsg_hub_lock(call->peer->hub);
    reply = call->reply; /* freed now, not after an event */
    call->reply = NULL;
    tmsg_hub_unlock(call->peer->hub);
    tmsg_message_destroy(reply);
    tmsg_call_drop(call);
}

const tmsg_map_t *tmsg_call_reply(const tmsg_call_t *call)
{
    return tmsg_call_has_ended(call) && call->reply != NULL
               ? tmsg_message_map(call->reply)
               : NULL;
}

int tmsg_call_reply_is_lent(const tmsg_call_t *call)
{
    return tmsg_call_reply(call) != NULL && tmsg_message_is_lent(call->reply);
}

tmsg_status_t tmsg_call_give_back(tmsg_call_t *call, size_t index)
{
    if (call == NULL || tmsg_call_reply(call) == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "give back: the call has no reply");
    }
    return tmsg_message_give_back(call->reply, index);
}

const char *tmsg_call_error(const tmsg_call_t *call)
{
    return tmsg_call_has_ended(call) ? call->error : "";
}

int32_t tmsg_call_code(const tmsg_call_t *call)
{
    return tmsg_call_has_ended(call) ? call->code : 0;
}

int tmsg_call_may_have_run(const tmsg_call_t *call)
{
    return !tmsg_call_has_ended(call) || call->may_have_run;
}

uint32_t tmsg_call_attempts(const tmsg_call_t *call) { return call->attempts; }
