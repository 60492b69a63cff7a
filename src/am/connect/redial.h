/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/redial.h - a connection that UCX fails to make is dialled anew, in
 * the time that is left for it.
 *
 * The peer is there, and said its hello, but UCX gave its endpoint up at either
 * side, before the KNOCK was answered: so it is with TCP where both close and
 * connect at once, each reusing what the other is ending. Neither application
 * has seen the connection. The two sides tell their UCX endpoints apart by
 * number (pair.h), so that one of them cannot be made again by itself. */
#ifndef TMSG_AM_CONNECT_REDIAL_H
#define TMSG_AM_CONNECT_REDIAL_H

#include "am/endpoint/endpoint.h"

/* The endpoint is to end. True: it is away instead, and dials again. */
bool tmsg_redial_catches(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *why);

/* Half of the time for it has passed. True: UCX was to answer, and it dials
 * again: at the peer it may have given up without a word (UCX 1.22 over TCP, of
 * connections that cross). */
bool tmsg_redial_halfway(tmsg_endpoint_t *endpoint, const char *why);

/* Writes why it was dialled anew, if it was. */
void tmsg_redial_explain(const tmsg_endpoint_t *endpoint, char *text,
                         size_t bytes);

/* Lock held, outside UCX: such an endpoint has nothing in UCX any more. */
void tmsg_redial_settled(tmsg_endpoint_t *endpoint);

/* The hello of another attempt, before it takes the place of the first. Errors:
 * PEER_LOST (it is another process's). */
tmsg_status_t tmsg_redial_recognize(const tmsg_endpoint_t *endpoint,
                                    const tmsg_hello_t *theirs);

#endif
