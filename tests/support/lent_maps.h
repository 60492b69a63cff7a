/* SPDX-License-Identifier: BSD-3-Clause */
/* support/lent_maps.h - maps that b of a pair lends to a, until a has read them
 * and b has its memory back. */
#ifndef TMSG_TESTS_LENT_MAPS_H
#define TMSG_TESTS_LENT_MAPS_H

#include "support/peers.h"

/* A side whose messages may come as loans. */
extern const side_options_t lent_borrower;

/* Opens a polled pair, of which a borrows. */
void lent_open(pair_t *pair, link_t link);

/* Opens such a side, which connects to a listener of `owner` with a key of that
 * number, or (name NULL) with none. *to_it is the owner's endpoint. */
void lent_join(side_t *side, side_t *owner, const char *name, uint8_t number,
               tmsg_endpoint_t **to_it);

/* Memory that can be lent, in which each byte is 3. */
uint8_t *lent_block(size_t bytes);

/* A map of one tensor "x" of bytes, and a further tensor. */
tmsg_map_t *lent_map(void *data, size_t count);
void lent_add(tmsg_map_t *map, const char *name, void *data, size_t count);

/* Sends a map with TMSG_SEND_LEND, and destroys it. *releases counts how often
 * its memory was given back. */
tmsg_request_t *lent_send(tmsg_endpoint_t *endpoint, tmsg_map_t *map,
                          uint32_t flags, unsigned *releases);

/* For pair_await(): memory was given back, as *releases says. */
bool lent_is_back(void *releases);

/* A block that b lends to a, over unix://. */
typedef struct {
    pair_t pair;
    uint8_t *memory;
    unsigned releases;       /* how often it was given back */
    tmsg_request_t *request; /* of the send */
} lent_t;

/* Opens the pair, and sends a block of that size, the tensor "x". */
void lent_begin(lent_t *lent, size_t bytes, uint32_t flags);

/* Waits until the block was given back, which happens once, and ends all. An
 * endpoint that a test has destroyed is NULL, and its peer ends at once. */
void lent_end(lent_t *lent);

/* Sends a map whose memory is given back at once, as it is copied, and returns
 * the message. */
tmsg_message_t *lent_pass(pair_t *pair, tmsg_map_t *map, uint32_t flags);

/* Where a tensor lies. Each of its first `count` bytes must be `value`. */
const uint8_t *lent_data(const tmsg_message_t *message, const char *name);
void lent_check(const tmsg_message_t *message, const char *name, int value,
                size_t count);

/* How many messages b has sent to a as loans. */
long lent_count(const pair_t *pair);

/* What tmsg_endpoint_describe() says of loans must have that part. */
void lent_must_say(const tmsg_endpoint_t *endpoint, const char *part);

/* Drives the pair for some rounds, in which nothing is to happen. */
void lent_drive(pair_t *pair, unsigned rounds);

#endif
