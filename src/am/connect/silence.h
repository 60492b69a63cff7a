/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/silence.h - peers that give no sign of life, and paths to them
 * (paths.h) that do not. */
#ifndef TMSG_AM_CONNECT_SILENCE_H
#define TMSG_AM_CONNECT_SILENCE_H

#include "am/endpoint/endpoint.h"

/* The peer has our address, and we have its: from here on heartbeats travel
 * both ways, where both sides are for it, and silence ends the endpoint. */
tmsg_status_t tmsg_silence_begin(tmsg_endpoint_t *endpoint);

/* Lock held: it stands. From here on its paths are looked at. */
void tmsg_silence_opened(tmsg_endpoint_t *endpoint);

/* What was just said may be the last word, and the peer close on it: a
 * heartbeat behind it would find the socket closed, whose reset can overtake
 * the peer's own last word. So none follows at once. */
void tmsg_silence_after_fin(tmsg_endpoint_t *endpoint);

/* Before its socket goes. */
void tmsg_silence_end(tmsg_endpoint_t *endpoint);

#endif
