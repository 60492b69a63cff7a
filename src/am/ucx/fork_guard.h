/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/fork_guard.h - whether UCX works in this process.
 *
 * UCX's own thread receives a worker's first message by shared memory, and
 * connections by TCP. The child of a fork() does not have that thread. But if a
 * UCX worker was open in the parent, UCX takes the thread for running in the
 * child. The descriptors of the child's workers then join those that the
 * parent's thread waits for: that thread spins, and the child receives nothing.
 * UCX works in a child whose parent had closed all UCX workers. */
#ifndef TMSG_AM_UCX_FORK_GUARD_H
#define TMSG_AM_UCX_FORK_GUARD_H

#include <tensormsg/status.h>

/* Checks that this process was not forked from one in which UCX was open.
 * Errors: UNSUPPORTED. */
tmsg_status_t tmsg_fork_guard_check(void);

/* Checks that UCX can start in this process: also that its first thread lives
 * (first_thread.h). Errors: UNSUPPORTED. */
tmsg_status_t tmsg_fork_guard_check_start(void);

/* Does tmsg_fork_guard_check_start() before a UCX worker is opened. On OK one
 * more UCX worker counts as open, until tmsg_fork_guard_leave(). The caller
 * calls that when the UCX worker is destroyed, or could not be opened. */
tmsg_status_t tmsg_fork_guard_enter(void);
void tmsg_fork_guard_leave(void);

#endif
