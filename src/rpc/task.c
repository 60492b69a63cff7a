/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "rpc/server.h"

/* What a peer says is left of a call's time is no more than this. */
#define LEFT_US_MOST (UINT64_C(1) << 50)

void tmsg_task_hold(tmsg_task_t *task)
{
    atomic_fetch_add_explicit(&task->refs, 1, memory_order_relaxed);
}

void tmsg_task_drop(tmsg_task_t *task)
{
    if (atomic_fetch_sub_explicit(&task->refs, 1, memory_order_acq_rel) == 1) {
        tmsg_message_destroy(task->message);
        tmsg_calls_drop(task->endpoint);
        tmsg_server_drop(task->server);
        free(task);
    }
}

static tmsg_status_t status_of(const tmsg_task_t *task)
{
    return (tmsg_status_t)atomic_load_explicit(&task->status,
                                               memory_order_acquire);
}

bool tmsg_task_is_open(const tmsg_task_t *task)
{
    return status_of(task) == TMSG_IN_PROGRESS;
}

/* Lock held: it does not count any more. */
static void leave(tmsg_task_t *task)
{
    tmsg_load_t *loads[] = {&task->server->load, &task->method->load};

    for (int i = 0; task->inside && i < 2; i++) {
        loads[i]->inside--;
        loads[i]->running -= task->running;
    }
    task->inside = false;
}

void tmsg_task_close(tmsg_task_t *task, tmsg_status_t status)
{
    atomic_store_explicit(&task->status, status, memory_order_release);
    tmsg_list_remove(&task->peer->tasks, &task->own);
    tmsg_hub_forgo(task->server->hub, &task->expiry);
    if (task->queue != NULL) {
        tmsg_list_remove(task->queue, &task->turn);
        task->queue = NULL;
    }
    if (task->handles == 0) {
        leave(task);
    }
}

static void fire(tmsg_rpc_event_t *event)
{
    tmsg_task_t *task = TMSG_CONTAINER_OF(event, tmsg_task_t, event);
    tmsg_hub_t *hub = task->server->hub;
    tmsg_task_fn on_over = NULL;
    void *arg = NULL;

    tmsg_hub_lock(hub);
    if (task->handles > 0 && task->on_over != NULL) {
        on_over = task->on_over;
        arg = task->on_over_arg;
        task->handles++;
        tmsg_task_hold(task);
    }
    tmsg_hub_unlock(hub);
    if (on_over != NULL) {
        on_over(arg, task, status_of(task));
        tmsg_task_destroy(task);
    }
    tmsg_task_drop(task);
}

void tmsg_task_abandon(tmsg_task_t *task, tmsg_status_t status)
{
    tmsg_task_close(task, status);
    tmsg_list_remove(&task->server->all, &task->node);
    task->event.fire = fire;
    tmsg_hub_tell(task->server->hub, &task->event);
    tmsg_server_schedule(task->server); /* events run what is ready, too */
}

static void expire(tmsg_expiry_t *expiry)
{
    tmsg_task_abandon(TMSG_CONTAINER_OF(expiry, tmsg_task_t, expiry),
                      TMSG_ERR_TIMED_OUT);
}

void tmsg_tasks_lost(tmsg_rpc_peer_t *peer)
{
    while (peer->tasks.head != NULL) {
        tmsg_task_abandon(TMSG_CONTAINER_OF(peer->tasks.head, tmsg_task_t, own),
                          TMSG_ERR_PEER_LOST);
    }
}

static tmsg_task_t *find(const tmsg_rpc_peer_t *peer, uint64_t id)
{
    for (tmsg_node_t *node = peer->tasks.head; node != NULL;
         node = node->next) {
        tmsg_task_t *task = TMSG_CONTAINER_OF(node, tmsg_task_t, own);

        if (task->id == id) {
            return task;
        }
    }
    return NULL;
}

void tmsg_task_canceled(void *arg, uint64_t id)
{
    tmsg_rpc_peer_t *peer = arg;
    tmsg_hub_t *hub = peer->hub;
    tmsg_task_t *task;

    tmsg_hub_lock(hub);
    task = find(peer, id);
    if (task != NULL) {
        tmsg_task_abandon(task, TMSG_ERR_CANCELED);
        tmsg_calls_wake_held(hub->calls);
    } else { /* it was answered, or has not come yet */
        peer->early[peer->early_count++ % TMSG_RPC_EARLY] = id;
    }
    tmsg_hub_unlock(hub);
}

static bool was_canceled(const tmsg_rpc_peer_t *peer, uint64_t id)
{
    for (unsigned i = 0; i < peer->early_count && i < TMSG_RPC_EARLY; i++) {
        if (peer->early[i] == id) {
            return true;
        }
    }
    return false;
}

static tmsg_method_t *find_method(const tmsg_server_t *server,
                                  const tmsg_call_head_t *head)
{
    tmsg_method_t *method = server->methods;

    while (method != NULL &&
           (method->name_bytes != head->text_bytes ||
            memcmp(method->name, head->text, head->text_bytes) != 0)) {
        method = method->next;
    }
    return method;
}

static bool is_full(const tmsg_load_t *load)
{
    return load->inside >= (uint64_t)load->concurrency + load->queue;
}

/* Whether one more may come in, and for what. */
static tmsg_status_t admit(const tmsg_rpc_peer_t *peer,
                           const tmsg_call_head_t *head,
                           tmsg_method_t **method_p)
{
    const tmsg_server_t *server = peer->hub->server;
    const char *full = NULL;

    if (server == NULL) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED, "nobody serves here");
    }
    if (server->draining) {
        return tmsg_error_set(TMSG_ERR_UNAVAILABLE,
                              "the server is being shut down");
    }
    if (was_canceled(peer, head->id)) {
        return tmsg_error_set(TMSG_ERR_CANCELED, "it was canceled");
    }
    *method_p = find_method(server, head);
    if (*method_p == NULL) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND, "no such method here");
    }
    full = is_full(&server->load)        ? "the server"
           : is_full(&(*method_p)->load) ? "the method"
                                         : NULL;
    return full == NULL
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_RESOURCE_EXHAUSTED,
                                "%s has as many calls as it takes", full);
}

static void task_arrived(tmsg_call_in_t *in, tmsg_message_t *message)
{
    tmsg_task_t *task = TMSG_CONTAINER_OF(in, tmsg_task_t, in);
    tmsg_server_t *server = task->server;
    tmsg_hub_t *hub = server->hub;

    tmsg_hub_lock(hub);
    task->message = message;
    if (tmsg_task_is_open(task)) {
        task->queue = &task->method->waiting;
        tmsg_list_push(task->queue, &task->turn);
        tmsg_server_schedule(server);
    }
    tmsg_hub_unlock(hub);
    tmsg_task_drop(task);
    tmsg_server_run(hub);
}

/* It will not come. */
static void task_failed(tmsg_call_in_t *in, tmsg_status_t status,
                        const char *why)
{
    tmsg_task_t *task = TMSG_CONTAINER_OF(in, tmsg_task_t, in);
    tmsg_hub_t *hub = task->server->hub;

    (void)why; /* its sender has heard it */
    tmsg_hub_lock(hub);
    if (tmsg_task_is_open(task)) {
        tmsg_task_abandon(task, status);
    }
    tmsg_hub_unlock(hub);
    tmsg_hub_wake(hub);
    tmsg_task_drop(task);
}

static void task_dropped(tmsg_call_in_t *in)
{
    task_failed(in, TMSG_ERR_PEER_LOST, "");
}

static tmsg_task_t *create(tmsg_rpc_peer_t *peer, tmsg_method_t *method,
                           const tmsg_call_head_t *head)
{
    tmsg_server_t *server = peer->hub->server;
    tmsg_task_t *task = calloc(1, sizeof(*task));

    if (task == NULL) {
        tmsg_error_memory("a call");
        return NULL;
    }
    atomic_init(&task->refs, 2); /* the message's, and the list's */
    atomic_init(&task->status, TMSG_IN_PROGRESS);
    task->server = server;
    atomic_fetch_add_explicit(&server->refs, 1, memory_order_relaxed);
    task->method = method;
    task->peer = peer;
    task->endpoint = peer->endpoint;
    tmsg_calls_hold(task->endpoint);
    task->id = head->id;
    task->in = (tmsg_call_in_t){task_arrived, task_failed, task_dropped};
    task->expiry.expire = expire;
    task->inside = true;
    server->load.inside++;
    method->load.inside++;
    tmsg_list_push(&server->all, &task->node);
    tmsg_list_push(&peer->tasks, &task->own);
    return task;
}

tmsg_status_t tmsg_task_begins(tmsg_rpc_peer_t *peer,
                               const tmsg_call_head_t *head,
                               tmsg_call_in_t **in_p)
{
    tmsg_hub_t *hub = peer->hub;
    bool alarm = false;
    tmsg_method_t *method = NULL;
    tmsg_task_t *task = NULL;
    uint64_t deadline_ns = 0;
    tmsg_status_t status;

    tmsg_hub_lock(hub);
    status = admit(peer, head, &method);
    if (status == TMSG_OK) {
        task = create(peer, method, head);
        status = task == NULL ? TMSG_ERR_NO_MEMORY : TMSG_OK;
    }
    if (task != NULL && head->left_us > 0) {
        deadline_ns =
            tmsg_calls_now_ns() +
            (head->left_us < LEFT_US_MOST ? head->left_us : LEFT_US_MOST) *
                1000;
        task->deadline_ns = deadline_ns;
        alarm = tmsg_hub_expect(hub, &task->expiry, deadline_ns);
    }
    if (task != NULL) {
        *in_p = &task->in;
    }
    tmsg_hub_unlock(hub);
    if (alarm) {
        tmsg_calls_alarm_held(hub->calls, deadline_ns);
    }
    return status;
}

tmsg_task_t *tmsg_task_take(tmsg_server_t *server)
{
    tmsg_node_t *node = tmsg_list_pop(&server->ready);
    tmsg_task_t *task = NULL;

    if (node != NULL) {
        task = TMSG_CONTAINER_OF(node, tmsg_task_t, turn);
        task->queue = NULL;
        task->handles = 1;
        tmsg_task_hold(task);
    }
    return task;
}

void tmsg_task_run(tmsg_task_t *task)
{
    task->method->handler(task->method->arg, task);
    tmsg_task_destroy(task);
}

tmsg_task_t *tmsg_task_keep(tmsg_task_t *task)
{
    tmsg_hub_lock(task->server->hub);
    task->handles++;
    tmsg_task_hold(task);
    tmsg_hub_unlock(task->server->hub);
    return task;
}

void tmsg_task_destroy(tmsg_task_t *task)
{
    tmsg_hub_t *hub;
    bool forgotten = false, more = false;

    if (task == NULL) {
        return;
    }
    hub = task->server->hub;
    tmsg_hub_lock(hub);
    if (--task->handles == 0) {
        forgotten = tmsg_task_is_open(task);
        if (forgotten) {
            tmsg_task_close(task, TMSG_TASK_ANSWERED);
        }
        leave(task);
        more = tmsg_server_schedule(task->server);
    }
    tmsg_hub_unlock(hub);
    if (forgotten) {
        tmsg_task_send_failure(task, TMSG_ERR_INTERNAL,
                               "the handler let go of it without an answer",
                               true);
        tmsg_task_settle(task);
    }
    if (more) {
        tmsg_hub_wake(hub);
    }
    tmsg_task_drop(task);
}

const tmsg_map_t *tmsg_task_map(const tmsg_task_t *task)
{
    return tmsg_message_map(task->message);
}

const char *tmsg_task_method(const tmsg_task_t *task)
{
    return task->method->name;
}

tmsg_endpoint_t *tmsg_task_endpoint(const tmsg_task_t *task)
{
    return task->endpoint;
}

int tmsg_task_remaining_ms(const tmsg_task_t *task)
{
    uint64_t now = tmsg_calls_now_ns();
    uint64_t ms;

    if (task->deadline_ns == 0) {
        return -1;
    }
    if (now >= task->deadline_ns) {
        return 0;
    }
    ms = (task->deadline_ns - now + 999999) / 1000000;
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

tmsg_status_t tmsg_task_status(const tmsg_task_t *task)
{
    return tmsg_task_is_open(task) ? TMSG_OK : status_of(task);
}

void tmsg_task_on_over(tmsg_task_t *task, tmsg_task_fn on_over, void *arg)
{
    tmsg_hub_lock(task->server->hub);
    task->on_over = on_over;
    task->on_over_arg = arg;
    tmsg_hub_unlock(task->server->hub);
}
