/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/age.h - a bound on how long something may wait, in milliseconds.
 * UINT32_MAX: there is no bound. */
#ifndef TMSG_AM_WORKER_AGE_H
#define TMSG_AM_WORKER_AGE_H

#include <stdbool.h>
#include <stdint.h>

#include "am/net/loop.h"

static inline bool tmsg_age_is_bound(uint32_t most_ms)
{
    return most_ms != UINT32_MAX;
}

/* Returns for how many nanoseconds what has waited since then may still wait.
 * 0: it has waited for too long. There must be a bound. */
static inline uint64_t tmsg_age_left_ns(uint32_t most_ms, uint64_t since_ns)
{
    uint64_t most_ns = most_ms * UINT64_C(1000000);
    uint64_t ns = tmsg_now_ns() - since_ns;

    return ns < most_ns ? most_ns - ns : 0;
}

#endif
