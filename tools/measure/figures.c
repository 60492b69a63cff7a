/* SPDX-License-Identifier: BSD-3-Clause */
#include "figures.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void figures_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
}

double figures_median(const double *sorted, size_t count)
{
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double figures_quantile(const double *sorted, size_t count, double part)
{
    /* The product may be a little too large, as 100 * 0.07 is. */
    double rank = ceil((double)count * part - 1e-9);

    return sorted[rank < 1 ? 0 : (size_t)rank - 1];
}
