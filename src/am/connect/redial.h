/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/redial.h - a connection that UCX fails to make is dialled anew, in
 * the time that is left for it.
 *
 * In this case the peer is there, and has sent its hello, but UCX gave its
 * endpoint up on either side before the CONNECT_REQUEST was answered. This
 * happens over TCP if both sides close and connect at once, and each reuses
 * what the other is ending. Neither application has seen the connection. The
 * two sides tell their UCX endpoints apart by number (ep_index.h), so one of
 * them cannot be made again by itself.
 *
 * A connection that a listener has refused as BUSY, because it had no place for
 * it (places.h), is dialled anew, too: after a while, as often as it takes. */
#ifndef TMSG_AM_CONNECT_REDIAL_H
#define TMSG_AM_CONNECT_REDIAL_H

#include "am/endpoint/endpoint.h"

/* Dials again instead of ending the endpoint, if UCX alone failed, or if the
 * listener had no place. True: the endpoint does not end; it is away and dials
 * again. */
bool tmsg_redial_catches(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *why);

/* Returns how long to wait before the next attempt, in milliseconds: twice as
 * long with each attempt, at most `most_ms`, and less by up to a half at
 * random, so that those who failed together do not come back together. */
uint64_t tmsg_redial_pause_ms(uint32_t first_ms, uint32_t most_ms,
                              unsigned attempts);

/* Returns whether the last that the listener said is that it had no place. */
bool tmsg_redial_found_no_place(const tmsg_endpoint_t *endpoint);

/* Dials again if UCX has not answered when half of the time for the connection
 * has passed. True: the endpoint dials again. UCX at the peer may have given up
 * silently (UCX 1.22 over TCP, with connections that cross). */
bool tmsg_redial_halfway(tmsg_endpoint_t *endpoint, const char *why);

/* Writes why the endpoint was dialled anew, if it was. */
void tmsg_redial_explain(const tmsg_endpoint_t *endpoint, char *text,
                         size_t bytes);

/* Dials again, once UCX has nothing of the endpoint any more. Lock held,
 * outside UCX. */
void tmsg_redial_settled(tmsg_endpoint_t *endpoint);

/* Checks the hello of another attempt, before it replaces the first. Errors:
 * PEER_LOST (the hello is another process's). */
tmsg_status_t tmsg_redial_recognize(const tmsg_endpoint_t *endpoint,
                                    const tmsg_hello_t *theirs);

#endif
