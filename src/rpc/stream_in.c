/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes on the channel of a stream, each message in its turn. What is for
 * none, or for one that is over, is dropped: its sender has heard, or will. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"
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

static tmsg_call_stream_t *find(const tmsg_rpc_peer_t *peer,
                                tmsg_stream_key_t key, uint64_t id)
{
    tmsg_call_stream_t *stream = tmsg_stream_at(peer, key);

    return stream != NULL && stream->id == id ? stream : NULL;
}

static bool goes_on(const tmsg_call_stream_t *stream)
{
    return stream != NULL && tmsg_stream_status(stream) == TMSG_IN_PROGRESS;
}

/* Lock held: ends one that goes on; its event tells the peer. */
static void fail(tmsg_call_stream_t *stream, tmsg_status_t status,
                 const char *why)
{
    if (!goes_on(stream)) {
        return;
    }
    if (stream->call != NULL) {
        tmsg_call_fail(stream->call, status, true, why);
        return;
    }
    snprintf(stream->error, sizeof(stream->error), "%s", why);
    tmsg_utf8_scrub(stream->error);
    tmsg_task_abandon(stream->task, status);
}

static void discard(tmsg_message_t *message)
{
    tmsg_stream_take(message);
    tmsg_message_destroy(message);
}

/* True: it is kept. */
static bool add_item(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                     tmsg_message_t *message, const tmsg_call_head_t *head)
{
    tmsg_call_stream_t *stream = find(peer, key, head->id);

    if (!goes_on(stream)) {
        return false;
    }
    if (stream->peer_finished) {
        fail(stream, TMSG_ERR_MALFORMED, "a message after the last one");
        return false;
    }
    stream->received++;
    tmsg_stream_push(&stream->inbox, message);
    tmsg_stream_fed(stream);
    return true;
}

static void finish(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                   const tmsg_call_head_t *head)
{
    tmsg_call_stream_t *stream = find(peer, key, head->id);

    if (!goes_on(stream)) {
        return;
    }
    if (stream->peer_finished) {
        fail(stream, TMSG_ERR_MALFORMED, "it finished twice");
        return;
    }
    stream->peer_finished = true;
    tmsg_stream_fed(stream);
}

/* Its server has ended one of ours. */
static void end(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                tmsg_message_t *message, const tmsg_call_head_t *head)
{
    tmsg_hub_t *hub = peer->hub;
    tmsg_call_stream_t *stream;
    bool ends, free = false;

    tmsg_stream_take(message);
    tmsg_hub_lock(hub);
    stream = find(peer, key, head->id);
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

/* Its server has let go of one of ours. */
static void over(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                 const tmsg_call_head_t *head)
{
    int32_t status = tmsg_call_known_status(head->status);
    tmsg_hub_t *hub = peer->hub;
    tmsg_call_stream_t *stream;
    bool free = false;

    tmsg_hub_lock(hub);
    stream = find(peer, key, head->id);
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

/* Room for that place. Lock held. */
static tmsg_status_t make_room(tmsg_rpc_peer_t *peer, uint16_t index)
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

/* Its opener has let go of one that we serve. */
static void cancel(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                   const tmsg_call_head_t *head)
{
    tmsg_hub_t *hub = peer->hub;
    tmsg_call_stream_t *stream;
    tmsg_status_t status = TMSG_OK;
    bool ended;

    tmsg_hub_lock(hub);
    stream = find(peer, key, head->id);
    ended = stream != NULL && !goes_on(stream);
    if (ended) { /* what it has sent may still wait to be read */
        tmsg_stream_hold(stream);
    } else if (stream != NULL) {
        tmsg_task_abandon(stream->task, TMSG_ERR_CANCELED);
    } else {
        status = make_room(peer, key.index);
        if (status == TMSG_OK) { /* it has not come, or is gone */
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

/* Whether the place is free for a new one. */
static tmsg_status_t admit(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                           const tmsg_call_head_t *head)
{
    tmsg_call_stream_t *old = NULL;
    tmsg_stream_slot_t *slot;
    tmsg_status_t status;

    tmsg_hub_lock(peer->hub);
    status = make_room(peer, key.index);
    slot = status == TMSG_OK ? &peer->slots[key.index] : NULL;
    if (slot != NULL && slot->stream != NULL && !goes_on(slot->stream)) {
        old = slot->stream; /* its END was faster than we hear that it left */
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

/* The peer opens one. The message is its map. */
static void open(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
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
    status = admit(peer, key, head);
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

/* It is no message that its method takes, or gives. */
static void mismatch(tmsg_call_stream_t *stream, const char *why)
{
    tmsg_hub_lock(stream->hub);
    fail(stream,
         stream->call != NULL ? TMSG_ERR_INTERNAL : TMSG_ERR_INVALID_PARAM,
         why);
    tmsg_hub_unlock(stream->hub);
}

/* One that is looked at before it can be read. True: it is kept. */
static bool look_at_item(tmsg_call_stream_t *stream, tmsg_message_t *message,
                         const tmsg_call_head_t *head)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    tmsg_rpc_peer_t *peer = stream->peer;
    bool kept;

    if (tmsg_stream_check(stream, false, map) != TMSG_OK) {
        char why[TMSG_ERROR_BYTES];

        strcpy(why, tmsg_error_message());
        mismatch(stream, why);
        return false;
    }
    tmsg_hooks_message(tmsg_stream_hooks(stream), false, map);
    tmsg_hub_lock(peer->hub);
    kept = add_item(peer, stream->key, message, head);
    tmsg_hub_unlock(peer->hub);
    return kept;
}

/* True: it is kept. */
static bool item(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                 tmsg_message_t *message, const tmsg_call_head_t *head)
{
    tmsg_call_stream_t *stream;
    bool kept = false, looked;

    tmsg_hub_lock(peer->hub);
    stream = find(peer, key, head->id);
    looked = goes_on(stream) &&
             (stream->signature != NULL || tmsg_stream_hooks(stream) != NULL);
    if (looked) {
        tmsg_stream_hold(stream);
    } else {
        kept = add_item(peer, key, message, head);
    }
    tmsg_hub_unlock(peer->hub);
    if (looked) {
        kept = look_at_item(stream, message, head);
        tmsg_stream_drop(stream);
    }
    return kept;
}

/* True: the message is somebody's. */
static bool take_in(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                    tmsg_message_t *message, const tmsg_call_head_t *head)
{
    bool kept = false;

    if (head->type == TMSG_STREAM_OPEN && !key.ours) {
        open(peer, key, message, head);
        return true;
    }
    if (head->type == TMSG_STREAM_END && key.ours) {
        end(peer, key, message, head);
        return true;
    }
    if (head->type == TMSG_STREAM_OVER && key.ours) {
        over(peer, key, head);
    } else if (head->type == TMSG_STREAM_CANCEL && !key.ours) {
        cancel(peer, key, head);
    } else if (head->type == TMSG_STREAM_ITEM) {
        kept = item(peer, key, message, head);
    } else if (head->type == TMSG_STREAM_FINISH) {
        tmsg_hub_lock(peer->hub);
        finish(peer, key, head);
        tmsg_hub_unlock(peer->hub);
    }
    return kept;
}

/* One that does not come: a hole, unless its sender wanted that. */
static void miss(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                 const tmsg_call_head_t *head, tmsg_status_t status,
                 const char *why)
{
    tmsg_call_stream_t *stream;

    if (head != NULL && head->type == TMSG_STREAM_OPEN) {
        if (!key.ours) { /* its opener has heard */
            (void)tmsg_refuse(peer, head, status, why);
        }
        return;
    }
    if (status == TMSG_ERR_CANCELED || status == TMSG_ERR_TIMED_OUT) {
        return; /* likewise */
    }
    tmsg_hub_lock(peer->hub);
    stream =
        head == NULL ? tmsg_stream_at(peer, key) : find(peer, key, head->id);
    fail(stream, status, why);
    tmsg_hub_unlock(peer->hub);
}

void tmsg_stream_came(void *arg, tmsg_stream_key_t key, tmsg_message_t *message,
                      const tmsg_call_head_t *head, tmsg_status_t status,
                      const char *why)
{
    tmsg_rpc_peer_t *peer = arg;

    if (message == NULL) {
        miss(peer, key, head, status, why);
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
    fail(find(peer, key, id), status, error);
    tmsg_hub_unlock(peer->hub);
    tmsg_calls_wake_held(peer->hub->calls);
}
