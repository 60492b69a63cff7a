/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tensormsg/status.h>

#include "bench.h"
#include "tools/measure/figures.h"

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

void bench_must(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        bench_die("tensormsg: %s", tmsg_error_message());
    }
}

tmsg_map_t *bench_small_map(void)
{
    static uint8_t data[BENCH_SMALL_TENSORS][BENCH_SMALL_BYTES];
    static const int64_t shape[] = {BENCH_SMALL_BYTES};
    tmsg_map_t *map;

    bench_must(tmsg_map_create(&map));
    for (int i = 0; i < BENCH_SMALL_TENSORS; i++) {
        const tmsg_tensor_t tensor = {
            data[i], {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
            NULL};
        char name[32];

        snprintf(name, sizeof(name), "tensor%d", i);
        bench_must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

double bench_now(void) { return (double)now_ns() * 1e-9; }

double bench_median(const double *values, size_t count)
{
    double sorted[VALUES_MAX];

    if (count == 0 || count > VALUES_MAX) {
        bench_die("a median of %zu values", count);
    }
    memcpy(sorted, values, count * sizeof(*values));
    figures_sort(sorted, count);
    return figures_median(sorted, count);
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
