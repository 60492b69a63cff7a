/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/link.h - the bootstrap socket of a connection. Lock held, for
 * all functions here. */
#ifndef TMSG_AM_CONNECT_LINK_H
#define TMSG_AM_CONNECT_LINK_H

#include <stdbool.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/listener.h>

#include "am/endpoint/conn.h"

/* The terms of a listener for the peers that come to it. */
typedef struct {
    const char *url; /* the listener's own URL */
    /* The listener's count of handshakes that will need UCX. */
    uint32_t *wanting_ucx;
    size_t handshake_bytes;
    int timeout_ms;
} tmsg_link_terms_t;

/* Begin to connect: the dialling side to its URL, which is known; the dialled
 * side by an accepted socket, which it closes on error. */
tmsg_status_t tmsg_link_dial(tmsg_endpoint_t *endpoint, int timeout_ms);
tmsg_status_t tmsg_link_accepted(tmsg_endpoint_t *endpoint, int fd,
                                 tmsg_listener_t *listener,
                                 const tmsg_link_terms_t *terms);
/* Returns whether the peer has come to a listener and has not sent its address:
 * anybody may have come so far. It stays so if the listener is destroyed. */
bool tmsg_link_is_strange(const tmsg_endpoint_t *endpoint);

/* Closes the socket and forgets what belongs to this connection. `writes`: the
 * peer may be writing to our shared memory, and not know of the end; the socket
 * then lingers (linger.h). */
void tmsg_link_close(tmsg_endpoint_t *endpoint, bool writes);

/* Begins to connect once the URL is known, and again after the connection was
 * closed. Returns only NO_MEMORY and IO. Other errors end the endpoint, maybe
 * before this returns. */
tmsg_status_t tmsg_link_redial(tmsg_endpoint_t *endpoint, int timeout_ms);

/* Connects a socket to an address, or to the URL's path: the `dial` of schemes
 * with sockets. OK and IN_PROGRESS end the search for an address. */
tmsg_status_t tmsg_link_dial_address(tmsg_endpoint_t *endpoint,
                                     const tmsg_address_t *address);

/* Gives the socket of one endpoint to another that has none, on the dialled
 * side and before its ADDRESS: a session goes on with a new connection. On
 * error `from` has lost the socket all the same, and `to` has none. */
tmsg_status_t tmsg_link_move(tmsg_endpoint_t *to, tmsg_endpoint_t *from,
                             int timeout_ms);

/* Reads the frames that were left for the next round, if any. This is a chore
 * of the endpoint. */
void tmsg_link_read_on(tmsg_endpoint_t *endpoint);

/* Reads what a peer whose socket was accepted has said up to now. That may end
 * the endpoint. */
void tmsg_link_read_now(tmsg_endpoint_t *endpoint);

/* Reads by the socket why the peer is gone: UCX says that it is, and the peer
 * may have told the reason before. */
void tmsg_link_last_words(tmsg_endpoint_t *endpoint);

/* Reads what the peer has given back up to now: the endpoint has ended. */
void tmsg_link_take_back(tmsg_endpoint_t *endpoint);

/* Takes a socket, connected or about to be, into the loop. Closes it if that
 * fails. */
tmsg_status_t tmsg_link_adopt(tmsg_endpoint_t *endpoint, int fd);

/* Continues when the socket that is being dialled may be connected. */
void tmsg_link_dialled(tmsg_endpoint_t *endpoint);

/* Goes on to the next address of the host, if it has one, and the one that is
 * being dialled has not answered: it may be behind a firewall. May end the
 * endpoint. */
void tmsg_link_dial_other(tmsg_endpoint_t *endpoint);

/* Sets how long connecting may take. Only the time in which this process runs
 * counts: if the process or its machine is stopped, that costs a quarter of the
 * time at most, unless the time is very short. */
void tmsg_link_set_deadline(tmsg_endpoint_t *endpoint, int timeout_ms);

/* Returns what is left of that time. */
int tmsg_link_left_ms(const tmsg_endpoint_t *endpoint);

tmsg_status_t tmsg_link_put(tmsg_endpoint_t *endpoint, uint8_t frame,
                            const void *data, size_t bytes);

/* Finds out whether descriptors may pass, and lets them come if so. Called when
 * the peer's address has come. */
void tmsg_link_judge_passing(tmsg_endpoint_t *endpoint);

/* Sends one of the frames of the orderly end. Breaks the endpoint if that
 * fails. */
void tmsg_link_send(tmsg_endpoint_t *endpoint, uint8_t frame,
                    const uint8_t *data, size_t bytes);

/* tmsg_link_fail() ends the endpoint with the thread's error message.
 * tmsg_link_refuse() tells the peer, too. */
void tmsg_link_fail(tmsg_endpoint_t *endpoint, tmsg_status_t status);
void tmsg_link_refuse(tmsg_endpoint_t *endpoint, tmsg_status_t status);

#endif
