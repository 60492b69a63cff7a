/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/accept.h - peers that come to a listener, until they belong to the
 * application. */
#ifndef TMSG_AM_LISTEN_ACCEPT_H
#define TMSG_AM_LISTEN_ACCEPT_H

#include "am/listen/listener.h"

/* Begins to accept connections at the listener's socket, from peers that need
 * UCX for `scope`. Lock held. Errors: NO_MEMORY, IO, and what keeps UCX from
 * opening. */
tmsg_status_t tmsg_accept_begin(tmsg_listener_t *listener,
                                const tmsg_ucx_scope_t *scope);

/* Handle an accepted endpoint that has connected, or that has ended. Lock
 * held. */
void tmsg_accept_connected(tmsg_endpoint_t *endpoint);
void tmsg_accept_ended(tmsg_endpoint_t *endpoint);

/* Returns whether as many handshakes are under way as are allowed. Lock
 * held. */
bool tmsg_accept_is_full(const tmsg_listener_t *listener);

/* Makes room for one more handshake: if there are too many, one that does not
 * get on makes way (places.h). False: there are too many, and none makes way.
 * Lock held. */
bool tmsg_accept_make_room(tmsg_listener_t *listener);

#endif
