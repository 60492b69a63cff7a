/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/histogram.h - counts how often each time was measured. A step of the
 * histogram is at most 1/128 as wide as its times. HdrHistogram does the same
 * with two significant digits, but Debian 12 has no C library of it. */
#ifndef TMSG_MEASURE_HISTOGRAM_H
#define TMSG_MEASURE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_SUB_BITS 7
/* Times go up to 2^42 ns, which is more than an hour. Longer times count as the
 * longest. */
#define HISTOGRAM_STEPS ((42 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

/* Counts the values. A histogram of zeros is empty. */
typedef struct {
    uint64_t count;
    uint64_t least, most; /* exact values */
    double sum;
    uint64_t steps[HISTOGRAM_STEPS];
} histogram_t;

void histogram_add(histogram_t *histogram, uint64_t value);

/* Returns the least time such that `percent` of all times are no greater, to
 * the precision of a step. Returns 0 if nothing was counted. 100 returns the
 * exact maximum. */
double histogram_percentile(const histogram_t *histogram, double percent);

double histogram_mean(const histogram_t *histogram);

#endif
