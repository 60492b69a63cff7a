/* SPDX-License-Identifier: BSD-3-Clause */
#include <sched.h>

#include "bench.h"

int bench_core_of(int n)
{
    static cpu_set_t all; /* before any was bound */
    static bool known;
    int first = -1;

    known = known || sched_getaffinity(0, sizeof(all), &all) == 0;
    for (int cpu = 0; known && cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((unsigned)cpu, &all)) {
            first = first < 0 ? cpu : first;
            if (n-- == 0) {
                return cpu;
            }
        }
    }
    return first;
}

void bench_bind_core(int n)
{
    int core = bench_core_of(n);
    cpu_set_t one;

    if (core >= 0) {
        CPU_ZERO(&one);
        CPU_SET((unsigned)core, &one);
        sched_setaffinity(0, sizeof(one), &one);
    }
}
