/* SPDX-License-Identifier: BSD-3-Clause */
/* A call as the application has it: made, waited for, given up. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/map.h"
#include "rpc/caller.h"
#include "rpc/intercept.h"
#include "rpc/metrics.h"
#include "rpc/stream.h"

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_CALL_PARAM_TIMEOUT | TMSG_CALL_PARAM_ON_DONE |            \
                TMSG_CALL_PARAM_ON_RELEASE | TMSG_CALL_PARAM_REPLY_INTO |      \
                TMSG_CALL_PARAM_FLAGS | TMSG_CALL_PARAM_RETRY))

void tmsg_call_began(void *arg, uint32_t message_id)
{
    tmsg_call_t *call = arg;
    tmsg_hub_t *hub = call->peer->hub;

    tmsg_hub_lock_live(hub);
    /* By an attempt that was answered before it was sent. */
    if (call->indexed) {
        tmsg_table_remove(&call->peer->calls_by_message, &call->by_message);
    }
    call->numbered = call->id != 0;
    call->by_message.key = message_id;
    call->indexed =
        call->peer->refuses && !tmsg_call_has_ended(call) && call->numbered;
    if (call->indexed) {
        tmsg_table_add(&call->peer->calls_by_message, &call->by_message,
                       message_id);
    }
    tmsg_hub_unlock_live(hub);
}

static tmsg_status_t read_params(const tmsg_call_params_t *params,
                                 tmsg_call_params_t *read)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    *read = (tmsg_call_params_t){.timeout_ms = -1};
    if (mask & ~PARAMS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "call: unknown field_mask bits 0x%llx",
                              (unsigned long long)(mask & ~PARAMS_KNOWN));
    }
    if (mask & TMSG_CALL_PARAM_TIMEOUT) {
        read->timeout_ms = params->timeout_ms;
    }
    if (mask & TMSG_CALL_PARAM_ON_DONE) {
        read->on_done = params->on_done;
        read->on_done_arg = params->on_done_arg;
    }
    if (mask & TMSG_CALL_PARAM_ON_RELEASE) {
        read->on_release = params->on_release;
        read->on_release_arg = params->on_release_arg;
    }
    if (mask & TMSG_CALL_PARAM_REPLY_INTO) {
        read->reply_into = params->reply_into;
    }
    if (read->timeout_ms == 0 || read->timeout_ms < -1) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "call: timeout_ms %d is neither above 0 nor -1",
                              read->timeout_ms);
    }
    if (tmsg_retry_read(params, read) != TMSG_OK) {
        return TMSG_ERR_INVALID_PARAM;
    }
    return read->reply_into == NULL ? TMSG_OK
                                    : tmsg_calls_check_into(read->reply_into);
}

/* What a plain call may have. */
#define PARAMS_PLAIN                                                           \
    ((uint64_t)(TMSG_CALL_PARAM_ON_DONE | TMSG_CALL_PARAM_ON_RELEASE))

static void take_name(tmsg_call_t *call, const char *method, size_t bytes)
{
    call->method_bytes = bytes;
    memcpy(call->method, method, bytes + 1);
    call->head.text_bytes = bytes;
}

/* Mostly it is the method of the record's last call, whose name was checked. */
static tmsg_status_t take_method(tmsg_call_t *call, const char *method)
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

/* A record with all that is the same in each. NULL: no memory. */
static tmsg_call_t *new_record(tmsg_hub_t *hub)
{
    tmsg_call_t *call = tmsg_hub_record(hub, &hub->calls_kept, sizeof(*call));

    if (call != NULL) {
        tmsg_zero(call, offsetof(tmsg_call_t, method_bytes));
        call->error[0] = '\0';
        atomic_init(&call->refs, 2);
        atomic_init(&call->status, TMSG_IN_PROGRESS);
        atomic_init(&call->attempts, 1);
        tmsg_call_init(call);
        call->timeout_ms = -1;
        call->head.text_bytes = call->method_bytes;
    }
    return call;
}

static tmsg_call_t *take_record(tmsg_hub_t *hub)
{
    tmsg_call_t *call = hub->call_ready;

    if (call == NULL) {
        return new_record(hub);
    }
    hub->call_ready = NULL;
    return call;
}

/* For a call of the same method. Done when that one has gone, for then the peer
 * has something to do. */
static void make_ready(const tmsg_call_t *like)
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

tmsg_status_t tmsg_call_make(tmsg_rpc_peer_t *peer, const char *method,
                             const tmsg_call_params_t *params,
                             tmsg_call_t **call_p)
{
    tmsg_call_t *call = take_record(peer->hub);

    if (call == NULL) {
        return tmsg_error_memory("a call");
    }
    if (take_method(call, method) != TMSG_OK) {
        tmsg_hub_give_record(peer->hub, &peer->hub->calls_kept, call, true);
        return TMSG_ERR_INVALID_PARAM;
    }
    call->peer = peer;
    call->endpoint = peer->endpoint;
    tmsg_calls_borrow(call->endpoint);
    call->on_done = params->on_done;
    call->on_done_arg = params->on_done_arg;
    call->how.on_release = params->on_release;
    call->how.on_release_arg = params->on_release_arg;
    call->timeout_ms = params->timeout_ms;
    call->deadline_ns =
        params->timeout_ms < 0
            ? 0
            : tmsg_calls_now_ns() + (uint64_t)params->timeout_ms * 1000000;
    call->how.deadline_ns = call->deadline_ns;
    call->retry = params->retry;
    call->flags = params->flags;
    call->into = params->reply_into;
    if (call->into != NULL) {
        tmsg_map_hold(call->into);
    }
    *call_p = call;
    return TMSG_OK;
}

tmsg_status_t tmsg_call_enlist(tmsg_call_t *call, const tmsg_map_t *map,
                               uint64_t deadline_ns)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool alarm = false;
    tmsg_status_t status;

    tmsg_hub_lock_live(hub);
    status = tmsg_call_take_slot(hub, call);
    if (status == TMSG_OK && call->stream != NULL) {
        call->stream->id = call->id;
    }
    if (status == TMSG_OK) {
        call->meter = tmsg_meter_begin(hub, TMSG_SIDE_CALLER, call->method,
                                       call->method_bytes);
        if (call->meter != NULL) {
            call->begun_ns = tmsg_calls_now_ns();
            call->meter->counts.sent_bytes += tmsg_meter_bytes(map);
        }
        call->plain = !hub->shared && call->retry.attempts == 0 &&
                      call->into == NULL && call->hooks == NULL &&
                      call->stream == NULL && call->meter == NULL;
        tmsg_list_push(&call->peer->calls, &call->node);
        alarm = deadline_ns != 0 &&
                tmsg_hub_expect(hub, &call->expiry, deadline_ns);
    }
    tmsg_hub_unlock_live(hub);
    if (alarm) {
        tmsg_calls_alarm(hub->calls, deadline_ns);
    }
    return status;
}

bool tmsg_call_delist(tmsg_call_t *call, tmsg_status_t status)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool mine;

    tmsg_hub_lock(hub);
    mine = !tmsg_call_has_ended(call);
    if (mine) {
        tmsg_call_end(call, status);
    }
    tmsg_hub_unlock(hub);
    return mine;
}

static void fill(const tmsg_call_t *call, uint64_t id, tmsg_call_head_t *head,
                 tmsg_call_send_t *how)
{
    head->id = id;
    if (call->hooks != NULL) {
        how->more = tmsg_hooks_more(call->hooks);
        how->spares_more = tmsg_hooks_spare_more(call->hooks);
    }
}

/* An attempt of several: of the one before the record may still be read. */
static tmsg_status_t send_lent(tmsg_call_t *call, uint64_t id,
                               const tmsg_map_t *map)
{
    tmsg_call_head_t head = call->head;
    tmsg_call_send_t how = call->how;
    tmsg_status_t status;

    fill(call, id, &head, &how);
    how.head = &head;
    tmsg_retry_lend(call, &how);
    status = tmsg_calls_send(call->endpoint, map, &how);
    if (status != TMSG_OK) {
        tmsg_retry_unlend(call);
    }
    return status;
}

tmsg_status_t tmsg_call_send(tmsg_call_t *call, uint64_t id,
                             const tmsg_map_t *map)
{
    if (map == NULL) {
        map = call->peer->hub->empty;
    }
    if (call->retry.attempts > 0) {
        return send_lent(call, id, map);
    }
    fill(call, id, &call->head, &call->how);
    return tmsg_calls_send(call->endpoint, map, &call->how);
}

/* Whether it was sent, or has ended otherwise, which is told. */
static tmsg_status_t sent(tmsg_call_t *call, uint64_t id, tmsg_status_t status)
{
    if (status != TMSG_OK && !tmsg_call_delist(call, status)) {
        if (call->retry.attempts == 0 && call->how.on_release != NULL) {
            call->how.on_release(call->how.on_release_arg);
        }
        return TMSG_OK;
    }
    if (status == TMSG_OK && tmsg_call_has_ended(call)) {
        tmsg_calls_cancel(call->endpoint, id);
    }
    return status;
}

static tmsg_status_t launch(tmsg_call_t *call, const tmsg_map_t *map,
                            const tmsg_call_params_t *params)
{
    tmsg_status_t status;
    uint64_t id;

    if (call->retry.attempts > 0) {
        tmsg_retry_init(call, map, params);
    }
    status = tmsg_call_enlist(call, map, call->deadline_ns);
    id = call->id;
    return status == TMSG_OK ? sent(call, id, tmsg_call_send(call, id, map))
                             : status;
}

/* It goes on, with or without a handle; or was not sent. */
static void finish(tmsg_call_t *call, tmsg_status_t status,
                   tmsg_call_t **call_p)
{
    make_ready(call);
    if (status != TMSG_OK) {
        tmsg_hooks_unsent(call->hooks, status);
        tmsg_call_drop_own(call, 2);
    } else if (call_p != NULL) {
        *call_p = call;
    } else {
        tmsg_call_drop_unseen(call);
    }
}

/* Any call. Not inlined, so that a plain one saves nothing for it. */
__attribute__((noinline)) static tmsg_status_t
call_generally(tmsg_rpc_peer_t *peer, const char *method, const tmsg_map_t *map,
               const tmsg_call_params_t *params, tmsg_call_t **call_p)
{
    tmsg_call_params_t read;
    tmsg_call_t *call = NULL;
    tmsg_status_t status = read_params(params, &read);

    if (status == TMSG_OK) {
        status = tmsg_call_make(peer, method, &read, &call);
    }
    if (status == TMSG_OK) {
        if (tmsg_is_intercepted(call->peer->hub, TMSG_SIDE_CALLER)) {
            status = tmsg_hooks_begin_call(call, map);
        }
        if (status == TMSG_OK) {
            status = launch(call, map, &read);
        }
        finish(call, status, call_p);
    }
    return status;
}

/* The record that is ready, if the call takes no more than that: it asks for
 * nothing but to hear of its end, is of the same method as the record's last
 * one, and nobody counts or intercepts it or is to be asked beside. */
static tmsg_call_t *ready_for(const tmsg_rpc_peer_t *peer, const char *method,
                              uint64_t mask)
{
    const tmsg_hub_t *hub = peer->hub;
    tmsg_call_t *call = hub->call_ready; /* none where it is shared */

    return call != NULL && (mask & ~PARAMS_PLAIN) == 0 && !hub->counts &&
                   !peer->refuses && method != NULL &&
                   !tmsg_is_intercepted(hub, TMSG_SIDE_CALLER) &&
                   hub->free_slot < hub->slot_count && call->method_bytes > 0 &&
                   strcmp(call->method, method) == 0
               ? call
               : NULL;
}

static tmsg_status_t call_plainly(tmsg_rpc_peer_t *peer, tmsg_call_t *call,
                                  const tmsg_map_t *map,
                                  const tmsg_call_params_t *params,
                                  tmsg_call_t **call_p)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_hub_t *hub = peer->hub;
    tmsg_status_t status;

    hub->call_ready = NULL;
    call->peer = peer;
    call->endpoint = peer->endpoint;
    tmsg_calls_borrow(call->endpoint);
    if (mask & TMSG_CALL_PARAM_ON_DONE) {
        call->on_done = params->on_done;
        call->on_done_arg = params->on_done_arg;
    }
    if (mask & TMSG_CALL_PARAM_ON_RELEASE) {
        call->how.on_release = params->on_release;
        call->how.on_release_arg = params->on_release_arg;
    }
    call->plain = true;
    call->numbered = true; /* no message has that until it is known */
    call->by_message.key = UINT64_MAX;
    call->how.number_p = &call->by_message.key;
    tmsg_call_take_free_slot(hub, call);
    tmsg_list_push(&peer->calls, &call->node);
    call->head.id = call->id;
    status = tmsg_calls_send(call->endpoint, map == NULL ? hub->empty : map,
                             &call->how);
    status = sent(call, call->id, status);
    finish(call, status, call_p);
    return status;
}

tmsg_status_t tmsg_endpoint_call(tmsg_endpoint_t *endpoint, const char *method,
                                 const tmsg_map_t *map,
                                 const tmsg_call_params_t *params,
                                 tmsg_call_t **call_p)
{
    tmsg_call_t *ready;
    void *peer;
    tmsg_status_t status = tmsg_calls_peer(endpoint, &tmsg_hub_ops, &peer);

    if (status != TMSG_OK) {
        return status;
    }
    ready = ready_for(peer, method, params == NULL ? 0 : params->field_mask);
    return ready != NULL ? call_plainly(peer, ready, map, params, call_p)
                         : call_generally(peer, method, map, params, call_p);
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

    tmsg_call_hold(call); /* a callback may destroy it meanwhile */
    if (!tmsg_call_has_ended(call)) {
        status = tmsg_calls_until(hub->calls, wait_is_over, call, timeout_ms,
                                  "no reply from ",
                                  tmsg_endpoint_peer(call->endpoint));
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

void tmsg_call_give_up(tmsg_call_t *call, bool forsake)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool wake = false;

    tmsg_hub_lock(hub);
    call->forsaken = call->forsaken || forsake;
    if (!tmsg_call_has_ended(call)) {
        tmsg_call_quit(call, TMSG_ERR_CANCELED, "canceled by this side");
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
    reply = call->reply; /* its memory is not to wait for an event */
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
