/* SPDX-License-Identifier: BSD-3-Clause */
/* support/offers.h - offers and fetches between the two sides of a pair: a
 * offers, b fetches. */
#ifndef TMSG_TESTS_OFFERS_H
#define TMSG_TESTS_OFFERS_H

#include "support/peers.h"

/* What the application hears of one offer. */
typedef struct {
    tmsg_offer_t *offer;
    unsigned overs, releases;
    tmsg_status_t status; /* what on_over said */
} heard_t;

/* Returns whether on_release was called. */
bool is_released(void *heard);

/* Offers a map, which is destroyed. `params` may be NULL. */
void offer(pair_t *pair, heard_t *heard, tmsg_map_t *map,
           const tmsg_offer_params_t *params);
void offer_named(pair_t *pair, heard_t *heard, tmsg_map_t *map,
                 const char *name, uint64_t version);

/* Withdraws an offer that nobody fetches, and destroys it. */
void withdraw(heard_t *heard);

tmsg_offer_key_t key_of(const heard_t *heard);

/* These begin a fetch. `params` may be NULL. */
tmsg_call_t *start(pair_t *pair, const tmsg_offer_key_t *key,
                   const tmsg_fetch_params_t *params);
tmsg_call_t *start_name(pair_t *pair, const char *name, uint64_t at_least,
                        int32_t wait_ms);

/* Waits for the end of a fetch, and returns it. */
bool has_ended(void *call);
tmsg_call_t *finish(pair_t *pair, tmsg_call_t *call);

/* These wait for the end of a fetch and destroy it: it fails so; it brings
 * sample_bytes(); it brings the version that is returned. */
void fails(pair_t *pair, tmsg_call_t *call, tmsg_status_t status,
           const char *words);
void fails_key(pair_t *pair, tmsg_offer_key_t key, const char *words);
void brings(pair_t *pair, tmsg_call_t *call, uint64_t seed, size_t bytes);
int64_t version_of(pair_t *pair, tmsg_call_t *call);

/* Returns what "name": says in the description of a's worker. */
long long told(pair_t *pair, const char *name);

/* These return whether one fetch waits at a, or none. */
bool waits(void *pair);
bool none_waits(void *pair);

/* Plays rows over TCP, shared memory, a blob and in a session. Both sides have
 * the options, which may be NULL. */
void play_on_each(void (*rows)(pair_t *pair), const side_options_t *options);

#endif
