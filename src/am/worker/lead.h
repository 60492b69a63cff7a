/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/lead.h - driving a worker, and waiting for what that brings about.
 *
 * One thread at a time does the waiting inside the library: the leader. The
 * leader alone sleeps on the worker's descriptor. It is the worker's own
 * thread, or the first thread that waits. The other waiting threads sleep until
 * something changed. One of them takes over when the leader has what it waited
 * for, or calls the application. These rules hold:
 *  - UCX, the loop and the chores are worked at with the lock held throughout.
 *    A thread that has the lock may therefore drive.
 *  - The lock is released only for callbacks of the application. One thread
 *    (`dispatching`) runs what is due, in the order in which it fell due. One
 *    thread (`fetching`) asks for memory. These may be two threads. They also
 *    do what comes up meanwhile.
 *  - A thread inside a callback does not lead, and waits for nothing. */
#ifndef TMSG_AM_WORKER_LEAD_H
#define TMSG_AM_WORKER_LEAD_H

#include <stdbool.h>

#include "am/worker/worker.h"

/* Begins a call that drives the worker or waits: takes the lock.
 * tmsg_worker_leave() ends the call and gives the lock back; if the call
 * `stirred` anything, threads that sleep are woken. If the worker was destroyed
 * inside a callback, the last call that leaves frees it. */
void tmsg_worker_enter(tmsg_worker_t *worker);

/* Begins a call as tmsg_worker_enter() does, but returns without the lock. The
 * caller takes the lock to leave. */
void tmsg_worker_stay(tmsg_worker_t *worker);

void tmsg_worker_leave(tmsg_worker_t *worker, bool stirred);

/* Gives the lock back without waking a thread that sleeps on the worker. */
void tmsg_worker_unlock_quietly(tmsg_worker_t *worker);

/* Drives the worker until done(arg), at least once. The caller has entered.
 * Errors: TIMED_OUT (the message is `missing` and then `of`, such as "no
 * message from " and a peer's name), WOULD_BLOCK (inside a callback), CLOSED
 * (the worker was destroyed). */
tmsg_status_t tmsg_worker_until(tmsg_worker_t *worker, bool (*done)(void *arg),
                                void *arg, int timeout_ms, const char *missing,
                                const char *of);

/* Waits until every call has left a worker that is ending. Lock held. */
void tmsg_worker_await_leaving(tmsg_worker_t *worker);

/* Runs the callbacks that are due. Lock held; it is released for each callback.
 * Returns how many callbacks ran. */
unsigned tmsg_worker_dispatch(tmsg_worker_t *worker);

/* Lies on the stack of a thread that calls the application. */
typedef struct tmsg_callback {
    tmsg_worker_t *worker;
    const struct tmsg_callback *outer;
    const void *context; /* the thread's context outside the callback */
} tmsg_callback_t;

/* These work on the context of the calling thread, a pointer that the thread
 * takes with it into what it calls. Callbacks that the thread runs while it
 * waits begin with NULL and leave the thread's context as it was.
 * tmsg_thread_set_context() returns the context before the call. */
const void *tmsg_thread_context(void);
const void *tmsg_thread_set_context(const void *now);
void tmsg_thread_clear_context(void);

/* These two begin and end a callback of the application. Lock held at each
 * call; the caller may release it in between. The thread gives up the lead, so
 * that another thread leads meanwhile. */
void tmsg_callback_enter(tmsg_callback_t *callback, tmsg_worker_t *worker);
void tmsg_callback_leave(const tmsg_callback_t *callback);

/* Returns whether this thread is inside a callback of the worker. */
bool tmsg_worker_in_callback(const tmsg_worker_t *worker);

/* Runs the worker's own thread. `arg` is the worker. */
void *tmsg_worker_run(void *arg);

#endif
