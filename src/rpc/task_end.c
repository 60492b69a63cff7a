/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends tasks that are not answered. */
#include <stdio.h>
#include <string.h>

#include "core/shown.h"
#include "rpc/intercept.h"
#include "rpc/refuse.h"
#include "rpc/stall.h"
#include "rpc/stream.h"

/* Tells the interceptors that the task was abandoned. Returns false if other
 * hooks of the task run: the event fires again after them. Lock not held. */
static bool tell_over(const tmsg_task_t *task)
{
    tmsg_hub_t *hub = task->server->hub;
    tmsg_status_t status = tmsg_task_state(task);
    const char *words = task->stream != NULL
                            ? tmsg_call_stream_error(task->stream)
                        : task->late != NULL ? task->late
                                             : tmsg_status_name(status);
    tmsg_hooks_t *hooks;
    bool unseen;

    tmsg_hub_lock(hub);
    hooks = task->hooks;
    unseen = hooks == NULL && !task->ran && !task->refusal_told;
    tmsg_hub_unlock(hub);
    if (unseen) {
        tmsg_refuse_task(task, status, words);
    }
    return tmsg_hooks_over(hooks, status, words);
}

/* Tells the caller of a call that its time was up before its handler began. If
 * the request has not come for want of memory, the words say so. Lock not held.
 */
static void send_late(const tmsg_task_t *task)
{
    char words[TMSG_CALL_TEXT_MOST + 1];
    char starving[TMSG_CALL_TEXT_MOST + 1] = "";

    if (task->message == NULL) {
        tmsg_calls_starve(task->server->hub->calls, starving, sizeof(starving));
    }
    snprintf(words, sizeof(words), "%s%s", task->late, starving);
    tmsg_task_send_failure(task, TMSG_ERR_TIMED_OUT, words, false);
}

static void fire_task_end(tmsg_rpc_event_t *event)
{
    tmsg_task_t *task = TMSG_CONTAINER_OF(event, tmsg_task_t, event);
    tmsg_hub_t *hub = task->server->hub;
    tmsg_task_fn on_over = NULL;
    void *arg = NULL;

    if (!tell_over(task)) {
        return;
    }
    if (task->stream != NULL) {
        tmsg_stream_fire(task->stream);
        return;
    }
    if (task->late != NULL && !atomic_load(&hub->over)) {
        send_late(task);
    }
    tmsg_hub_lock(hub);
    if (task->handles > 0 && task->on_over != NULL) {
        on_over = task->on_over;
        arg = task->on_over_arg;
        task->handles++;
        tmsg_task_hold(task);
    }
    tmsg_hub_unlock(hub);
    if (on_over != NULL) {
        (void)tmsg_trace_set_current(tmsg_hooks_context(task->hooks));
        on_over(arg, task, tmsg_task_state(task));
        (void)tmsg_trace_set_current(NULL);
        tmsg_task_destroy(task);
    }
    tmsg_task_drop(task);
}

void tmsg_task_abandon(tmsg_task_t *task, tmsg_status_t status)
{
    tmsg_task_close(task, status);
    tmsg_list_remove(&task->server->all, &task->node);
    task->event.fire = fire_task_end;
    tmsg_hub_tell(task->server->hub, &task->event);
    tmsg_server_schedule(task->server); /* the hub runs them behind the event */
}

/* Notes why the handler of the task did not begin in time. The event of the
 * task tells the caller. Lock held. */
static void refuse_late(tmsg_task_t *task)
{
    char words[TMSG_CALL_TEXT_MOST + 1];

    tmsg_stall_late(task, words, sizeof(words));
    if (task->stream != NULL) {
        tmsg_shown_format(task->stream->error, sizeof(task->stream->error),
                          "%s", words);
    } else {
        task->late = strdup(words);
    }
}

void tmsg_task_expire(tmsg_expiry_t *expiry)
{
    tmsg_task_t *task = TMSG_CONTAINER_OF(expiry, tmsg_task_t, expiry);
    bool hastened = task->hastened;

    task->hastened = false;
    if (hastened && task->ran) {
        (void)tmsg_hub_expect(task->server->hub, expiry, task->deadline_ns);
        return;
    }
    if (!task->ran) {
        refuse_late(task);
    }
    tmsg_task_abandon(task, TMSG_ERR_TIMED_OUT);
}

void tmsg_tasks_lost(tmsg_rpc_peer_t *peer)
{
    while (peer->tasks.head != NULL) {
        tmsg_task_abandon(TMSG_CONTAINER_OF(peer->tasks.head, tmsg_task_t, own),
                          TMSG_ERR_PEER_LOST);
    }
}

/* Puts the peer's tasks into the table. This is done only when a task is looked
 * for, because most tasks are over by then. The tasks that are not in the table
 * yet are the last of the list. Lock held. */
static void index_tasks(tmsg_rpc_peer_t *peer)
{
    for (tmsg_node_t *node = peer->tasks.tail; node != NULL;
         node = node->previous) {
        tmsg_task_t *task = TMSG_CONTAINER_OF(node, tmsg_task_t, own);

        if (task->indexed) {
            return;
        }
        tmsg_table_add(&peer->tasks_by_id, &task->by_id, task->reply.id);
        task->indexed = true;
    }
}

static tmsg_task_t *find_task(tmsg_rpc_peer_t *peer, uint64_t id)
{
    tmsg_keyed_t *found;

    index_tasks(peer);
    found = tmsg_table_find(&peer->tasks_by_id, id);
    return found == NULL ? NULL : TMSG_CONTAINER_OF(found, tmsg_task_t, by_id);
}

void tmsg_task_canceled(void *arg, uint64_t id)
{
    tmsg_rpc_peer_t *peer = arg;
    tmsg_hub_t *hub = peer->hub;
    tmsg_task_t *task;

    tmsg_hub_lock(hub);
    task = find_task(peer, id);
    if (task != NULL) {
        tmsg_task_abandon(task, TMSG_ERR_CANCELED);
        tmsg_calls_wake_held(hub->calls);
    } else { /* the call was answered, or has not come yet */
        peer->early[peer->early_count++ % TMSG_RPC_EARLY] = id;
    }
    tmsg_hub_unlock(hub);
}
