/* SPDX-License-Identifier: BSD-3-Clause */
/* support/large_messages.h - large messages of all shapes, and that they come
 * whole. */
#ifndef TMSG_TESTS_LARGE_MESSAGES_H
#define TMSG_TESTS_LARGE_MESSAGES_H

#include "support/peers.h"

/* Each of several shapes goes each way with each of several flags; so many
 * each way. */
#define LARGE_MESSAGES 15
void large_exchange(pair_t *pair);

/* One under way to a on channel 0, of seed 1, is passed by one on channel 1. */
void large_is_passed(pair_t *pair, tmsg_request_t *sent, size_t bytes,
                     size_t by);

/* The next message at a side is this one. */
void large_take(pair_t *pair, side_t *side, uint64_t seed, size_t bytes);

#endif
