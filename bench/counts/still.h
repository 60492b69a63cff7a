/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/counts/still.h - takes from a program what differs from one run to the
 * next, so that what it does can be counted: the time, and what is random. And
 * counts what is copied.
 *
 * It does so by functions in the C library's place: clock_gettime(),
 * getrandom(), memcpy() and its like, process_vm_readv(). A copy that the
 * compiler writes out in place is not seen; it is in the instructions. */
#ifndef TMSG_BENCH_STILL_H
#define TMSG_BENCH_STILL_H

#include <stddef.h>
#include <stdint.h>

/* The clocks that only go forward stand still, and go on from there. */
void still_stop_clock(void);
void still_start_clock(void);

/* What they show goes forward by so much while they stand. */
void still_pass(uint64_t ns);

typedef struct {
    uint64_t ours;   /* bytes that were copied, not by UCX */
    uint64_t in_ucx; /* by UCX's libraries, from process to process, too */
} still_copies_t;

void still_copies_start(void);
void still_copies_stop(still_copies_t *copies_p);

#endif
