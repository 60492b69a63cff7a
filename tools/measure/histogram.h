/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/histogram.h - how often which time was taken, in steps that are never
 * wider than 1/128 of it: what HdrHistogram does with two significant digits,
 * which Debian 12 has no C library of. */
#ifndef TMSG_MEASURE_HISTOGRAM_H
#define TMSG_MEASURE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_SUB_BITS 7
/* Times of up to 2^42 ns, over an hour; longer ones count as that. */
#define HISTOGRAM_STEPS ((42 - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

/* All zeros: empty. */
typedef struct {
    uint64_t count;
    uint64_t least, most; /* exactly */
    double sum;
    uint64_t steps[HISTOGRAM_STEPS];
} histogram_t;

void histogram_add(histogram_t *histogram, uint64_t value);

/* The least value that so many percent are at or below, within a step; 0 where
 * nothing was counted. 100: the most, exactly. */
double histogram_percentile(const histogram_t *histogram, double percent);

double histogram_mean(const histogram_t *histogram);

#endif
