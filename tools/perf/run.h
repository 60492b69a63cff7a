/* SPDX-License-Identifier: BSD-3-Clause */
/* run.h - one measurement. */
#ifndef TMSG_PERF_RUN_H
#define TMSG_PERF_RUN_H

#include "load.h"
#include "measure/histogram.h"

/* What came of it. Times are nanoseconds: of latency half a round trip, else
 * from when a message (or call) was handed over, or its making began, until the
 * peer's application had it (or the reply was here). */
typedef struct {
    histogram_t times;
    histogram_t prepare, post, transfer; /* with --phases */
    unsigned repetitions;
    double rates[PERF_REPETITIONS_MOST]; /* messages a second, of each */
    bool by_bulk; /* whether any took it; of perf_sweep() */
} result_t;

/* Measures one of PERF_*. A signal ends it early: then result->repetitions may
 * be 0, and all is well. False: it was said what failed, and the peer was
 * dropped. */
bool perf_run(perf_peer_t *peer, load_t *load, unsigned measure,
              unsigned in_flight, result_t *result);

#endif
