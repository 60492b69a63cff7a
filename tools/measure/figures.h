/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/figures.h - defines the clock, and the figures that are computed from
 * times. All benches use these definitions. tests/tools/figures.json has
 * examples, and `python -m tensormsg.bench` is tested against them as well. */
#ifndef TMSG_MEASURE_FIGURES_H
#define TMSG_MEASURE_FIGURES_H

#include <stddef.h>
#include <stdint.h>

uint64_t now_ns(void); /* nanoseconds of a monotonic clock */

/* Sorts at least one value in ascending order, as the functions below need
 * it. */
void figures_sort(double *values, size_t count);

/* Returns the middle value, or the mean of the two middle values. */
double figures_median(const double *sorted, size_t count);

/* Returns the least value such that `part` of all values (0.99, for example)
 * are no greater. */
double figures_quantile(const double *sorted, size_t count, double part);

#endif
