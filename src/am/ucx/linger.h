/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/linger.h - the sockets of connections that this side gave up.
 *
 * Peers find our shared memory by /proc/<pid>/fd/<number> when they first need
 * it. A closed UCX worker frees its descriptor numbers. A peer that does not
 * know of this yet would write into whatever file got such a number. So a UCX
 * worker that gave connections up stays open until the peers have hung up,
 * too. */
#ifndef TMSG_AM_UCX_LINGER_H
#define TMSG_AM_UCX_LINGER_H

#include "am/ucx/ucx.h"

/* Shuts a bootstrap socket down and keeps it until the peer has hung up. Takes
 * ownership of the socket. `asking`: UCX has asked the peer for its endpoint
 * and has no answer yet. The peer's UCX will still answer, and the peer may
 * have hung up before it saw the question. So such a socket is kept for all of
 * the 250 ms below. */
void tmsg_linger_begin(tmsg_ucx_t *ucx, int fd, bool asking);

/* Returns whether each such peer has hung up, or has had its 250 ms. */
bool tmsg_linger_over(const tmsg_ucx_t *ucx);

/* Returns whether a peer has had its 250 ms and has not hung up. The UCX worker
 * must not be closed then. Looks at the sockets to find out; nobody else may
 * use the UCX worker meanwhile. */
bool tmsg_linger_is_late(tmsg_ucx_t *ucx);

/* Returns the number of such late peers in the whole process. */
unsigned tmsg_linger_count_late(void);

/* Waits until tmsg_linger_over(). Lock held, by the only user that is left. */
void tmsg_linger_await(tmsg_ucx_t *ucx);

#endif
