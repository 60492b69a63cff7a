/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/figures.h - the clock, and the figures that are made of times. All
 * benches use these definitions; tests/tools/figures.json has examples, which
 * `python -m tensormsg.bench` is tested against as well. */
#ifndef TMSG_MEASURE_FIGURES_H
#define TMSG_MEASURE_FIGURES_H

#include <stddef.h>
#include <stdint.h>

uint64_t now_ns(void); /* monotonic */

/* Puts values in ascending order, as the functions below take them. There is at
 * least one value. */
void figures_sort(double *values, size_t count);

/* The middle value, or the mean of the two middle values. */
double figures_median(const double *sorted, size_t count);

/* The least value such that `part` of all values, 0.99 say, are no greater. */
double figures_quantile(const double *sorted, size_t count, double part);

#endif
