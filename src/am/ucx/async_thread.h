/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/async_thread.h - UCX's own thread, and one in its place.
 *
 * UCX has one thread in a process (ucs/async/thread.c). It accepts connections
 * by TCP and wakes workers. It waits for a set of descriptors, and looks up in
 * a table which function to call.
 *
 * The child of a fork() does not have the thread, but UCX takes it for running.
 * The set is the parent's: what the child adds would wake the parent's thread,
 * which does not know it and spins. So the child gets a new set with the same
 * number, an empty table, and a thread of this library. */
#ifndef TMSG_AM_UCX_ASYNC_THREAD_H
#define TMSG_AM_UCX_ASYNC_THREAD_H

#include <tensormsg/status.h>

/* Keeps UCX's thread running, and finds its set, until
 * tmsg_async_thread_drop(). */
void tmsg_async_thread_hold(void);
void tmsg_async_thread_drop(void);

/* Makes set and table new. In the child of a fork(), where the parent held the
 * thread. Touches no descriptor if the program has closed the set. Returns
 * NULL, or why it could not, in words. */
const char *tmsg_async_thread_renew(void);

/* Starts this library's thread, if it does not run in this process. After
 * tmsg_async_thread_renew(). Errors: UNSUPPORTED (the program has closed the
 * set), IO. */
tmsg_status_t tmsg_async_thread_start(void);

#endif
