/* SPDX-License-Identifier: BSD-3-Clause */
/* events.h - what happens to sessions, peers and messages, until Go takes it.
 */
#ifndef TENSORMSG_GO_EVENTS_H
#define TENSORMSG_GO_EVENTS_H

#include "hub.h"

/* Events, the `most` newest of them. It is a thing of TMSGGO_LENT, whose wait
 * is over when there is an event. NULL: no memory. */
tmsggo_events_t *tmsggo_events_create(size_t most);
void tmsggo_events_destroy(tmsggo_events_t *events);

/* Has the endpoint tell of its session, and of its end, by its user's word. */
void tmsggo_events_of_session(tmsggo_events_t *events,
                              tmsg_endpoint_t *endpoint);

/* Has a listener tell of its peers. */
void tmsggo_events_of_peers(tmsggo_events_t *events,
                            tmsg_listener_params_t *params);

/* Has a worker tell of messages that could not be delivered. */
void tmsggo_events_of_refused(tmsggo_events_t *events,
                              tmsg_worker_params_t *params);

#endif
