/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/linger.h - the sockets of connections that this side gave up.
 *
 * Peers find our shared memory by /proc/<pid>/fd/<number> when they first need
 * it. A UCX worker that is closed frees its numbers, and a peer that has not
 * heard of it yet would write into whatever file has got them. So one that gave
 * connections up stays until their peers have hung up, too. */
#ifndef TMSG_AM_UCX_LINGER_H
#define TMSG_AM_UCX_LINGER_H

#include "am/ucx/ucx.h"

/* Shuts a bootstrap socket and keeps it until the peer has. Takes the socket.
 * `asking`: UCX has asked the peer's for its endpoint and heard nothing. It
 * will still answer, and the peer may have hung up before it saw that: such a
 * socket is kept for the 250 ms below. */
void tmsg_linger_begin(tmsg_ucx_t *ucx, int fd, bool asking);

/* Whether each such peer has hung up, or has had its 250 ms. */
bool tmsg_linger_over(const tmsg_ucx_t *ucx);

/* Whether one has had them and has not hung up, which it looks for: the UCX
 * worker must not be closed yet. Nobody else may use that meanwhile. */
bool tmsg_linger_is_late(tmsg_ucx_t *ucx);

/* The number of such peers, of the whole process. */
unsigned tmsg_linger_count_late(void);

/* Waits for it. Lock held, by the only one left. */
void tmsg_linger_await(tmsg_ucx_t *ucx);

#endif
