/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/paths.h - whether each path by which an endpoint's bytes travel
 * still carries them: UCX's TCP connections, the lane, rings and boxes. Each
 * can fail by itself while heartbeats go on over the bootstrap socket. The
 * rules are docs/connection.md, "Paths". */
#ifndef TMSG_AM_CONNECT_PATHS_H
#define TMSG_AM_CONNECT_PATHS_H

#include "am/endpoint/endpoint.h"

/* Lock held: the endpoint has opened. */
void tmsg_paths_begin(tmsg_endpoint_t *endpoint);

/* Whether it has paths that are to be looked at now and then. */
bool tmsg_paths_are_watched(const tmsg_endpoint_t *endpoint);

/* Lock held, outside UCX: looks at them. Ends the endpoint where one has not
 * been acknowledged for `most_ns`, or has shared memory that somebody else
 * wrote to. Gives the time until the next look. `lives`: the peer has given a
 * sign of life lately, or is not asked for any. */
uint64_t tmsg_paths_look(tmsg_endpoint_t *endpoint, uint64_t most_ns,
                         bool lives);

/* Lock held: for how long what waits on a path has not been acknowledged,
 * though it was sent again; 0: nothing waits so. */
uint64_t tmsg_paths_unacked_ns(const tmsg_endpoint_t *endpoint);

#endif
