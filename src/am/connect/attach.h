/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/attach.h - joining the two UCX endpoints of a connection. */
#ifndef TMSG_AM_CONNECT_ATTACH_H
#define TMSG_AM_CONNECT_ATTACH_H

#include "am/endpoint/endpoint.h"

/* What the body of each message begins with: the connection's token, the
 * sender's id of the endpoint (u32), the number of its UCX endpoint (u32). */
#define TMSG_ATTACH_BYTES (TMSG_TOKEN_BYTES + 8)

/* Copies the peer's address. Errors: NO_MEMORY. */
tmsg_status_t tmsg_attach_address(tmsg_endpoint_t *endpoint,
                                  const tmsg_sealed_t *sealed);

/* Makes the UCX endpoint from that, and knocks or answers a knock by it. */
tmsg_status_t tmsg_attach_begin(tmsg_endpoint_t *endpoint);

/* The dialling side's start by a blob. In attach_blob.c, as is the next. */
tmsg_status_t tmsg_attach_blob(tmsg_endpoint_t *endpoint, const void *blob,
                               size_t blob_bytes, int timeout_ms);

/* The blob of a UCX worker, to be freed with free(), and with a key to be
 * proved. */
tmsg_status_t tmsg_attach_blob_of(const tmsg_ucx_t *ucx,
                                  const uint8_t token[TMSG_TOKEN_BYTES],
                                  uint32_t subscribe, bool asks_for_key,
                                  void **blob_p, size_t *bytes_p);

/* Lock held, outside UCX: takes the step that what has come allows; IN_PROGRESS
 * if none. */
tmsg_status_t tmsg_attach_advance(tmsg_endpoint_t *endpoint);

/* The endpoint ends: gives up knocking. */
void tmsg_attach_end(tmsg_endpoint_t *endpoint);

/* The UCX endpoint of one that ends: true where it is kept, for the peer's next
 * connection, which has made no use of it. Else its sockets may be cut. */
bool tmsg_attach_keep_ep(tmsg_endpoint_t *endpoint);
void tmsg_attach_cut_sockets(tmsg_endpoint_t *endpoint);

/* All that is of one connection, of an endpoint that gets another, or is freed.
 */
void tmsg_attach_forget(tmsg_endpoint_t *endpoint);

/* Takes out of our hello, where link.apart is set, what would let the peer take
 * the two sides for one machine. */
void tmsg_attach_keep_apart(const tmsg_endpoint_t *endpoint,
                            tmsg_hello_t *mine);

/* Decides by both hellos whether the two may work together, and how: fills in
 * the endpoint's why and link.net_only. */
tmsg_status_t tmsg_attach_judge(tmsg_endpoint_t *endpoint,
                                const tmsg_hello_t *theirs, bool shm_only);

/* What the bodies of both rounds begin with, and the head of such a message. */
tmsg_preamble_t tmsg_attach_fill(const tmsg_endpoint_t *endpoint,
                                 uint8_t *body);

/* The peer has knocked, the first time: its endpoint is known now. */
void tmsg_attach_heard(tmsg_endpoint_t *endpoint,
                       const tmsg_arrival_t *arrival);

/* The connecting endpoint that a message of either round is for, or NULL. */
tmsg_endpoint_t *tmsg_attach_receiver(const tmsg_arrival_t *arrival,
                                      bool dialling, bool second);

#endif
