/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/paths.h - whether each path by which an endpoint's bytes travel
 * still carries them: UCX's TCP connections, the bulk stream, rings and fast
 * boxes. Each path can fail by itself while heartbeats go on over the bootstrap
 * socket. docs/wire/connection.md has the rules, "Paths". */
#ifndef TMSG_AM_CONNECT_PATHS_H
#define TMSG_AM_CONNECT_PATHS_H

#include "am/endpoint/endpoint.h"

/* Prepares the paths of an endpoint that has opened for being watched. Lock
 * held. */
void tmsg_paths_begin(tmsg_endpoint_t *endpoint);

/* Returns whether the endpoint has paths that are to be looked at from time to
 * time. */
bool tmsg_paths_are_watched(const tmsg_endpoint_t *endpoint);

/* Looks at the paths. Lock held, outside UCX. Ends the endpoint if nothing was
 * acknowledged on a path for `most_ns`, or if somebody else wrote to its shared
 * memory. A silent bulk stream may be given up alone (tmsg_bulk_give_up()).
 * Returns the time until the next look. `lives`: the peer has given a sign of
 * life lately, or is not asked for any. */
uint64_t tmsg_paths_look(tmsg_endpoint_t *endpoint, uint64_t most_ns,
                         bool lives);

/* Returns for how long what waits on a path has not been acknowledged, though
 * it was sent again. 0: nothing waits in this way. Lock held. */
uint64_t tmsg_paths_unacked_ns(const tmsg_endpoint_t *endpoint);

#endif
