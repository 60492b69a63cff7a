/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/link.h - the bootstrap socket of a connection. */
#ifndef TMSG_AM_CONNECT_LINK_H
#define TMSG_AM_CONNECT_LINK_H

#include <stdbool.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/listener.h>

#include "am/endpoint/conn.h"

/* What a listener asks of those that come to it. */
typedef struct {
    const char *url;            /* its own */
    const uint32_t *handshakes; /* that are under way with it */
    size_t handshake_bytes;
    int timeout_ms;
} tmsg_link_terms_t;

/* The dialling side's start, whose URL is known, and the dialled side's. */
tmsg_status_t tmsg_link_dial(tmsg_endpoint_t *endpoint, int timeout_ms);
tmsg_status_t tmsg_link_accepted(tmsg_endpoint_t *endpoint, int fd,
                                 tmsg_listener_t *listener,
                                 const tmsg_link_terms_t *terms);
/* `writes`: the peer may be writing to our shared memory, and not know. */
void tmsg_link_close(tmsg_endpoint_t *endpoint, bool writes);

/* The start once the URL is known; and again, after it was closed. Errors here:
 * NO_MEMORY, IO; the others end the endpoint, maybe before this returns. */
tmsg_status_t tmsg_link_redial(tmsg_endpoint_t *endpoint, int timeout_ms);

/* A scheme's `dial`: a socket is connected to an address, or to the URL's path.
 * OK and IN_PROGRESS end the search. */
tmsg_status_t tmsg_link_dial_address(tmsg_endpoint_t *endpoint,
                                     const tmsg_address_t *address);

/* Gives the socket of one endpoint, on the dialled side and before its ADDRESS,
 * to another that has none. On error `from` has lost it all the same, and `to`
 * has none. */
tmsg_status_t tmsg_link_move(tmsg_endpoint_t *to, tmsg_endpoint_t *from,
                             int timeout_ms);

/* Takes the frames that were left for the next round, if any. A chore. */
void tmsg_link_read_on(tmsg_endpoint_t *endpoint);

/* UCX says that the peer is gone: it may have said why, by the socket. */
void tmsg_link_last_words(tmsg_endpoint_t *endpoint);

/* Takes a socket, connected or about to be, into the loop; closes it where that
 * fails. */
tmsg_status_t tmsg_link_adopt(tmsg_endpoint_t *endpoint, int fd);

/* The socket that is being dialled may be connected. */
void tmsg_link_dialled(tmsg_endpoint_t *endpoint);

/* How long connecting may take, counted while this process runs: to be stopped,
 * or its machine, costs a quarter of it at most, unless it is very short. */
void tmsg_link_set_deadline(tmsg_endpoint_t *endpoint, int timeout_ms);

/* What is left of that. */
int tmsg_link_left_ms(const tmsg_endpoint_t *endpoint);

tmsg_status_t tmsg_link_put(tmsg_endpoint_t *endpoint, uint8_t frame,
                            const void *data, size_t bytes);

/* Sends one of the frames that close in order. */
void tmsg_link_send(tmsg_endpoint_t *endpoint, uint8_t frame,
                    const uint8_t *data, size_t bytes);

/* Ends the endpoint with the thread's error message; and tells the peer. */
void tmsg_link_fail(tmsg_endpoint_t *endpoint, tmsg_status_t status);
void tmsg_link_refuse(tmsg_endpoint_t *endpoint, tmsg_status_t status);

#endif
