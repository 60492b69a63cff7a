/* SPDX-License-Identifier: BSD-3-Clause */
/* support/channels.h - messages on channels of a pair, from b to a. */
#ifndef TMSG_TESTS_CHANNELS_H
#define TMSG_TESTS_CHANNELS_H

#include "support/peers.h"

#define MIB (1u << 20)

/* What sends there. */
tmsg_send_params_t on_channel(unsigned channel, uint32_t flags);

/* Sends; the map is destroyed. */
tmsg_request_t *send_on(tmsg_endpoint_t *endpoint, unsigned channel,
                        tmsg_map_t *map, uint32_t flags);
void send_bytes(tmsg_endpoint_t *endpoint, unsigned channel, uint64_t seed,
                size_t bytes, uint32_t flags);

/* The next message at a, which must be this one. */
void expect(pair_t *pair, unsigned channel, uint64_t seed, size_t bytes);

/* For what is to happen without anybody waiting for it, or is not to. */
void pump(pair_t *pair);

/* Until a has so many messages in all, taken or not; it must not have more. */
void await_arrivals(pair_t *pair, uint64_t messages);

/* Of all ways to travel: gathered, scattered, by rendezvous. */
size_t size_of(uint64_t seed);

/* A receiver that has memory for one large message, which is held, so that the
 * next one waits: both of 1 MiB, seeds 1 and 2, on channel 1. */
typedef struct {
    pair_t pair;
    tmsg_message_t *held;
} full_t;

void fill(full_t *full, link_t link, uint32_t queue_depth);
void release(full_t *full);

#endif
