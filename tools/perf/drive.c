/* SPDX-License-Identifier: BSD-3-Clause */
#include <sched.h>

#include "perf.h"

#define LOOK_MS 100 /* how often for a signal */
#define TURNS 16    /* between two looks at the clock */
#define POLL_NS 3000ULL
#define YIELD_NS 1000000000ULL

/* Where both sides, or others, share a core, to poll on is to have the other
 * wait for the end of a time slice. */
tmsg_status_t perf_drive(tmsg_worker_t *worker, bool poll)
{
    uint64_t start = poll ? now_ns() : 0, spent = 0;

    while (poll && spent < YIELD_NS) {
        for (unsigned i = 0; i < TURNS; i++) {
            if (tmsg_worker_progress(worker) > 0) {
                return TMSG_OK;
            }
        }
        spent = now_ns() - start;
        if (spent > POLL_NS) {
            sched_yield();
        }
    }
    return tmsg_worker_wait(worker, LOOK_MS);
}
