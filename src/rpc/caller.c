/* SPDX-License-Identifier: BSD-3-Clause */
/* A call is in its peer's list, and in a slot of the hub's, from when it is
 * made until it ends, which happens once, with the hub's lock held. Its id has
 * the slot in the low half and in the high one a number that no other call of
 * this worker ever had there: a late reply finds nobody. */
#include "rpc/caller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"

#define ERROR_BYTES 400 /* the record is one that malloc() keeps at hand */

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_CALL_PARAM_TIMEOUT | TMSG_CALL_PARAM_ON_DONE |            \
                TMSG_CALL_PARAM_ON_RELEASE))

struct tmsg_call {
    atomic_uint refs; /* handle, list, event, reply on its way */
    atomic_int status;
    tmsg_endpoint_t *endpoint; /* held, and with it peer and hub */
    tmsg_rpc_peer_t *peer;
    uint64_t id;
    atomic_uint message_id; /* of its request, */
    atomic_bool begun;      /* once it has one */
    tmsg_node_t node;       /* of the peer's calls */
    tmsg_expiry_t expiry;
    tmsg_rpc_event_t event;
    tmsg_call_in_t in;
    bool coming;   /* the reply's head is here */
    bool forsaken; /* its handle is gone, and with it on_done */
    bool may_have_run;
    tmsg_call_fn on_done;
    void *on_done_arg;
    int32_t timeout_ms;
    int32_t reply_status; /* what the head of the reply said */
    int32_t reply_code;
    uint8_t reply_flags;
    int32_t code;
    tmsg_message_t *reply;
    /* Not zeroed with the rest: */
    char reply_text[TMSG_CALL_TEXT_MOST + 1];
    char error[ERROR_BYTES];
    char method[TMSG_METHOD_BYTES_MAX + 1];
};

static void hold(tmsg_call_t *call)
{
    atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed);
}

/* Without a lock. */
static void drop(tmsg_call_t *call)
{
    if (atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) == 1) {
        tmsg_message_destroy(call->reply);
        tmsg_calls_drop(call->endpoint);
        free(call);
    }
}

static bool is_over(const tmsg_call_t *call)
{
    return atomic_load_explicit(&call->status, memory_order_acquire) !=
           TMSG_IN_PROGRESS;
}

static tmsg_status_t grow(tmsg_hub_t *hub)
{
    uint32_t count = hub->slot_count == 0 ? 16 : hub->slot_count * 2;
    tmsg_rpc_slot_t *slots = reallocarray(hub->slots, count, sizeof(*slots));

    if (slots == NULL) {
        return tmsg_error_memory("the table of calls");
    }
    for (uint32_t i = hub->slot_count; i < count; i++) {
        slots[i] = (tmsg_rpc_slot_t){NULL, i + 1};
    }
    hub->slots = slots;
    hub->slot_count = count;
    return TMSG_OK;
}

static tmsg_status_t take_slot(tmsg_hub_t *hub, tmsg_call_t *call)
{
    uint32_t slot = hub->free_slot;
    tmsg_status_t status = slot == hub->slot_count ? grow(hub) : TMSG_OK;

    if (status == TMSG_OK) {
        hub->free_slot = hub->slots[slot].next_free;
        hub->slots[slot].call = call;
        call->id = (uint64_t)++hub->generation << 32 | slot;
    }
    return status;
}

static void free_slot(tmsg_hub_t *hub, const tmsg_call_t *call)
{
    uint32_t slot = (uint32_t)call->id;

    hub->slots[slot] = (tmsg_rpc_slot_t){NULL, hub->free_slot};
    hub->free_slot = slot;
}

static tmsg_call_t *find(const tmsg_rpc_peer_t *peer, uint64_t id)
{
    const tmsg_hub_t *hub = peer->hub;
    uint32_t slot = (uint32_t)id;
    tmsg_call_t *call = slot < hub->slot_count ? hub->slots[slot].call : NULL;

    return call != NULL && call->id == id && call->peer == peer ? call : NULL;
}

/* Lock held, once: it is in no list any more, and whose reference that was is
 * the caller's. */
static void end(tmsg_call_t *call, tmsg_status_t status)
{
    tmsg_hub_t *hub = call->peer->hub;

    free_slot(hub, call);
    tmsg_list_remove(&call->peer->calls, &call->node);
    tmsg_hub_forgo(hub, &call->expiry);
    atomic_store_explicit(&call->status, status, memory_order_release);
}

static void fire(tmsg_rpc_event_t *event)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(event, tmsg_call_t, event);
    tmsg_hub_t *hub = call->peer->hub;
    tmsg_call_fn on_done;

    tmsg_hub_lock(hub);
    on_done = call->forsaken ? NULL : call->on_done;
    tmsg_hub_unlock(hub);
    if (on_done != NULL) {
        on_done(call->on_done_arg, call);
    }
    drop(call);
}

/* The peer is still to hear of it. */
static void fire_given_up(tmsg_rpc_event_t *event)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(event, tmsg_call_t, event);

    tmsg_calls_cancel(call->endpoint, call->id);
    fire(event);
}

/* What the peer is called is in front already. */
static const char *without_peer(const tmsg_call_t *call, const char *why)
{
    const char *peer = tmsg_endpoint_peer(call->endpoint);
    size_t bytes = strlen(peer);

    return strncmp(why, peer, bytes) == 0 && strncmp(why + bytes, ": ", 2) == 0
               ? why + bytes + 2
               : why;
}

static void explain(tmsg_call_t *call, const char *why)
{
    snprintf(call->error, sizeof(call->error), "%.160s: method '%s': %s%s",
             tmsg_endpoint_peer(call->endpoint), call->method,
             without_peer(call, why),
             call->may_have_run ? "" : " (no handler saw the call)");
    tmsg_utf8_scrub(call->error);
}

/* Ends it with words, for an event to tell of. */
static void fail(tmsg_call_t *call, tmsg_status_t status, bool may_have_run,
                 const char *why)
{
    call->may_have_run = may_have_run;
    explain(call, why);
    end(call, status);
    call->event.fire = fire;
    tmsg_hub_tell(call->peer->hub, &call->event);
}

static void expire(tmsg_expiry_t *expiry)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(expiry, tmsg_call_t, expiry);
    char why[64];

    snprintf(why, sizeof(why), "no reply in %d ms", call->timeout_ms);
    fail(call, TMSG_ERR_TIMED_OUT, true, why);
    call->event.fire = fire_given_up;
}

void tmsg_calls_lost(tmsg_rpc_peer_t *peer, tmsg_status_t status,
                     const char *error)
{
    while (peer->calls.head != NULL) {
        fail(TMSG_CONTAINER_OF(peer->calls.head, tmsg_call_t, node), status,
             true, error);
    }
}

/* A connection that ended may have taken it there before. */
static bool was_refused(tmsg_status_t status)
{
    return status != TMSG_ERR_PEER_LOST && status != TMSG_ERR_CLOSED &&
           status != TMSG_ERR_CANCELED;
}

bool tmsg_call_bounces(void *arg, uint32_t message_id, bool sent,
                       tmsg_status_t status, const char *error)
{
    tmsg_rpc_peer_t *peer = arg;
    tmsg_hub_t *hub = peer->hub;
    bool found = false;

    tmsg_hub_lock(hub);
    for (tmsg_node_t *node = peer->calls.head; !found && node != NULL;
         node = node->next) {
        tmsg_call_t *call = TMSG_CONTAINER_OF(node, tmsg_call_t, node);

        if (call->begun && atomic_load(&call->message_id) == message_id) {
            found = true;
            fail(call, status, sent && !was_refused(status), error);
            tmsg_calls_wake_held(hub->calls);
            break;
        }
    }
    tmsg_hub_unlock(hub);
    return found;
}

static void reply_arrived(tmsg_call_in_t *in, tmsg_message_t *message)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(in, tmsg_call_t, in);
    tmsg_hub_t *hub = call->peer->hub;
    bool wanted;

    tmsg_hub_lock(hub);
    wanted = !is_over(call);
    if (wanted) {
        call->may_have_run = !(call->reply_flags & TMSG_CALL_NOT_RUN);
        call->code = call->reply_code;
        call->reply = message;
        if (call->reply_status != TMSG_OK) {
            explain(call, call->reply_text);
        }
        end(call, (tmsg_status_t)call->reply_status);
    } else {
        hub->late_replies++;
    }
    tmsg_hub_unlock(hub);
    if (wanted) {
        fire(&call->event);
    } else {
        tmsg_message_destroy(message);
    }
    drop(call);
}

static void reply_failed(tmsg_call_in_t *in, tmsg_status_t status,
                         const char *why)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(in, tmsg_call_t, in);
    tmsg_hub_t *hub = call->peer->hub;
    char words[TMSG_ERROR_BYTES];

    snprintf(words, sizeof(words), "its reply did not arrive: %s", why);
    tmsg_hub_lock(hub);
    if (!is_over(call)) {
        fail(call, status, true, words);
    }
    tmsg_hub_unlock(hub);
    tmsg_hub_wake(hub);
    drop(call);
}

static void reply_dropped(tmsg_call_in_t *in)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(in, tmsg_call_t, in);
    tmsg_hub_t *hub = call->peer->hub;

    tmsg_hub_lock(hub);
    call->coming = false;
    tmsg_hub_unlock(hub);
    drop(call);
}

/* A status from the wire. */
static int32_t known(int32_t status)
{
    return status == TMSG_OK || (status < 0 && status >= TMSG_ERR_APPLICATION)
               ? status
               : TMSG_ERR_REFUSED;
}

static void take_head(tmsg_call_t *call, const tmsg_call_head_t *head)
{
    call->coming = true;
    call->reply_status = known(head->status);
    call->reply_code = head->code;
    call->reply_flags = head->flags;
    memcpy(call->reply_text, head->text, head->text_bytes);
    call->reply_text[head->text_bytes] = '\0';
    if (head->text_bytes == 0) {
        snprintf(call->reply_text, sizeof(call->reply_text), "%s",
                 tmsg_status_name((tmsg_status_t)call->reply_status));
    }
}

tmsg_status_t tmsg_reply_begins(tmsg_rpc_peer_t *peer,
                                const tmsg_call_head_t *head,
                                tmsg_call_in_t **in_p)
{
    tmsg_hub_t *hub = peer->hub;
    tmsg_status_t status = TMSG_OK;
    tmsg_call_t *call = NULL;

    tmsg_hub_lock(hub);
    call = find(peer, head->id);
    if (call == NULL || call->coming) {
        hub->late_replies++;
        status = tmsg_error_set(TMSG_ERR_CANCELED,
                                "nobody waits for this reply (any more)");
    } else {
        take_head(call, head);
        hold(call);
        *in_p = &call->in;
    }
    tmsg_hub_unlock(hub);
    return status;
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
    if (read->timeout_ms == 0 || read->timeout_ms < -1) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "call: timeout_ms %d is neither above 0 nor -1",
                              read->timeout_ms);
    }
    return TMSG_OK;
}

/* With one reference, which is the list's. */
static tmsg_status_t create(tmsg_rpc_peer_t *peer, const char *method,
                            const tmsg_call_params_t *params,
                            tmsg_call_t **call_p)
{
    tmsg_call_t *call = malloc(sizeof(*call));

    if (call == NULL) {
        return tmsg_error_memory("a call");
    }
    memset(call, 0, offsetof(tmsg_call_t, reply_text));
    call->error[0] = '\0';
    atomic_init(&call->refs, 1);
    atomic_init(&call->status, TMSG_IN_PROGRESS);
    call->peer = peer;
    call->endpoint = peer->endpoint;
    tmsg_calls_hold(call->endpoint);
    call->in = (tmsg_call_in_t){reply_arrived, reply_failed, reply_dropped};
    call->event.fire = fire;
    call->expiry.expire = expire;
    call->on_done = params->on_done;
    call->on_done_arg = params->on_done_arg;
    call->timeout_ms = params->timeout_ms;
    memcpy(call->method, method, strlen(method) + 1);
    *call_p = call;
    return TMSG_OK;
}

/* From here on replies find it, and its end. */
static tmsg_status_t enlist(tmsg_call_t *call, uint64_t deadline_ns)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool alarm = false;
    tmsg_status_t status;

    tmsg_hub_lock(hub);
    status = take_slot(hub, call);
    if (status == TMSG_OK) {
        tmsg_list_push(&call->peer->calls, &call->node);
        alarm = deadline_ns != 0 &&
                tmsg_hub_expect(hub, &call->expiry, deadline_ns);
    }
    tmsg_hub_unlock(hub);
    if (alarm) {
        tmsg_calls_alarm(hub->calls, deadline_ns);
    }
    return status;
}

/* It was not sent. False: it has ended otherwise, and that is told. */
static bool delist(tmsg_call_t *call, tmsg_status_t status)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool mine;

    tmsg_hub_lock(hub);
    mine = !is_over(call);
    if (mine) {
        end(call, status);
    }
    tmsg_hub_unlock(hub);
    return mine;
}

static tmsg_status_t launch(tmsg_call_t *call, const tmsg_map_t *map,
                            const tmsg_call_params_t *params)
{
    uint64_t deadline_ns =
        params->timeout_ms < 0
            ? 0
            : tmsg_calls_now_ns() + (uint64_t)params->timeout_ms * 1000000;
    tmsg_status_t status = enlist(call, deadline_ns);
    const tmsg_call_head_t head = {.type = TMSG_CALL_REQUEST,
                                   .id = call->id,
                                   .text = call->method,
                                   .text_bytes = strlen(call->method)};
    const tmsg_call_send_t how = {
        .head = &head,
        .deadline_ns = deadline_ns,
        .on_release = params->on_release,
        .on_release_arg = params->on_release_arg,
        .message_id_p = &call->message_id,
        .begun_p = &call->begun,
    };

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_calls_send(call->endpoint, map, &how);
    if (status != TMSG_OK && !delist(call, status)) {
        return TMSG_OK;
    }
    if (status == TMSG_OK && is_over(call)) {
        tmsg_calls_cancel(call->endpoint, call->id);
    }
    return status;
}

tmsg_status_t tmsg_endpoint_call(tmsg_endpoint_t *endpoint, const char *method,
                                 const tmsg_map_t *map,
                                 const tmsg_call_params_t *params,
                                 tmsg_call_t **call_p)
{
    tmsg_call_params_t read;
    tmsg_map_t *empty = NULL;
    tmsg_call_t *call = NULL;
    size_t bytes;
    void *peer;
    tmsg_status_t status = read_params(params, &read);

    if (status == TMSG_OK) {
        status = tmsg_method_check(method, &bytes);
    }
    if (status == TMSG_OK && map == NULL) {
        status = tmsg_map_create(&empty);
    }
    if (status == TMSG_OK) {
        status = tmsg_calls_peer(endpoint, &tmsg_hub_ops, &peer);
    }
    if (status == TMSG_OK) {
        status = create(peer, method, &read, &call);
    }
    if (status == TMSG_OK) {
        hold(call); /* the handle's, or ours */
        status = launch(call, map == NULL ? empty : map, &read);
        if (status != TMSG_OK) {
            drop(call);
        }
        if (status == TMSG_OK && call_p != NULL) {
            *call_p = call;
        } else {
            drop(call);
        }
    }
    tmsg_map_destroy(empty);
    return status;
}

tmsg_status_t tmsg_call_status(const tmsg_call_t *call)
{
    return (tmsg_status_t)atomic_load_explicit(&call->status,
                                               memory_order_acquire);
}

static bool wait_is_over(void *arg) { return is_over(arg); }

tmsg_status_t tmsg_call_wait(tmsg_call_t *call, int timeout_ms)
{
    tmsg_hub_t *hub = call->peer->hub;
    tmsg_status_t status = TMSG_OK;

    hold(call); /* a callback may destroy it meanwhile */
    if (!is_over(call)) {
        status = tmsg_calls_until(hub->calls, wait_is_over, call, timeout_ms,
                                  "no reply from ",
                                  tmsg_endpoint_peer(call->endpoint));
    }
    if (is_over(call)) {
        status = tmsg_call_status(call);
        if (status != TMSG_OK) {
            tmsg_error_set(status, "%s", call->error);
        }
    }
    drop(call);
    return status;
}

/* Ends it if it goes on. */
static void give_up(tmsg_call_t *call, bool forsake)
{
    tmsg_hub_t *hub = call->peer->hub;
    bool wake = false;

    tmsg_hub_lock(hub);
    call->forsaken = call->forsaken || forsake;
    if (!is_over(call)) {
        fail(call, TMSG_ERR_CANCELED, true, "canceled by this side");
        call->event.fire = fire_given_up;
        wake = true;
    }
    tmsg_hub_unlock(hub);
    if (wake) {
        tmsg_hub_wake(hub);
    }
}

void tmsg_call_cancel(tmsg_call_t *call) { give_up(call, false); }

void tmsg_call_destroy(tmsg_call_t *call)
{
    if (call != NULL) {
        give_up(call, true);
        drop(call);
    }
}

const tmsg_map_t *tmsg_call_reply(const tmsg_call_t *call)
{
    return is_over(call) && call->reply != NULL ? tmsg_message_map(call->reply)
                                                : NULL;
}

const char *tmsg_call_error(const tmsg_call_t *call)
{
    return is_over(call) ? call->error : "";
}

int32_t tmsg_call_code(const tmsg_call_t *call)
{
    return is_over(call) ? call->code : 0;
}

int tmsg_call_may_have_run(const tmsg_call_t *call)
{
    return !is_over(call) || call->may_have_run;
}
