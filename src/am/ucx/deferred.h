/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/deferred.h - UCX workers whose close is deferred: nobody works with
 * them any more, but a peer that has not hung up may still write to their
 * memory.
 *
 * One thread of the process looks after those whose peers have time left to
 * hang up (linger.h). It begins with the first of them and ends with the last,
 * naps between its looks, and logs one line about all peers that do not hang
 * up. So nobody who gives up a peer waits for it. exit() and fork() wait until
 * that time is over for all of them, but not longer.
 *
 * After that any thread that opens or closes another UCX worker closes those
 * whose peers have hung up meanwhile. Each UCX worker holds 9 to 20
 * descriptors, and the peer alone decides how long. So the whole process has
 * bounds for them. While a bound is reached, no peer that has no shared memory
 * yet is given any. */
#ifndef TMSG_AM_UCX_DEFERRED_H
#define TMSG_AM_UCX_DEFERRED_H

#include "am/ucx/ucx.h"

/* Defers the close of a UCX worker. Takes over the hold that its worker had.
 * Any thread. */
void tmsg_deferred_take(tmsg_ucx_t *ucx);

/* Returns how long a caller should wait for the peers of a UCX worker itself
 * before it defers the close. This is short, and nothing while the process
 * waits for other peers already. UINT64_MAX: too many closes are deferred. */
uint64_t tmsg_deferred_patience_ns(void);

/* Closes the deferred UCX workers whose peers have hung up. Outside UCX. */
void tmsg_deferred_sweep(void);

/* Returns whether the peers of a deferred UCX worker have time left. */
bool tmsg_deferred_is_waiting(void);

/* Returns whether no more closes can be deferred for peers that do not hang up.
 * Also counts the UCX workers of this worker, whose first is `first`, whose
 * close will have to be deferred. Lock held, outside UCX. */
bool tmsg_deferred_is_full(const tmsg_ucx_t *first);

#endif
