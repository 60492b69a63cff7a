/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/fail.h - notes why a connection has failed. The next step of its
 * worker ends it. Lock held, for all functions here. */
#ifndef TMSG_AM_ENDPOINT_FAIL_H
#define TMSG_AM_ENDPOINT_FAIL_H

#include "am/endpoint/endpoint.h"

/* Notes that the connection has failed. The endpoint's next chores end it with
 * this status and text. May be inside UCX. */
void tmsg_endpoint_break(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                         const char *error);

/* Breaks a connection that UCX calls lost, unless the socket says in time why
 * it ended. */
void tmsg_endpoint_lose(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs);

/* Breaks a connection whose stream of messages is lost, unless the socket says
 * in time why it ended. May be inside UCX. */
void tmsg_endpoint_lose_stream(tmsg_endpoint_t *endpoint, const char *why);

/* Breaks a connection whose bulk stream is lost, unless the socket says in time
 * why it ended. Outside UCX. */
void tmsg_endpoint_lose_bulk(tmsg_endpoint_t *endpoint, const char *why);

/* Breaks a connection for which UCX did not take a message, for whatever
 * reason. A loss is handled as tmsg_endpoint_lose() does. */
void tmsg_endpoint_unsent(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs);

/* Stops waiting for the peer's last words: the connection is cut. */
void tmsg_endpoint_forget_loss(tmsg_endpoint_t *endpoint);

#endif
