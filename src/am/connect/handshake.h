/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/handshake.h - the frames of the bootstrap socket until both sides
 * have each other's UCX address. In these functions `data` is the payload of a
 * frame; the thread's error message says what is wrong with it. Lock held. */
#ifndef TMSG_AM_CONNECT_HANDSHAKE_H
#define TMSG_AM_CONNECT_HANDSHAKE_H

#include "am/endpoint/endpoint.h"

/* Sends the hello of the dialling side, which is connected now. */
void tmsg_handshake_begin(tmsg_endpoint_t *endpoint);

tmsg_status_t tmsg_handshake_hello(tmsg_endpoint_t *endpoint,
                                   const uint8_t *data, size_t bytes);
tmsg_status_t tmsg_handshake_proof(tmsg_endpoint_t *endpoint,
                                   const uint8_t *data, size_t bytes);
tmsg_status_t tmsg_handshake_address(tmsg_endpoint_t *endpoint,
                                     const uint8_t *data, size_t bytes);

/* Sends ADDRESS: where this side is. */
tmsg_status_t tmsg_handshake_invite(tmsg_endpoint_t *endpoint);

/* Tells the peer, by REFUSE, why this side ends the connection. */
void tmsg_handshake_tell(tmsg_endpoint_t *endpoint, tmsg_status_t refusal,
                         const char *why);

/* Tells the peer that this side gives up, with the thread's error message.
 * Returns `status` with the same message. */
tmsg_status_t tmsg_handshake_refuse(tmsg_endpoint_t *endpoint,
                                    tmsg_status_t status);

/* Has an endpoint connect as `old` did, and to where that was connected. */
void tmsg_handshake_inherit(tmsg_endpoint_t *heir, const tmsg_endpoint_t *old);

/* Sets the TMSG_SUBSCRIBE_* bits in the hello of an endpoint that is
 * dialled. */
void tmsg_handshake_subscribe(tmsg_endpoint_t *endpoint, uint32_t bits);

#endif
