/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/lead.h - driving a worker, and waiting for what that brings
 * about.
 *
 * Whatever waits inside the library is done by one thread at a time, the
 * leader: it alone sleeps on the worker's descriptor. It is the worker's own
 * thread, or the first that waits; the others sleep until something changed,
 * and one of them takes over when the leader has what it waited for, or calls
 * the application. What holds:
 *  - UCX, the loop and the chores are worked at with the lock held throughout,
 *    so that whoever has the lock may drive;
 *  - it is let go for callbacks of the application alone, by one thread that
 *    runs what is due (`dispatching`), in the order in which it fell due, and
 *    by one that asks for memory (`fetching`), which may be two threads. What
 *    comes up meanwhile is left to them;
 *  - who is inside a callback does not lead, and waits for nothing. */
#ifndef TMSG_AM_WORKER_LEAD_H
#define TMSG_AM_WORKER_LEAD_H

#include <stdbool.h>

#include "am/worker/worker.h"

/* A call that drives the worker or waits: takes the lock, and gives it back.
 * Those who sleep are woken if the call `stirred` anything. The last one out
 * frees a worker that was destroyed inside a callback. */
void tmsg_worker_enter(tmsg_worker_t *worker);

/* The same for a call that goes on without the lock, and takes it to leave. */
void tmsg_worker_stay(tmsg_worker_t *worker);

void tmsg_worker_leave(tmsg_worker_t *worker, bool stirred);

/* Gives the lock back and lets a sleeper sleep. */
void tmsg_worker_unlock_quietly(tmsg_worker_t *worker);

/* Entered: drives the worker until done(arg), at least once. Errors: TIMED_OUT
 * (`missing` and then `of`, "no message from " and a peer, say what has not
 * come), WOULD_BLOCK (inside a callback), CLOSED (the worker was destroyed). */
tmsg_status_t tmsg_worker_until(tmsg_worker_t *worker, bool (*done)(void *arg),
                                void *arg, int timeout_ms, const char *missing,
                                const char *of);

/* Lock held: waits until every call has left a worker that is ending. */
void tmsg_worker_await_leaving(tmsg_worker_t *worker);

/* Lock held, and let go for each: runs the callbacks that are due. Gives how
 * many there were. */
unsigned tmsg_worker_dispatch(tmsg_worker_t *worker);

/* On the stack of a thread that calls the application. */
typedef struct tmsg_callback {
    tmsg_worker_t *worker;
    const struct tmsg_callback *outer;
    const void *context; /* of the thread, outside */
} tmsg_callback_t;

/* What this thread takes with it into what it calls; callbacks that it runs
 * while it waits begin with nothing, and leave it as it was. The second gives
 * what was there before. */
const void *tmsg_thread_context(void);
const void *tmsg_thread_set_context(const void *now);
void tmsg_thread_clear_context(void);

/* Lock held, which may be let go inside: another thread leads meanwhile. */
void tmsg_callback_enter(tmsg_callback_t *callback, tmsg_worker_t *worker);
void tmsg_callback_leave(const tmsg_callback_t *callback);

/* Whether this thread is inside a callback of the worker's. */
bool tmsg_worker_in_callback(const tmsg_worker_t *worker);

/* The worker's own thread. */
void *tmsg_worker_run(void *arg);

#endif
