/* SPDX-License-Identifier: BSD-3-Clause */
/* core/ticks.h - a counter of the processor's that says whether something has
 * taken long, for a few instructions where a clock would cost a call. */
#ifndef TMSG_CORE_TICKS_H
#define TMSG_CORE_TICKS_H

#include <stdint.h>

/* Returns the counter; always 0 on a processor without one. It goes up at a
 * constant rate that is unknown: at least TMSG_TICKS_FEW in a second. */
#define TMSG_TICKS_FEW UINT64_C(1000000)
static inline uint64_t tmsg_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 0;
#endif
}

#endif
