/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/wireup.h - joins the two UCX endpoints of a connection. */
#ifndef TMSG_AM_CONNECT_WIREUP_H
#define TMSG_AM_CONNECT_WIREUP_H

#include "am/endpoint/endpoint.h"

/* The body of each message begins with the connection's token, the sender's id
 * of the endpoint (u32), and the number of its UCX endpoint (u32). */
#define TMSG_WIREUP_BYTES (TMSG_TOKEN_BYTES + 8)

/* Checks the peer's address, by which it may be connected to then. Errors:
 * those of tmsg_peer_address_check(). */
tmsg_status_t tmsg_wireup_address(tmsg_endpoint_t *endpoint,
                                  const tmsg_sealed_t *sealed);

/* Makes the UCX endpoint from the peer's address. Then sends a connect request
 * by it, or the reply to the peer's. Lock held, outside UCX. */
tmsg_status_t tmsg_wireup_begin(tmsg_endpoint_t *endpoint);

/* Begins a connection by a blob on the dialling side. dial_blob.c has this
 * function and the next one. */
tmsg_status_t tmsg_wireup_blob(tmsg_endpoint_t *endpoint, const void *blob,
                               size_t blob_bytes, int timeout_ms);

/* Makes the blob of a UCX worker. The caller frees it with free(). With
 * asks_for_key the caller proves the blob (admit_blob.h). */
tmsg_status_t tmsg_wireup_blob_of(const tmsg_ucx_t *ucx,
                                  const uint8_t token[TMSG_TOKEN_BYTES],
                                  uint32_t subscribe, bool asks_for_key,
                                  void **blob_p, size_t *bytes_p);

/* Takes the step that is possible after what has come; IN_PROGRESS if none is.
 * Lock held, outside UCX. */
tmsg_status_t tmsg_wireup_advance(tmsg_endpoint_t *endpoint);

/* Stops sending the connect request, because the endpoint ends. */
void tmsg_wireup_end(tmsg_endpoint_t *endpoint);

/* tmsg_wireup_keep_ep() keeps the UCX endpoint of an endpoint that ends for the
 * peer's next connection (tmsg_ep_index_keep()), if the peer has made no use of
 * it. False: it is not kept, and tmsg_wireup_cut_sockets() may cut its sockets.
 */
bool tmsg_wireup_keep_ep(tmsg_endpoint_t *endpoint);
void tmsg_wireup_cut_sockets(tmsg_endpoint_t *endpoint);

/* Forgets all that belongs to one connection, because the endpoint gets another
 * one or is freed. */
void tmsg_wireup_forget(tmsg_endpoint_t *endpoint);

/* Removes from our hello, if link.apart is set, all by which the peer would
 * take the two sides for one machine. */
void tmsg_wireup_keep_apart(const tmsg_endpoint_t *endpoint,
                            tmsg_hello_t *mine);

/* Decides by both hellos whether the two sides may work together, and how.
 * Fills in the endpoint's `why` and link.net_only. Errors: INCOMPATIBLE,
 * UNREACHABLE (unix:// without shared memory). */
tmsg_status_t tmsg_wireup_judge(tmsg_endpoint_t *endpoint,
                                const tmsg_hello_t *theirs, bool shm_only);

/* Writes what the bodies of both rounds begin with, and returns the head of
 * such a message. */
tmsg_preamble_t tmsg_wireup_fill(const tmsg_endpoint_t *endpoint,
                                 uint8_t *body);

/* Notes the peer's message of the first round, a connect request or the reply
 * to ours: the id of its endpoint is known now. Later ones are ignored. Inside
 * UCX. */
void tmsg_wireup_heard(tmsg_endpoint_t *endpoint,
                       const tmsg_arrival_t *arrival);

/* Returns whether a message is the peer's first one of the endpoint's
 * connection, which UCX brings without a reply endpoint: a connect request, or
 * its reply, with the connection's token. */
bool tmsg_wireup_is_first(const tmsg_endpoint_t *endpoint, const void *header,
                          size_t bytes);

/* Returns the connecting endpoint that a message of either round is for, or
 * NULL. Checks the token and the length of the body. */
tmsg_endpoint_t *tmsg_wireup_receiver(const tmsg_arrival_t *arrival,
                                      bool dialling, bool second);

#endif
