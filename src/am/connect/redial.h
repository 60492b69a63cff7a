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
 * it (places.h), is dialled anew, too: after a while, as often as it takes. So
 * is one that meets nobody, if the application waits until somebody listens. */
#ifndef TMSG_AM_CONNECT_REDIAL_H
#define TMSG_AM_CONNECT_REDIAL_H

#include "am/endpoint/endpoint.h"

/* Dials again instead of ending the endpoint, if UCX alone failed, if the
 * listener had no place, or if nobody listens and that is waited for. True: the
 * endpoint does not end; it is away and dials again. */
bool tmsg_redial_catches(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *why);

/* Returns whether an attempt to connect that ends so has met nobody, so that a
 * later one may succeed: nobody listens there, the name of the host is not
 * known, or the listener has gone. False: somebody has said why not, or this
 * side lacks something. */
bool tmsg_redial_met_nobody(const tmsg_endpoint_t *endpoint,
                            tmsg_status_t status);

/* Has the endpoint wait until somebody listens. It dials for the first time
 * after this. Returns how long the first attempt may take; timeout_ms of -1: no
 * limit of all of them. */
int tmsg_redial_await(tmsg_endpoint_t *endpoint, int timeout_ms);

/* Ends the endpoint with what the last attempt met, if the time is up in which
 * somebody had to listen. */
bool tmsg_redial_waited_in_vain(tmsg_endpoint_t *endpoint);

/* Ends the wait for a listener: the connection stands. */
void tmsg_redial_over(tmsg_endpoint_t *endpoint);

/* Returns words about the wait for a listener, "" if there is none, which are
 * valid until this thread calls this again. */
const char *tmsg_redial_words(const tmsg_endpoint_t *endpoint);

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

/* Begins the words for an end before the connection stood: for how long nobody
 * listened, if that was waited for. Returns the length, as snprintf(). */
size_t tmsg_redial_lead(const tmsg_endpoint_t *endpoint, tmsg_status_t status,
                        char *text, size_t bytes);

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
