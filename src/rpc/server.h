/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/server.h - the methods that are served, and the calls that came.
 *
 * A task is *inside* from the arrival of its head until its handler is done
 * with it: it comes, waits for its turn, and runs. A handler is done with a
 * task when the handler has returned and has answered (in vain, perhaps), or
 * nobody has a handle any more. A task may be *over* at any time, answered or
 * not. The bounds count the tasks that are inside, and those that run. A task
 * that still has handles when its handler is done with it is *held*: only its
 * memory counts. The lock below is the hub's, unless a comment names another.
 */
#ifndef TMSG_RPC_SERVER_H
#define TMSG_RPC_SERVER_H

#include <tensormsg/reflect.h>
#include <tensormsg/signature.h>

#include "core/refs.h"
#include "rpc/hub.h"

typedef struct {
    uint32_t concurrency, queue; /* the bounds */
    uint32_t inside, running;    /* tasks that count against the bounds */
    uint32_t held;               /* tasks that do not count any more */
    uint32_t waiting; /* tasks whose handler has not begun (stall.h) */
    uint32_t put_off; /* of these, those that have had their turn, and count as
                         running */
} tmsg_load_t;

typedef struct tmsg_method {
    struct tmsg_method *next;
    tmsg_server_t *server; /* the server that owns the method */
    tmsg_keyed_t by_name;
    tmsg_node_t
        turn; /* in the server's turns, while tasks of the method wait */
    tmsg_handler_fn handler; /* NULL if the method is a stream */
    tmsg_stream_handler_fn stream_handler;
    void *arg;
    char
        *principals; /* names of those who may call the method; NULL: anybody */
    uint32_t flags;  /* TMSG_METHOD_* */
    tmsg_load_t load;
    tmsg_list_t waiting;         /* tasks that wait for their turn */
    tmsg_signature_t *signature; /* NULL: the method takes any map */
    char *signature_text;        /* NULL: no signature */
    char *description;           /* NULL: none */
    tmsg_health_t health;        /* as the application set it */
    uint32_t begun, begun_seen;  /* tasks that waited and have begun; how many
                                    there were when the watch looked last */
    unsigned looks; /* of the watch in a row that saw tasks wait and none begin
                     */
    bool stalled;
    bool to_say;      /* the log is to say that the method is stalled */
    uint64_t said_ns; /* when it said so last; 0: never */
    uint64_t stalls;  /* how often the method was stalled */
    uint64_t longs;   /* how often its handler has held the thread that
                         progresses for a second */
    bool
        is_ours; /* method of tensormsg/reflect.h: the bounds do not count it */
    size_t name_bytes;
    char name[TMSG_METHOD_BYTES_MAX + 1];
} tmsg_method_t;

struct tmsg_server {
    size_t refs;     /* of the handle and the tasks; with the lock */
    tmsg_hub_t *hub; /* held */
    tmsg_method_t *methods;
    tmsg_table_t by_name;
    tmsg_method_t *last; /* method of the last call; NULL: none yet */
    tmsg_list_t turns;   /* methods with tasks that wait, in turn */
    tmsg_load_t load;
    tmsg_list_t all;          /* tasks that are not over */
    tmsg_list_t ready;        /* tasks that are to be run now */
    tmsg_health_t health;     /* as the application set it */
    uint64_t ticks, ticks_ns; /* both clocks, when the server was created */
    tmsg_lifetime_t watch;    /* looks for stalls while tasks wait */
    tmsg_rpc_event_t saying;  /* writes the log of stalls */
    bool says;                /* that event is queued, with a reference */
    bool draining;
    bool beginning;      /* it was never ready: it was made so, or has had no
                            method of the application's */
    bool pooled;         /* handlers run on the server's threads */
    bool stopping;       /* the server's threads are to end */
    pthread_cond_t news; /* wakes the server's threads */
    uint32_t thread_count;
    pthread_t *threads;
};

/* The status of a task that was answered. */
#define TMSG_TASK_ANSWERED                                                     \
    ((tmsg_status_t)2) /* no tmsg_status_t has this value */

/* Returns a task's status as the application hears it. */
static inline tmsg_status_t tmsg_task_told(tmsg_status_t status)
{
    return status == TMSG_TASK_ANSWERED ? TMSG_ERR_ALREADY_EXISTS : status;
}

struct tmsg_task {
    tmsg_refs_t refs; /* for the coming message, then the turn, then the
                         handler; for the list, other handles, the event */
    atomic_int status;
    tmsg_server_t *server; /* held */
    tmsg_method_t *method;
    tmsg_rpc_peer_t *peer;
    tmsg_endpoint_t
        *endpoint; /* held by the message; by the task if the message failed */
    struct tmsg_meter *meter; /* NULL: the task is not counted */
    struct tmsg_hooks *hooks; /* NULL: no interceptor sees the task */
    uint64_t begun_ns;
    tmsg_status_t outcome; /* status of an answer */
    uint64_t deadline_ns;  /* 0: no deadline */
    tmsg_node_t own;       /* in the peer's list of tasks */
    tmsg_keyed_t by_id;    /* entry in the peer's tasks_by_id */
    bool indexed; /* by_id is in that table; true once a task was looked for */
    tmsg_node_t node;   /* in the server's list of tasks */
    tmsg_node_t turn;   /* in the list of tasks that wait, or are ready */
    tmsg_list_t *queue; /* the list that `turn` is in; NULL: none */
    tmsg_expiry_t expiry;
    tmsg_rpc_event_t event;
    tmsg_call_in_t in;
    tmsg_call_head_t
        reply; /* head of a reply that is no failure, with the call's id */
    tmsg_call_send_t how; /* how the reply is sent */
    tmsg_message_t *message;
    tmsg_call_stream_t *stream; /* the stream that the task serves, or NULL;
                                   freed with the task */
    unsigned handles;           /* with the lock */
    bool asks_loan;             /* the caller takes a reply that is lent */
    bool running; /* the task has had its turn, and counts as running */
    bool inside;
    bool handling; /* the handler was called and has not returned */
    bool tried;    /* an answer was given when nobody waited for it any more */
    bool held;     /* the handler is done with the task, and handles are left */
    bool waits;    /* stall.h */
    bool put_off;
    bool hastened; /* the expiry is before the deadline: a task that still waits
                      then is refused in time for its caller to hear of it */
    char *late;    /* the task was refused so, with these words; or NULL */
    bool ran;      /* the handler was called, or is about to be */
    bool refusal_told; /* interceptors were told of a refusal; no `begin` saw
                          the task */
    tmsg_task_fn on_over;
    void *on_over_arg;
};

/* Frees a server that nobody has any more. Lock not held. */
void tmsg_server_free(tmsg_server_t *server);

/* Returns the method of that name, or NULL. Lock held. */
tmsg_method_t *tmsg_method_find(const tmsg_server_t *server, const char *name,
                                size_t bytes);

/* Returns the method of that name like tmsg_method_find(), for a call. Looks
 * first at the method of the last call. Lock held. */
tmsg_method_t *tmsg_method_called(tmsg_server_t *server, const char *name,
                                  size_t bytes);

/* Adds a method; on TMSG_OK the server owns it. tmsg_server_add() takes the
 * lock, the caller of tmsg_server_add_held() holds it. Errors:
 * ALREADY_EXISTS. */
tmsg_status_t tmsg_server_add(tmsg_server_t *server, tmsg_method_t *method);
tmsg_status_t tmsg_server_add_held(tmsg_server_t *server,
                                   tmsg_method_t *method);

/* Checks whether one more call, or stream if `streams`, may come in, and stores
 * its method. Lock held. Errors: those that the caller hears. */
tmsg_status_t tmsg_task_admit(const tmsg_rpc_peer_t *peer,
                              const tmsg_call_head_t *head, bool streams,
                              tmsg_method_t **method_p);

/* These functions begin and cease to count a task against the bounds.
 * tmsg_task_leave_held() ceases for a task whose handler is done with it and
 * that still has handles; tmsg_task_unhold() is called when they are gone. Lock
 * held. */
void tmsg_task_enter(tmsg_task_t *task);
void tmsg_task_leave(tmsg_task_t *task);
void tmsg_task_leave_held(tmsg_task_t *task);
void tmsg_task_unhold(tmsg_task_t *task);

/* Does tmsg_task_leave_held() if the handler is done with the task and the task
 * still counts, and hands out turns. Returns true if the thread that progresses
 * has tasks to run. Lock held. */
bool tmsg_task_check_done(tmsg_task_t *task);

/* tmsg_task_wait() gives one of the caller's references to the queue; the task
 * waits there for its turn, or has it at once. tmsg_task_unqueue() takes the
 * task out of its queue, and the queue's reference is the caller's again. Lock
 * held. */
void tmsg_task_wait(tmsg_task_t *task);
void tmsg_task_unqueue(tmsg_task_t *task);

/* Gives the task its turn at once if nothing is before it, with a handle as
 * tmsg_task_take() does. Returns false if other tasks are before it, the bounds
 * forbid it, or threads run the handlers. Lock held. */
bool tmsg_task_run_at_once(tmsg_task_t *task);

/* Hands out turns as far as the bounds allow. Returns true if the thread that
 * progresses has tasks to run. Lock held. */
bool tmsg_server_schedule(tmsg_server_t *server);

/* Runs the tasks that are ready, if the server has no threads. Lock not held.
 */
void tmsg_server_run(tmsg_hub_t *hub);

/* Returns the next task that the thread that progresses is to run, as
 * tmsg_task_take() does. Returns NULL if there is none, or threads run the
 * handlers. Lock held. */
tmsg_task_t *tmsg_server_next(const tmsg_hub_t *hub);

/* Returns the next task to be run, with a handle that has the reference of its
 * turn; NULL: none. Lock held. */
tmsg_task_t *tmsg_task_take(tmsg_server_t *server);

/* Runs the task's handler, and gives the handle of tmsg_task_take() back. Lock
 * not held. */
void tmsg_task_run(tmsg_task_t *task);

/* Runs a task of tmsg_server_next(), and then the next ones until there is
 * none. NULL is allowed. Lock not held. */
void tmsg_tasks_run(tmsg_task_t *task);

/* Makes a task for a call that begins to come (worker's lock held), or for
 * `stream` (worker's lock not held); the opener of a stream is then to be told
 * why not. Takes the hub's lock. Errors: those that the caller hears. */
tmsg_status_t tmsg_task_begins(tmsg_rpc_peer_t *peer,
                               const tmsg_call_head_t *head,
                               tmsg_call_stream_t *stream,
                               tmsg_call_in_t **in_p);

/* Makes a task for a stream that came with `message`. On TMSG_OK the message is
 * the task's. No lock held. Errors: those that the caller hears. */
tmsg_status_t tmsg_task_open(tmsg_rpc_peer_t *peer,
                             const tmsg_call_head_t *head,
                             tmsg_call_stream_t *stream,
                             tmsg_message_t *message);

/* Serves as `canceled` of tmsg_calls_ops_t. */
void tmsg_task_canceled(void *peer, uint64_t id);

/* Abandons the peer's tasks, because its endpoint has ended. Lock held. */
void tmsg_tasks_lost(tmsg_rpc_peer_t *peer);

/* Gives the message of a task back before the task ends: tmsg_task_map() is an
 * empty map from then on. Called by an event. Lock not held. */
void tmsg_task_let_go(tmsg_task_t *task);

void tmsg_task_hold(tmsg_task_t *task);
void tmsg_task_drop(tmsg_task_t *task); /* lock not held */

/* Returns IN_PROGRESS, or how the task ended: TMSG_TASK_ANSWERED if it was
 * answered. */
static inline tmsg_status_t tmsg_task_state(const tmsg_task_t *task)
{
    return (tmsg_status_t)atomic_load_explicit(&task->status,
                                               memory_order_acquire);
}

/* Returns whether an answer is still awaited. */
bool tmsg_task_is_open(const tmsg_task_t *task);

/* Ends the wait for an answer: an answer is about to be given, or none will be.
 * Lock held, once a task. */
void tmsg_task_close(tmsg_task_t *task, tmsg_status_t status);

/* Ends the task unanswered; an event tells its handler. Lock held. */
void tmsg_task_abandon(tmsg_task_t *task, tmsg_status_t status);

/* Abandons the task, because its deadline has passed. Lock held. */
void tmsg_task_expire(tmsg_expiry_t *expiry);

/* Tells the caller that the call failed and has no reply. Lock not held. */
void tmsg_task_send_failure(const tmsg_task_t *task, tmsg_status_t status,
                            const char *words, bool ran);

/* Claims the right to answer the task with `outcome`. On TMSG_OK the caller has
 * to answer, and metrics count the bytes of `map`. For a stream `words` (NULL:
 * none) are its error from then on. Takes the lock. Errors: why the task cannot
 * be answered, in words. */
tmsg_status_t tmsg_task_claim(tmsg_task_t *task, tmsg_status_t outcome,
                              const tmsg_map_t *map, const char *words,
                              size_t bytes);

/* Checks that the words of a failure are UTF-8. Stores in *bytes_p how many
 * bytes fit. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_task_words(const char *words, size_t *bytes_p);

/* Removes a closed task from the server's list when its answer was handed over,
 * and drops the list's reference. Afterwards only handles have the task. Lock
 * not held. */
void tmsg_task_settle(tmsg_task_t *task);

/* Serves as `bounced` of tmsg_calls_ops_t, for replies. The caller is told if
 * the reply was not sent. */
bool tmsg_reply_bounces(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                        bool sent, tmsg_status_t status, const char *error);

/* Ends the open tasks of a drained server, and tells their callers. Lock not
 * held. */
void tmsg_tasks_turn_out(tmsg_server_t *server);

#endif
