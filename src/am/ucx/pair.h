/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/pair.h - UCX endpoints by number.
 *
 * UCX pairs the endpoints between two UCX workers by the order in which each
 * side made them: the n-th of one with the n-th of the other, given up or not.
 * So the dialling side says which one it made, and the dialled side makes that
 * of the same number. */
#ifndef TMSG_AM_UCX_PAIR_H
#define TMSG_AM_UCX_PAIR_H

#include <tensormsg/endpoint.h>

#include "am/ucx/ucx.h"

/* Makes the next UCX endpoint to the UCX worker `peer` (its ucx_id), whose
 * address is aligned as malloc() does. Errors: UNREACHABLE, PEER_LOST (its
 * shared memory cannot be opened), INTERNAL, NO_MEMORY. `sockets` gets those
 * below it. */
tmsg_status_t tmsg_pair_make(tmsg_ucx_t *ucx, uint64_t peer,
                             const void *address, tmsg_ucx_ep_t *ep_p,
                             tmsg_sockets_t *sockets, uint32_t *number_p);

/* Makes the UCX endpoint of that number. Those that have to be made before it
 * are kept for the connections that will ask for them. Errors: as above, and
 * BUSY: too many are missing. */
tmsg_status_t tmsg_pair_match(tmsg_ucx_t *ucx, uint64_t peer,
                              const void *address, uint32_t number,
                              tmsg_ucx_ep_t *ep_p, tmsg_sockets_t *sockets);

/* A UCX endpoint whose connection was given up before the peer's had its
 * acquaintance: it is kept for that, since UCX would make another, and abort if
 * the peer goes away before that is connected. What is kept stays until the UCX
 * worker goes: over TCP it may share its socket with a live endpoint. */
void tmsg_pair_keep(tmsg_ucx_t *ucx, uint64_t peer, uint32_t number,
                    tmsg_ucx_ep_t ep, const tmsg_sockets_t *sockets);

void tmsg_pairs_free(tmsg_ucx_t *ucx);

#endif
