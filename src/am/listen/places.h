/* SPDX-License-Identifier: BSD-3-Clause */
/* am/listen/places.h - who holds the places of a listener, and who makes way.
 *
 * A listener has `max_handshakes` places for connections in their handshake.
 * If none is free, one of them makes way for the next connection:
 *
 * - A connection without a whole hello is left alone for TMSG_PLACE_SILENT_MS,
 *   or for TMSG_PLACE_SPOKEN_MS if at most a quarter of the places is held by
 *   such connections.
 * - A connection with a hello is left alone for TMSG_PLACE_SPOKEN_MS from then
 *   on, and makes way only if there is none without a hello that does.
 * - A connection that has proved its key does not make way. Without keys, a
 *   connection that has sent its address is left alone for TMSG_PLACE_FOUND_MS
 *   from then on, in which UCX connects, and makes way after all others: a
 *   right address may name a port that does not answer.
 * - Of several, it is one of the origin that holds the most places; of these
 *   the oldest. So one origin does not fill the places while there are others.
 *
 * Bytes that are no whole frame count for nothing. These times bound how fast
 * strangers that come back at once can pass through the places. They are longer
 * than an honest peer needs, and so short that a thousand strangers pass in
 * half a second. Lock held, for all functions here. */
#ifndef TMSG_AM_LISTEN_PLACES_H
#define TMSG_AM_LISTEN_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>

#include "am/listen/listener.h"

#define TMSG_PLACE_SILENT_MS 10
#define TMSG_PLACE_SPOKEN_MS 50
#define TMSG_PLACE_FOUND_MS 500

/* Gives an endpoint one of the places, and takes it back. `fd` is the socket by
 * which the peer came; -1: it came by UCX. tmsg_places_leave() does nothing for
 * an endpoint without a place. */
void tmsg_places_take(tmsg_listener_t *listener, tmsg_endpoint_t *endpoint,
                      int fd);
void tmsg_places_leave(tmsg_listener_t *listener, tmsg_endpoint_t *endpoint);

/* Returns the endpoint that makes way at the time `now_ns`. NULL: none does;
 * *wait_ns_p says how long to wait before it is asked again,
 * UINT64_MAX: until a place is free. */
tmsg_endpoint_t *tmsg_places_choose(const tmsg_listener_t *listener,
                                    uint64_t now_ns, uint64_t *wait_ns_p);

/* Returns whether an endpoint that was chosen may still be made to go: it may
 * have said something since. */
bool tmsg_places_may_go(const tmsg_endpoint_t *endpoint);

/* Frees what the places of a listener hold. */
void tmsg_places_free(tmsg_listener_t *listener);

#endif
