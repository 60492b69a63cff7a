/* SPDX-License-Identifier: BSD-3-Clause */
/* bell_kernel.cu - the kernel that bell_rate.c has ring a bell. */
#include <tensormsg/device/bell.h>

static __device__ uint64_t now_ns()
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* Rings for map n once the program has written n to *go, and notes how long
 * that took until the map's memory may be changed. Ends when the bell fails. */
extern "C" __global__ void ring(tmsg_bell_line_t *line, const uint64_t *go,
                                uint8_t *data, uint64_t maps, uint64_t *took_ns)
{
    for (uint64_t n = 1; n <= maps; n++) {
        uint64_t since;

        while (tmsg_bell_load(go) < n) {
        }
        data[0] = (uint8_t)n;
        since = now_ns();
        tmsg_bell_post(line, n);
        if (tmsg_bell_wait_sent(line, n) != 0) {
            return;
        }
        took_ns[n - 1] = now_ns() - since;
    }
}
