/* SPDX-License-Identifier: BSD-3-Clause */
/* support/breaking_relay.h - a thing in the network between two peers'
 * bootstrap sockets, that may fail: it passes bytes on until it is told to
 * break. */
#ifndef TMSG_TESTS_BREAKING_RELAY_H
#define TMSG_TESTS_BREAKING_RELAY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct relay relay_t;

/* Passes on to a URL of the same kind, tcp://127.0.0.1:port (or tls://) or
 * unix:///path; runs in a thread of its own. */
relay_t *relay_open(const char *to);
void relay_close(relay_t *relay);

/* Where it listens. */
const char *relay_url(const relay_t *relay);

/* From now on to another one. */
void relay_turn(relay_t *relay, const char *to);

/* Breaks all connections through it, which both ends see. */
void relay_cut(relay_t *relay);

/* The same, but those who are dialled do not hear of it: not a byte comes there
 * any more. */
void relay_lose(relay_t *relay);

/* Keeps what comes until it is let go, by the same thread; no other call is
 * made meanwhile. */
void relay_hold(relay_t *relay);
void relay_let_go(relay_t *relay);

/* Keeps what comes by one connection, the first being 0, from now on, and
 * acknowledges it. */
void relay_stall(relay_t *relay, int at);

/* Breaks those to come, too, or no more. */
void relay_shut(relay_t *relay, bool shut);

/* Does not pass on the connection that comes after `skip` more: it hears this.
 */
void relay_forge(relay_t *relay, unsigned skip, const void *data, size_t bytes);

/* The connections that it had to pass on. */
unsigned relay_count(relay_t *relay);

#endif
