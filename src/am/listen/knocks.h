/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/knocks.h - peers that have knocked by blob and wait for a place.
 *
 * Who comes by socket while a listener has as many handshakes as it may waits
 * in the kernel's queue. By blob there is none, so the knocks themselves wait
 * here, without an endpoint of UCX's, as many as in that queue. */
#ifndef TMSG_AM_LISTEN_KNOCKS_H
#define TMSG_AM_LISTEN_KNOCKS_H

#include "am/endpoint/kinds.h"
#include "am/listen/listener.h"

/* Lock held: copies one, to be heard when its turn comes. False: too many wait,
 * or there is no memory. */
bool tmsg_knocks_keep(tmsg_listener_t *listener, const tmsg_arrival_t *arrival);

/* Lock held: a place is free: the next are heard soon. */
void tmsg_knocks_call(tmsg_listener_t *listener);

/* Lock held: forgets all. */
void tmsg_knocks_free(tmsg_listener_t *listener);

#endif
