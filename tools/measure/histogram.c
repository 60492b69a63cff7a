/* SPDX-License-Identifier: BSD-3-Clause */
#include "histogram.h"

#include <math.h>

#define SUBS (1u << HISTOGRAM_SUB_BITS)

static size_t step_of(uint64_t value)
{
    unsigned shift;
    size_t step;

    if (value < 2 * SUBS) {
        return (size_t)value;
    }
    shift = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    step = (size_t)shift * SUBS + (size_t)(value >> shift);
    return step < HISTOGRAM_STEPS ? step : HISTOGRAM_STEPS - 1;
}

/* Returns the middle of a step. */
static double step_middle(size_t step)
{
    unsigned shift;

    if (step < 2 * SUBS) {
        return (double)step;
    }
    shift = (unsigned)(step / SUBS - 1);
    return ((double)(step - (size_t)shift * SUBS) + 0.5) *
           (double)(1ULL << shift);
}

void histogram_add(histogram_t *histogram, uint64_t value)
{
    if (histogram->count == 0 || value < histogram->least) {
        histogram->least = value;
    }
    if (value > histogram->most) {
        histogram->most = value;
    }
    histogram->count++;
    histogram->sum += (double)value;
    histogram->steps[step_of(value)]++;
}

static double clamp_to_range(const histogram_t *histogram, double value)
{
    double least = (double)histogram->least, most = (double)histogram->most;

    return value < least ? least : value > most ? most : value;
}

double histogram_percentile(const histogram_t *histogram, double percent)
{
    uint64_t wanted =
        (uint64_t)ceil((double)histogram->count * percent / 100 - 1e-9);
    uint64_t below = 0;

    if (percent >= 100 || histogram->count == 0) {
        return (double)histogram->most;
    }
    for (size_t i = 0; i < HISTOGRAM_STEPS; i++) {
        below += histogram->steps[i];
        if (below >= wanted && below > 0) {
            return clamp_to_range(histogram, step_middle(i));
        }
    }
    return (double)histogram->most;
}

double histogram_mean(const histogram_t *histogram)
{
    return histogram->count == 0 ? 0
                                 : histogram->sum / (double)histogram->count;
}
