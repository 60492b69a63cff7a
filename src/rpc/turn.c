/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps the bounds of a server and its methods: which calls come in, which
 * wait, and whose turn it is. The hub's lock is held in all functions but
 * tmsg_server_run(). */
#include "rpc/builtin.h"
#include "rpc/method.h"
#include "rpc/principal.h"
#include "rpc/stall.h"

static bool was_canceled(const tmsg_rpc_peer_t *peer, uint64_t id)
{
    for (unsigned i = 0; i < peer->early_count && i < TMSG_RPC_EARLY; i++) {
        if (peer->early[i] == id) {
            return true;
        }
    }
    return false;
}

static bool is_full(const tmsg_load_t *load)
{
    return load->inside >= (uint64_t)load->concurrency + load->queue;
}

/* Checks whether server and method have room for one more call. Errors:
 * RESOURCE_EXHAUSTED. */
static tmsg_status_t check_room(const tmsg_server_t *server,
                                const tmsg_method_t *method)
{
    const tmsg_load_t *full = is_full(&server->load)   ? &server->load
                              : is_full(&method->load) ? &method->load
                                                       : NULL;
    unsigned running = full == NULL ? 0 : full->running - full->put_off;

    return full == NULL
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_RESOURCE_EXHAUSTED,
                                "%s has as many calls as it takes: %u run, %u "
                                "wait",
                                full == &server->load ? "the server"
                                                      : "the method",
                                running, full->inside - running);
}

/* Returns why there is no such method: UNAVAILABLE where there may be one yet.
 * Of the library's own there is none to come. Lock held. */
static tmsg_status_t explain_missing(const tmsg_server_t *server,
                                     const tmsg_call_head_t *head)
{
    bool own = tmsg_method_is_reserved(head->text, head->text_bytes);

    if (server == NULL) {
        return tmsg_error_set(own ? TMSG_ERR_UNSUPPORTED : TMSG_ERR_UNAVAILABLE,
                              "nobody serves here");
    }
    if (!own && server->beginning) {
        return tmsg_error_set(
            TMSG_ERR_UNAVAILABLE, "no such method yet: the server %s",
            server->health == TMSG_HEALTH_SERVING ? "has none"
                                                  : "is not ready");
    }
    return tmsg_error_set(TMSG_ERR_NOT_FOUND, "no such method here");
}

tmsg_status_t tmsg_task_admit(const tmsg_rpc_peer_t *peer,
                              const tmsg_call_head_t *head, bool streams,
                              tmsg_method_t **method_p)
{
    tmsg_server_t *server = peer->hub->server;
    tmsg_status_t status = TMSG_OK;
    tmsg_method_t *method = tmsg_hub_method_called(peer->hub, head->text,
                                                   head->text_bytes, &status);

    if (status != TMSG_OK) {
        return status;
    }
    if (server == NULL && method == NULL) {
        return explain_missing(server, head);
    }
    if (peer->over) {
        return tmsg_error_set(TMSG_ERR_PEER_LOST, "its connection has ended");
    }
    if (server != NULL && server->draining &&
        (method == NULL || !method->is_ours)) {
        return tmsg_error_set(TMSG_ERR_UNAVAILABLE,
                              "the server is being shut down");
    }
    if (was_canceled(peer, head->id)) {
        return tmsg_error_set(TMSG_ERR_CANCELED, "it was canceled");
    }
    if (method == NULL) {
        return explain_missing(server, head);
    }
    if ((method->stream_handler != NULL) != streams) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              streams ? "the method is not a stream"
                                      : "the method is a stream");
    }
    *method_p = method;
    if (method->is_ours) {
        return TMSG_OK;
    }
    return tmsg_principals_check(method->principals, peer->endpoint) == TMSG_OK
               ? check_room(server, method)
               : TMSG_ERR_REFUSED;
}

void tmsg_task_enter(tmsg_task_t *task)
{
    task->inside = !task->method->is_ours;
    task->server->load.inside += task->inside;
    task->method->load.inside += task->inside;
}

void tmsg_task_leave(tmsg_task_t *task)
{
    tmsg_load_t *loads[] = {&task->server->load, &task->method->load};

    for (int i = 0; task->inside && i < 2; i++) {
        loads[i]->inside--;
        loads[i]->running -= task->running;
    }
    task->inside = false;
}

void tmsg_task_leave_held(tmsg_task_t *task)
{
    tmsg_task_leave(task);
    task->held = true;
    task->server->load.held++;
    task->method->load.held++;
}

void tmsg_task_unhold(tmsg_task_t *task)
{
    task->held = false;
    task->server->load.held--;
    task->method->load.held--;
}

bool tmsg_task_check_done(tmsg_task_t *task)
{
    bool answered = task->tried || tmsg_task_state(task) == TMSG_TASK_ANSWERED;

    if (!task->inside || task->handling || !answered) {
        return false;
    }
    tmsg_task_leave_held(task);
    return tmsg_server_schedule(task->server);
}

static bool has_slot(const tmsg_load_t *load)
{
    return load->running < load->concurrency;
}

static void count_running(tmsg_task_t *task)
{
    task->running = true;
    task->server->load.running++;
    task->method->load.running++;
}

/* Puts a task that has had its turn into the list of ready tasks, and counts it
 * as running. */
static void make_task_ready(tmsg_task_t *task)
{
    tmsg_server_t *server = task->server;

    count_running(task);
    tmsg_stall_put_off(task);
    task->queue = &server->ready;
    tmsg_list_push(&server->ready, &task->turn);
    if (server->pooled) {
        pthread_cond_signal(&server->news);
    }
}

void tmsg_task_wait(tmsg_task_t *task)
{
    tmsg_method_t *method = task->method;

    tmsg_stall_begin(task);
    if (task->server->turns.count == 0 && has_slot(&task->server->load) &&
        has_slot(&method->load)) { /* no task is before it */
        make_task_ready(task);
        return;
    }
    task->queue = &method->waiting;
    tmsg_list_push(task->queue, &task->turn);
    if (task->queue->count == 1) {
        tmsg_list_push(&task->server->turns, &method->turn);
    }
}

void tmsg_task_unqueue(tmsg_task_t *task)
{
    tmsg_method_t *method = task->method;

    if (task->queue != NULL) {
        tmsg_list_remove(task->queue, &task->turn);
    }
    if (task->queue == &method->waiting && method->waiting.count == 0) {
        tmsg_list_remove(&task->server->turns, &method->turn);
    }
    task->queue = NULL;
}

/* Gives the method's first task its turn. The method comes last from then on.
 */
static void give_turn(tmsg_server_t *server, tmsg_method_t *method)
{
    tmsg_task_t *task =
        TMSG_CONTAINER_OF(method->waiting.head, tmsg_task_t, turn);

    tmsg_task_unqueue(task);
    if (method->waiting.count > 0) {
        tmsg_list_remove(&server->turns, &method->turn);
        tmsg_list_push(&server->turns, &method->turn);
    }
    make_task_ready(task);
}

static tmsg_method_t *next_method(const tmsg_server_t *server)
{
    for (tmsg_node_t *node = server->turns.head; node != NULL;
         node = node->next) {
        tmsg_method_t *method = TMSG_CONTAINER_OF(node, tmsg_method_t, turn);

        if (has_slot(&method->load)) {
            return method;
        }
    }
    return NULL;
}

bool tmsg_server_schedule(tmsg_server_t *server)
{
    tmsg_method_t *method;

    while (server->turns.count > 0 && has_slot(&server->load) &&
           (method = next_method(server)) != NULL) {
        give_turn(server, method);
    }
    return server->ready.count > 0 && !server->pooled;
}

tmsg_task_t *tmsg_task_take(tmsg_server_t *server)
{
    tmsg_node_t *node = tmsg_list_pop(&server->ready);
    tmsg_task_t *task = NULL;

    if (node != NULL) {
        task = TMSG_CONTAINER_OF(node, tmsg_task_t, turn);
        task->queue = NULL;
        tmsg_stall_end(task, true);
        task->handles = 1;
        task->handling = true;
        task->ran = true;
    }
    return task;
}

bool tmsg_task_run_at_once(tmsg_task_t *task)
{
    tmsg_server_t *server = task->server;
    bool now = !server->pooled && server->turns.count == 0 &&
               server->ready.count == 0 && has_slot(&server->load) &&
               has_slot(&task->method->load);

    if (now) {
        count_running(task);
        task->handles = 1;
        task->handling = true;
        task->ran = true;
    }
    return now;
}

tmsg_task_t *tmsg_server_next(const tmsg_hub_t *hub)
{
    tmsg_server_t *server = hub->server;

    return server != NULL && !server->pooled ? tmsg_task_take(server) : NULL;
}

void tmsg_server_run(tmsg_hub_t *hub)
{
    tmsg_task_t *task;

    tmsg_hub_lock(hub);
    task = tmsg_server_next(hub);
    tmsg_hub_unlock(hub);
    tmsg_tasks_run(task);
}
