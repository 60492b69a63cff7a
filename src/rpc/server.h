/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/server.h - what is served, and the calls that are here.
 *
 * A task is *inside* from the arrival of its head until nobody has it any more:
 * it comes, waits for its turn, runs; and it may be *over* at any time,
 * answered or not. The bounds count what is inside, and what runs. */
#ifndef TMSG_RPC_SERVER_H
#define TMSG_RPC_SERVER_H

#include "rpc/hub.h"

typedef struct {
    uint32_t concurrency, queue; /* the bounds */
    uint32_t inside, running;    /* what counts against them */
} tmsg_load_t;

typedef struct tmsg_method {
    struct tmsg_method *next;
    tmsg_handler_fn handler;
    void *arg;
    tmsg_load_t load;
    tmsg_list_t waiting; /* for their turn */
    size_t name_bytes;
    char name[TMSG_METHOD_BYTES_MAX + 1];
} tmsg_method_t;

struct tmsg_server {
    atomic_uint refs; /* handle, tasks */
    tmsg_hub_t *hub;  /* held */
    tmsg_method_t *methods;
    tmsg_method_t *turn; /* whose tasks are looked at first; NULL: all's */
    tmsg_load_t load;
    tmsg_list_t all;   /* tasks that are not over */
    tmsg_list_t ready; /* these are to be run now */
    bool draining;
    bool pooled;         /* handlers run on its threads */
    bool stopping;       /* its threads are to end */
    pthread_cond_t news; /* for them */
    uint32_t thread_count;
    pthread_t *threads;
};

/* A task's status once an answer was given. */
#define TMSG_TASK_ANSWERED TMSG_ERR_ALREADY_EXISTS

struct tmsg_task {
    atomic_uint refs; /* its message on the way, list, handles, event */
    atomic_int status;
    tmsg_server_t *server; /* held */
    tmsg_method_t *method;
    tmsg_rpc_peer_t *peer;
    tmsg_endpoint_t *endpoint; /* held */
    uint64_t id;
    uint64_t deadline_ns; /* 0: none */
    tmsg_node_t own;      /* of the peer's tasks */
    tmsg_node_t node;     /* of the server's */
    tmsg_node_t turn;     /* of those that wait, or are ready */
    tmsg_list_t *queue;   /* which of these it is in; NULL: none */
    tmsg_expiry_t expiry;
    tmsg_rpc_event_t event;
    tmsg_call_in_t in;
    tmsg_message_t *message;
    unsigned handles; /* with the lock */
    bool running;     /* it has had its turn, and counts as such */
    bool inside;
    tmsg_task_fn on_over;
    void *on_over_arg;
};

void tmsg_server_drop(tmsg_server_t *server); /* without a lock */

/* Lock held: hands out turns as far as the bounds allow. True: there are some
 * for the thread that progresses. */
bool tmsg_server_schedule(tmsg_server_t *server);

/* Runs what is ready, where no threads do. Without a lock. */
void tmsg_server_run(tmsg_hub_t *hub);

/* Lock held: the next to be run, with a handle on it; NULL: none. */
tmsg_task_t *tmsg_task_take(tmsg_server_t *server);

/* Runs it: its handler, and gives that handle back. Without a lock. */
void tmsg_task_run(tmsg_task_t *task);

/* Lock held: a task for a call that begins to come. Errors: as a caller hears
 * them. */
tmsg_status_t tmsg_task_begins(tmsg_rpc_peer_t *peer,
                               const tmsg_call_head_t *head,
                               tmsg_call_in_t **in_p);

/* tmsg_calls_ops_t's `canceled`. */
void tmsg_task_canceled(void *peer, uint64_t id);

/* Lock held: the peer's endpoint has ended. */
void tmsg_tasks_lost(tmsg_rpc_peer_t *peer);

void tmsg_task_hold(tmsg_task_t *task);
void tmsg_task_drop(tmsg_task_t *task); /* without a lock */

/* Whether an answer is awaited. */
bool tmsg_task_is_open(const tmsg_task_t *task);

/* Lock held, once: none is any more, or one is about to be given. */
void tmsg_task_close(tmsg_task_t *task, tmsg_status_t status);

/* Lock held: ends it unanswered; its handler is told by an event. */
void tmsg_task_abandon(tmsg_task_t *task, tmsg_status_t status);

/* Tells the caller that there is no reply. Without a lock. */
void tmsg_task_send_failure(const tmsg_task_t *task, tmsg_status_t status,
                            const char *words, bool ran);

/* An answer to a closed task was handed over: it is its handles' alone, and
 * the list's reference gone. Without a lock. */
void tmsg_task_settle(tmsg_task_t *task);

/* Ends what is left of a drained server, and tells its callers. */
void tmsg_tasks_turn_out(tmsg_server_t *server);

#endif
