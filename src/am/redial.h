/* SPDX-License-Identifier: BSD-3-Clause */
/* am/redial.h - a connection that UCX fails to make is dialled anew, in the
 * time that is left for it.
 *
 * The peer is there, and said its hello, but UCX gave its endpoint up at either
 * side: so it is with TCP where both close and connect at once, each reusing
 * what the other is ending. Neither application has seen the connection. The
 * two sides tell their UCX endpoints apart by number (pair.h), so that one of
 * them cannot be made again by itself. */
#ifndef TMSG_AM_REDIAL_H
#define TMSG_AM_REDIAL_H

#include "am/endpoint.h"

/* The endpoint is to end. True: it is away instead, until tmsg_redial(). */
bool tmsg_redial_catches(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *why);

/* Lock held, outside UCX: an endpoint that is away so has nothing in UCX. */
void tmsg_redial(tmsg_endpoint_t *endpoint);

#endif
