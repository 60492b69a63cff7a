/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/ping.h - how long it takes to the peer's library and back. */
#ifndef TMSG_AM_CONNECT_PING_H
#define TMSG_AM_CONNECT_PING_H

#include "am/endpoint/endpoint.h"
#include "am/endpoint/kinds.h"

tmsg_ucx_status_t tmsg_ping_arrived(const tmsg_arrival_t *arrival);
tmsg_ucx_status_t tmsg_pong_arrived(const tmsg_arrival_t *arrival);

/* The connection is gone, and the answer with it, but not the endpoint. */
void tmsg_ping_lost(tmsg_endpoint_t *endpoint, const char *why);

#endif
