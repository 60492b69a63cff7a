/* SPDX-License-Identifier: BSD-3-Clause */
/* support/session_pair.h - two sides that keep their session, joined through
 * something that may fail. b dials. */
#ifndef TMSG_TESTS_SESSION_PAIR_H
#define TMSG_TESTS_SESSION_PAIR_H

#include "support/breaking_relay.h"
#include "support/peers.h"

typedef struct {
    pair_t pair;
    relay_t *relay; /* NULL: none */
} joined_t;

/* All zero: tcp://, polled, for ever, attempts 1 to 20 ms apart. */
typedef struct {
    link_t link;
    drive_t drive;
    int32_t resume_ms;
    tmsg_reconnect_t reconnect;
    side_options_t a, b;
    bool direct; /* without a relay, which passes no descriptors */
} how_t;

void joined_open(joined_t *joined, const how_t *how);
/* Closes the connection in order, then both sides. */
void joined_close(joined_t *joined);
/* Ends both sides at once. */
void joined_drop(joined_t *joined);

/* Its parts: a listener that keeps sessions, an endpoint that comes back. */
void joined_listen(side_t *side, const char *url, int32_t resume_ms);
tmsg_endpoint_t *joined_dial(side_t *side, const char *url,
                             tmsg_reconnect_t reconnect);
bool joined_is_open(void *joined);

/* Breaks the connection at its relay until it is mended, and waits for both to
 * know. */
void joined_break(joined_t *joined);
void joined_mend(joined_t *joined);

/* Whether an endpoint is away, or connecting. */
bool joined_is_away(void *endpoint);

/* What "name": says in the description of an endpoint, a number or a truth. */
long described(const tmsg_endpoint_t *endpoint, const char *name);

#endif
