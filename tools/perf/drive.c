/* SPDX-License-Identifier: BSD-3-Clause */
#include "perf.h"
#include "signals.h"

#define LOOK_MS 100 /* how often signals are looked for */
#define TURNS 16    /* rounds of progress between two looks at the clock */
#define POLL_NS 1000000000ULL

tmsg_status_t perf_drive(tmsg_worker_t *worker, bool poll, uint64_t *start_ns_p)
{
    uint64_t start = now_ns();

    if (start_ns_p != NULL) {
        *start_ns_p = start;
    }
    while (poll && !signals_came() && now_ns() - start < POLL_NS) {
        for (unsigned i = 0; i < TURNS; i++) {
            if (tmsg_worker_progress(worker) > 0) {
                return TMSG_OK;
            }
        }
        if (!tmsg_worker_pause(worker)) {
            break;
        }
    }
    return tmsg_worker_wait(worker, LOOK_MS);
}
