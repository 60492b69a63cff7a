/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives the replies to calls of this side, and ends the calls.
 *
 * A call is in its peer's list from tmsg_call_enlist() until it ends, and each
 * of its attempts has a slot of the hub. A call ends once, with the hub's lock
 * held. The low half of its id is the slot. The high half counts the attempts
 * of the worker, so that a late reply finds no call. */
#include "rpc/caller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/shown.h"
#include "rpc/intercept.h"
#include "rpc/metrics.h"
#include "rpc/offer.h"
#include "rpc/stream.h"

void tmsg_call_hold(tmsg_call_t *call) { tmsg_refs_take(&call->refs); }

/* Takes a reference to a call that goes on. If the worker is not shared, no
 * other thread has such a call, and a plain store suffices. */
TMSG_RPC_STEP void hold_live(tmsg_call_t *call)
{
    if (call->peer->hub->shared) {
        tmsg_call_hold(call);
    } else {
        tmsg_refs_take_alone(&call->refs);
    }
}

/* Gives the record of a call back, and drops its endpoint. `own` means that the
 * caller is the worker's thread, or that the worker is shared. The worker may
 * be gone by now: a thread that waited in a hook may find it gone. */
static void give_back_call(tmsg_call_t *call, bool own)
{
    tmsg_endpoint_t *endpoint = call->endpoint;
    tmsg_hub_t *hub = call->peer->hub;

    if (!own || hub->shared || !tmsg_hub_put_at_hand(&hub->calls_kept, call)) {
        tmsg_hub_give_record(hub, &hub->calls_kept, call, own || hub->shared);
    }
    if (own && !hub->shared && !atomic_load(&hub->over)) {
        tmsg_calls_return(endpoint);
    } else {
        tmsg_calls_drop(endpoint);
    }
}

TMSG_RPC_RARE void free_extras(tmsg_call_t *call)
{
    tmsg_call_drop_current(call);
    tmsg_hooks_drop(call->hooks);
    tmsg_stream_free(call->stream);
    if (call->into != NULL && tmsg_map_unhold(call->into)) {
        call->spent = call->into; /* the call was never enlisted */
    }
    if (call->map != NULL && tmsg_map_unhold(call->map)) {
        call->spent_map = call->map;
    }
    if (call->spent != NULL) {
        tmsg_map_free(call->spent);
    }
    if (call->spent_map != NULL) {
        tmsg_map_free(call->spent_map);
    }
}

static void destroy_call(tmsg_call_t *call, bool own)
{
    tmsg_message_destroy(call->reply);
    if (call->extras) {
        free_extras(call);
    }
    give_back_call(call, own);
}

void tmsg_call_drop(tmsg_call_t *call)
{
    if (tmsg_refs_drop(&call->refs)) {
        destroy_call(call, false);
    }
}

void tmsg_call_drop_own(tmsg_call_t *call, unsigned count)
{
    if (tmsg_refs_drop_some(&call->refs, count)) {
        destroy_call(call, true);
    }
}

void tmsg_call_drop_unseen(tmsg_call_t *call)
{
    bool last = call->peer->hub->shared ? tmsg_refs_drop(&call->refs)
                                        : tmsg_refs_drop_alone(&call->refs);

    if (last) {
        destroy_call(call, true);
    }
}

bool tmsg_call_has_ended(const tmsg_call_t *call)
{
    return atomic_load_explicit(&call->status, memory_order_acquire) !=
           TMSG_IN_PROGRESS;
}

tmsg_status_t tmsg_call_grow_slots(tmsg_hub_t *hub)
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

TMSG_RPC_STEP void free_call_slot(tmsg_hub_t *hub, const tmsg_call_t *call)
{
    uint32_t slot = (uint32_t)call->id;

    hub->slots[slot] = (tmsg_rpc_slot_t){NULL, hub->free_slot};
    hub->free_slot = slot;
}

tmsg_call_t *tmsg_call_find(const tmsg_rpc_peer_t *peer, uint64_t id)
{
    const tmsg_hub_t *hub = peer->hub;
    uint32_t slot = (uint32_t)id;
    tmsg_call_t *call = slot < hub->slot_count ? hub->slots[slot].call : NULL;

    return call != NULL && call->id == id && call->current == peer ? call
                                                                   : NULL;
}

TMSG_RPC_STEP void leave_slot(tmsg_call_t *call)
{
    if (call->id != 0) {
        free_call_slot(call->peer->hub, call);
    }
    if (call->indexed) {
        tmsg_table_remove(&call->current->calls_by_message, &call->by_message);
    }
    call->indexed = false;
}

void tmsg_call_leave(tmsg_call_t *call) { leave_slot(call); }

TMSG_RPC_RARE void end_extras(tmsg_call_t *call, tmsg_status_t status)
{
    if (call->meter != NULL && call->reply != NULL) {
        call->meter->counts.received_bytes +=
            tmsg_meter_bytes(tmsg_message_map(call->reply));
    }
    if (call->hooks != NULL && call->reply != NULL) {
        tmsg_hooks_count(call->hooks, false, tmsg_message_map(call->reply));
    }
    tmsg_meter_end(call->meter, status, call->begun_ns);
    tmsg_hub_forgo(call->peer->hub, &call->backoff);
    if (call->into != NULL && tmsg_map_unhold(call->into)) {
        call->spent = call->into;
    }
    call->into = NULL;
    if (call->map != NULL && tmsg_map_unhold(call->map)) {
        call->spent_map = call->map;
    }
    call->map = NULL;
}

TMSG_RPC_STEP void end_call(tmsg_call_t *call, tmsg_status_t status)
{
    leave_slot(call);
    tmsg_list_remove(&call->current->calls, &call->node);
    tmsg_hub_forgo(call->peer->hub, &call->expiry);
    if (call->extras) {
        end_extras(call, status);
    }
    atomic_store_explicit(&call->status, status, memory_order_release);
}

void tmsg_call_end(tmsg_call_t *call, tmsg_status_t status)
{
    end_call(call, status);
}

/* Returns the callback that is to be told of the call's end; NULL: none. Lock
 * held. */
static tmsg_call_fn hearer(const tmsg_call_t *call)
{
    return call->abandoned ? NULL : call->on_done;
}

/* Tells the interceptors that the call has ended, and releases the map of a
 * call with retries. Returns the callback that is to be told after them. Lock
 * not held. */
TMSG_RPC_RARE tmsg_call_fn tell_extras(tmsg_call_t *call, tmsg_call_fn on_done)
{
    bool others = call->hooks != NULL || call->retry.attempts > 0;

    (void)tmsg_hooks_over(call->hooks, tmsg_call_status(call), call->error);
    tmsg_call_release(call);
    if (others) { /* one of them may have destroyed the handle */
        tmsg_hub_lock(call->peer->hub);
        on_done = hearer(call);
        tmsg_hub_unlock(call->peer->hub);
    }
    return on_done;
}

/* Tells the interceptors, and then the application, that the call has ended.
 * Lock not held. */
static void tell_call_end(tmsg_call_t *call, tmsg_call_fn on_done)
{
    if (call->extras) {
        on_done = tell_extras(call, on_done);
    }
    if (on_done != NULL) {
        on_done(call->on_done_arg, call);
    }
}

static void fire_call_end(tmsg_rpc_event_t *event)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(event, tmsg_call_t, event);
    tmsg_hub_t *hub = call->peer->hub;
    tmsg_call_fn on_done;

    if (call->stream != NULL) {
        call->event.fire = fire_call_end;
        if (tmsg_hooks_over(call->hooks, tmsg_call_status(call), call->error)) {
            tmsg_stream_fire(call->stream);
        }
        return;
    }
    tmsg_hub_lock(hub);
    on_done = hearer(call);
    tmsg_hub_unlock(hub);
    tell_call_end(call, on_done);
    tmsg_call_drop(call);
}

/* Tells the peer that the call was given up, and then this side. */
static void fire_given_up(tmsg_rpc_event_t *event)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(event, tmsg_call_t, event);

    if (call->id != 0 && call->stream == NULL) {
        tmsg_call_uncall(call, call->id);
    }
    fire_call_end(event);
}

const char *tmsg_call_without_peer(const char *peer, const char *why)
{
    size_t bytes = strlen(peer);

    return strncmp(why, peer, bytes) == 0 && strncmp(why + bytes, ": ", 2) == 0
               ? why + bytes + 2
               : why;
}

void tmsg_call_explain(tmsg_call_t *call, const char *why)
{
    const char *peer = tmsg_calls_name(call->current->endpoint);
    char tries[32] = "";

    if (call->attempts > 1) {
        snprintf(tries, sizeof(tries), " (%u attempts)", call->attempts);
    }
    tmsg_shown_format(call->error, sizeof(call->error),
                      "%s: method '%s': %s%s%s", tmsg_shown_short(peer).text,
                      call->method, tmsg_call_without_peer(peer, why), tries,
                      call->may_have_run ? "" : " (no handler saw the call)");
}

void tmsg_call_fail(tmsg_call_t *call, tmsg_status_t status, bool may_have_run,
                    const char *why)
{
    if (tmsg_call_again(call, status, may_have_run, false)) {
        return;
    }
    call->may_have_run = may_have_run || call->ran_before;
    tmsg_call_explain(call, why);
    tmsg_call_end(call, status);
    call->event.fire = fire_call_end;
    tmsg_hub_tell(call->peer->hub, &call->event);
}

void tmsg_call_quit(tmsg_call_t *call, tmsg_status_t status, bool may_have_run,
                    const char *why)
{
    tmsg_call_fail(call, status, may_have_run, why);
    call->event.fire = fire_given_up;
}

/* Writes why a call has no reply yet, and to `about` what it asks for, if it
 * says so. Sets *unseen_p where no handler saw the attempt that is under way,
 * and none will. Lock not held. */
static const char *explain_expiry(tmsg_call_t *call,
                                  char about[TMSG_CALL_TEXT_MOST + 1],
                                  bool *unseen_p, char *words, size_t room)
{
    tmsg_hub_t *hub = call->peer->hub;
    const char *why = words;
    tmsg_endpoint_t *endpoint;
    uint64_t id;

    tmsg_hub_lock(hub);
    id = call->id;
    endpoint = call->current->endpoint;
    tmsg_calls_hold(endpoint);
    snprintf(about, TMSG_CALL_TEXT_MOST + 1, "%s",
             call->has_about ? call->reply_text : "");
    tmsg_hub_unlock(hub);
    if (id == 0) {
        *unseen_p = true;
        why = "; its next attempt is not due yet";
    } else if (atomic_load(&hub->over) ||
               !tmsg_calls_awaited(endpoint, id,
                                   call->stream == NULL ? unseen_p : NULL,
                                   words, room)) {
        why = about[0] != '\0' ? ""
                               : "; its request was sent, and its handler has "
                                 "not answered, or nothing moves the peer's "
                                 "messages";
    }
    tmsg_calls_drop(endpoint);
    return why;
}

/* Ends a call whose time is up, with words that say what it waited for. The
 * event has a reference to the call. */
static void fire_expired(tmsg_rpc_event_t *event)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(event, tmsg_call_t, expired);
    tmsg_hub_t *hub = call->peer->hub;
    char about[TMSG_CALL_TEXT_MOST + 1];
    char why[256 + sizeof(about)], words[128] = "";
    bool unseen = false;
    const char *awaited =
        explain_expiry(call, about, &unseen, words, sizeof(words));

    snprintf(why, sizeof(why), "no reply in %d ms%s%s%s", call->timeout_ms,
             about[0] != '\0' ? ", " : "", about, awaited);
    tmsg_hub_lock(hub);
    if (!tmsg_call_has_ended(call)) {
        tmsg_call_quit(call, TMSG_ERR_TIMED_OUT, !unseen, why);
    }
    tmsg_hub_unlock(hub);
    tmsg_call_drop(call);
}

static void expire_call(tmsg_expiry_t *expiry)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(expiry, tmsg_call_t, expiry);

    tmsg_call_hold(call);
    call->expired.fire = fire_expired;
    tmsg_hub_tell(call->peer->hub, &call->expired);
}

void tmsg_calls_lost(tmsg_rpc_peer_t *peer, tmsg_status_t status,
                     const char *error)
{
    while (peer->calls.head != NULL) {
        tmsg_call_t *call =
            TMSG_CONTAINER_OF(peer->calls.head, tmsg_call_t, node);

        if (call->id == 0 && peer->heir != NULL) {
            tmsg_call_carry(call, peer->heir); /* its next attempt waits */
        } else {
            tmsg_call_fail(call, status, true, error);
        }
    }
}

/* Returns whether the status means that the peer refused the message. If the
 * connection ended instead, the peer may have received the message. */
static bool was_refused(tmsg_status_t status)
{
    return status != TMSG_ERR_PEER_LOST && status != TMSG_ERR_CLOSED &&
           status != TMSG_ERR_CANCELED;
}

/* Returns how a call ends that no handler saw. A library without offers has no
 * method of theirs: that is not that an offer is not there, which the handler
 * of a library with offers says. */
static tmsg_status_t status_unseen(const tmsg_call_t *call,
                                   tmsg_status_t status)
{
    return status == TMSG_ERR_NOT_FOUND &&
                   tmsg_method_is_of_offers(call->method)
               ? TMSG_ERR_UNSUPPORTED
               : status;
}

static void index_call(tmsg_call_t *call)
{
    uint64_t number = atomic_load(&call->number);

    call->indexed = number != TMSG_CALL_NO_NUMBER && call->id != 0;
    if (call->indexed) {
        tmsg_table_add(&call->current->calls_by_message, &call->by_message,
                       number);
    }
}

void tmsg_call_index(tmsg_call_t *call)
{
    if (call->current->refuses) {
        index_call(call);
    }
}

/* Puts the calls that have a message number into the table. New calls are put
 * there from now on. Lock held. */
static void index_calls(tmsg_rpc_peer_t *peer)
{
    for (tmsg_node_t *node = peer->calls.head; node != NULL && !peer->refuses;
         node = node->next) {
        index_call(TMSG_CONTAINER_OF(node, tmsg_call_t, node));
    }
    peer->refuses = true;
}

void tmsg_call_began(void *arg)
{
    tmsg_call_t *call = arg;
    tmsg_hub_t *hub = call->peer->hub;

    tmsg_hub_lock_live(hub);
    /* An earlier attempt, which was answered before it was sent, may have put
     * the call into the table. */
    if (call->indexed) {
        tmsg_table_remove(&call->current->calls_by_message, &call->by_message);
        call->indexed = false;
    }
    if (call->current->refuses && !tmsg_call_has_ended(call)) {
        index_call(call);
    }
    tmsg_hub_unlock_live(hub);
}

bool tmsg_call_bounces(void *arg, uint32_t message_id, bool sent,
                       tmsg_status_t status, const char *error)
{
    tmsg_rpc_peer_t *peer = arg;
    tmsg_hub_t *hub = peer->hub;
    tmsg_keyed_t *found;
    bool known;

    tmsg_hub_lock(hub);
    index_calls(peer);
    found = tmsg_table_find(&peer->calls_by_message, message_id);
    if (found != NULL) {
        tmsg_call_t *call = TMSG_CONTAINER_OF(found, tmsg_call_t, by_message);

        tmsg_stream_refused(call->stream);
        tmsg_call_fail(call, status_unseen(call, status),
                       sent && !was_refused(status), error);
        tmsg_calls_wake_held(hub->calls);
    }
    known = found != NULL || tmsg_stream_bounces(peer, message_id);
    tmsg_hub_unlock(hub);
    return known;
}

/* Drops a reply that does not end its call: nobody waits for the reply any
 * more, or the call is made `again`. Lock not held. */
TMSG_RPC_RARE void drop_reply(tmsg_call_t *call, tmsg_message_t *message,
                              bool again)
{
    tmsg_hub_t *hub = call->peer->hub;

    tmsg_message_destroy(message);
    if (again) {
        tmsg_hub_wake(hub);
    }
    tmsg_call_drop_own(call, 1);
}

void tmsg_calls_catch_up(tmsg_hub_t *hub)
{
    tmsg_call_t *call = hub->call_over;

    hub->call_over = NULL;
    if (call != NULL) {
        tmsg_call_drop_own(call, 2);
    }
}

/* Drops the references of the list and of the reply, usually the last ones.
 * The worker gives record and reply back in its next turn. The application may
 * make its next call before that, so that the peer has work meanwhile. */
TMSG_RPC_STEP void drop_later(tmsg_call_t *call)
{
    tmsg_hub_t *hub = call->peer->hub;

    if (hub->shared || call->extras || !tmsg_refs_are(&call->refs, 2) ||
        atomic_load(&hub->over)) {
        tmsg_call_drop_own(call, 2);
        return;
    }
    if (hub->call_over == NULL) {
        tmsg_calls_put_off(hub->calls);
    } else {
        tmsg_calls_catch_up(hub);
    }
    hub->call_over = call;
}

/* Ends the call as the reply says. Returns true if the call is made again
 * instead. Lock held. */
TMSG_RPC_STEP bool take_reply(tmsg_call_t *call, tmsg_message_t *message)
{
    bool ran = !(call->reply_flags & TMSG_CALL_NOT_RUN);

    if (call->extras &&
        tmsg_call_again(call, (tmsg_status_t)call->reply_status, ran,
                        call->reply_flags & TMSG_CALL_SAFE)) {
        return true;
    }
    call->may_have_run = ran || call->ran_before;
    call->code = call->reply_code;
    call->reply = message;
    if (call->reply_status != TMSG_OK) {
        tmsg_call_explain(call, call->reply_text);
    }
    end_call(call, (tmsg_status_t)call->reply_status);
    return false;
}

/* Returns whether the peer has refused the call because its time was up. Its
 * request may still be on its way. */
TMSG_RPC_STEP bool was_late(const tmsg_call_t *call)
{
    return call->reply_status == TMSG_ERR_TIMED_OUT &&
           call->reply_flags & TMSG_CALL_NOT_RUN;
}

static void reply_arrived(tmsg_call_in_t *in, tmsg_message_t *message)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(in, tmsg_call_t, in);
    tmsg_hub_t *hub = call->peer->hub;
    tmsg_call_fn on_done = NULL;
    bool wanted, again = false;

    tmsg_hub_lock_live(hub);
    wanted = call->coming && !tmsg_call_has_ended(call);
    if (wanted) {
        on_done = hearer(call); /* read with the lock held */
        again = take_reply(call, message);
    } else {
        hub->late_replies++;
    }
    tmsg_hub_unlock_live(hub);
    if (!wanted || again) {
        drop_reply(call, message, again);
        return;
    }
    if (was_late(call)) {
        tmsg_call_uncall(call, call->id);
    }
    tell_call_end(call, on_done);
    drop_later(call);
}

static void reply_failed(tmsg_call_in_t *in, tmsg_status_t status,
                         const char *why)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(in, tmsg_call_t, in);
    tmsg_hub_t *hub = call->peer->hub;
    char words[TMSG_ERROR_BYTES];

    snprintf(words, sizeof(words), "its reply %s: %s",
             status == TMSG_ERR_INVALID_PARAM ? "does not fit"
                                              : "did not arrive",
             why);
    tmsg_hub_lock(hub);
    if (!tmsg_call_has_ended(call)) {
        tmsg_call_fail(call, status, true, words);
    }
    tmsg_hub_unlock(hub);
    tmsg_hub_wake(hub);
    tmsg_call_drop(call);
}

static void reply_dropped(tmsg_call_in_t *in)
{
    tmsg_call_t *call = TMSG_CONTAINER_OF(in, tmsg_call_t, in);
    tmsg_hub_t *hub = call->peer->hub;

    tmsg_hub_lock(hub);
    call->coming = false;
    tmsg_hub_unlock(hub);
    tmsg_call_drop(call);
}

int32_t tmsg_call_known_status(int32_t status)
{
    return status == TMSG_OK || (status < 0 && status >= TMSG_ERR_APPLICATION)
               ? status
               : TMSG_ERR_REFUSED;
}

/* Takes status and words of a failure from the head of a reply. */
TMSG_RPC_RARE void take_failure(tmsg_call_t *call, const tmsg_call_head_t *head)
{
    call->reply_status = tmsg_call_known_status(head->status);
    if (head->flags & TMSG_CALL_NOT_RUN) {
        call->reply_status =
            status_unseen(call, (tmsg_status_t)call->reply_status);
    }
    call->has_about = false;
    memcpy(call->reply_text, head->text, head->text_bytes);
    call->reply_text[head->text_bytes] = '\0';
    if (head->text_bytes == 0) {
        snprintf(call->reply_text, sizeof(call->reply_text), "%s",
                 tmsg_status_name((tmsg_status_t)call->reply_status));
    }
}

TMSG_RPC_STEP void take_head(tmsg_call_t *call, const tmsg_call_head_t *head)
{
    call->coming = true;
    call->reply_status = TMSG_OK;
    call->reply_code = head->code;
    call->reply_flags = head->flags;
    if (head->status != TMSG_OK) {
        take_failure(call, head);
    }
    hold_live(call);
}

/* Begins a reply that is received into a map of the application, as `begins` of
 * tmsg_calls_ops_t demands. Lock held. */
TMSG_RPC_RARE tmsg_status_t begin_into(tmsg_call_t *call,
                                       const tmsg_call_head_t *head,
                                       const tmsg_map_t **into_p)
{
    if (into_p == NULL) {
        return TMSG_IN_PROGRESS;
    }
    take_head(call, head);
    tmsg_map_hold(call->into);
    *into_p = call->into;
    return TMSG_OK;
}

/* This function is not inlined, so that call_begins() in hub.c saves no
 * registers for it when a request comes. */
__attribute__((noinline)) tmsg_status_t
tmsg_reply_begins(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                  tmsg_call_in_t **in_p, const tmsg_map_t **into_p)
{
    tmsg_hub_t *hub = peer->hub;
    tmsg_status_t status = TMSG_OK;
    tmsg_call_t *call;

    tmsg_hub_lock_live(hub);
    call = tmsg_call_find(peer, head->id);
    if (call == NULL || call->coming || call->stream != NULL) {
        hub->late_replies++;
        status =
            tmsg_error_set(TMSG_ERR_CANCELED, "nobody waits for this reply");
    } else if (call->into != NULL && head->status == TMSG_OK) {
        status = begin_into(call, head, into_p);
    } else {
        take_head(call, head);
    }
    if (status == TMSG_OK) {
        *in_p = &call->in;
    }
    tmsg_hub_unlock_live(hub);
    return status;
}

void tmsg_call_init(tmsg_call_t *call)
{
    call->in = (tmsg_call_in_t){.arrived = reply_arrived,
                                .failed = reply_failed,
                                .dropped = reply_dropped};
    call->event.fire = fire_call_end;
    call->expiry.expire = expire_call;
    call->head.type = TMSG_CALL_REQUEST;
    call->head.text = call->method;
    call->how.head = &call->head;
    call->how.number_p = &call->number;
    call->how.began_arg = call;
    atomic_init(&call->number, TMSG_CALL_NO_NUMBER);
}
