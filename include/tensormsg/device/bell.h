/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/device/bell.h - for kernels: rings a bell (tensormsg/bell.h), and
 * waits for its maps. For nvcc and clang's CUDA, from compute capability 7.0
 * on, and for threads of the CPU, in C11 and C++17.
 *
 * A kernel knows only the line of a bell, which tmsg_bell_device() gives. The
 * line is page-locked memory of the host, and each access goes over the bus. So
 * only one thread of the grid uses it, without atomic operations that read and
 * write. That thread is the bell's poster, and counts in a register, from 1 on:
 *
 *     write the map's tensors          by all threads
 *     __syncthreads() or grid.sync()
 *     tmsg_bell_post(line, n)          by one thread: map n may be sent
 *     tmsg_bell_wait_sent(line, n)     ... and its memory changed again
 *     __syncthreads() or grid.sync()
 *
 *     tmsg_bell_wait_arrived(line, n)  by one thread: map n has come
 *     __syncthreads() or grid.sync()
 *     read the map's tensors           by all threads
 *     __syncthreads() or grid.sync()
 *     tmsg_bell_consumed(line, n)      by one thread: the next may come
 *
 * Do not read a map that has come through the read-only cache: neither by
 * __ldg() nor by a pointer that is `const __restrict__`. */
#ifndef TENSORMSG_DEVICE_BELL_H
#define TENSORMSG_DEVICE_BELL_H

#include <stdint.h>

/* The poster writes the first 64 bytes, the library the others. So neither
 * writes to a cache line that the other polls. A stream that rings the bell
 * uses `posted` in another way. */
typedef struct tmsg_bell_line {
    uint64_t posted; /* maps that may be sent; or that are consumed */
    uint64_t unused_posted[7];
    uint64_t done;  /* maps that were sent; or that have come. UINT64_MAX: the
                     * bell has failed, and nothing more is done */
    int64_t status; /* why it has: a tmsg_status_t */
    uint64_t unused_done[6];
} tmsg_bell_line_t;

#if defined(__CUDACC__) || defined(__CUDA__)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#error "tensormsg/device/bell.h needs compute capability 7.0 or newer"
#endif
#define TMSG_BELL_FN __device__ static inline

TMSG_BELL_FN void tmsg_bell_store(uint64_t *to, uint64_t value)
{
    __asm__ volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value)
                     : "memory");
}

TMSG_BELL_FN uint64_t tmsg_bell_load(const uint64_t *from)
{
    uint64_t value;

    __asm__ volatile("ld.acquire.sys.u64 %0, [%1];"
                     : "=l"(value)
                     : "l"(from)
                     : "memory");
    return value;
}

TMSG_BELL_FN void tmsg_bell_nap(uint32_t ns)
{
    __asm__ volatile("nanosleep.u32 %0;" ::"r"(ns));
}
#else
#define TMSG_BELL_FN static inline

TMSG_BELL_FN void tmsg_bell_store(uint64_t *to, uint64_t value)
{
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}

TMSG_BELL_FN uint64_t tmsg_bell_load(const uint64_t *from)
{
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

TMSG_BELL_FN void tmsg_bell_nap(uint32_t ns) { (void)ns; }
#endif

/* Waits until `n` maps are done. Returns 0, or the tmsg_status_t with which the
 * bell has failed. */
TMSG_BELL_FN int tmsg_bell_wait(const tmsg_bell_line_t *line, uint64_t n)
{
    uint32_t ns = 32;
    uint64_t done = tmsg_bell_load(&line->done);

    while (done < n) {
        tmsg_bell_nap(ns);
        ns = ns < 1024 ? ns * 2 : ns;
        done = tmsg_bell_load(&line->done);
    }
    return done == UINT64_MAX
               ? (int)tmsg_bell_load((const uint64_t *)&line->status)
               : 0;
}

/* Sends the map for the n-th time. Wait for the time before first, or leave the
 * map's memory unchanged since: maps are sent one after the other, each as its
 * memory is then. */
TMSG_BELL_FN void tmsg_bell_post(tmsg_bell_line_t *line, uint64_t n)
{
    tmsg_bell_store(&line->posted, n);
}

/* Waits until the map was sent n times, and its memory may be changed. Returns
 * 0, or why the bell has failed. */
TMSG_BELL_FN int tmsg_bell_wait_sent(const tmsg_bell_line_t *line, uint64_t n)
{
    return tmsg_bell_wait(line, n);
}

/* Waits until the n-th map lies in the memory. Returns 0, or why the bell has
 * failed: then there is no n-th map. */
TMSG_BELL_FN int tmsg_bell_wait_arrived(const tmsg_bell_line_t *line,
                                        uint64_t n)
{
    return tmsg_bell_wait(line, n);
}

/* Says that nothing reads the n-th map any more: the next one may be received
 * into its memory. */
TMSG_BELL_FN void tmsg_bell_consumed(tmsg_bell_line_t *line, uint64_t n)
{
    tmsg_bell_store(&line->posted, n);
}

#undef TMSG_BELL_FN

#endif
