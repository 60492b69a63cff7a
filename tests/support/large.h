/* SPDX-License-Identifier: BSD-3-Clause */
/* support/large.h - large messages of all shapes, and that they come whole. */
#ifndef TMSG_TESTS_LARGE_H
#define TMSG_TESTS_LARGE_H

#include "support/peers.h"

/* Each of several shapes goes each way with each of several flags; so many
 * each way. */
#define LARGE_MESSAGES 15
void large_exchange(pair_t *pair);

/* The next message at a side is this one. */
void large_take(pair_t *pair, side_t *side, uint64_t seed, size_t bytes);

#endif
