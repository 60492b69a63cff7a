/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/ping.h - how long it takes to the peer's library and back. */
#ifndef TMSG_AM_CONNECT_PING_H
#define TMSG_AM_CONNECT_PING_H

#include "am/endpoint/endpoint.h"
#include "am/endpoint/kinds.h"

/* The connection is gone, and the answer with it, but not the endpoint. */
void tmsg_ping_lost(tmsg_endpoint_t *endpoint, const char *why);

/* The endpoint has ended. */
void tmsg_ping_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                   const char *error);

#endif
