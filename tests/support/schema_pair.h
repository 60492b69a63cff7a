/* SPDX-License-Identifier: BSD-3-Clause */
/* support/schema_pair.h - a sender's table and a receiver's store with nothing
 * but bytes between them. Messages may overtake each other on their way, but
 * have their turns in order; answers come when they are let. Whatever must hold
 * between the two and does not ends the test by abort(). */
#ifndef TMSG_TESTS_SCHEMA_PAIR_H
#define TMSG_TESTS_SCHEMA_PAIR_H

#include "serialize/schema.h"

#define SCHEMA_PAIR_WINDOW 64 /* messages on their way */

typedef struct {
    tmsg_body_extra_t sent;
    tmsg_map_t *wanted; /* its layout and metadata */
    uint8_t *body;
    size_t bytes;
    bool arrived;
    tmsg_map_t *map;       /* what arrived */
    tmsg_schema_t *schema; /* to be kept */
} schema_pair_message_t;

typedef struct {
    tmsg_limits_t limits;
    tmsg_schema_budget_t tx, rx;
    tmsg_schema_table_t *table;
    tmsg_schema_store_t *store;
    schema_pair_message_t messages[SCHEMA_PAIR_WINDOW]; /* in order */
    size_t count;
    struct {
        uint8_t slot, generation;
        bool kept;
    } answers[SCHEMA_PAIR_WINDOW];
    size_t answer_count;
    size_t whole, defined, referred; /* messages sent, by form */
    size_t most_bytes;               /* of a referring body */
} schema_pair_t;

/* tx_bytes and rx_bytes: what the sender is told, and what the receiver has. */
void schema_pair_open(schema_pair_t *pair, uint32_t slots, uint64_t tx_bytes,
                      uint64_t rx_bytes);
void schema_pair_close(schema_pair_t *pair);

/* Sends a map; the window must not be full. How it went. */
tmsg_schema_form_t schema_pair_send(schema_pair_t *pair, const tmsg_map_t *map);

/* The message at `index` of those on their way arrives. */
void schema_pair_arrive(schema_pair_t *pair, size_t index);

/* The turn of the oldest, which must have arrived; false: there is none. */
bool schema_pair_turn(schema_pair_t *pair);

/* The oldest answer comes back; false: there is none. */
bool schema_pair_answer(schema_pair_t *pair);

/* All of it, until nothing is on its way. */
void schema_pair_settle(schema_pair_t *pair);

/* Dies unless both say the same to whoever reads a body. */
void schema_pair_compare(const tmsg_map_t *map, const tmsg_map_t *wanted);

#endif
