/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/forked.h - whether UCX works in this process.
 *
 * UCX's own thread hears a worker's first message by shared memory, and
 * connections by TCP. The child of a fork() does not have that thread but,
 * where a UCX worker was open, UCX takes it for running: what the child's
 * workers have to wait for joins what the parent's thread waits for, which
 * spins on it, and the child never hears. A child whose parent had closed them
 * all is well.
 */
#ifndef TMSG_AM_UCX_FORKED_H
#define TMSG_AM_UCX_FORKED_H

#include <tensormsg/status.h>

/* Errors: UNSUPPORTED. */
tmsg_status_t tmsg_forked_check(void);

/* The same, before a UCX worker is opened, which counts as open until it is
 * destroyed, or was not to be had. */
tmsg_status_t tmsg_forked_enter(void);
void tmsg_forked_leave(void);

#endif
