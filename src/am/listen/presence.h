/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/presence.h - tells the application of a listener who is there.
 *
 * A listener with on_peer or on_lost tells of an endpoint from when that has
 * connected until it has ended, whoever owns the endpoint meanwhile. Lock held,
 * for all functions here. */
#ifndef TMSG_AM_LISTEN_PRESENCE_H
#define TMSG_AM_LISTEN_PRESENCE_H

#include "am/listen/listener.h"

/* Handles an accepted endpoint that has connected for the first time. */
void tmsg_presence_began(tmsg_listener_t *listener, tmsg_endpoint_t *endpoint);

/* Handles an endpoint that has ended. */
void tmsg_presence_ended(tmsg_endpoint_t *endpoint);

/* Handles the end of a listener: it tells of nobody any more. */
void tmsg_presence_forget(tmsg_listener_t *listener);

#endif
