/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker.h - the worker as the room sees it.
 *
 * Whatever the library finds out while it holds the worker's lock, or while
 * UCX calls it, is queued: callbacks of the application as "due" records, work
 * on an endpoint as "chores". progress() does the chores and then runs what is
 * due, with no lock held and outside UCX. */
#ifndef TMSG_AM_WORKER_H
#define TMSG_AM_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <tensormsg/listener.h>

#include "am/context.h"
#include "am/loop.h"
#include "am/store.h"
#include "am/ucx.h"

/* Embedded, first, in what has a callback to run. */
typedef struct tmsg_due {
    struct tmsg_due *next;
    void (*run)(struct tmsg_due *due);
} tmsg_due_t;

/* Outlives the worker for those who may ask whether it is over. */
typedef struct {
    atomic_uint refs;
    atomic_bool over;
} tmsg_life_t;

void tmsg_life_hold(tmsg_life_t *life);
void tmsg_life_drop(tmsg_life_t *life);

/* A list of messages, oldest first, by one of their links. */
typedef struct {
    tmsg_message_t *head;
    tmsg_message_t *tail;
    size_t count;
} tmsg_message_list_t;

struct tmsg_worker {
    tmsg_context_t *context;
    tmsg_life_t *life;
    unsigned flags;
    tmsg_message_fn handler;
    void *handler_arg;
    uint32_t queue_depth;
    uint64_t spin_ns;

    pthread_mutex_t lock; /* taken only where several threads may call */
    atomic_uint wanting;  /* threads that wait for it: spinning gives way */
    pthread_cond_t changed;
    uint64_t changes;     /* things that somebody may have waited for */
    unsigned waiters;     /* threads inside tmsg_worker_until() */
    bool inside;          /* UCX is calling us: it is not to be called */
    bool sleeping;        /* armed: posts must signal */
    pthread_t thread;     /* with TMSG_WORKER_THREAD */
    atomic_bool stopping; /* tells that thread to end */
    bool dispatching;     /* a thread runs what is due */
    pthread_t dispatcher; /* which */
    unsigned entered;     /* calls that must return before it is freed */
    bool doomed;          /* destroyed inside a callback */

    tmsg_loop_t loop;
    unsigned quiet; /* progress calls since the loop was looked at */
    bool look;      /* look at it in the next one */
    tmsg_due_t *due_head;
    tmsg_due_t **due_tail;

    tmsg_ucx_t *ucx;
    bool has_retired;            /* some of these wait to be closed */
    tmsg_endpoint_t **endpoints; /* by slot; NULL is free */
    uint32_t endpoint_slots;
    uint32_t generation; /* of the newest endpoint id */
    tmsg_endpoint_t *chores;
    tmsg_listener_t *listeners;

    tmsg_store_t *store;
    tmsg_message_list_t fetch; /* arrived, waiting for memory */
    tmsg_message_list_t ready; /* to be pulled */
};

bool tmsg_worker_is_shared(const tmsg_worker_t *worker);
void tmsg_worker_lock(tmsg_worker_t *worker);
void tmsg_worker_unlock(tmsg_worker_t *worker);

/* The UCX worker for a scope and role, opened when first asked for. The caller
 * is a user of it until it lets go. */
tmsg_status_t tmsg_worker_ucx(tmsg_worker_t *worker,
                              const tmsg_ucx_scope_t *scope, bool dialling,
                              tmsg_ucx_t **ucx_p);

/* retire.c. A peer that was killed while it wrote to shared memory may have
 * left our queue blocked for everybody: nobody new joins this UCX worker, and
 * if it is blocked those who are on it end. Lock held, outside UCX. */
void tmsg_ucx_retire(tmsg_ucx_t *ucx);

/* Lock held, outside UCX: closes those that are retired and unused. */
void tmsg_worker_close_retired(tmsg_worker_t *worker);

/* Lock held: queues a callback. */
void tmsg_worker_due(tmsg_worker_t *worker, tmsg_due_t *due);

/* Lock held: has the endpoint's chores done by the next progress(). */
void tmsg_worker_chore(tmsg_worker_t *worker, tmsg_endpoint_t *endpoint);

/* Lock held: something that somebody may wait for has happened. */
void tmsg_worker_changed(tmsg_worker_t *worker);

/* progress.c. Lock held: one round of progress, without callbacks; and the
 * callbacks that are due, for which it lets the lock go. */
unsigned tmsg_worker_step(tmsg_worker_t *worker);
unsigned tmsg_worker_dispatch(tmsg_worker_t *worker);
/* Lock held: whether this thread is inside a callback of the worker's. */
bool tmsg_worker_in_callback(const tmsg_worker_t *worker);
/* The worker's own thread. */
void *tmsg_worker_run(void *arg);

/* worker.c: ends everything and frees the worker. */
void tmsg_worker_finish(tmsg_worker_t *worker);

/* Lock held, outside UCX: hears what UCX has received but not yet told. False:
 * it had not fallen silent within a bound. */
bool tmsg_worker_drain(tmsg_worker_t *worker, tmsg_ucx_t *ucx);

/* Drives the worker until done(arg) or the timeout. Errors: TIMED_OUT,
 * WOULD_BLOCK. */
tmsg_status_t tmsg_worker_until(tmsg_worker_t *worker, bool (*done)(void *arg),
                                void *arg, int timeout_ms);

#endif
