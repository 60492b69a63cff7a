/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements what both sides of a stream do with it: they send, read, wait, and
 * hear events. */
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/params.h"
#include "rpc/intercept.h"
#include "rpc/stream.h"

#define MS_NS 1000000u
#define EVENTS_KNOWN                                                           \
    ((uint64_t)(TMSG_CALL_STREAM_EVENT_READABLE | TMSG_CALL_STREAM_EVENT_OVER))

/* Returns the number of the stream's handles. Lock held. */
static unsigned handles_of(const tmsg_call_stream_t *stream)
{
    return stream->call != NULL ? stream->handles : stream->task->handles;
}

tmsg_call_stream_t *tmsg_call_stream_keep(tmsg_call_stream_t *stream)
{
    if (stream->task != NULL) {
        (void)tmsg_task_keep(stream->task);
        return stream;
    }
    tmsg_hub_lock(stream->hub);
    stream->handles++;
    tmsg_stream_hold(stream);
    tmsg_hub_unlock(stream->hub);
    return stream;
}

void tmsg_call_stream_put_off(tmsg_call_stream_t *stream)
{
    if (stream->task != NULL) {
        tmsg_task_put_off(stream->task);
    }
}

tmsg_status_t tmsg_call_stream_begin(tmsg_call_stream_t *stream)
{
    return stream->task == NULL ? TMSG_OK : tmsg_task_begin(stream->task);
}

/* Handles the loss of the last handle. Cancels the call at the opener, and
 * drops the messages that nobody will read. Lock not held. */
static void abandon_stream(tmsg_call_stream_t *stream)
{
    if (stream->call != NULL) {
        tmsg_call_give_up(stream->call, true);
    }
    tmsg_stream_empty(stream);
}

void tmsg_call_stream_destroy(tmsg_call_stream_t *stream)
{
    tmsg_hub_t *hub;
    bool last;

    if (stream == NULL) {
        return;
    }
    hub = stream->hub;
    tmsg_stream_hold(stream);
    if (stream->task != NULL) {
        tmsg_task_destroy(stream->task);
    }
    tmsg_hub_lock(hub);
    if (stream->call != NULL) {
        stream->handles--;
    }
    last = handles_of(stream) == 0;
    tmsg_hub_unlock(hub);
    if (last) {
        abandon_stream(stream);
    }
    if (stream->call != NULL) {
        tmsg_stream_drop(stream);
    }
    tmsg_stream_drop(stream);
}

/* Returns whether a read would return something other than IN_PROGRESS. Lock
 * held. */
static bool is_readable(const tmsg_call_stream_t *stream)
{
    return stream->inbox.count > 0 || stream->peer_finished ||
           tmsg_stream_status(stream) != TMSG_IN_PROGRESS;
}

/* Serves as `fire` of the stream's notice. Lock not held. */
static void fire_notice(tmsg_rpc_event_t *event)
{
    tmsg_call_stream_t *stream =
        TMSG_CONTAINER_OF(event, tmsg_call_stream_t, notice);

    tmsg_hub_lock(stream->hub);
    stream->noted = false;
    tmsg_hub_unlock(stream->hub);
    tmsg_stream_retire(stream);
    tmsg_stream_tell(stream);
    tmsg_stream_drop(stream);
}

void tmsg_stream_note(tmsg_call_stream_t *stream)
{
    if (!stream->noted) {
        stream->noted = true;
        stream->notice.fire = fire_notice;
        tmsg_stream_hold(stream);
        tmsg_hub_tell(stream->hub, &stream->notice);
    }
}

void tmsg_stream_fed(tmsg_call_stream_t *stream)
{
    if (stream->reader_waits) {
        stream->reader_waits = false;
        stream->news = true;
        if (stream->events.on_readable != NULL) {
            tmsg_stream_note(stream);
        }
    }
}

/* Stores the callback that is to be called next; the other one in *next_p is
 * NULL. Returns false if nothing is to be told. Lock held. */
static bool next_event(tmsg_call_stream_t *stream,
                       tmsg_call_stream_events_t *next_p)
{
    *next_p = stream->events;
    if (handles_of(stream) == 0) {
        return false;
    }
    if (stream->news && stream->events.on_readable != NULL) {
        stream->news = false;
        next_p->on_over = NULL;
        return true;
    }
    if (stream->settled && !stream->over_told &&
        stream->events.on_over != NULL) {
        stream->over_told = true;
        next_p->on_readable = NULL;
        return true;
    }
    return false;
}

/* Tells the events one by one, because each callback may destroy the stream. */
void tmsg_stream_tell(tmsg_call_stream_t *stream)
{
    tmsg_call_stream_events_t next;
    bool found;

    do {
        tmsg_hub_lock(stream->hub);
        found = next_event(stream, &next);
        tmsg_hub_unlock(stream->hub);
        if (found) {
            tmsg_call_stream_keep(stream);
            if (stream->task != NULL) {
                /* The callbacks of a server run in the span of the task. */
                (void)tmsg_trace_set_current(
                    tmsg_hooks_context(stream->task->hooks));
            }
            if (next.on_readable != NULL) {
                next.on_readable(next.arg, stream);
            } else {
                next.on_over(next.arg, stream, tmsg_stream_status(stream));
            }
            (void)tmsg_trace_set_current(NULL);
            tmsg_call_stream_destroy(stream);
        }
    } while (found);
}

tmsg_status_t
tmsg_call_stream_set_events(tmsg_call_stream_t *stream,
                            const tmsg_call_stream_events_t *events)
{
    uint64_t mask = events == NULL ? 0 : events->field_mask;
    tmsg_call_stream_events_t read = {.field_mask = mask};

    if (mask & ~EVENTS_KNOWN) {
        return tmsg_params_unknown("events", mask & ~EVENTS_KNOWN);
    }
    if (mask & TMSG_CALL_STREAM_EVENT_READABLE) {
        read.on_readable = events->on_readable;
    }
    if (mask & TMSG_CALL_STREAM_EVENT_OVER) {
        read.on_over = events->on_over;
    }
    if (events != NULL) {
        read.arg = events->arg;
    }
    tmsg_hub_lock(stream->hub);
    stream->events = read;
    if (is_readable(stream)) {
        stream->reader_waits = false;
        stream->news = true;
        tmsg_stream_note(stream);
    } else {
        stream->reader_waits = true;
    }
    tmsg_hub_unlock(stream->hub);
    tmsg_hub_wake(stream->hub);
    return TMSG_OK;
}

/* Copies the stream's error to the error of the thread, and returns `status`.
 */
static tmsg_status_t set_stream_error(const tmsg_call_stream_t *stream,
                                      tmsg_status_t status)
{
    return tmsg_error_set(status, "%s", tmsg_call_stream_error(stream));
}

/* Checks whether this side may send. Lock held. Errors: CLOSED (the stream is
 * over without a failure, or this side has finished), and the status that the
 * stream failed with. */
static tmsg_status_t check_writable(const tmsg_call_stream_t *stream)
{
    tmsg_status_t status = tmsg_stream_status(stream);

    if (status < 0) {
        return set_stream_error(stream, status);
    }
    if (status == TMSG_OK || stream->finished) {
        return tmsg_error_set(TMSG_ERR_CLOSED, "method '%s': %s",
                              tmsg_call_stream_method(stream),
                              status == TMSG_OK ? "the stream has ended"
                                                : "this side has finished");
    }
    return TMSG_OK;
}

/* Serves as `may` of tmsg_stream_send_t, for an item. Returns IN_PROGRESS if
 * the stream's queue is full. Takes the lock; the worker's lock is held. */
static tmsg_status_t may_send_item(void *arg, size_t waiting)
{
    tmsg_call_stream_t *stream = arg;
    tmsg_status_t status;

    tmsg_hub_lock(stream->hub);
    status = check_writable(stream);
    if (status == TMSG_OK && waiting >= stream->queue) {
        status = TMSG_IN_PROGRESS;
    }
    tmsg_hub_unlock(stream->hub);
    return status;
}

/* Describes an attempt to send FINISH. Several threads may make such attempts
 * at the same time. */
typedef struct {
    tmsg_call_stream_t *stream;
    bool first; /* this attempt is the one that may send FINISH */
} finish_t;

/* Serves as `may` of tmsg_stream_send_t, for FINISH. Notes that this side has
 * finished. Takes the lock; the worker's lock is held. */
static tmsg_status_t may_finish(void *arg, size_t waiting)
{
    finish_t *finish = arg;
    tmsg_call_stream_t *stream = finish->stream;
    tmsg_status_t status;

    (void)waiting;
    tmsg_hub_lock(stream->hub);
    status = check_writable(stream);
    finish->first = status == TMSG_OK;
    stream->finished = stream->finished || finish->first;
    tmsg_hub_unlock(stream->hub);
    return status;
}

/* Serves as `done` of tmsg_calls_until(). Returns whether a send no longer has
 * to wait: the queue has room, or nothing may be sent any more. Takes the lock;
 * the worker's lock is held. */
static bool may_look_again(void *arg)
{
    tmsg_call_stream_t *stream = arg;
    bool over;

    tmsg_hub_lock(stream->hub);
    over = stream->finished || tmsg_stream_status(stream) != TMSG_IN_PROGRESS;
    tmsg_hub_unlock(stream->hub);
    return over || tmsg_stream_waiting(stream->endpoint, stream->channel) <
                       stream->queue;
}

/* Returns the milliseconds until `deadline_ns`, rounded up. Returns -1 if there
 * is no deadline (0). */
static int ms_until(uint64_t deadline_ns)
{
    uint64_t now = tmsg_calls_now_ns();

    if (deadline_ns == 0) {
        return -1;
    }
    return now >= deadline_ns ? 0
                              : (int)((deadline_ns - now + MS_NS - 1) / MS_NS);
}

/* Returns the deadline of a timeout; 0 (no deadline) if `timeout_ms` is
 * negative. */
static uint64_t deadline_of(int timeout_ms)
{
    return timeout_ms < 0 ? 0
                          : tmsg_calls_now_ns() + (uint64_t)timeout_ms * MS_NS;
}

/* Waits until the queue has room or nothing may be sent any more. Lock not
 * held. Errors: those of tmsg_calls_until(). */
static tmsg_status_t await_room(tmsg_call_stream_t *stream,
                                uint64_t deadline_ns)
{
    return tmsg_calls_until(stream->hub->calls, may_look_again, stream,
                            ms_until(deadline_ns),
                            "no room in the queue of a stream to ",
                            tmsg_calls_name(stream->endpoint));
}

tmsg_status_t tmsg_stream_check(const tmsg_call_stream_t *stream, bool sent,
                                const tmsg_map_t *map)
{
    bool goes_in = sent == (stream->call != NULL); /* input of the method */

    if (stream->signature == NULL || map == NULL) {
        return TMSG_OK;
    }
    return goes_in ? tmsg_signature_check_inputs(stream->signature, map)
                   : tmsg_signature_check_outputs(stream->signature, NULL, map);
}

/* Checks the params of a send. Errors: INVALID_PARAM (a channel, or UNORDERED).
 */
static tmsg_status_t check_params(const tmsg_send_params_t *params)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    if (mask & TMSG_SEND_PARAM_CHANNEL) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "stream: leave out the channel: a stream has its own");
    }
    if (mask & TMSG_SEND_PARAM_FLAGS && params->flags & TMSG_SEND_UNORDERED) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "stream: leave out TMSG_SEND_UNORDERED: the "
                              "messages of a stream are in order");
    }
    return TMSG_OK;
}

bool tmsg_stream_is_unsendable(tmsg_status_t status)
{
    return status == TMSG_ERR_LIMIT_EXCEEDED ||
           status == TMSG_ERR_UNSUPPORTED || status == TMSG_ERR_NO_MEMORY;
}

void tmsg_stream_note_unsent(tmsg_call_stream_t *stream, tmsg_status_t status,
                             const char *why)
{
    const char *peer = tmsg_calls_name(stream->endpoint);

    if (stream->unsent == TMSG_OK && !tmsg_stream_is_unsendable(status)) {
        return;
    }
    free(stream->unsent_words);
    stream->unsent_words = NULL;
    stream->unsent = TMSG_OK;
    if (tmsg_stream_is_unsendable(status)) {
        stream->unsent = status;
        stream->unsent_words = strdup(tmsg_call_without_peer(peer, why));
    }
}

/* Sends a map, and first waits until the queue has room. The flag TMSG_SEND_TRY
 * in the params forbids the wait. `timed` is the copy of the params that `how`
 * points to, or NULL. If there is a deadline, each attempt sets its timeout to
 * the time that is left. Lock not held. Errors: WOULD_BLOCK (TRY, and the queue
 * is full), those of check_writable(), tmsg_stream_send() and
 * tmsg_calls_until(). */
static tmsg_status_t
send_when_room(tmsg_call_stream_t *stream, const tmsg_map_t *map,
               const tmsg_stream_send_t *how, tmsg_send_params_t *timed,
               uint64_t deadline_ns, tmsg_request_t **request_p)
{
    bool try = timed != NULL && timed->field_mask & TMSG_SEND_PARAM_FLAGS &&
               timed->flags & TMSG_SEND_TRY;
    tmsg_status_t status;

    do {
        if (deadline_ns != 0) {
            int ms = ms_until(deadline_ns);

            timed->timeout_ms = ms > 0 ? ms : 1;
        }
        status = tmsg_stream_send(stream->endpoint, map, how, request_p);
        if (status == TMSG_IN_PROGRESS && try) {
            status = tmsg_error_set(
                TMSG_ERR_WOULD_BLOCK, "method '%s': %u messages wait for %s",
                tmsg_call_stream_method(stream), stream->queue,
                tmsg_calls_name(stream->endpoint));
        } else if (status == TMSG_IN_PROGRESS) {
            status = await_room(stream, deadline_ns);
            status = status == TMSG_OK ? TMSG_IN_PROGRESS : status;
        }
    } while (status == TMSG_IN_PROGRESS);
    tmsg_hub_lock(stream->hub);
    stream->sent += status == TMSG_OK;
    if (stream->task != NULL && status != TMSG_ERR_WOULD_BLOCK) {
        tmsg_stream_note_unsent(stream, status, tmsg_error_message());
    }
    tmsg_hub_unlock(stream->hub);
    return status;
}

/* Sends a map, and then tells interceptors of it. The function keeps the worker
 * and the map, because the interceptors look at them after the send. Lock not
 * held. Errors: as send_when_room(), and those of tmsg_calls_enter(). */
static tmsg_status_t send_seen(tmsg_call_stream_t *stream,
                               const tmsg_map_t *map,
                               const tmsg_stream_send_t *how,
                               tmsg_send_params_t *timed, uint64_t deadline_ns,
                               tmsg_request_t **request_p)
{
    tmsg_status_t status = tmsg_calls_enter(stream->endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_map_hold(map);
    status = send_when_room(stream, map, how, timed, deadline_ns, request_p);
    if (status == TMSG_OK) {
        tmsg_hooks_message(tmsg_stream_hooks(stream), true, map);
    }
    tmsg_calls_leave(stream->endpoint);
    if (tmsg_map_unhold(map)) {
        tmsg_map_free(map);
    }
    return status;
}

tmsg_status_t tmsg_call_stream_send(tmsg_call_stream_t *stream,
                                    const tmsg_map_t *map,
                                    const tmsg_send_params_t *params,
                                    tmsg_request_t **request_p)
{
    const tmsg_call_head_t head = {
        .type = TMSG_STREAM_ITEM, .id = stream->id, .text = ""};
    tmsg_send_params_t timed;
    const tmsg_stream_send_t how = {.call = {.head = &head, .queues = true},
                                    .channel = stream->channel,
                                    .params = params == NULL ? NULL : &timed,
                                    .may = may_send_item,
                                    .arg = stream};
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    uint64_t deadline_ns =
        mask & TMSG_SEND_PARAM_TIMEOUT && params->timeout_ms > 0
            ? deadline_of(params->timeout_ms)
            : 0;
    tmsg_status_t status = check_params(params);
    bool seen;

    if (status == TMSG_OK) {
        status = tmsg_stream_check(stream, true, map);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (params != NULL) {
        timed = *params;
    }
    tmsg_stream_hold(stream); /* a callback may destroy the stream meanwhile */
    seen = map != NULL && tmsg_stream_hooks(stream) != NULL;
    status = (seen ? send_seen : send_when_room)(stream, map, &how,
                                                 params == NULL ? NULL : &timed,
                                                 deadline_ns, request_p);
    tmsg_stream_drop(stream);
    return status;
}

tmsg_status_t tmsg_call_stream_finish(tmsg_call_stream_t *stream)
{
    const tmsg_call_head_t head = {
        .type = TMSG_STREAM_FINISH, .id = stream->id, .text = ""};
    finish_t finish = {stream, false};
    const tmsg_stream_send_t how = {.call = {.head = &head, .queues = true},
                                    .channel = stream->channel,
                                    .may = may_finish,
                                    .arg = &finish};
    tmsg_map_t *empty;
    tmsg_status_t status = tmsg_map_create(&empty);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_stream_send(stream->endpoint, empty, &how, NULL);
    if (status != TMSG_OK && finish.first) {
        tmsg_hub_lock(stream->hub);
        stream->finished = false;
        tmsg_hub_unlock(stream->hub);
    }
    tmsg_map_destroy(empty);
    return status;
}

tmsg_status_t tmsg_call_stream_try_recv(tmsg_call_stream_t *stream,
                                        tmsg_message_t **message_p)
{
    tmsg_message_t *message = NULL;
    tmsg_status_t status;

    tmsg_hub_lock(stream->hub);
    status = tmsg_stream_status(stream);
    if (status >= 0 || stream->orderly) {
        message = tmsg_stream_pop(&stream->inbox);
    }
    if (message == NULL && status == TMSG_IN_PROGRESS) {
        if (stream->peer_finished) {
            status = TMSG_OK;
        } else {
            stream->reader_waits = true;
        }
    }
    tmsg_hub_unlock(stream->hub);
    if (message != NULL) {
        tmsg_stream_hold(stream);
        tmsg_stream_take(message);
        tmsg_stream_retire(stream);
        tmsg_stream_drop(stream);
        status = TMSG_OK;
    }
    if (status == TMSG_OK) {
        *message_p = message;
    }
    return status < 0 ? set_stream_error(stream, status) : status;
}

/* Serves as `done` of tmsg_calls_until(). Takes the lock; the worker's lock is
 * held. */
static bool can_read(void *arg)
{
    tmsg_call_stream_t *stream = arg;
    bool can;

    tmsg_hub_lock(stream->hub);
    can = is_readable(stream);
    tmsg_hub_unlock(stream->hub);
    return can;
}

static bool stream_is_over(void *arg)
{
    return tmsg_stream_status(arg) != TMSG_IN_PROGRESS;
}

tmsg_status_t tmsg_call_stream_recv(tmsg_call_stream_t *stream, int timeout_ms,
                                    tmsg_message_t **message_p)
{
    uint64_t deadline_ns = deadline_of(timeout_ms);
    tmsg_status_t status;

    tmsg_stream_hold(stream); /* a callback may destroy the stream meanwhile */
    status = tmsg_call_stream_try_recv(stream, message_p);
    while (status == TMSG_IN_PROGRESS) {
        status = tmsg_calls_until(
            stream->hub->calls, can_read, stream, ms_until(deadline_ns),
            "nothing to read from ", tmsg_calls_name(stream->endpoint));
        if (status == TMSG_OK) {
            status = tmsg_call_stream_try_recv(stream, message_p);
        }
    }
    tmsg_stream_drop(stream);
    return status;
}

tmsg_status_t tmsg_call_stream_wait(tmsg_call_stream_t *stream, int timeout_ms)
{
    tmsg_status_t status = TMSG_OK;

    tmsg_stream_hold(stream);
    if (!stream_is_over(stream)) {
        status = tmsg_calls_until(stream->hub->calls, stream_is_over, stream,
                                  timeout_ms, "no end of a stream from ",
                                  tmsg_calls_name(stream->endpoint));
    }
    if (stream_is_over(stream)) {
        status = tmsg_stream_status(stream);
        if (status != TMSG_OK) {
            set_stream_error(stream, status);
        }
    }
    tmsg_stream_drop(stream);
    return status;
}

tmsg_status_t tmsg_call_stream_status(const tmsg_call_stream_t *stream)
{
    return tmsg_stream_status(stream);
}

const char *tmsg_call_stream_error(const tmsg_call_stream_t *stream)
{
    tmsg_status_t status = tmsg_stream_status(stream);

    if (stream->call != NULL) {
        return tmsg_call_error(stream->call);
    }
    if (status >= 0) {
        return "";
    }
    return stream->error[0] != '\0' ? stream->error : tmsg_status_name(status);
}

int32_t tmsg_call_stream_code(const tmsg_call_stream_t *stream)
{
    return stream->call == NULL ? 0 : tmsg_call_code(stream->call);
}

const tmsg_map_t *tmsg_call_stream_details(const tmsg_call_stream_t *stream)
{
    return stream->call == NULL ? NULL : tmsg_call_reply(stream->call);
}

int tmsg_call_stream_may_have_run(const tmsg_call_stream_t *stream)
{
    return stream->call == NULL || tmsg_call_may_have_run(stream->call);
}

const tmsg_map_t *tmsg_call_stream_map(const tmsg_call_stream_t *stream)
{
    return stream->task == NULL ? NULL : tmsg_task_map(stream->task);
}

const char *tmsg_call_stream_method(const tmsg_call_stream_t *stream)
{
    return stream->call != NULL ? stream->call->method
                                : stream->task->method->name;
}

tmsg_endpoint_t *tmsg_call_stream_endpoint(const tmsg_call_stream_t *stream)
{
    return tmsg_calls_face(stream->endpoint);
}

int tmsg_call_stream_remaining_ms(const tmsg_call_stream_t *stream)
{
    if (stream->task != NULL) {
        return tmsg_task_remaining_ms(stream->task);
    }
    return ms_until(stream->call->deadline_ns);
}

void tmsg_call_stream_stats(const tmsg_call_stream_t *stream,
                            tmsg_call_stream_stats_t *stats_p)
{
    tmsg_hub_lock(stream->hub);
    *stats_p = (tmsg_call_stream_stats_t){.sent = stream->sent,
                                          .received = stream->received,
                                          .unread = stream->inbox.count,
                                          .dropped = stream->dropped};
    tmsg_hub_unlock(stream->hub);
}
