/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/deferred.h - UCX workers whose close is deferred: nobody works with
 * them any more, but a peer that does not hang up may still write to their
 * memory.
 *
 * Each of them holds 9 to 20 descriptors, and the peer alone decides how long.
 * So the whole process has bounds for them. While a bound is reached, no peer
 * that has no shared memory yet is given any. Any thread that opens or closes
 * another UCX worker closes those whose peers have hung up. */
#ifndef TMSG_AM_UCX_DEFERRED_H
#define TMSG_AM_UCX_DEFERRED_H

#include "am/ucx/ucx.h"

/* Defers the close of a UCX worker. Takes over the hold that its worker had.
 * Any thread. */
void tmsg_deferred_take(tmsg_ucx_t *ucx);

/* Closes the deferred UCX workers whose peers have hung up. Outside UCX. */
void tmsg_deferred_sweep(void);

/* Returns whether no more closes can be deferred. Also counts the UCX workers
 * of this worker, whose first is `first`, whose close will have to be deferred.
 * Lock held, outside UCX. */
bool tmsg_deferred_is_full(const tmsg_ucx_t *first);

#endif
