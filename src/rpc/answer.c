/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends replies and failures back to callers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/params.h"
#include "core/shown.h"
#include "core/utf8.h"
#include "rpc/intercept.h"
#include "rpc/method.h"
#include "rpc/metrics.h"
#include "rpc/stream.h"

#define REPLY_PARAMS_KNOWN                                                     \
    ((uint64_t)(TMSG_REPLY_PARAM_ON_RELEASE | TMSG_REPLY_PARAM_FLAGS))

static tmsg_status_t send_reply(tmsg_task_t *task, const tmsg_map_t *map,
                                const tmsg_call_head_t *head,
                                const tmsg_reply_params_t *params)
{
    tmsg_call_send_t *how = &task->how;

    how->head = head;
    if (params != NULL && params->field_mask & TMSG_REPLY_PARAM_ON_RELEASE) {
        how->on_release = params->on_release;
        how->on_release_arg = params->on_release_arg;
    }
    if (params != NULL && params->field_mask & TMSG_REPLY_PARAM_FLAGS &&
        params->flags & TMSG_SEND_LEND) {
        how->flags |=
            TMSG_CALL_SEND_LEND | (task->asks_loan ? TMSG_CALL_SEND_ASKED : 0);
    }
    if (map == NULL) {
        map = task->server->hub->empty;
    }
    return tmsg_calls_send(task->endpoint, map, how);
}

/* Checks a reply that is no failure against the method's signature. */
static tmsg_status_t check_reply_map(const tmsg_task_t *task,
                                     const tmsg_call_head_t *head,
                                     const tmsg_map_t *map)
{
    if (task->method->signature == NULL || head->status != TMSG_OK) {
        return TMSG_OK;
    }
    return tmsg_method_check_reply(task->method, tmsg_task_map(task),
                                   map == NULL ? task->server->hub->empty
                                               : map);
}

static uint8_t safe_flag(const tmsg_task_t *task)
{
    return task->method->flags & TMSG_METHOD_IDEMPOTENT ? TMSG_CALL_SAFE : 0;
}

static tmsg_call_head_t failure_head(uint64_t id, tmsg_status_t status,
                                     int32_t code, const char *words, bool ran)
{
    return (tmsg_call_head_t){
        .type = TMSG_CALL_REPLY,
        .flags = ran ? 0 : TMSG_CALL_NOT_RUN,
        .id = id,
        .status = status,
        .code = code,
        .text = words,
        .text_bytes = tmsg_shown_cut(words, TMSG_CALL_TEXT_MOST),
    };
}

/* Sends a failure without a map. Nobody is told if this message does not arrive
 * either. */
static void send_last(const tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head)
{
    const tmsg_call_send_t how = {.head = head, .queues = true, .last = true};

    (void)tmsg_calls_send(peer->endpoint, peer->hub->empty, &how);
}

void tmsg_task_send_failure(const tmsg_task_t *task, tmsg_status_t status,
                            const char *words, bool ran)
{
    tmsg_call_head_t head = failure_head(task->reply.id, status, 0, words, ran);

    if (task->stream != NULL) {
        tmsg_stream_say_end(task->stream, status, words);
        return;
    }
    head.flags |= safe_flag(task);
    send_last(task->peer, &head);
}

/* Holds a queued reply that could not be sent. The event sends a failure
 * instead. */
typedef struct {
    tmsg_rpc_event_t event;
    tmsg_rpc_peer_t *peer; /* its endpoint is held */
    uint64_t id;
    tmsg_status_t status;
    char words[TMSG_CALL_TEXT_MOST + 1];
} unsent_t;

static void fire_unsent(tmsg_rpc_event_t *event)
{
    unsent_t *unsent = TMSG_CONTAINER_OF(event, unsent_t, event);
    const tmsg_call_head_t head =
        failure_head(unsent->id, unsent->status, 0, unsent->words, true);

    send_last(unsent->peer, &head);
    tmsg_calls_drop(unsent->peer->endpoint);
    free(unsent);
}

/* A failure is sent only for a reply that never left: the receiver of a reply
 * that was sent knows of it. */
bool tmsg_reply_bounces(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                        bool sent, tmsg_status_t status, const char *error)
{
    tmsg_hub_t *hub = peer->hub;
    unsent_t *unsent = NULL;

    if (!sent) {
        unsent = malloc(sizeof(*unsent));
    }
    if (unsent == NULL) {
        return !sent;
    }
    unsent->event.fire = fire_unsent;
    unsent->peer = peer;
    tmsg_calls_hold(peer->endpoint);
    unsent->id = head->id;
    unsent->status = status;
    tmsg_shown_format(
        unsent->words, sizeof(unsent->words), "%s",
        tmsg_call_without_peer(tmsg_calls_name(peer->endpoint), error));
    tmsg_hub_lock(hub);
    tmsg_hub_tell(hub, &unsent->event);
    tmsg_hub_unlock(hub);
    tmsg_calls_wake_held(hub->calls);
    return true;
}

static void settle_later(tmsg_rpc_event_t *event)
{
    tmsg_task_settle(TMSG_CONTAINER_OF(event, tmsg_task_t, event));
}

void tmsg_task_settle(tmsg_task_t *task)
{
    tmsg_server_t *server = task->server;
    tmsg_hub_t *hub = server->hub;
    bool stir;

    if (task->hooks != NULL) { /* tmsg_server_drain() waits for hooks, too */
        const char *error =
            task->stream == NULL ? NULL : tmsg_call_stream_error(task->stream);

        task->event.fire = settle_later;
        if (!tmsg_hooks_over(task->hooks, task->outcome, error)) {
            return;
        }
    }
    tmsg_hub_lock_live(hub);
    tmsg_list_remove(&server->all, &task->node);
    stir = server->draining && server->all.count == 0;
    tmsg_hub_unlock_live(hub);
    if (stir && !atomic_load(&hub->over)) {
        tmsg_calls_stir(hub->calls);
    }
    tmsg_task_drop(task);
}

tmsg_status_t tmsg_task_claim(tmsg_task_t *task, tmsg_status_t outcome,
                              const tmsg_map_t *map, const char *words,
                              size_t bytes)
{
    tmsg_hub_t *hub = task->server->hub;
    tmsg_status_t status;
    bool more;

    tmsg_hub_lock_live(hub);
    status = (tmsg_status_t)atomic_load(&task->status);
    if (status == TMSG_IN_PROGRESS) {
        task->outcome = outcome;
        if (task->stream != NULL) {
            /* The words are stored first: a thread that sees the outcome may
             * read them. */
            tmsg_shown_format(task->stream->error, sizeof(task->stream->error),
                              "%.*s", (int)bytes, words == NULL ? "" : words);
            atomic_store(&task->stream->outcome, outcome);
        }
        if (task->meter != NULL) {
            task->meter->counts.sent_bytes += tmsg_meter_bytes(map);
        }
        tmsg_hooks_count(task->hooks, true, map);
        tmsg_task_close(task, TMSG_TASK_ANSWERED);
    } else {
        task->tried = true;
    }
    more = tmsg_task_check_done(task);
    tmsg_hub_unlock_live(hub);
    if (more) {
        tmsg_hub_wake(hub);
    }
    if (status == TMSG_IN_PROGRESS) {
        return TMSG_OK;
    }
    return tmsg_error_set(tmsg_task_told(status), "method '%s': %s",
                          task->method->name,
                          status == TMSG_TASK_ANSWERED
                              ? "the call was answered before"
                              : "the caller waits for no answer any more");
}

/* Sends a failure in place of a claimed answer that could not be sent.
 * tmsg_error_message() says why, before the call and after it. Returns
 * `status`.
 */
TMSG_RPC_RARE tmsg_status_t answer_failed(tmsg_task_t *task,
                                          tmsg_status_t status)
{
    char words[TMSG_ERROR_BYTES];

    strcpy(words, tmsg_error_message());
    tmsg_hooks_words(task->hooks, words, strlen(words));
    tmsg_task_send_failure(
        task, status,
        tmsg_call_without_peer(tmsg_calls_name(task->endpoint), words), true);
    tmsg_task_settle(task);
    return tmsg_error_set(status, "%s", words);
}

/* Returns whether the task is answered by its own handler, on a worker that is
 * not shared, and neither counted nor intercepted. Nobody else looks at such a
 * task while its answer is sent, so that it can be closed afterwards. */
static bool is_answered_inside(const tmsg_task_t *task)
{
    return task->server->hub->running == task && task->meter == NULL &&
           task->hooks == NULL && task->stream == NULL &&
           tmsg_task_is_open(task);
}

static tmsg_status_t answer_task(tmsg_task_t *task,
                                 const tmsg_call_head_t *head,
                                 const tmsg_map_t *map,
                                 const tmsg_reply_params_t *params)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    bool inside = is_answered_inside(task);
    tmsg_status_t status, claimed = TMSG_OK;

    if (mask & ~REPLY_PARAMS_KNOWN) {
        return tmsg_params_unknown("reply", mask & ~REPLY_PARAMS_KNOWN);
    }
    if (mask & TMSG_REPLY_PARAM_FLAGS &&
        params->flags & ~(uint32_t)TMSG_SEND_LEND) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "reply: unknown flags 0x%x", params->flags);
    }
    status = check_reply_map(task, head, map);
    if (inside) {
        atomic_store_explicit(&task->status, TMSG_TASK_ANSWERED,
                              memory_order_release);
    } else {
        claimed = tmsg_task_claim(
            task, status == TMSG_OK ? (tmsg_status_t)head->status : status,
            status == TMSG_OK ? map : NULL, NULL, 0);
    }
    if (claimed != TMSG_OK) {
        return claimed;
    }
    if (status == TMSG_OK) {
        status = send_reply(task, map, head, params);
    }
    if (inside) {
        tmsg_task_close(task, TMSG_TASK_ANSWERED);
    }
    tmsg_hooks_words(task->hooks, head->text, head->text_bytes);
    if (status != TMSG_OK) {
        return answer_failed(task, status);
    }
    tmsg_task_settle(task);
    return TMSG_OK;
}

tmsg_status_t tmsg_task_words(const char *words, size_t *bytes_p)
{
    *bytes_p = words == NULL ? 0 : tmsg_shown_cut(words, TMSG_CALL_TEXT_MOST);
    return tmsg_utf8_valid(words == NULL ? "" : words, *bytes_p)
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "fail: the words are not UTF-8");
}

tmsg_status_t tmsg_task_reply(tmsg_task_t *task, const tmsg_map_t *map,
                              const tmsg_reply_params_t *params)
{
    task->reply.flags = safe_flag(task);
    return answer_task(task, &task->reply, map, params);
}

tmsg_status_t tmsg_task_fail(tmsg_task_t *task, tmsg_status_t status,
                             int32_t code, const char *words,
                             const tmsg_map_t *details)
{
    tmsg_call_head_t head = failure_head(task->reply.id, status, code,
                                         words == NULL ? "" : words, true);
    size_t bytes;

    if (status >= 0 || status < TMSG_ERR_APPLICATION) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "fail: status %d is not a failure", status);
    }
    if (tmsg_task_words(words, &bytes) != TMSG_OK) {
        return TMSG_ERR_INVALID_PARAM;
    }
    head.flags |= safe_flag(task);
    return answer_task(task, &head, details, NULL);
}

/* Returns an open task of the server, with a reference; NULL: there is none.
 * Lock held. */
static tmsg_task_t *next_open(const tmsg_server_t *server)
{
    for (tmsg_node_t *node = server->all.head; node != NULL;
         node = node->next) {
        tmsg_task_t *task = TMSG_CONTAINER_OF(node, tmsg_task_t, node);

        if (tmsg_task_is_open(task)) {
            tmsg_task_hold(task);
            return task;
        }
    }
    return NULL;
}

void tmsg_tasks_turn_out(tmsg_server_t *server)
{
    tmsg_hub_t *hub = server->hub;
    tmsg_task_t *task;
    bool ran;

    tmsg_hub_lock(hub);
    while ((task = next_open(server)) != NULL) {
        ran = task->ran;
        tmsg_task_abandon(task, TMSG_ERR_UNAVAILABLE);
        tmsg_hub_unlock(hub);
        if (task->stream == NULL) { /* the event of a stream tells its opener */
            tmsg_task_send_failure(task, TMSG_ERR_UNAVAILABLE,
                                   "the server was shut down", ran);
        }
        tmsg_task_drop(task);
        tmsg_hub_lock(hub);
    }
    tmsg_hub_unlock(hub);
    tmsg_hub_wake(hub);
}
