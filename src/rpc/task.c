/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/shown.h"
#include "core/ticks.h"
#include "rpc/intercept.h"
#include "rpc/method.h"
#include "rpc/metrics.h"
#include "rpc/refuse.h"
#include "rpc/stall.h"
#include "rpc/stream.h"

/* Upper limit for the time, in us, that a peer says is left of a call. */
#define LEFT_US_MOST (UINT64_C(1) << 50)
/* A task that waits is refused before its deadline by a sixteenth of the time
 * that was left of it, but by 50 ms at most. */
#define HASTE_PART 16
#define HASTE_US_MOST 50000

void tmsg_task_hold(tmsg_task_t *task) { tmsg_refs_take(&task->refs); }

static bool is_last(tmsg_task_t *task) { return tmsg_refs_drop(&task->refs); }

/* Holds what a task referred to, until it is freed without the lock. The record
 * of the task may serve another call by then. Each pointer may be NULL. */
typedef struct {
    tmsg_message_t *message;
    tmsg_hooks_t *hooks;
    tmsg_call_stream_t *stream;
    tmsg_endpoint_t *endpoint; /* reference to drop; NULL: the message has it */
    tmsg_server_t *server;     /* server to free; NULL: others refer to it */
    char *late;
    tmsg_task_t *record; /* record to free; NULL: it is kept for reuse */
} remains_t;

static void task_arrived(tmsg_call_in_t *in, tmsg_message_t *message);
static void task_failed(tmsg_call_in_t *in, tmsg_status_t status,
                        const char *why);
static void task_dropped(tmsg_call_in_t *in);

/* Sets the fields that are the same in all tasks. The other fields of a kept
 * record are zeros. */
static void prepare_task(tmsg_task_t *task)
{
    task->in = (tmsg_call_in_t){.arrived = task_arrived,
                                .failed = task_failed,
                                .dropped = task_dropped};
    task->expiry.expire = tmsg_task_expire;
    task->reply.type = TMSG_CALL_REPLY;
    task->reply.text = "";
    task->how.queues = true;
}

/* Gives back the record of a task that nobody has any more, and returns what
 * the task referred to. Lock held. */
static remains_t remains_of(tmsg_task_t *task)
{
    tmsg_server_t *server = task->server;
    remains_t remains = {
        .message = task->message,
        .hooks = task->hooks,
        .stream = task->stream,
        .endpoint = task->message == NULL ? task->endpoint : NULL,
        .server = --server->refs == 0 ? server : NULL,
        .late = task->late,
    };

    /* The record is zeroed now, not when it is taken: a caller waits then. */
    tmsg_zero(task, sizeof(*task));
    prepare_task(task);
    if (!tmsg_hub_put_at_hand(&server->hub->tasks_kept, task) &&
        !tmsg_hub_keep_record(&server->hub->tasks_kept, task)) {
        remains.record = task;
    }
    return remains;
}

/* Frees what a task referred to. The hooks go before the message: they use the
 * hub, to which the message may hold the last reference. Lock not held. */
static void free_remains(const remains_t *remains)
{
    free(remains->record);
    free(remains->late);
    tmsg_hooks_drop(remains->hooks);
    tmsg_message_destroy(remains->message);
    tmsg_stream_free(remains->stream);
    if (remains->endpoint != NULL) {
        tmsg_calls_drop(remains->endpoint);
    }
    if (remains->server != NULL) {
        tmsg_server_free(remains->server);
    }
}

void tmsg_task_drop(tmsg_task_t *task)
{
    tmsg_hub_t *hub = task->server->hub;
    remains_t remains;

    if (is_last(task)) {
        tmsg_hub_lock(hub);
        remains = remains_of(task);
        tmsg_hub_unlock(hub);
        free_remains(&remains);
    }
}

bool tmsg_task_is_open(const tmsg_task_t *task)
{
    return tmsg_task_state(task) == TMSG_IN_PROGRESS;
}

void tmsg_task_close(tmsg_task_t *task, tmsg_status_t status)
{
    tmsg_meter_end(task->meter,
                   status == TMSG_TASK_ANSWERED ? task->outcome : status,
                   task->begun_ns);
    atomic_store_explicit(&task->status, status, memory_order_release);
    tmsg_list_remove(&task->peer->tasks, &task->own);
    if (task->indexed) {
        tmsg_table_remove(&task->peer->tasks_by_id, &task->by_id);
    }
    tmsg_hub_forgo(task->server->hub, &task->expiry);
    if (task->queue != NULL) {
        tmsg_task_unqueue(task);
        (void)is_last(task); /* never the last: the list has one */
    }
    if (task->waits) {
        tmsg_stall_end(task, false);
        if (task->handles > 0) { /* nobody is to work on it */
            tmsg_task_leave_held(task);
        }
    }
    if (task->handles == 0) {
        tmsg_task_leave(task);
    }
}

/* Ends the task of a stream that is refused. The event of the task tells the
 * opener. Lock held. */
static void turn_stream_away(tmsg_task_t *task, tmsg_status_t status,
                             const char *words)
{
    tmsg_call_stream_t *stream = task->stream;

    tmsg_shown_format(stream->error, sizeof(stream->error), "%s", words);
    tmsg_task_abandon(task, status);
}

/* Refuses a task, because an interceptor did or the request does not match the
 * method's signature. No handler sees the task. tmsg_error_message() says why.
 * Drops the message's reference. Lock not held. */
static void turn_task_away(tmsg_task_t *task, tmsg_status_t status)
{
    tmsg_hub_t *hub = task->server->hub;
    char words[TMSG_ERROR_BYTES];
    bool open;

    strcpy(words, tmsg_error_message());
    tmsg_hub_lock(hub);
    open = tmsg_task_is_open(task);
    if (open && task->stream != NULL) {
        turn_stream_away(task, status, words);
    } else if (open) {
        task->outcome = status;
        tmsg_task_close(task, TMSG_TASK_ANSWERED);
    }
    tmsg_hub_unlock(hub);
    if (open && task->stream != NULL) {
        tmsg_hub_wake(hub);
    } else if (open) {
        tmsg_hooks_words(task->hooks, words, strlen(words));
        tmsg_task_send_failure(task, status, words, false);
        if (task->hooks == NULL) {
            tmsg_refuse_task(task, status, words);
        }
        tmsg_task_settle(task);
    }
    tmsg_task_drop(task);
}

static void run_ours(tmsg_task_t *task);

static void task_arrived(tmsg_call_in_t *in, tmsg_message_t *message)
{
    tmsg_task_t *task = TMSG_CONTAINER_OF(in, tmsg_task_t, in);
    tmsg_server_t *server = task->server;
    tmsg_hub_t *hub = server->hub;
    tmsg_status_t status = TMSG_OK;
    tmsg_task_t *next;
    uint64_t alarm_ns = 0;
    bool open;

    task->message = message;
    if (tmsg_is_intercepted(hub, TMSG_SIDE_SERVER)) {
        status = tmsg_hooks_begin_task(task);
    }
    if (status == TMSG_OK && task->stream == NULL) {
        status =
            tmsg_method_check_request(task->method, tmsg_message_map(message));
    }
    if (status != TMSG_OK) {
        turn_task_away(task, status);
        return;
    }
    if (task->method->is_ours) {
        run_ours(task);
        return;
    }
    tmsg_hub_lock_live(hub);
    if (task->meter != NULL) {
        task->meter->counts.received_bytes +=
            tmsg_meter_bytes(tmsg_message_map(message));
    }
    open = tmsg_task_is_open(task);
    if (open && tmsg_task_run_at_once(task)) {
        next = task; /* its handle has the message's reference now */
    } else {
        if (open) {
            tmsg_task_wait(task); /* the queue has that reference now */
            tmsg_server_schedule(server);
        }
        next = tmsg_server_next(hub);
        alarm_ns = tmsg_stall_watch(server);
    }
    tmsg_hub_unlock_live(hub);
    if (!open) {
        tmsg_task_drop(task);
    }
    if (alarm_ns != 0) {
        tmsg_calls_alarm(hub->calls, alarm_ns);
    }
    tmsg_tasks_run(next);
}

/* Abandons a task whose message will not come. Returns true if the task was
 * open. With `told`, task_failed() tells interceptors of the refusal, and the
 * event of the task does not. */
static bool lose_task(tmsg_task_t *task, tmsg_status_t status, bool told)
{
    tmsg_hub_t *hub = task->server->hub;
    bool open;

    tmsg_calls_hold(task->endpoint); /* no message will hold it */
    tmsg_hub_lock(hub);
    open = tmsg_task_is_open(task);
    if (open) {
        task->refusal_told = told;
        tmsg_task_abandon(task, status);
    }
    tmsg_hub_unlock(hub);
    tmsg_hub_wake(hub);
    return open;
}

static void task_failed(tmsg_call_in_t *in, tmsg_status_t status,
                        const char *why)
{
    tmsg_task_t *task = TMSG_CONTAINER_OF(in, tmsg_task_t, in);

    if (lose_task(task, status, true)) { /* the caller knows why already */
        tmsg_refuse_task(task, status, why);
    }
    tmsg_task_drop(task);
}

static void task_dropped(tmsg_call_in_t *in)
{
    tmsg_task_t *task = TMSG_CONTAINER_OF(in, tmsg_task_t, in);

    (void)lose_task(task, TMSG_ERR_PEER_LOST, false);
    tmsg_task_drop(task);
}

_Static_assert(offsetof(tmsg_task_t, server) + sizeof(tmsg_server_t *) >=
                   sizeof(tmsg_node_t),
               "what is set at once covers a kept record's node");

/* Takes a record from the kept ones, or makes one; NULL: no memory. */
TMSG_RPC_RARE tmsg_task_t *find_record(tmsg_hub_t *hub)
{
    tmsg_task_t *task = tmsg_hub_take_record(&hub->tasks_kept, sizeof(*task));

    if (task == NULL) {
        tmsg_error_memory("a call");
    } else {
        prepare_task(task);
    }
    return task;
}

TMSG_RPC_RARE void count_begun(tmsg_task_t *task)
{
    const tmsg_method_t *method = task->method;

    task->meter = tmsg_meter_begin(task->server->hub, TMSG_SIDE_SERVER,
                                   method->name, method->name_bytes);
    if (task->meter != NULL) {
        task->begun_ns = tmsg_calls_now_ns();
    }
}

TMSG_RPC_STEP tmsg_task_t *create_task(tmsg_rpc_peer_t *peer,
                                       tmsg_method_t *method,
                                       const tmsg_call_head_t *head)
{
    tmsg_hub_t *hub = peer->hub;
    tmsg_server_t *server = method->server;
    tmsg_task_t *task = tmsg_hub_take_at_hand(&hub->tasks_kept);

    if (task == NULL && (task = find_record(hub)) == NULL) {
        return NULL;
    }
    /* The record is as prepare_task() left it, except for the bytes that linked
     * it to other kept records. The fields that are set first cover these. */
    tmsg_refs_init(&task->refs, 2); /* of the message, and of the list */
    atomic_init(&task->status, TMSG_IN_PROGRESS);
    task->server = server;
    server->refs++;
    task->method = method;
    task->peer = peer;
    task->endpoint = peer->endpoint;
    task->reply.id = head->id;
    tmsg_task_enter(task);
    if (hub->counts) {
        count_begun(task);
    }
    tmsg_list_push(&server->all, &task->node);
    tmsg_list_push(&peer->tasks, &task->own);
    return task;
}

/* Gives the task a deadline: the caller said that `left_us` is left. Returns
 * the time that tmsg_calls_alarm() is to be asked for; 0: none. Lock held. */
TMSG_RPC_RARE uint64_t set_task_deadline(tmsg_task_t *task, uint64_t left_us)
{
    uint64_t us = left_us < LEFT_US_MOST ? left_us : LEFT_US_MOST;
    uint64_t haste_us = us / HASTE_PART;
    uint64_t at_ns;

    if (haste_us > HASTE_US_MOST) {
        haste_us = HASTE_US_MOST;
    }
    task->deadline_ns = tmsg_calls_now_ns() + us * 1000;
    task->hastened = true;
    at_ns = task->deadline_ns - haste_us * 1000;
    return tmsg_hub_expect(task->server->hub, &task->expiry, at_ns) ? at_ns : 0;
}

/* Makes a task for a call or stream, if it may come in. Stores the result of
 * set_task_deadline() in *alarm_ns_p, if there is a deadline. Lock held. */
TMSG_RPC_STEP tmsg_status_t admit_task(tmsg_rpc_peer_t *peer,
                                       const tmsg_call_head_t *head,
                                       tmsg_call_stream_t *stream,
                                       tmsg_task_t **task_p,
                                       uint64_t *alarm_ns_p)
{
    tmsg_method_t *method = NULL;
    tmsg_task_t *task;
    tmsg_status_t status = tmsg_task_admit(peer, head, stream != NULL, &method);

    if (status != TMSG_OK) {
        return status;
    }
    task = create_task(peer, method, head);
    if (task == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    task->asks_loan = head->flags & TMSG_CALL_ASKS_LOAN;
    if (head->left_us > 0) {
        *alarm_ns_p = set_task_deadline(task, head->left_us);
    }
    if (stream != NULL) {
        task->stream = stream;
        tmsg_stream_serve(stream, task);
    }
    *task_p = task;
    return TMSG_OK;
}

/* Counts a call that is refused, and has interceptors told, with the words of
 * tmsg_error_message(). Returns `status`. Worker's lock held. */
TMSG_RPC_RARE tmsg_status_t refuse_call(tmsg_rpc_peer_t *peer,
                                        const tmsg_call_head_t *head,
                                        tmsg_status_t status)
{
    if (tmsg_refuse(peer, head, status, tmsg_error_message())) {
        tmsg_calls_wake_held(peer->hub->calls);
    }
    return status;
}

TMSG_RPC_RARE tmsg_status_t refuse_full(tmsg_rpc_peer_t *peer,
                                        const tmsg_call_head_t *head)
{
    return refuse_call(
        peer, head,
        tmsg_error_set(TMSG_ERR_RESOURCE_EXHAUSTED,
                       "%u answers wait for the caller to take them",
                       TMSG_CALLS_ANSWERS_MOST));
}

/* Asks for an alarm. The worker's lock is held when a call begins, but not when
 * a stream does. */
TMSG_RPC_RARE void set_alarm(const tmsg_hub_t *hub, uint64_t at_ns,
                             bool worker_held)
{
    if (worker_held) {
        tmsg_calls_alarm_held(hub->calls, at_ns);
    } else {
        tmsg_calls_alarm(hub->calls, at_ns);
    }
}

TMSG_RPC_STEP void lock_hub(tmsg_hub_t *hub, bool live)
{
    if (live) {
        tmsg_hub_lock_live(hub);
    } else {
        tmsg_hub_lock(hub);
    }
}

TMSG_RPC_STEP void unlock_hub(tmsg_hub_t *hub, bool live)
{
    if (live) {
        tmsg_hub_unlock_live(hub);
    } else {
        tmsg_hub_unlock(hub);
    }
}

__attribute__((noinline)) tmsg_status_t
tmsg_task_begins(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                 tmsg_call_stream_t *stream, tmsg_call_in_t **in_p)
{
    tmsg_hub_t *hub = peer->hub;
    bool is_call = stream == NULL;
    uint64_t alarm_ns = 0;
    tmsg_task_t *task;
    tmsg_status_t status;

    if (is_call && tmsg_calls_are_full_held(peer->endpoint)) {
        return refuse_full(peer, head);
    }
    lock_hub(hub, is_call);
    status = admit_task(peer, head, stream, &task, &alarm_ns);
    if (status == TMSG_OK) {
        *in_p = &task->in;
    }
    unlock_hub(hub, is_call);
    if (alarm_ns != 0) {
        set_alarm(hub, alarm_ns, is_call);
    }
    return status != TMSG_OK && is_call ? refuse_call(peer, head, status)
                                        : status;
}

tmsg_status_t tmsg_task_open(tmsg_rpc_peer_t *peer,
                             const tmsg_call_head_t *head,
                             tmsg_call_stream_t *stream,
                             tmsg_message_t *message)
{
    tmsg_call_in_t *in;
    tmsg_status_t status = tmsg_task_begins(peer, head, stream, &in);

    if (status == TMSG_OK) {
        task_arrived(in, message);
    }
    return status;
}

/* Gives a handle back; with `returned` it is the handler's own. With `runs`,
 * takes the next task that the calling thread is to run, and returns it.
 * Returns NULL if there is none. Lock not held. */
static tmsg_task_t *give_back_handle(tmsg_task_t *task, bool returned,
                                     bool runs)
{
    tmsg_hub_t *hub = task->server->hub;
    bool forgotten = false, more = false, over = false;
    tmsg_task_t *next = NULL;
    const char *words = "";
    remains_t remains;

    tmsg_hub_lock(hub);
    if (--task->handles == 0) {
        forgotten = tmsg_task_is_open(task);
        if (forgotten) {
            task->outcome = tmsg_stream_unended(task->stream, &words);
            tmsg_task_close(task, TMSG_TASK_ANSWERED);
        }
        if (task->held) {
            tmsg_task_unhold(task);
        }
        tmsg_task_leave(task);
        more = tmsg_server_schedule(task->server);
    } else if (returned) {
        task->handling = false;
        more = tmsg_task_check_done(task);
    }
    if (runs) {
        next = tmsg_server_next(hub);
    }
    more = more && !runs;
    if (!forgotten && !more && is_last(task)) {
        over = true;
        remains = remains_of(task);
    }
    tmsg_hub_unlock(hub);
    if (forgotten) {
        tmsg_hooks_words(task->hooks, words, strlen(words));
        tmsg_task_send_failure(task, task->outcome, words, true);
        tmsg_task_settle(task);
    }
    if (more) {
        tmsg_hub_wake(hub);
    }
    if (forgotten || more) {
        tmsg_task_drop(task);
    } else if (over) {
        free_remains(&remains);
    }
    return next;
}

TMSG_RPC_STEP void call_handler(tmsg_task_t *task)
{
    const tmsg_method_t *method = task->method;

    if (task->stream != NULL) {
        method->stream_handler(method->arg, task->stream);
    } else {
        method->handler(method->arg, task);
    }
}

/* Runs the handler in the trace context of the call, if the call is traced. */
TMSG_RPC_RARE void handle_hooked(tmsg_task_t *task)
{
    const tmsg_trace_context_t *context = tmsg_hooks_context(task->hooks);
    const tmsg_trace_context_t *before = NULL;

    if (context != NULL) {
        before = tmsg_trace_set_current(context);
    }
    call_handler(task);
    if (context != NULL) {
        (void)tmsg_trace_set_current(before);
    }
}

static void handle_task(tmsg_task_t *task)
{
    if (task->hooks != NULL) {
        handle_hooked(task);
    } else {
        call_handler(task);
    }
}

static void handle_here(tmsg_task_t *task)
{
    tmsg_hub_t *hub = task->server->hub;

    if (hub->shared) {
        handle_task(task);
    } else {
        tmsg_task_t *before = hub->running;

        hub->running = task;
        handle_task(task);
        hub->running = before;
    }
}

/* Runs one of the library's own methods. Its tasks do not wait for a turn. */
static void run_ours(tmsg_task_t *task)
{
    tmsg_hub_t *hub = task->server->hub;
    bool open;

    tmsg_hub_lock(hub);
    open = tmsg_task_is_open(task);
    if (open) {
        task->handles = 1;
        task->ran = true;
    }
    tmsg_hub_unlock(hub);
    if (open) {
        handle_here(task);
        tmsg_task_destroy(task);
    } else {
        tmsg_task_drop(task);
    }
}

void tmsg_task_run(tmsg_task_t *task)
{
    handle_task(task);
    (void)give_back_handle(task, true, false);
}

void tmsg_tasks_run(tmsg_task_t *task)
{
    while (task != NULL) {
        /* A hook may have destroyed the server, which abandons the task. */
        if (tmsg_task_is_open(task)) {
            uint64_t ticks = tmsg_ticks();

            handle_here(task);
            if (tmsg_ticks() - ticks > TMSG_TICKS_FEW) {
                tmsg_stall_held(task->method, ticks);
            }
            tmsg_calls_clear_context(); /* the handler may leave a context */
        }
        task = give_back_handle(task, true, true);
    }
}

void tmsg_task_put_off(tmsg_task_t *task)
{
    tmsg_server_t *server = task->server;
    uint64_t alarm_ns = 0;

    tmsg_hub_lock(server->hub);
    if (tmsg_task_is_open(task) && !task->waits) {
        tmsg_stall_begin(task);
        tmsg_stall_put_off(task);
        task->ran = false;
        alarm_ns = tmsg_stall_watch(server);
    }
    tmsg_hub_unlock(server->hub);
    if (alarm_ns != 0) {
        tmsg_calls_alarm(server->hub->calls, alarm_ns);
    }
}

tmsg_status_t tmsg_task_begin(tmsg_task_t *task)
{
    tmsg_hub_t *hub = task->server->hub;
    tmsg_status_t status;

    tmsg_hub_lock(hub);
    status = tmsg_task_status(task);
    if (task->waits) { /* it is open: its end would have ended that */
        tmsg_stall_end(task, true);
        task->ran = true;
    }
    tmsg_hub_unlock(hub);
    return status == TMSG_OK
               ? TMSG_OK
               : tmsg_error_set(status, "method '%s': %s", task->method->name,
                                tmsg_status_name(status));
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
    if (task != NULL) {
        (void)give_back_handle(task, false, false);
    }
}

const tmsg_map_t *tmsg_task_map(const tmsg_task_t *task)
{
    return task->message == NULL ? task->server->hub->empty
                                 : tmsg_message_map(task->message);
}

void tmsg_task_let_go(tmsg_task_t *task)
{
    tmsg_message_t *message = task->message;

    if (message != NULL) {
        tmsg_calls_hold(task->endpoint); /* the message had it */
        task->message = NULL;
        tmsg_message_destroy(message);
    }
}

const char *tmsg_task_method(const tmsg_task_t *task)
{
    return task->method->name;
}

tmsg_endpoint_t *tmsg_task_endpoint(const tmsg_task_t *task)
{
    return tmsg_calls_face(task->endpoint);
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
    return tmsg_task_is_open(task) ? TMSG_OK
                                   : tmsg_task_told(tmsg_task_state(task));
}

void tmsg_task_on_over(tmsg_task_t *task, tmsg_task_fn on_over, void *arg)
{
    tmsg_hub_lock(task->server->hub);
    task->on_over = on_over;
    task->on_over_arg = arg;
    tmsg_hub_unlock(task->server->hub);
}
