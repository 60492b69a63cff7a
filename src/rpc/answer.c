/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes back to a caller. */
#include <string.h>

#include "core/utf8.h"
#include "rpc/server.h"

#define REPLY_PARAMS_KNOWN ((uint64_t)TMSG_REPLY_PARAM_ON_RELEASE)

static tmsg_status_t send(const tmsg_task_t *task, const tmsg_map_t *map,
                          const tmsg_call_head_t *head,
                          const tmsg_reply_params_t *params)
{
    tmsg_call_send_t how = {.head = head, .queues = true};
    tmsg_map_t *empty = NULL;
    tmsg_status_t status = TMSG_OK;

    if (params != NULL && params->field_mask & TMSG_REPLY_PARAM_ON_RELEASE) {
        how.on_release = params->on_release;
        how.on_release_arg = params->on_release_arg;
    }
    if (map == NULL) {
        status = tmsg_map_create(&empty);
    }
    if (status == TMSG_OK) {
        status =
            tmsg_calls_send(task->endpoint, map == NULL ? empty : map, &how);
    }
    tmsg_map_destroy(empty);
    return status;
}

/* Bytes of the words that fit, which end with a whole character. */
static size_t cut(const char *words, size_t most)
{
    size_t bytes = strlen(words);

    if (bytes > most) {
        bytes = most;
        while (bytes > 0 && ((unsigned char)words[bytes] & 0xc0) == 0x80) {
            bytes--;
        }
    }
    return bytes;
}

static tmsg_call_head_t failure(const tmsg_task_t *task, tmsg_status_t status,
                                int32_t code, const char *words, bool ran)
{
    return (tmsg_call_head_t){
        .type = TMSG_CALL_REPLY,
        .flags = ran ? 0 : TMSG_CALL_NOT_RUN,
        .id = task->id,
        .status = status,
        .code = code,
        .text = words,
        .text_bytes = cut(words, TMSG_CALL_TEXT_MOST),
    };
}

void tmsg_task_send_failure(const tmsg_task_t *task, tmsg_status_t status,
                            const char *words, bool ran)
{
    const tmsg_call_head_t head = failure(task, status, 0, words, ran);

    (void)send(task, NULL, &head, NULL); /* else its connection is over */
}

void tmsg_task_settle(tmsg_task_t *task)
{
    tmsg_server_t *server = task->server;
    tmsg_hub_t *hub = server->hub;
    bool stir;

    tmsg_hub_lock(hub);
    tmsg_list_remove(&server->all, &task->node);
    stir = server->draining && server->all.count == 0;
    tmsg_hub_unlock(hub);
    if (stir && !atomic_load(&hub->over)) {
        tmsg_calls_stir(hub->calls);
    }
    tmsg_task_drop(task);
}

/* Who gets OK is to answer. */
static tmsg_status_t claim(tmsg_task_t *task)
{
    tmsg_hub_t *hub = task->server->hub;
    tmsg_status_t status;

    tmsg_hub_lock(hub);
    status = (tmsg_status_t)atomic_load(&task->status);
    if (status == TMSG_IN_PROGRESS) {
        tmsg_task_close(task, TMSG_TASK_ANSWERED);
    }
    tmsg_hub_unlock(hub);
    if (status == TMSG_IN_PROGRESS) {
        return TMSG_OK;
    }
    return tmsg_error_set(status, "method '%s': %s", task->method->name,
                          status == TMSG_TASK_ANSWERED
                              ? "the call was answered before"
                              : "nobody waits for an answer any more");
}

static tmsg_status_t answer(tmsg_task_t *task, const tmsg_call_head_t *head,
                            const tmsg_map_t *map,
                            const tmsg_reply_params_t *params)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    char words[TMSG_ERROR_BYTES];
    tmsg_status_t status;

    if (mask & ~REPLY_PARAMS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "reply: unknown field_mask bits 0x%llx",
                              (unsigned long long)(mask & ~REPLY_PARAMS_KNOWN));
    }
    status = claim(task);
    if (status != TMSG_OK) {
        return status;
    }
    status = send(task, map, head, params);
    if (status != TMSG_OK) {
        strcpy(words, tmsg_error_message());
        tmsg_task_send_failure(task, status, words, true);
        tmsg_error_set(status, "%s", words);
    }
    tmsg_task_settle(task);
    return status;
}

tmsg_status_t tmsg_task_reply(tmsg_task_t *task, const tmsg_map_t *map,
                              const tmsg_reply_params_t *params)
{
    const tmsg_call_head_t head = {
        .type = TMSG_CALL_REPLY, .id = task->id, .text = ""};

    return answer(task, &head, map, params);
}

tmsg_status_t tmsg_task_fail(tmsg_task_t *task, tmsg_status_t status,
                             int32_t code, const char *words,
                             const tmsg_map_t *details)
{
    tmsg_call_head_t head =
        failure(task, status, code, words == NULL ? "" : words, true);

    if (status >= 0 || status < TMSG_ERR_APPLICATION) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "fail: status %d is no failure", status);
    }
    if (!tmsg_utf8_valid(head.text, head.text_bytes)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "fail: the words are no UTF-8");
    }
    return answer(task, &head, details, NULL);
}

/* Lock held: one that is open, with a reference; NULL: there is none. */
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
        ran = task->handles > 0;
        tmsg_task_abandon(task, TMSG_ERR_UNAVAILABLE);
        tmsg_hub_unlock(hub);
        tmsg_task_send_failure(task, TMSG_ERR_UNAVAILABLE,
                               "the server was shut down", ran);
        tmsg_task_drop(task);
        tmsg_hub_lock(hub);
    }
    tmsg_hub_unlock(hub);
    tmsg_hub_wake(hub);
}
