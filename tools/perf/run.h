/* SPDX-License-Identifier: BSD-3-Clause */
/* run.h - runs one measurement. */
#ifndef TMSG_PERF_RUN_H
#define TMSG_PERF_RUN_H

#include "load.h"
#include "measure/histogram.h"

/* Holds the result of a measurement. Times are in nanoseconds. A latency is
 * half of a round trip. Other times begin when a message or a call is handed
 * over, or with --phases when its map is created. They end when the peer's
 * application has the message, or when the reply of the call arrives. */
typedef struct {
    histogram_t times;
    histogram_t prepare, post, transfer; /* only with --phases */
    unsigned repetitions;
    double rates[PERF_REPETITIONS_MOST]; /* messages/s, for each repetition */
    bool by_bulk; /* some messages used the bulk stream */
} result_t;

/* Runs one measurement of the PERF_* kinds. A signal ends it early, without an
 * error; result->repetitions may then be 0. Returns false after a complaint;
 * the function has then dropped the peer. */
bool perf_run(perf_peer_t *peer, load_t *load, unsigned measure,
              unsigned in_flight, result_t *result);

#endif
