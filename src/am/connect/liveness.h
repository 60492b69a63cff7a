/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/liveness.h - peers that give no sign of life, and paths to them
 * (paths.h) that give none. */
#ifndef TMSG_AM_CONNECT_LIVENESS_H
#define TMSG_AM_CONNECT_LIVENESS_H

#include "am/endpoint/endpoint.h"

/* Begins heartbeats, once each side has the other's address. From here on they
 * travel both ways, if both sides want them, and silence ends the endpoint.
 * Errors: IO, UNSUPPORTED. */
tmsg_status_t tmsg_liveness_begin(tmsg_endpoint_t *endpoint);

/* Begins to look at the paths of an endpoint that has opened. Lock held. */
void tmsg_liveness_opened(tmsg_endpoint_t *endpoint);

/* Delays the next heartbeat after a FIN. The FIN may be the last word, on which
 * the peer closes its socket. A heartbeat behind it would find the socket
 * closed, and the reset can overtake the peer's own last word. */
void tmsg_liveness_after_fin(tmsg_endpoint_t *endpoint);

/* Ends heartbeats, before the socket is closed. */
void tmsg_liveness_end(tmsg_endpoint_t *endpoint);

#endif
