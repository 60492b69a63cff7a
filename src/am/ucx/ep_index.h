/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ep_index.h - UCX endpoints by their endpoint index.
 *
 * UCX pairs the endpoints between two UCX workers by the order in which each
 * side made them. The n-th of one side is paired with the n-th of the other,
 * even if one was given up. This number, from 0, is the endpoint index. The
 * dialling side tells the index of the endpoint that it made, and the dialled
 * side makes the one with the same index. */
#ifndef TMSG_AM_UCX_EP_INDEX_H
#define TMSG_AM_UCX_EP_INDEX_H

#include <tensormsg/endpoint.h>

#include "am/ucx/peer_address.h"
#include "am/ucx/ucx.h"

/* Makes the next UCX endpoint to the UCX worker `peer` (its ucx_id). `sockets`
 * gets the TCP sockets below the endpoint, *number_p its number. Errors:
 * UNREACHABLE, PEER_LOST (its shared memory cannot be opened), BUSY (another
 * peer had this id or address, UCX has no room for another kind of endpoint, or
 * it has met too many peers), INTERNAL, NO_MEMORY. */
tmsg_status_t tmsg_ep_index_make(tmsg_ucx_t *ucx, uint64_t peer,
                                 const tmsg_peer_address_t *address,
                                 tmsg_ucx_ep_t *ep_p,
                                 tmsg_ep_sockets_t *sockets,
                                 uint32_t *number_p);

/* Makes the UCX endpoint of that number. Endpoints that have to be made before
 * it are kept for the connections that will ask for them. Errors: those of
 * tmsg_ep_index_make(), MALFORMED (the number was used before), BUSY (too many
 * are missing). */
tmsg_status_t tmsg_ep_index_match(tmsg_ucx_t *ucx, uint64_t peer,
                                  const tmsg_peer_address_t *address,
                                  uint32_t number, tmsg_ucx_ep_t *ep_p,
                                  tmsg_ep_sockets_t *sockets);

/* Keeps a UCX endpoint whose connection was given up before the peer asked for
 * it. The peer's next connection gets it by its number. Otherwise UCX would
 * make another one, and abort if the peer goes away before that is connected. A
 * kept endpoint stays until the UCX worker is destroyed: over TCP it may share
 * its socket with a live endpoint. If too many are kept, the endpoint is closed
 * instead. */
void tmsg_ep_index_keep(tmsg_ucx_t *ucx, uint64_t peer, uint32_t number,
                        tmsg_ucx_ep_t ep, const tmsg_ep_sockets_t *sockets);

void tmsg_ep_index_free(tmsg_ucx_t *ucx);

#endif
