/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/server.h - what is served, and the calls that are here.
 *
 * A task is *inside* from the arrival of its head until nobody has it any more:
 * it comes, waits for its turn, runs; and it may be *over* at any time,
 * answered or not. The bounds count what is inside, and what runs. */
#ifndef TMSG_RPC_SERVER_H
#define TMSG_RPC_SERVER_H

#include <tensormsg/reflect.h>
#include <tensormsg/signature.h>

#include "core/refs.h"
#include "rpc/hub.h"

typedef struct {
    uint32_t concurrency, queue; /* the bounds */
    uint32_t inside, running;    /* what counts against them */
} tmsg_load_t;

typedef struct tmsg_method {
    struct tmsg_method *next;
    tmsg_keyed_t by_name;
    tmsg_node_t turn;        /* of the server's, while some of its tasks wait */
    tmsg_handler_fn handler; /* or, of a stream, */
    tmsg_stream_handler_fn stream_handler;
    void *arg;
    char *principals; /* who may call it; NULL: anybody */
    uint32_t flags;   /* TMSG_METHOD_* */
    tmsg_load_t load;
    tmsg_list_t waiting;         /* for their turn */
    tmsg_signature_t *signature; /* NULL: any map */
    char *signature_text;        /* likewise */
    char *description;           /* NULL: none */
    tmsg_health_t health;        /* says the application */
    bool is_ours;                /* of tensormsg/reflect.h: beyond the bounds */
    size_t name_bytes;
    char name[TMSG_METHOD_BYTES_MAX + 1];
} tmsg_method_t;

struct tmsg_server {
    size_t refs;     /* handle, tasks; with the lock */
    tmsg_hub_t *hub; /* held */
    tmsg_method_t *methods;
    tmsg_table_t by_name;
    tmsg_method_t *last; /* that was called; NULL: none yet */
    tmsg_list_t turns;   /* methods with tasks that wait, in turn */
    tmsg_load_t load;
    tmsg_list_t all;      /* tasks that are not over */
    tmsg_list_t ready;    /* these are to be run now */
    tmsg_health_t health; /* says the application */
    bool draining;
    bool pooled;         /* handlers run on its threads */
    bool stopping;       /* its threads are to end */
    pthread_cond_t news; /* for them */
    uint32_t thread_count;
    pthread_t *threads;
};

/* A task's status once an answer was given. */
#define TMSG_TASK_ANSWERED ((tmsg_status_t)2) /* which nobody else has */

/* The same as the application hears it. */
static inline tmsg_status_t tmsg_task_told(tmsg_status_t status)
{
    return status == TMSG_TASK_ANSWERED ? TMSG_ERR_ALREADY_EXISTS : status;
}

struct tmsg_task {
    tmsg_refs_t refs; /* its message on the way, then its turn, then the
                       * handler; list, other handles, event */
    atomic_int status;
    tmsg_server_t *server; /* held */
    tmsg_method_t *method;
    tmsg_rpc_peer_t *peer;
    tmsg_endpoint_t *endpoint; /* held by its message; by it, if that failed */
    struct tmsg_meter *meter;  /* NULL: it is not counted */
    struct tmsg_hooks *hooks;  /* NULL: nobody intercepts it */
    uint64_t begun_ns;
    tmsg_status_t outcome; /* of an answer */
    uint64_t deadline_ns;  /* 0: none */
    tmsg_node_t own;       /* of the peer's tasks */
    tmsg_keyed_t by_id;    /* likewise, */
    bool indexed;          /* once somebody looked for one */
    tmsg_node_t node;      /* of the server's */
    tmsg_node_t turn;      /* of those that wait, or are ready */
    tmsg_list_t *queue;    /* which of these it is in; NULL: none */
    tmsg_expiry_t expiry;
    tmsg_rpc_event_t event;
    tmsg_call_in_t in;
    tmsg_call_head_t reply; /* of one that is no failure, with its id; */
    tmsg_call_send_t how;   /* is sent so */
    tmsg_message_t *message;
    tmsg_call_stream_t *stream; /* that it is, or NULL; lives as long */
    unsigned handles;           /* with the lock */
    bool running;               /* it has had its turn, and counts as such */
    bool inside;
    bool ran;          /* its handler was called, or is about to be */
    bool refusal_told; /* to interceptors none of which has seen it */
    tmsg_task_fn on_over;
    void *on_over_arg;
};

/* Nobody has it any more. Without a lock. */
void tmsg_server_free(tmsg_server_t *server);

/* Lock held: the method of that name, or NULL. */
tmsg_method_t *tmsg_method_find(const tmsg_server_t *server, const char *name,
                                size_t bytes);

/* The same of one that is called, which the next call is of, mostly. */
tmsg_method_t *tmsg_method_called(tmsg_server_t *server, const char *name,
                                  size_t bytes);

/* Adds a method, which is the server's then. Errors: ALREADY_EXISTS. */
tmsg_status_t tmsg_server_add(tmsg_server_t *server, tmsg_method_t *method);

/* Lock held: whether one more may come in (a stream, or a call), and for what.
 * Errors: as a caller hears them. */
tmsg_status_t tmsg_task_admit(const tmsg_rpc_peer_t *peer,
                              const tmsg_call_head_t *head, bool streams,
                              tmsg_method_t **method_p);

/* Lock held: it counts against the bounds, or does not any more. */
void tmsg_task_enter(tmsg_task_t *task);
void tmsg_task_leave(tmsg_task_t *task);

/* Lock held: a task waits for its turn, unless it has it at once, with one of
 * the caller's references; or is taken out of whichever queue it is in, whose
 * reference is the caller's then. */
void tmsg_task_wait(tmsg_task_t *task);
void tmsg_task_unqueue(tmsg_task_t *task);

/* Lock held: the same of one that runs here and now, before which there is
 * nobody, as of tmsg_task_take(). False: there is, or threads run it. */
bool tmsg_task_run_at_once(tmsg_task_t *task);

/* Lock held: hands out turns as far as the bounds allow. True: there are some
 * for the thread that progresses. */
bool tmsg_server_schedule(tmsg_server_t *server);

/* Runs what is ready, where no threads do. Without a lock. */
void tmsg_server_run(tmsg_hub_t *hub);

/* Lock held: the next that is to be run on the thread that progresses, as of
 * tmsg_task_take(). */
tmsg_task_t *tmsg_server_next(const tmsg_hub_t *hub);

/* Lock held: the next to be run, with a handle on it, which has the reference
 * that its turn had; NULL: none. */
tmsg_task_t *tmsg_task_take(tmsg_server_t *server);

/* Runs it: its handler, and gives that handle back. Without a lock. */
void tmsg_task_run(tmsg_task_t *task);

/* The same of one of tmsg_server_next(), and then of the next, until there is
 * none. NULL is allowed. */
void tmsg_tasks_run(tmsg_task_t *task);

/* The worker's lock held: a task for a call that begins to come; or, with none,
 * for that stream, whose opener is then to be told why not. Errors: as a caller
 * hears them. */
tmsg_status_t tmsg_task_begins(tmsg_rpc_peer_t *peer,
                               const tmsg_call_head_t *head,
                               tmsg_call_stream_t *stream,
                               tmsg_call_in_t **in_p);

/* No lock: a task for a stream that has come with that message, which is the
 * callee's if it succeeds. Errors: likewise. */
tmsg_status_t tmsg_task_open(tmsg_rpc_peer_t *peer,
                             const tmsg_call_head_t *head,
                             tmsg_call_stream_t *stream,
                             tmsg_message_t *message);

/* tmsg_calls_ops_t's `canceled`. */
void tmsg_task_canceled(void *peer, uint64_t id);

/* Lock held: the peer's endpoint has ended. */
void tmsg_tasks_lost(tmsg_rpc_peer_t *peer);

void tmsg_task_hold(tmsg_task_t *task);
void tmsg_task_drop(tmsg_task_t *task); /* without a lock */

/* IN_PROGRESS, or how it ended: with TMSG_TASK_ANSWERED where it was. */
static inline tmsg_status_t tmsg_task_state(const tmsg_task_t *task)
{
    return (tmsg_status_t)atomic_load_explicit(&task->status,
                                               memory_order_acquire);
}

/* Whether an answer is awaited. */
bool tmsg_task_is_open(const tmsg_task_t *task);

/* Lock held, once: none is any more, or one is about to be given. */
void tmsg_task_close(tmsg_task_t *task, tmsg_status_t status);

/* Lock held: ends it unanswered; its handler is told by an event. */
void tmsg_task_abandon(tmsg_task_t *task, tmsg_status_t status);

/* Lock held: its time is up. */
void tmsg_task_expire(tmsg_expiry_t *expiry);

/* Tells the caller that there is no reply. Without a lock. */
void tmsg_task_send_failure(const tmsg_task_t *task, tmsg_status_t status,
                            const char *words, bool ran);

/* Who gets OK is to answer, with that, which is counted; of a stream the words
 * (NULL: none) are its error from then on. Errors: why not, in words. */
tmsg_status_t tmsg_task_claim(tmsg_task_t *task, tmsg_status_t outcome,
                              const tmsg_map_t *map, const char *words,
                              size_t bytes);

/* What a failure's words may be: UTF-8. Cuts them to what fits. Errors:
 * INVALID_PARAM. */
tmsg_status_t tmsg_task_words(const char *words, size_t *bytes_p);

/* An answer to a closed task was handed over: it is its handles' alone, and
 * the list's reference gone. Without a lock. */
void tmsg_task_settle(tmsg_task_t *task);

/* tmsg_calls_ops_t's `bounced`, of a reply: the caller is to hear of it. */
bool tmsg_reply_bounces(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                        bool sent, tmsg_status_t status, const char *error);

/* Ends what is left of a drained server, and tells its callers. */
void tmsg_tasks_turn_out(tmsg_server_t *server);

#endif
