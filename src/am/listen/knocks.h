/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/knocks.h - peers that have knocked by blob and wait for a place.
 *
 * While a listener has as many handshakes as it may, peers that come by socket
 * wait in the kernel's queue. There is no such queue by blob, so the knocks
 * themselves wait here, without a UCX endpoint. As many may wait as in that
 * queue. */
#ifndef TMSG_AM_LISTEN_KNOCKS_H
#define TMSG_AM_LISTEN_KNOCKS_H

#include "am/endpoint/kinds.h"
#include "am/listen/listener.h"

/* Copies a knock, which is heard when its turn comes. False: too many wait, or
 * there is no memory. Lock held. */
bool tmsg_knocks_keep(tmsg_listener_t *listener, const tmsg_arrival_t *arrival);

/* Hears the next knocks soon, because a place is free. Lock held. */
void tmsg_knocks_call(tmsg_listener_t *listener);

/* Forgets all knocks. Lock held. */
void tmsg_knocks_free(tmsg_listener_t *listener);

#endif
