/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes the messages that come on the channels of streams, each in its turn. A
 * message for no stream, or for a stream that is over, is dropped. The sender
 * of such a message has heard of the end of the stream, or will hear of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shown.h"
#include "rpc/intercept.h"
#include "rpc/refuse.h"
#include "rpc/signature.h"
#include "rpc/stream.h"

tmsg_call_stream_t *tmsg_stream_at(const tmsg_rpc_peer_t *peer,
                                   tmsg_stream_key_t key)
{
    if (key.ours) {
        return key.index < peer->stream_count ? peer->streams[key.index] : NULL;
    }
    return key.index < peer->slot_count ? peer->slots[key.index].stream : NULL;
}

/* Returns the stream at that place if it has that id; otherwise NULL. Lock
 * held. */
static tmsg_call_stream_t *find_stream(const tmsg_rpc_peer_t *peer,
                                       tmsg_stream_key_t key, uint64_t id)
{
    tmsg_call_stream_t *stream = tmsg_stream_at(peer, key);

    return stream != NULL && stream->id == id ? stream : NULL;
}

/* Returns whether the stream has not ended. NULL is allowed. */
static bool goes_on(const tmsg_call_stream_t *stream)
{
    return stream != NULL && tmsg_stream_status(stream) == TMSG_IN_PROGRESS;
}

/* Ends the stream if it goes on; its event tells the peer. NULL is allowed.
 * Lock held. */
static void fail_stream(tmsg_call_stream_t *stream, tmsg_status_t status,
                        const char *why)
{
    if (!goes_on(stream)) {
        return;
    }
    if (stream->call != NULL) {
        tmsg_call_fail(stream->call, status, true, why);
        return;
    }
    tmsg_shown_format(stream->error, sizeof(stream->error), "%s", why);
    tmsg_task_abandon(stream->task, status);
}

/* Drops a message that nobody reads: its sender may send another. Lock not
 * held. */
static void discard(tmsg_message_t *message)
{
    tmsg_stream_take(message);
    tmsg_message_destroy(message);
}

/* Puts an item into the inbox of its stream, if that stream goes on. Returns
 * true if the stream now owns the message. Lock held. */
static bool keep_item(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                      tmsg_message_t *message, const tmsg_call_head_t *head)
{
    tmsg_call_stream_t *stream = find_stream(peer, key, head->id);

    if (!goes_on(stream)) {
        return false;
    }
    if (stream->peer_finished) {
        fail_stream(stream, TMSG_ERR_MALFORMED, "a message after the last one");
        return false;
    }
    stream->received++;
    tmsg_stream_push(&stream->inbox, message);
    tmsg_stream_fed(stream);
    return true;
}

/* Handles a FINISH: the peer sends no more items. Lock held. */
static void handle_finish(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                          const tmsg_call_head_t *head)
{
    tmsg_call_stream_t *stream = find_stream(peer, key, head->id);

    if (!goes_on(stream)) {
        return;
    }
    if (stream->peer_finished) {
        fail_stream(stream, TMSG_ERR_MALFORMED, "it finished twice");
        return;
    }
    stream->peer_finished = true;
    tmsg_stream_fed(stream);
}

/* Handles an END: the server has ended a stream that this side opened. Takes
 * and owns the message. Lock not held. */
static void handle_end(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                       tmsg_message_t *message, const tmsg_call_head_t *head)
{
    tmsg_hub_t *hub = peer->hub;
    tmsg_call_stream_t *stream;
    bool ends, free = false;

    tmsg_stream_take(message);
    tmsg_hub_lock(hub);
    stream = find_stream(peer, key, head->id);
    ends = goes_on(stream);
    if (stream != NULL) {
        stream->peer_done = true;
    }
    if (ends) {
        tmsg_call_t *call = stream->call;
        int32_t status = tmsg_call_known_status(head->status);

        stream->orderly = true;
        stream->peer_finished = true;
        call->may_have_run = true;
        call->code = head->code;
        call->reply = message;
        if (status != TMSG_OK) {
            tmsg_call_explain(call,
                              head->text_bytes > 0
                                  ? head->text
                                  : tmsg_status_name((tmsg_status_t)status));
        }
        tmsg_call_end(call, (tmsg_status_t)status);
    } else if (stream != NULL && stream->settled) {
        free = tmsg_stream_is_free(stream) && tmsg_stream_unlist(stream);
    }
    tmsg_hub_unlock(hub);
    if (ends) {
        stream->call->event.fire(&stream->call->event);
    } else {
        tmsg_message_destroy(message);
    }
    if (free) {
        tmsg_stream_drop(stream);
    }
}

/* Handles an OVER: the server has let go of a stream that this side opened.
 * Lock not held. */
static void handle_over(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                        const tmsg_call_head_t *head)
{
    int32_t status = tmsg_call_known_status(head->status);
    tmsg_hub_t *hub = peer->hub;
    tmsg_call_stream_t *stream;
    bool free = false;

    tmsg_hub_lock(hub);
    stream = find_stream(peer, key, head->id);
    if (stream != NULL) {
        stream->peer_done = true;
        free = stream->settled && tmsg_stream_is_free(stream) &&
               tmsg_stream_unlist(stream);
    }
    if (goes_on(stream)) {
        stream->call->code = head->code;
        tmsg_call_fail(
            stream->call,
            status == TMSG_OK ? TMSG_ERR_REFUSED : (tmsg_status_t)status,
            !(head->flags & TMSG_CALL_NOT_RUN),
            head->text_bytes > 0 ? head->text
                                 : tmsg_status_name((tmsg_status_t)status));
    }
    tmsg_hub_unlock(hub);
    if (free) {
        tmsg_stream_drop(stream);
    }
}

/* Makes room for the slot with that index. Lock held. Errors: NO_MEMORY. */
static tmsg_status_t grow_stream_slots(tmsg_rpc_peer_t *peer, uint16_t index)
{
    uint32_t count = peer->slot_count == 0 ? 8 : peer->slot_count;
    tmsg_stream_slot_t *slots;

    if (index < peer->slot_count) {
        return TMSG_OK;
    }
    while (count <= index) {
        count *= 2;
    }
    slots = reallocarray(peer->slots, count, sizeof(*slots));
    if (slots == NULL) {
        return tmsg_error_memory("the table of streams");
    }
    memset(slots + peer->slot_count, 0,
           (count - peer->slot_count) * sizeof(*slots));
    peer->slots = slots;
    peer->slot_count = count;
    return TMSG_OK;
}

/* Handles a CANCEL: the opener has let go of a stream that this side serves.
 * Lock not held. */
static void handle_cancel(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                          const tmsg_call_head_t *head)
{
    tmsg_hub_t *hub = peer->hub;
    tmsg_call_stream_t *stream;
    tmsg_status_t status = TMSG_OK;
    bool ended;

    tmsg_hub_lock(hub);
    stream = find_stream(peer, key, head->id);
    ended = stream != NULL && !goes_on(stream);
    if (ended) { /* messages of this side may still wait for the opener */
        tmsg_stream_hold(stream);
    } else if (stream != NULL) {
        tmsg_task_abandon(stream->task, TMSG_ERR_CANCELED);
    } else {
        status = grow_stream_slots(peer, key.index);
        if (status == TMSG_OK) {
            /* The OPEN has not come yet, or the stream is gone. */
            peer->slots[key.index].early = head->id;
        }
    }
    tmsg_hub_unlock(hub);
    if (ended) {
        tmsg_stream_clear(stream->endpoint, stream->channel, stream->id);
        tmsg_stream_let_go(stream);
        tmsg_stream_drop(stream);
    }
    if (status != TMSG_OK) {
        tmsg_stream_break(peer->endpoint, status, tmsg_error_message());
    }
}

/* Checks whether the place is free for a new stream. Frees the place of a
 * stream that is over. Lock not held. Errors: MALFORMED (the stream there goes
 * on), CANCELED (the new stream was canceled before it came), NO_MEMORY. */
static tmsg_status_t admit_stream(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                                  const tmsg_call_head_t *head)
{
    tmsg_call_stream_t *old = NULL;
    tmsg_stream_slot_t *slot;
    tmsg_status_t status;

    tmsg_hub_lock(peer->hub);
    status = grow_stream_slots(peer, key.index);
    slot = status == TMSG_OK ? &peer->slots[key.index] : NULL;
    if (slot != NULL && slot->stream != NULL && !goes_on(slot->stream)) {
        /* The END reached the peer before this side heard that END left. */
        old = slot->stream;
        (void)tmsg_stream_unlist(old);
    }
    if (slot != NULL && slot->stream != NULL) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                "its channel has a stream that goes on");
    } else if (slot != NULL && slot->early == head->id && head->id != 0) {
        status = tmsg_error_set(TMSG_ERR_CANCELED, "it was canceled");
    }
    if (slot != NULL && slot->stream == NULL) {
        slot->early = 0;
    }
    tmsg_hub_unlock(peer->hub);
    if (old != NULL) {
        tmsg_stream_drop(old);
    }
    return status;
}

void tmsg_stream_serve(tmsg_call_stream_t *stream, tmsg_task_t *task)
{
    stream->task = task;
    stream->signature = tmsg_signature_hold(task->method->signature);
    stream->id = task->reply.id;
    stream->peer->slots[stream->key.index].stream = stream;
    stream->listed = true;
    tmsg_task_hold(task);
}

/* Handles an OPEN: the peer opens a stream. The message has the map that the
 * stream is opened with. Takes and owns the message. Lock not held. */
static void handle_open(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                        tmsg_message_t *message, const tmsg_call_head_t *head)
{
    static const char no_answers[] = "it opens streams and takes no answers";
    tmsg_call_stream_t *stream = NULL;
    tmsg_status_t status;
    char why[TMSG_ERROR_BYTES];

    tmsg_stream_take(message);
    if (tmsg_calls_are_full(peer->endpoint)) {
        (void)tmsg_refuse(peer, head, TMSG_ERR_LIMIT_EXCEEDED, no_answers);
        tmsg_stream_break(peer->endpoint, TMSG_ERR_LIMIT_EXCEEDED, no_answers);
        tmsg_message_destroy(message);
        return;
    }
    status = admit_stream(peer, key, head);
    if (status == TMSG_OK) {
        stream = tmsg_stream_make(peer, key);
        status = stream == NULL ? TMSG_ERR_NO_MEMORY
                                : tmsg_task_open(peer, head, stream, message);
    }
    if (status != TMSG_OK) {
        snprintf(why, sizeof(why), "%s", tmsg_error_message());
        (void)tmsg_refuse(peer, head, status, why);
        tmsg_stream_free(stream);
        tmsg_stream_say_over(peer, key, head->id, status, why);
        tmsg_message_destroy(message);
    }
}

/* Ends a stream, because an item does not have the signature of the method.
 * Lock not held. */
static void fail_mismatch(tmsg_call_stream_t *stream, const char *why)
{
    tmsg_hub_lock(stream->hub);
    fail_stream(
        stream,
        stream->call != NULL ? TMSG_ERR_INTERNAL : TMSG_ERR_INVALID_PARAM, why);
    tmsg_hub_unlock(stream->hub);
}

/* Checks an item against the signature, and shows it to interceptors, before it
 * can be read. Returns true if the stream now owns the message. Lock not held.
 */
static bool check_item(tmsg_call_stream_t *stream, tmsg_message_t *message,
                       const tmsg_call_head_t *head)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    tmsg_rpc_peer_t *peer = stream->peer;
    bool kept;

    if (tmsg_stream_check(stream, false, map) != TMSG_OK) {
        char why[TMSG_ERROR_BYTES];

        strcpy(why, tmsg_error_message());
        fail_mismatch(stream, why);
        return false;
    }
    tmsg_hooks_message(tmsg_stream_hooks(stream), false, map);
    tmsg_hub_lock(peer->hub);
    kept = keep_item(peer, stream->key, message, head);
    tmsg_hub_unlock(peer->hub);
    return kept;
}

/* Handles an ITEM. Returns true if the stream now owns the message. Lock not
 * held. */
static bool handle_item(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                        tmsg_message_t *message, const tmsg_call_head_t *head)
{
    tmsg_call_stream_t *stream;
    bool kept = false, looked;

    tmsg_hub_lock(peer->hub);
    stream = find_stream(peer, key, head->id);
    looked = goes_on(stream) &&
             (stream->signature != NULL || tmsg_stream_hooks(stream) != NULL);
    if (looked) {
        tmsg_stream_hold(stream);
    } else {
        kept = keep_item(peer, key, message, head);
    }
    tmsg_hub_unlock(peer->hub);
    if (looked) {
        kept = check_item(stream, message, head);
        tmsg_stream_drop(stream);
    }
    return kept;
}

/* Handles a message by its type. Returns true if the message has an owner now.
 * Lock not held. */
static bool take_in(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                    tmsg_message_t *message, const tmsg_call_head_t *head)
{
    bool kept = false;

    if (head->type == TMSG_STREAM_OPEN && !key.ours) {
        handle_open(peer, key, message, head);
        return true;
    }
    if (head->type == TMSG_STREAM_END && key.ours) {
        handle_end(peer, key, message, head);
        return true;
    }
    if (head->type == TMSG_STREAM_OVER && key.ours) {
        handle_over(peer, key, head);
    } else if (head->type == TMSG_STREAM_CANCEL && !key.ours) {
        handle_cancel(peer, key, head);
    } else if (head->type == TMSG_STREAM_ITEM) {
        kept = handle_item(peer, key, message, head);
    } else if (head->type == TMSG_STREAM_FINISH) {
        tmsg_hub_lock(peer->hub);
        handle_finish(peer, key, head);
        tmsg_hub_unlock(peer->hub);
    }
    return kept;
}

/* Handles a message that was refused or given up. The stream then lacks a
 * message and fails, unless the sender itself gave the message up. An OPEN of
 * the peer is counted as refused. `head` is NULL if the head could not be read.
 * Lock not held. */
static void handle_missing(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                           const tmsg_call_head_t *head, tmsg_status_t status,
                           const char *why)
{
    tmsg_call_stream_t *stream;

    if (head != NULL && head->type == TMSG_STREAM_OPEN) {
        if (!key.ours) { /* the opener was told already */
            (void)tmsg_refuse(peer, head, status, why);
        }
        return;
    }
    if (status == TMSG_ERR_CANCELED || status == TMSG_ERR_TIMED_OUT) {
        return; /* the sender gave the message up, and knows it */
    }
    tmsg_hub_lock(peer->hub);
    stream = head == NULL ? tmsg_stream_at(peer, key)
                          : find_stream(peer, key, head->id);
    fail_stream(stream, status, why);
    tmsg_hub_unlock(peer->hub);
}

void tmsg_stream_came(void *arg, tmsg_stream_key_t key, tmsg_message_t *message,
                      const tmsg_call_head_t *head, tmsg_status_t status,
                      const char *why)
{
    tmsg_rpc_peer_t *peer = arg;

    if (message == NULL) {
        handle_missing(peer, key, head, status, why);
    } else if (head == NULL || !take_in(peer, key, message, head)) {
        discard(message);
    }
    tmsg_hub_wake(peer->hub);
}

void tmsg_stream_stuck(void *arg, tmsg_stream_key_t key, uint64_t id,
                       tmsg_status_t status, const char *error)
{
    tmsg_rpc_peer_t *peer = arg;

    tmsg_hub_lock(peer->hub);
    fail_stream(find_stream(peer, key, id), status, error);
    tmsg_hub_unlock(peer->hub);
    tmsg_calls_wake_held(peer->hub->calls);
}
