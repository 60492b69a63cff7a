/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/carrier.h - what carries the messages of a connection: UCX, or a
 * stream of this library's own (pipe/pipe.h). docs/wire/connection.md has the
 * rules, "The stream carrier". Lock held, for all functions here. */
#ifndef TMSG_AM_CONNECT_CARRIER_H
#define TMSG_AM_CONNECT_CARRIER_H

#include "am/boot/hello.h"
#include "am/endpoint/endpoint.h"

/* Checks a value of TMSG_CARRIER_*, for an endpoint or listener named `what`,
 * by the scheme and devices that are asked for. Errors: INVALID_PARAM,
 * UNSUPPORTED. */
tmsg_status_t tmsg_carrier_check(const char *what, int32_t carrier,
                                 tmsg_url_kind_t kind, const char *devices);

/* Returns what a connection that names no carrier asks for: what the context
 * says, where a stream is possible. */
int32_t tmsg_carrier_usual(const tmsg_context_t *context, tmsg_url_kind_t kind,
                           const char *devices);

/* Says what this side asks for. */
void tmsg_carrier_ask(tmsg_endpoint_t *endpoint, int32_t carrier);

/* Takes an accepted connection, whose handshake is over, out of the counts of
 * its listener (link.streams). */
void tmsg_carrier_uncount(tmsg_endpoint_t *endpoint);

/* Returns whether a stream carries the connection, as far as is known. */
bool tmsg_carrier_is_stream(const tmsg_endpoint_t *endpoint);

/* Decides by the peer's hello what carries the connection. Errors: INCOMPATIBLE
 * (the two sides cannot agree). */
tmsg_status_t tmsg_carrier_choose(tmsg_endpoint_t *endpoint,
                                  const tmsg_hello_t *theirs);

/* Dials the stream, when the peer has this side's ADDRESS. With OK the endpoint
 * opens, or ends, later. */
tmsg_status_t tmsg_carrier_dial(tmsg_endpoint_t *endpoint);

/* Handles the frame CARRIER of an accepted connection, which claims to be the
 * stream of another one: opens that one with the socket, and ends `connection`.
 * If the ADDRESS of that one has yet to come, the claim waits for it. Errors:
 * MALFORMED, REFUSED (nobody here waits for it). */
tmsg_status_t tmsg_carrier_claim(tmsg_endpoint_t *connection,
                                 const uint8_t *data, size_t bytes);

/* Gives a session what was chosen for the connection that it takes over. */
void tmsg_carrier_move(tmsg_endpoint_t *session,
                       const tmsg_endpoint_t *connection);

/* Takes a claim that waits, now that the ADDRESS has come. */
void tmsg_carrier_go_on(tmsg_endpoint_t *endpoint);

/* Reads the answer to a claim, if it is here. The peer wrote it before anything
 * that it says as an open connection. */
void tmsg_carrier_hear(tmsg_endpoint_t *endpoint);

/* Gives up what is being dialled, as the connection ends. */
void tmsg_carrier_end(tmsg_endpoint_t *endpoint);

#endif
