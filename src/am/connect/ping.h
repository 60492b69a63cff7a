/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/ping.h - the time that a message takes to the peer's library and
 * back. */
#ifndef TMSG_AM_CONNECT_PING_H
#define TMSG_AM_CONNECT_PING_H

#include "am/endpoint/endpoint.h"
#include "am/endpoint/kinds.h"

/* Ends the pings with PEER_LOST: the connection is gone, and the answer with
 * it, but the endpoint lives on. */
void tmsg_ping_lost(tmsg_endpoint_t *endpoint, const char *why);

/* Ends the pings, because the endpoint has ended. */
void tmsg_ping_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                   const char *error);

#endif
