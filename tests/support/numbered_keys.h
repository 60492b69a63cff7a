/* SPDX-License-Identifier: BSD-3-Clause */
/* support/numbered_keys.h - keyrings of numbered keys, and what listeners
 * count. */
#ifndef TMSG_TESTS_NUMBERED_KEYS_H
#define TMSG_TESTS_NUMBERED_KEYS_H

#include "support/peers.h"

/* The key of a number: that byte, 32 times. */
void keys_of(uint8_t number, uint8_t key[TMSG_KEY_BYTES]);
void add_key(tmsg_keyring_t *keyring, const char *name, uint8_t number);

/* A keyring with one key, or (name NULL) an empty one. */
tmsg_keyring_t *ring(const char *name, uint8_t number);

/* A side with a keyring (NULL: none), which it takes over. */
void open_side(side_t *side, tmsg_keyring_t *keyring);
/* And one that listens by TCP. */
void open_listening(side_t *side, tmsg_keyring_t *keyring);

/* Connects to a URL, with `server` beside, and gives what became of it. */
tmsg_status_t dial_beside(side_t *server, side_t *client, const char *url,
                          char *words, size_t bytes);

/* A new client with that key gets in, passes a map, and is called `name`. */
void expect_serves_key(side_t *server, uint8_t number, const char *name);

/* What a peer says to the application of the other side that turned it away. */
extern const char turned_away[];

/* What the listener's description says under a name. */
unsigned counted(const side_t *side, const char *name);

#endif
