/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/deferred.h - UCX workers that nobody works with any more, and that
 * cannot be closed yet: a peer that does not hang up may still write to their
 * memory.
 *
 * Each parked UCX worker holds 9 to 20 descriptors, and the peer alone decides
 * how long. So the whole process has bounds for them. While a bound is reached,
 * no peer that has no shared memory yet is given any. Parked UCX workers are
 * closed when their peers have hung up, by any thread that opens or closes
 * another UCX worker. */
#ifndef TMSG_AM_UCX_DEFERRED_H
#define TMSG_AM_UCX_DEFERRED_H

#include "am/ucx/ucx.h"

/* Parks a UCX worker. Takes over the hold that its worker had. */
void tmsg_deferred_take(tmsg_ucx_t *ucx);

/* Closes the parked UCX workers whose peers have hung up. Outside UCX. */
void tmsg_deferred_sweep(void);

/* Returns whether no more can be parked. Also counts the UCX workers of this
 * worker, whose first is `first`, that will have to be parked. Lock held,
 * outside UCX. */
bool tmsg_deferred_is_full(const tmsg_ucx_t *first);

#endif
