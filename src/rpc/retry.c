/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements calls with retries. Between two attempts a call is in its peer's
 * list and has no id. Its deadline goes on meanwhile. */
#include <sys/random.h>

#include "core/map.h"
#include "rpc/caller.h"
#include "rpc/metrics.h"

#define FLAGS_KNOWN                                                            \
    ((uint32_t)(TMSG_CALL_IDEMPOTENT | TMSG_CALL_BORROW | TMSG_CALL_LEND |     \
                TMSG_CALL_WAIT))

#define ATTEMPTS_MOST 100u
#define FIRST_MS 20       /* default of first_backoff_ms */
#define MOST_MS 1000      /* default of most_backoff_ms */
#define TOKENS_MOST 1000u /* most tokens of a budget */
#define MILLI 1000u       /* a token has 1000 thousandths */

/* A call without a deadline waits so long for a server to be ready. A pause
 * that would end behind the deadline is shortened, down to this. */
#define READY_NS 60000000000ULL
#define LEAST_NS 20000000ULL

static tmsg_status_t check_retry(const tmsg_retry_t *retry)
{
    if (retry->attempts < 2 || retry->attempts > ATTEMPTS_MOST ||
        retry->first_backoff_ms < 0 || retry->most_backoff_ms < 0) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "call: retry: attempts %u, backoff %d to %d ms: attempts must be 2 "
            "to %u, the backoffs 0 or more",
            retry->attempts, retry->first_backoff_ms, retry->most_backoff_ms,
            ATTEMPTS_MOST);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_retry_read(const tmsg_call_params_t *params,
                              tmsg_call_t *call)
{
    if (params->field_mask & TMSG_CALL_PARAM_FLAGS) {
        call->flags = params->flags;
    }
    if (call->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "call: unknown flags 0x%x", call->flags);
    }
    if (params->field_mask & TMSG_CALL_PARAM_RETRY) {
        call->retry = params->retry;
    } else if (call->flags & TMSG_CALL_WAIT) {
        call->retry.attempts = 1;
    } else {
        return TMSG_OK;
    }
    if (call->retry.first_backoff_ms == 0) {
        call->retry.first_backoff_ms = FIRST_MS;
    }
    if (call->retry.most_backoff_ms == 0) {
        call->retry.most_backoff_ms = MOST_MS;
    }
    return params->field_mask & TMSG_CALL_PARAM_RETRY
               ? check_retry(&call->retry)
               : TMSG_OK;
}

/* Returns whether the caller has to call on_release, and returns true once at
 * most. The call must have ended, and no attempt may read the map. Lock held.
 */
static bool may_release(tmsg_call_t *call)
{
    bool may = !call->released && call->lent == 0 && tmsg_call_has_ended(call);

    call->released = call->released || may;
    return may && call->on_release != NULL;
}

void tmsg_call_release(tmsg_call_t *call)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool may;

    if (call->retry.attempts == 0) {
        return;
    }
    tmsg_hub_lock(hub);
    may = may_release(call);
    tmsg_hub_unlock(hub);
    if (may) {
        call->on_release(call->on_release_arg);
    }
}

/* Counts an attempt that no longer reads the map. Takes the lock. */
static void give_back_map(tmsg_call_t *call)
{
    tmsg_hub_t *hub = call->peer->hub;

    tmsg_hub_lock(hub);
    call->lent--;
    tmsg_hub_unlock(hub);
}

/* Serves as on_release of an attempt, which no longer reads the map. Drops the
 * reference of tmsg_retry_lend(). Lock not held. */
static void attempt_released(void *arg)
{
    give_back_map(arg);
    tmsg_call_release(arg);
    tmsg_call_drop(arg);
}

void tmsg_retry_lend(tmsg_call_t *call, tmsg_call_send_t *how)
{
    tmsg_hub_t *hub = call->peer->hub;

    how->on_release = attempt_released;
    how->on_release_arg = call;
    tmsg_call_hold(call);
    tmsg_hub_lock(hub);
    call->lent++;
    tmsg_hub_unlock(hub);
}

void tmsg_retry_unlend(tmsg_call_t *call) { attempt_released(call); }

/* Returns whether a reply of the peer's has said that the call's method is
 * idempotent. Lock held. */
static bool is_known_safe(const tmsg_rpc_peer_t *peer, const tmsg_call_t *call)
{
    uint64_t key = tmsg_table_key(call->method, call->method_bytes);

    for (unsigned i = 0; i < TMSG_RPC_SAFE && i < peer->safe_count; i++) {
        if (peer->safe[i] == key) {
            return true;
        }
    }
    return false;
}

/* Keeps in mind that it is: a peer that is lost cannot say so. Lock held. */
static void note_safe(tmsg_rpc_peer_t *peer, const tmsg_call_t *call)
{
    if (!is_known_safe(peer, call)) {
        peer->safe[peer->safe_count++ % TMSG_RPC_SAFE] =
            tmsg_table_key(call->method, call->method_bytes);
    }
}

/* Returns whether the cause of a failure can pass by itself. If a new session
 * follows, so does the loss of the peer. */
static bool is_transient(const tmsg_rpc_peer_t *peer, tmsg_status_t status)
{
    return (status == TMSG_ERR_PEER_LOST && peer->heir != NULL) ||
           status == TMSG_ERR_UNAVAILABLE ||
           status == TMSG_ERR_RESOURCE_EXHAUSTED ||
           status == TMSG_ERR_NO_MEMORY || status == TMSG_ERR_BUSY;
}

/* Returns how long to wait after the latest of `tries` attempts: a random time
 * between half of the backoff and all of it. The backoff doubles with each
 * attempt, up to its bound. */
static uint64_t backoff_ns(const tmsg_call_t *call, unsigned tries)
{
    uint64_t full = (uint64_t)call->retry.first_backoff_ms * 1000000;
    uint64_t most = (uint64_t)call->retry.most_backoff_ms * 1000000;
    uint64_t random = 0;
    ssize_t got = getrandom(&random, sizeof(random), GRND_NONBLOCK);

    (void)got; /* without entropy all calls wait for half of the backoff */
    for (unsigned i = 1; i < tries && full < most; i++) {
        full *= 2;
    }
    full = full < most ? full : most;
    return full / 2 + random % (full / 2 + 1);
}

/* Takes a token for a failure. Returns whether the budget allows another
 * attempt: more than half of the tokens are left, or there is no bound. A peer
 * that was restarted takes none: many calls end with it at once, and it was not
 * they that were too many. Lock held. */
static bool budget_allows(tmsg_rpc_peer_t *peer, tmsg_status_t status)
{
    tmsg_retry_budget_t *budget = &peer->budget;

    if (status == TMSG_ERR_PEER_LOST) {
        return true;
    }
    budget->tokens -= budget->tokens < MILLI ? budget->tokens : MILLI;
    return budget->most == 0 || budget->tokens > budget->most / 2;
}

/* Adds a part of a token for a success. Lock held. */
static void note_success(tmsg_rpc_peer_t *peer)
{
    tmsg_retry_budget_t *budget = &peer->budget;

    budget->tokens += budget->gain;
    if (budget->tokens > budget->most) {
        budget->tokens = budget->most;
    }
}

/* Serves as `fire` of call->next: begins the next attempt, if the call has not
 * ended. Owns a reference to the call. Lock not held. */
static void fire_next(tmsg_rpc_event_t *event)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(event, tmsg_call_t, next);
    tmsg_hub_t *hub = call->peer->hub;
    const tmsg_map_t *map = NULL;
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status = TMSG_OK;
    bool over;
    uint64_t id;

    tmsg_hub_lock(hub);
    endpoint = call->current->endpoint;
    tmsg_calls_hold(endpoint);
    /* The expiry of the deadline ends a call that has reached the deadline. */
    over = tmsg_call_has_ended(call) ||
           (call->deadline_ns != 0 && tmsg_calls_now_ns() >= call->deadline_ns);
    if (!over) {
        status = tmsg_call_take_slot(hub, call);
        map = call->map;
        tmsg_map_hold(map);
        atomic_fetch_add(&call->attempts, 1);
        hub->retried++;
        if (call->meter != NULL) {
            call->meter->counts.retried++;
            call->meter->counts.sent_bytes += tmsg_meter_bytes(map);
        }
    }
    id = call->id;
    tmsg_hub_unlock(hub);
    if (!over && status == TMSG_OK) {
        status = tmsg_call_send(call, endpoint, id, map);
    }
    if (map != NULL && tmsg_map_unhold(map)) {
        tmsg_map_free(map);
    }
    tmsg_hub_lock(hub);
    if (status != TMSG_OK && !tmsg_call_has_ended(call) && call->id == id) {
        tmsg_call_fail(call, status, false, tmsg_error_message());
    }
    over = over || !tmsg_call_has_ended(call);
    tmsg_hub_unlock(hub);
    if (status != TMSG_OK) {
        tmsg_hub_wake(hub);
    } else if (!over) {
        tmsg_call_uncall(call, id);
    }
    tmsg_calls_drop(endpoint);
    tmsg_call_drop(call);
}

/* Serves as `expire` of call->backoff: queues the next attempt. Lock held. */
static void expire_backoff(tmsg_expiry_t *expiry)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(expiry, tmsg_call_t, backoff);

    tmsg_call_hold(call);
    tmsg_hub_tell(call->peer->hub, &call->next);
}

void tmsg_retry_init(tmsg_call_t *call, const tmsg_map_t *map)
{
    tmsg_hub_t *hub = call->peer->hub;

    tmsg_hub_lock(hub);
    call->on_release = call->how.on_release;
    call->on_release_arg = call->how.on_release_arg;
    call->backoff.expire = expire_backoff;
    call->next.fire = fire_next;
    if (!tmsg_call_has_ended(call)) {
        call->map = map == NULL ? hub->empty : map;
        tmsg_map_hold(call->map);
    }
    tmsg_hub_unlock(hub);
}

/* Returns whether the call may be made again after that failure, but for its
 * deadline. An attempt that found the server not ready is not counted, and
 * takes no token: it was not the callers that were too many. Lock held. */
static bool may_repeat(const tmsg_call_t *call, tmsg_status_t status,
                       bool unready)
{
    return unready ||
           (is_transient(call->current, status) && call->retry.attempts > 1 &&
            budget_allows(call->current, status) &&
            call->attempts - call->unready < call->retry.attempts);
}

/* Returns when the next attempt begins, or 0 if the call's time does not allow
 * one. While the server is not ready the last pauses are as short as the time
 * that is left makes them. */
static uint64_t next_ns(tmsg_call_t *call, bool unready)
{
    uint64_t now = tmsg_calls_now_ns(), at, end = call->deadline_ns;

    if (!unready) {
        call->unready_ns = 0;
        at = now + backoff_ns(call, call->attempts - call->unready);
        return end != 0 && at >= end ? 0 : at;
    }
    call->unready++;
    if (call->unready_ns == 0) {
        call->unready_ns = now;
        call->pauses = 0;
    }
    end = end != 0 ? end : call->unready_ns + READY_NS;
    at = now + backoff_ns(call, ++call->pauses);
    if (at < end) {
        return at;
    }
    return end > now + 2 * LEAST_NS ? now + (end - now) / 2 : 0;
}

bool tmsg_call_again(tmsg_call_t *call, tmsg_status_t status, bool may_have_run,
                     bool safe)
{
    tmsg_hub_t *hub = call->peer->hub;
    tmsg_rpc_peer_t *peer = call->current;
    bool unready = status == TMSG_ERR_UNAVAILABLE && !may_have_run;
    uint64_t at_ns;

    if (call->retry.attempts == 0 || call->map == NULL) {
        return false;
    }
    if (status == TMSG_OK) {
        note_success(peer);
    }
    if (safe) {
        note_safe(peer, call);
    } else if (status == TMSG_ERR_PEER_LOST) {
        safe = is_known_safe(peer, call);
    }
    if (!may_repeat(call, status, unready) ||
        (peer->over && peer->heir == NULL) ||
        (may_have_run && !safe && !(call->flags & TMSG_CALL_IDEMPOTENT))) {
        return false;
    }
    at_ns = next_ns(call, unready);
    if (at_ns == 0) {
        return false;
    }
    tmsg_call_leave(call);
    if (peer->heir != NULL) {
        tmsg_call_carry(call, peer->heir);
    }
    call->id = 0;
    call->number = TMSG_CALL_NO_NUMBER;
    call->coming = false;
    call->ran_before = call->ran_before || may_have_run;
    tmsg_hub_expect(hub, &call->backoff, at_ns);
    hub->alarm_ns = 0; /* the hub sets its alarm again when it is woken */
    return true;
}

tmsg_status_t tmsg_endpoint_set_retry_budget(tmsg_endpoint_t *endpoint,
                                             uint32_t tokens,
                                             uint32_t thousandths)
{
    tmsg_rpc_peer_t *peer;
    tmsg_status_t status;
    void *met;

    if (tokens > TOKENS_MOST || thousandths > TOKENS_MOST * MILLI) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "retry budget: %u tokens, %u thousandths", tokens,
                              thousandths);
    }
    status = tmsg_calls_peer(endpoint, &tmsg_hub_ops, &met);
    if (status != TMSG_OK) {
        return status;
    }
    peer = met;
    tmsg_hub_lock(peer->hub);
    peer->budget = (tmsg_retry_budget_t){
        .tokens = tokens * MILLI, .most = tokens * MILLI, .gain = thousandths};
    tmsg_hub_unlock(peer->hub);
    tmsg_calls_drop(peer->endpoint);
    return TMSG_OK;
}
