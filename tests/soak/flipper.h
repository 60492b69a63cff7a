/* SPDX-License-Identifier: BSD-3-Clause */
/* flipper.h - a thread that changes the memory which an endpoint shares with
 * its peer, while both work: rings and fast boxes of either side. */
#ifndef TMSG_TESTS_FLIPPER_H
#define TMSG_TESTS_FLIPPER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <tensormsg/endpoint.h>

#include "am/shm/segment.h"

#define FLIPPER_VIEWS 32u

/* A mapping of its own, which stays when the endpoint has gone. */
typedef struct {
    uint8_t *memory;
    size_t bytes;
    uint8_t mark[TMSG_SEGMENT_MARK_BYTES];
} flipper_view_t;

typedef struct {
    flipper_view_t views[FLIPPER_VIEWS];
    atomic_uint count;
    atomic_bool over;
    pthread_t thread;
    uint64_t state;    /* of its random numbers */
    unsigned pause_us; /* between bursts, at most */
    unsigned burst;    /* changes in one, at most */
    unsigned liking;   /* for a kind of place; see flipper.c */
    uint64_t flips;
} flipper_t;

void flipper_start(flipper_t *flipper, uint64_t seed);
/* Takes note of what the endpoint shares by now. */
void flipper_watch(flipper_t *flipper, const tmsg_endpoint_t *endpoint);
/* Returns the number of changes. */
uint64_t flipper_stop(flipper_t *flipper);

#endif
