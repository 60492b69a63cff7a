/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/handshake.h - the frames by which two peers get acquainted. What
 * comes here as `data` is their payload; the thread's error message says what
 * is wrong with it. */
#ifndef TMSG_AM_CONNECT_HANDSHAKE_H
#define TMSG_AM_CONNECT_HANDSHAKE_H

#include "am/endpoint/endpoint.h"

/* The dialling side is connected: says its hello. */
void tmsg_handshake_begin(tmsg_endpoint_t *endpoint);

tmsg_status_t tmsg_handshake_hello(tmsg_endpoint_t *endpoint,
                                   const uint8_t *data, size_t bytes);
tmsg_status_t tmsg_handshake_proof(tmsg_endpoint_t *endpoint,
                                   const uint8_t *data, size_t bytes);
tmsg_status_t tmsg_handshake_address(tmsg_endpoint_t *endpoint,
                                     const uint8_t *data, size_t bytes);

/* Says where this side is: what ADDRESS carries. */
tmsg_status_t tmsg_handshake_invite(tmsg_endpoint_t *endpoint);

/* Tells the peer why this side ends the connection. */
void tmsg_handshake_tell(tmsg_endpoint_t *endpoint, tmsg_status_t refusal,
                         const char *why);

/* The same where this side gives up, for what is the thread's error message,
 * and returns `status` with it. */
tmsg_status_t tmsg_handshake_refuse(tmsg_endpoint_t *endpoint,
                                    tmsg_status_t status);

/* TMSG_SUBSCRIBE_*, for the hello of an endpoint that is dialled. */
void tmsg_handshake_subscribe(tmsg_endpoint_t *endpoint, uint32_t bits);

#endif
