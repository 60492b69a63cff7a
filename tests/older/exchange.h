/* SPDX-License-Identifier: BSD-3-Clause */
/* older/exchange.h - what today's library and the peer of another age say to
 * each other, so that each knows what must come. */
#ifndef TMSG_TESTS_OLDER_EXCHANGE_H
#define TMSG_TESTS_OLDER_EXCHANGE_H

#include <stddef.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

/* Maps that today's side sends, each of which the peer answers by another. */
extern const sample_t exchange_samples[];
extern const size_t exchange_count;

/* The peer's answer; a minimal one has no metadata and fits in a header. */
sample_t exchange_answer(const sample_t *sample, bool minimal);

/* A map whose tensors lie in other orders than C. */
tmsg_map_t *exchange_strided(void);
void exchange_check_strided(const tmsg_map_t *map);

/* A map that today's reader has to refuse, from a newer peer. */
tmsg_map_t *exchange_critical(void);
bool exchange_is_critical(const tmsg_map_t *map);

/* Small maps that follow each other closely, then, beyond any window. */
enum { EXCHANGE_BURST = 200, EXCHANGE_BURST_BYTES = 100 };

/* A side of the exchange: few credits, and messages that keep their header. */
void exchange_open(side_t *side, link_t link);

#endif
