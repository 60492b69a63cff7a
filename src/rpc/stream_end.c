/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements how a stream ends, and how its place becomes free. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shown.h"
#include "rpc/intercept.h"
#include "rpc/stream.h"

void tmsg_stream_hold(tmsg_call_stream_t *stream)
{
    if (stream->call != NULL) {
        tmsg_call_hold(stream->call);
    } else {
        tmsg_task_hold(stream->task);
    }
}

void tmsg_stream_drop(tmsg_call_stream_t *stream)
{
    if (stream->call != NULL) {
        tmsg_call_drop(stream->call);
    } else {
        tmsg_task_drop(stream->task);
    }
}

tmsg_status_t tmsg_stream_status(const tmsg_call_stream_t *stream)
{
    tmsg_status_t status;

    if (stream->call != NULL) {
        return tmsg_call_status(stream->call);
    }
    status = (tmsg_status_t)atomic_load_explicit(&stream->task->status,
                                                 memory_order_acquire);
    return status == TMSG_TASK_ANSWERED
               ? (tmsg_status_t)atomic_load(&stream->outcome)
               : status;
}

void tmsg_stream_empty(tmsg_call_stream_t *stream)
{
    tmsg_message_t *message;

    do {
        tmsg_hub_lock(stream->hub);
        message = tmsg_stream_pop(&stream->inbox);
        stream->dropped += message != NULL;
        tmsg_hub_unlock(stream->hub);
        if (message != NULL) {
            tmsg_stream_take(message);
            tmsg_message_destroy(message);
        }
    } while (message != NULL);
    tmsg_stream_retire(stream);
}

/* Unread messages hold credits of the channel. */
bool tmsg_stream_is_free(const tmsg_call_stream_t *stream)
{
    return stream->call != NULL && stream->peer_done &&
           stream->inbox.count == 0;
}

bool tmsg_stream_unlist(tmsg_call_stream_t *stream)
{
    tmsg_rpc_peer_t *peer = stream->peer;
    bool listed = stream->listed;

    stream->listed = false;
    if (listed && stream->key.ours) {
        peer->streams[stream->key.index] = NULL;
    } else if (listed) {
        peer->slots[stream->key.index].stream = NULL;
    }
    return listed;
}

void tmsg_stream_retire(tmsg_call_stream_t *stream)
{
    bool unlisted;

    tmsg_hub_lock(stream->hub);
    unlisted = stream->settled && tmsg_stream_is_free(stream) &&
               tmsg_stream_unlist(stream);
    tmsg_hub_unlock(stream->hub);
    if (unlisted) {
        tmsg_stream_drop(stream);
    }
}

/* Frees the place of the stream if `free` is true, and drops the reference that
 * the place held. Lock not held. */
static void leave_place(tmsg_call_stream_t *stream, bool free)
{
    bool unlisted;

    tmsg_hub_lock(stream->hub);
    unlisted = free && tmsg_stream_unlist(stream);
    tmsg_hub_unlock(stream->hub);
    if (unlisted) {
        tmsg_stream_drop(stream);
    }
}

/* Returns how many bytes of `words` a head can carry; 0 if the words are not
 * UTF-8. */
static size_t words_bytes(const char *words)
{
    size_t bytes = 0;

    return tmsg_task_words(words, &bytes) == TMSG_OK ? bytes : 0;
}

/* Ends the endpoint, because the peer cannot be told what it waits for. Does
 * nothing for CLOSED, CANCELED and PEER_LOST, which come with the end of the
 * endpoint. Lock not held. */
static void break_endpoint(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                           const char *why)
{
    char words[TMSG_ERROR_BYTES];

    if (status != TMSG_ERR_CLOSED && status != TMSG_ERR_CANCELED &&
        status != TMSG_ERR_PEER_LOST) {
        snprintf(words, sizeof(words), "the end of a stream: %s", why);
        tmsg_stream_break(endpoint, status, words);
    }
}

/* Sends a message that the peer waits for, with an empty map. Tries a second
 * time if there is no memory. If the message cannot be sent, the function calls
 * on_done of `how`, or ends the endpoint if there is no on_done. Lock not held.
 */
static void say_or_break(tmsg_rpc_peer_t *peer, const tmsg_call_send_t *how)
{
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;

    for (int i = 0; i < 2 && status == TMSG_ERR_NO_MEMORY; i++) {
        tmsg_map_t *empty = NULL;

        status = tmsg_map_create(&empty);
        if (status == TMSG_OK) {
            status = tmsg_calls_send(peer->endpoint, empty, how);
        }
        tmsg_map_destroy(empty);
    }
    if (status != TMSG_OK && how->on_done != NULL) {
        how->on_done(how->on_done_arg, status, tmsg_error_message());
    } else if (status != TMSG_OK) {
        break_endpoint(peer->endpoint, status, tmsg_error_message());
    }
}

static uint16_t channel_of(const tmsg_rpc_peer_t *peer, tmsg_stream_key_t key)
{
    bool dialled = false;

    (void)tmsg_stream_side(peer->endpoint, &dialled);
    return tmsg_stream_channel(key, dialled);
}

void tmsg_stream_say_over(tmsg_rpc_peer_t *peer, tmsg_stream_key_t key,
                          uint64_t id, tmsg_status_t status, const char *words)
{
    const tmsg_call_head_t head = {.type = TMSG_STREAM_OVER,
                                   .flags = TMSG_CALL_NOT_RUN,
                                   .stream = channel_of(peer, key),
                                   .status = status,
                                   .id = id,
                                   .text = words,
                                   .text_bytes = words_bytes(words)};
    const tmsg_call_send_t how = {.head = &head, .queues = true};

    say_or_break(peer, &how);
}

/* Serves as on_done of OVER and CANCEL. An OVER that has left frees the place
 * of the stream. A message that did not leave ends the endpoint. Owns a
 * reference to the stream. Lock not held. */
static void over_left(void *arg, tmsg_status_t status, const char *error)
{
    tmsg_call_stream_t *stream = arg;

    if (status != TMSG_OK) { /* the end of the endpoint then frees the place */
        break_endpoint(stream->endpoint, status, error);
    }
    leave_place(stream, stream->task != NULL && status == TMSG_OK);
    tmsg_stream_drop(stream);
}

/* Returns `words` without the name of the peer, because the peer is the reader.
 */
static const char *without_peer(const tmsg_call_stream_t *stream,
                                const char *words)
{
    return tmsg_call_without_peer(tmsg_calls_name(stream->endpoint), words);
}

/* Returns the words for the peer that explain an OVER with `status`. Lock held.
 */
static const char *words_of(const tmsg_call_stream_t *stream,
                            tmsg_status_t status)
{
    if (stream->error[0] != '\0') {
        return stream->error;
    }
    switch (status) {
    case TMSG_ERR_TIMED_OUT:
        return "its time was up at the server";
    case TMSG_ERR_UNAVAILABLE:
        return "the server was shut down";
    case TMSG_ERR_CANCELED:
        return "canceled by the server";
    default:
        return tmsg_status_name(status);
    }
}

tmsg_status_t tmsg_stream_unended(const tmsg_call_stream_t *stream,
                                  const char **words_p)
{
    if (stream == NULL || stream->unsent == TMSG_OK) {
        *words_p = "the handler released it without an answer";
        return TMSG_ERR_INTERNAL;
    }
    *words_p = stream->unsent_words != NULL ? stream->unsent_words
                                            : tmsg_status_name(stream->unsent);
    return stream->unsent;
}

void tmsg_stream_let_go(tmsg_call_stream_t *stream)
{
    tmsg_status_t status = tmsg_stream_status(stream);
    bool serves = stream->task != NULL;
    tmsg_call_head_t head = {.stream = stream->channel,
                             .id = stream->id,
                             .type = TMSG_STREAM_CANCEL,
                             .text = ""};
    const tmsg_call_send_t how = {.head = &head,
                                  .queues = true,
                                  .on_done = over_left,
                                  .on_done_arg = stream};
    bool tell;

    tmsg_hub_lock(stream->hub);
    tell = stream->listed && !stream->told && !stream->peer_done &&
           !stream->peer->over;
    stream->told = stream->told || tell;
    if (serves) {
        head.type = TMSG_STREAM_OVER;
        head.flags = stream->task->ran ? 0 : TMSG_CALL_NOT_RUN;
        head.status = status < 0 ? status : TMSG_ERR_CANCELED;
        head.text = without_peer(stream, words_of(stream, status));
        if (stream->end_unsent) {
            head.status = tmsg_stream_unended(stream, &head.text);
        }
        head.text_bytes = words_bytes(head.text);
    }
    if (tell) {
        tmsg_stream_hold(stream);
    }
    tmsg_hub_unlock(stream->hub);
    if (tell) {
        say_or_break(stream->peer, &how);
    }
}

void tmsg_stream_fire(tmsg_call_stream_t *stream)
{
    tmsg_stream_clear(stream->endpoint, stream->channel, stream->id);
    tmsg_stream_let_go(stream);
    if (!stream->orderly) {
        tmsg_stream_empty(stream);
    }
    tmsg_hub_lock(stream->hub);
    stream->settled = true;
    tmsg_stream_fed(stream);
    tmsg_hub_unlock(stream->hub);
    tmsg_stream_retire(stream);
    tmsg_stream_tell(stream);
    tmsg_stream_drop(stream);
}

/* Serves as on_done of END, which has left or never will. An END that has left
 * frees the place of the stream; otherwise OVER takes its place. Owns a
 * reference to the stream. Lock not held. */
static void end_left(void *arg, tmsg_status_t status, const char *error)
{
    tmsg_call_stream_t *stream = arg;

    if (tmsg_stream_is_unsendable(status)) {
        tmsg_hub_lock(stream->hub);
        tmsg_stream_note_unsent(stream, status, error);
        stream->end_unsent = true;
        tmsg_hub_unlock(stream->hub);
    }
    if (status != TMSG_OK) {
        tmsg_stream_let_go(stream);
    }
    leave_place(stream, status == TMSG_OK);
    tmsg_stream_drop(stream);
}

/* Serves as `may` of tmsg_stream_send_t, for END, which needs no room in the
 * queue. */
static tmsg_status_t may_send_end(void *arg, size_t waiting)
{
    (void)arg;
    (void)waiting;
    return TMSG_OK;
}

tmsg_status_t tmsg_stream_send_end(tmsg_call_stream_t *stream, int32_t code,
                                   const char *words, size_t bytes,
                                   const tmsg_map_t *details)
{
    const tmsg_call_head_t head = {.type = TMSG_STREAM_END,
                                   .status = atomic_load(&stream->outcome),
                                   .id = stream->id,
                                   .code = code,
                                   .text = words == NULL ? "" : words,
                                   .text_bytes = bytes};
    const tmsg_stream_send_t how = {.call = {.head = &head,
                                             .queues = true,
                                             .on_done = end_left,
                                             .on_done_arg = stream},
                                    .channel = stream->channel,
                                    .may = may_send_end};
    tmsg_map_t *empty = NULL;
    tmsg_status_t status = TMSG_OK;

    if (details == NULL) {
        status = tmsg_map_create(&empty);
    }
    tmsg_stream_hold(stream);
    if (status == TMSG_OK) {
        status = tmsg_stream_send(
            stream->endpoint, details == NULL ? empty : details, &how, NULL);
    }
    tmsg_map_destroy(empty);
    if (status != TMSG_OK) {
        tmsg_stream_drop(stream);
    }
    return status;
}

void tmsg_stream_say_end(tmsg_call_stream_t *stream, tmsg_status_t status,
                         const char *words)
{
    words = without_peer(stream, words);
    tmsg_hub_lock(stream->hub);
    atomic_store(&stream->outcome, status);
    stream->orderly = true;
    stream->over_told = true;
    tmsg_shown_format(stream->error, sizeof(stream->error), "%s", words);
    tmsg_hub_unlock(stream->hub);
    if (tmsg_stream_send_end(stream, 0, words, words_bytes(words), NULL) !=
        TMSG_OK) {
        tmsg_stream_let_go(stream);
    }
}

void tmsg_streams_let_go(tmsg_rpc_peer_t *peer)
{
    tmsg_hub_t *hub = peer->hub;

    tmsg_hub_lock(hub);
    for (uint32_t i = 0; i < peer->stream_count + peer->slot_count; i++) {
        bool ours = i < peer->stream_count;
        tmsg_call_stream_t *stream =
            ours ? peer->streams[i]
                 : peer->slots[i - peer->stream_count].stream;

        if (stream != NULL && tmsg_stream_unlist(stream)) {
            tmsg_hub_unlock(hub);
            tmsg_stream_drop(stream);
            tmsg_hub_lock(hub);
        }
    }
    tmsg_hub_unlock(hub);
}

void tmsg_stream_refused(tmsg_call_stream_t *stream)
{
    if (stream != NULL) {
        stream->peer_done = true;
    }
}

/* The stream's event is still to come, or has sent a CANCEL. An OVER answers
 * that CANCEL only if the OPEN was not refused. The function sets peer_done in
 * place of that OVER, so that the place becomes free. */
bool tmsg_stream_bounces(tmsg_rpc_peer_t *peer, uint32_t message_id)
{
    for (uint32_t i = 0; i < peer->stream_count; i++) {
        tmsg_call_stream_t *stream = peer->streams[i];

        if (stream != NULL && stream->call->number == message_id) {
            stream->peer_done = true;
            tmsg_stream_note(stream);
            tmsg_calls_wake_held(peer->hub->calls);
            return true;
        }
    }
    return false;
}

tmsg_status_t tmsg_call_stream_end(tmsg_call_stream_t *stream,
                                   tmsg_status_t status, int32_t code,
                                   const char *words, const tmsg_map_t *details)
{
    tmsg_task_t *task = stream->task;
    char why[TMSG_ERROR_BYTES];
    size_t bytes = 0;
    tmsg_status_t ended;

    if (task == NULL || status > 0 || status < TMSG_ERR_APPLICATION) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "end: %s",
            task == NULL ? "a stream is ended by its server; its opener "
                           "finishes, or cancels"
                         : "the status is neither OK nor a failure");
    }
    if (tmsg_task_words(words, &bytes) != TMSG_OK) {
        return TMSG_ERR_INVALID_PARAM;
    }
    ended = tmsg_task_claim(task, status, NULL,
                            status == TMSG_OK ? NULL : words, bytes);
    if (ended != TMSG_OK) {
        return ended;
    }
    tmsg_hub_lock(stream->hub);
    stream->orderly = true;
    stream->over_told = true;
    if (details != NULL) {
        tmsg_hooks_count(task->hooks, true, details);
    }
    tmsg_hub_unlock(stream->hub);
    tmsg_stream_empty(stream);
    ended = tmsg_stream_send_end(stream, code, words, bytes, details);
    if (ended != TMSG_OK) {
        snprintf(why, sizeof(why), "%s", tmsg_error_message());
        tmsg_stream_say_end(stream, ended, why);
    }
    tmsg_task_settle(task);
    return ended == TMSG_OK ? ended : tmsg_error_set(ended, "%s", why);
}

void tmsg_call_stream_cancel(tmsg_call_stream_t *stream)
{
    tmsg_hub_t *hub = stream->hub; /* on_over may destroy the stream */
    bool open;

    if (stream->call != NULL) {
        tmsg_call_give_up(stream->call, false);
        return;
    }
    tmsg_hub_lock(hub);
    open = tmsg_task_is_open(stream->task);
    if (open) {
        tmsg_task_abandon(stream->task, TMSG_ERR_CANCELED);
    }
    tmsg_hub_unlock(hub);
    if (open) {
        tmsg_hub_wake(hub);
    }
}
