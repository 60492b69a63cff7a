/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/park.h - UCX workers that nobody works with any more, and that cannot
 * be closed yet: a peer that does not hang up may still write to their memory.
 *
 * Each holds 9 to 20 descriptors, whoever made it, and a peer alone decides how
 * long. So there are bounds, of the whole process, and while one of them is
 * reached no peer is given shared memory that has none yet. They are closed, in
 * any thread that opens or closes another one, when their peers have hung up.
 */
#ifndef TMSG_AM_UCX_PARK_H
#define TMSG_AM_UCX_PARK_H

#include "am/ucx/ucx.h"

/* Takes over what its worker held. */
void tmsg_park(tmsg_ucx_t *ucx);

/* Outside UCX: closes those that can be. */
void tmsg_park_sweep(void);

/* Lock held, outside UCX: whether no more can be taken, with those of this
 * worker, whose first is `first`, that are on their way here. */
bool tmsg_park_is_full(const tmsg_ucx_t *first);

#endif
