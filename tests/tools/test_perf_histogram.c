/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* The percentiles of `tensormsg perf`, of times that are known. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>

#include "measure/histogram.h"

#define WIDTH (1.0 / 128) /* of a step, of its value */

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void must_be_near(const histogram_t *histogram, double percent,
                         double wanted)
{
    double found = histogram_percentile(histogram, percent);

    cr_assert(fabs(found - wanted) <= wanted * WIDTH + 0.5, "p%g is %g, not %g",
              percent, found, wanted);
}

static histogram_t histogram;

Test(perf_histogram, of_nothing_all_is_nothing)
{
    cr_assert(eq(dbl, histogram_percentile(&histogram, 50), 0));
    cr_assert(eq(dbl, histogram_percentile(&histogram, 100), 0));
    cr_assert(eq(dbl, histogram_mean(&histogram), 0));
}

Test(perf_histogram, small_values_are_exact)
{
    for (uint64_t value = 1; value <= 100; value++) {
        histogram_add(&histogram, value);
    }
    cr_assert(eq(dbl, histogram_percentile(&histogram, 50), 50));
    cr_assert(eq(dbl, histogram_percentile(&histogram, 90), 90));
    cr_assert(eq(dbl, histogram_percentile(&histogram, 99), 99));
    cr_assert(eq(dbl, histogram_percentile(&histogram, 99.9), 100));
    cr_assert(eq(dbl, histogram_percentile(&histogram, 0), 1));
    cr_assert(eq(dbl, histogram_mean(&histogram), 50.5));
}

Test(perf_histogram, one_among_many_is_the_most_alone)
{
    for (unsigned i = 0; i < 9999; i++) {
        histogram_add(&histogram, 1000);
    }
    histogram_add(&histogram, 123456789);
    must_be_near(&histogram, 50, 1000);
    must_be_near(&histogram, 99.9, 1000);
    cr_assert(eq(dbl, histogram_percentile(&histogram, 100), 123456789));
}

/* As sorting has them, over ten powers of two and more. */
Test(perf_histogram, percentiles_are_those_of_the_values)
{
    static uint64_t values[10000];
    static const double percents[] = {0.1, 1, 10, 50, 90, 99, 99.9};
    uint64_t random = 1;

    for (size_t i = 0; i < 10000; i++) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        values[i] = (random >> 40) + ((random >> 60) << (random >> 58 & 31));
        histogram_add(&histogram, values[i]);
    }
    qsort(values, 10000, sizeof(*values), compare);
    for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
        size_t place = (size_t)llround(percents[i] * 100) - 1;

        must_be_near(&histogram, percents[i], (double)values[place]);
    }
    cr_assert(eq(u64, histogram.least, values[0]));
    cr_assert(eq(u64, histogram.most, values[9999]));
}

Test(perf_histogram, hours_are_not_lost)
{
    histogram_add(&histogram, UINT64_MAX);
    histogram_add(&histogram, 1);
    cr_assert(eq(dbl, histogram_percentile(&histogram, 50), 1));
    cr_assert(eq(u64, histogram.most, UINT64_MAX));
    cr_assert(eq(u64, histogram.count, 2));
}
