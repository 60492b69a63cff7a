/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define VALUES_MAX 1024

void bench_die(const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fputs("tensormsg-bench: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    _exit(1);
}

double bench_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void sort(const double *values, size_t count, double sorted[VALUES_MAX])
{
    if (count == 0 || count > VALUES_MAX) {
        bench_die("a median of %zu values", count);
    }
    memcpy(sorted, values, count * sizeof(*values));
    qsort(sorted, count, sizeof(*sorted), compare);
}

double bench_median(const double *values, size_t count)
{
    double sorted[VALUES_MAX];

    sort(values, count, sorted);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

double bench_quantile(const double *values, size_t count, double part)
{
    double sorted[VALUES_MAX];
    size_t at = 0;

    sort(values, count, sorted);
    while ((double)(at + 1) < part * (double)count) {
        at++;
    }
    return sorted[at];
}

const char *bench_transport_name(bench_transport_t transport)
{
    static const char *const names[] = {"-", "shm", "tcp"};

    return names[transport];
}

void bench_way_name(bench_way_t way, char *text, size_t bytes)
{
    static const char *const layouts[] = {"map",    "contiguous",  "iov",
                                          "gather", "cache lines", "gRPC C++"};
    static const char *const settings[] = {"PEER", "NONE", "UCX's defaults"};
    static const char *const protocols[] = {"", " eager", " rndv"};

    if (way.layout == BENCH_MAP || way.layout >= BENCH_LINES) {
        snprintf(text, bytes, "%s",
                 way.layout == BENCH_MAP ? "tensormsg" : layouts[way.layout]);
        return;
    }
    snprintf(text, bytes, "%s%s, %s", layouts[way.layout],
             protocols[way.protocol], settings[way.settings]);
}
