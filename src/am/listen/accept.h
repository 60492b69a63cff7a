/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/accept.h - those who come to a listener, until they are the
 * application's. */
#ifndef TMSG_AM_LISTEN_ACCEPT_H
#define TMSG_AM_LISTEN_ACCEPT_H

#include "am/listen/listener.h"

/* Lock held: the listener's socket is heard from now on, of those that need UCX
 * for `scope`. Errors: NO_MEMORY, IO, and what keeps UCX from opening. */
tmsg_status_t tmsg_accept_begin(tmsg_listener_t *listener,
                                const tmsg_ucx_scope_t *scope);

/* Lock held: an endpoint that it accepted has connected, or ended. */
void tmsg_accept_connected(tmsg_endpoint_t *endpoint);
void tmsg_accept_ended(tmsg_endpoint_t *endpoint);

/* Lock held: as many handshakes are under way as may be. */
bool tmsg_accept_is_full(const tmsg_listener_t *listener);

/* Lock held: has the oldest without a proof make way where there are too many.
 * False: there are, and nobody does. */
bool tmsg_accept_make_room(tmsg_listener_t *listener);

#endif
