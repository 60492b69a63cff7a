/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/fork_guard.h - whether UCX works in this process.
 *
 * The child of a fork() may open UCX workers of its own; those of its parent
 * stay the parent's. If one was open in the parent, the child needs a thread in
 * place of UCX's (async_thread.h). The child is refused where that is not
 * possible, and where fork() came while another thread opened or closed a UCX
 * worker: locks of UCX would stay locked in the child. */
#ifndef TMSG_AM_UCX_FORK_GUARD_H
#define TMSG_AM_UCX_FORK_GUARD_H

#include <stdbool.h>

#include <tensormsg/status.h>

/* Returns whether this is the child of a fork(), and UCX was opened before
 * that, if only once: a thread of it may have been in its memory hooks, as at
 * its end, and left a lock behind. */
bool tmsg_fork_guard_inherits(void);

/* Checks that UCX works in this process. Errors: UNSUPPORTED. */
tmsg_status_t tmsg_fork_guard_check(void);

/* The same, and that UCX can start: that the first thread of the process lives
 * (first_thread.h). Errors: UNSUPPORTED. */
tmsg_status_t tmsg_fork_guard_check_start(void);

/* Around each opening and each closing of UCX: fork() waits for the end, 1 s at
 * most. */
void tmsg_fork_guard_begin(void);
void tmsg_fork_guard_end(void);

/* Does tmsg_fork_guard_check_start() before UCX is opened. On OK it counts as
 * open once more, until tmsg_fork_guard_leave(). Both come between
 * tmsg_fork_guard_begin() and tmsg_fork_guard_end(). Errors: UNSUPPORTED, IO.
 */
tmsg_status_t tmsg_fork_guard_enter(void);
void tmsg_fork_guard_leave(void);

#endif
