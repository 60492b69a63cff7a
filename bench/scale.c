/* SPDX-License-Identifier: BSD-3-Clause */
/* How a message's cost goes with the number of tensors, bytes, endpoints and
 * processes: a JSON object a line for each point, which scale.py makes plots
 * of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define TENSOR_BYTES 64
#define ONE_WAY_FROM (64u << 20) /* above, the map does not come back */
#define ROOM 5 /* times a map's bytes that both sides hold, and some more */
#define MESSAGES 19200

/* The only point that is wanted, or 0: all. */
static size_t only;

static const bench_way_t ours = {.layout = BENCH_MAP};

static bool is_left_out(size_t x) { return only != 0 && x != only; }

static void tell(const char *series, const char *way, size_t x, double y,
                 const char *unit)
{
    printf("{\"series\": \"%s\", \"way\": \"%s\", \"x\": %zu, \"y\": %.9g, "
           "\"unit\": \"%s\"}\n",
           series, way, x, y, unit);
    fflush(stdout);
}

static void tell_pair(const char *series, const char *way, size_t x,
                      const bench_run_t *run)
{
    bench_sample_t sample;
    double bytes = (double)run->tensors * (double)run->tensor_bytes;

    if (!bench_pair_run(run, &sample)) {
        fprintf(stderr, "%s, %s: a run of %zu failed\n", series, way, x);
        return;
    }
    tell(series, way, x,
         run->metric == BENCH_LATENCY ? sample.value : bytes / sample.value,
         "s");
}

static bench_run_t latency(bool quick)
{
    return (bench_run_t){.tensors = 1,
                         .tensor_bytes = TENSOR_BYTES,
                         .transport = BENCH_SHM,
                         .metric = BENCH_LATENCY,
                         .way = ours,
                         .blocks = quick ? 1 : 5,
                         .block_s = quick ? 1e-4 : 0.02};
}

/* 1, 2, 5, 10, 20, ... */
static size_t next(size_t x)
{
    size_t tens = 1;

    while (tens * 10 <= x) {
        tens *= 10;
    }
    return x / tens == 2 ? 5 * tens : 2 * x;
}

static void tensors(bool quick)
{
    size_t most = quick ? 10 : 100000;
    bench_run_t run = latency(quick);

    for (size_t x = 1; x <= most; x = next(x)) {
        if (is_left_out(x)) {
            continue;
        }
        run.tensors = x;
        run.transport = BENCH_SHM;
        run.way = ours;
        tell_pair("tensors", "tensormsg, shm", x, &run);
        run.transport = BENCH_TCP;
        tell_pair("tensors", "tensormsg, tcp", x, &run);
        run.transport = BENCH_SHM;
        run.way = (bench_way_t){BENCH_GATHER, BENCH_OUR_SETTINGS, BENCH_AUTO};
        tell_pair("tensors", "raw ucp_am gathered, shm", x, &run);
    }
}

static size_t available_bytes(void)
{
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %zu", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib << 10;
}

static void bytes(bool quick)
{
    static const bench_way_t raw = {BENCH_CONTIGUOUS, BENCH_OUR_SETTINGS,
                                    BENCH_AUTO};
    size_t most = only != 0 ? only : quick ? 4096 : (size_t)4 << 30;
    bench_run_t run = latency(quick);

    for (size_t x = 0; x <= most; x = x == 0 ? 1 : 4 * x) {
        size_t available = available_bytes();

        if (is_left_out(x)) {
            continue;
        }
        if (x > available / ROOM) {
            fprintf(stderr,
                    "%zu bytes: %d times as much memory is not here, "
                    "%zu MiB are\n",
                    x, ROOM, available >> 20);
            return;
        }
        if (x >= ONE_WAY_FROM) {
            run.metric = BENCH_BANDWIDTH;
            run.window = 1;
            run.blocks = 3;
            run.rounds = 1;
            run.block_s = 0;
        }
        run.tensor_bytes = x;
        run.transport = BENCH_SHM;
        run.way = ours;
        tell_pair("bytes", "tensormsg, shm", x, &run);
        if (x > 0) {
            run.way = raw;
            tell_pair("bytes", "raw ucp_am contiguous, shm", x, &run);
        }
        run.way = ours;
        run.transport = BENCH_TCP;
        tell_pair("bytes", "tensormsg, tcp", x, &run);
    }
}

static void many(const char *series, size_t x, const bench_many_t *wanted)
{
    const char *way = bench_transport_name(wanted->transport);
    bench_many_sample_t sample;

    bench_many_run(wanted, &sample);
    tell(series, way, x, 1 / sample.rate, "s");
    if (bench_counts_available() && strcmp(series, "endpoints") == 0) {
        tell("memory", way, x, sample.bytes_each * (double)x, "bytes");
    }
}

/* By either transport. */
static void many_each(const char *series, size_t x, bench_many_t wanted)
{
    for (int transport = BENCH_SHM; transport <= BENCH_TCP; transport++) {
        wanted.transport = (bench_transport_t)transport;
        if (!is_left_out(x)) {
            many(series, x, &wanted);
        }
    }
}

static void endpoints(bool quick)
{
    for (size_t x = 1; x <= (quick ? 5u : 1000u); x = next(x)) {
        many_each("endpoints", x,
                  (bench_many_t){.clients = 1,
                                 .endpoints = (unsigned)x,
                                 .blocks = quick ? 1 : 3,
                                 .messages = quick ? 100 : MESSAGES});
    }
}

static void processes(bool quick)
{
    static const unsigned counts[] = {1, 2, 3, 4, 6, 8, 12, 16};

    for (size_t i = 0; i < (quick ? 2u : 8u); i++) {
        many_each("processes", counts[i],
                  (bench_many_t){.clients = counts[i],
                                 .endpoints = counts[i],
                                 .blocks = quick ? 1 : 3,
                                 .messages = quick ? 96 : MESSAGES});
    }
}

/* Rows that lie apart: packed, or as they lie. `x` is the length of a row. */
static void rows(size_t bytes, size_t row, unsigned gap_percent,
                 bench_transport_t transport, bool quick)
{
    bench_run_t run = latency(quick);

    run.row_bytes = row;
    run.gap_bytes = row * gap_percent / (100 - gap_percent);
    run.tensor_bytes = bytes / row * (row + run.gap_bytes);
    run.transport = transport;
    for (int keeps = 0; keeps <= 1; keeps++) {
        char way[80];

        run.keeps = keeps == 1;
        snprintf(way, sizeof(way), "%s, %s, %zu KiB, gaps %u %%",
                 keeps ? "kept" : "packed", bench_transport_name(transport),
                 bytes >> 10, gap_percent);
        tell_pair("strides", way, row, &run);
    }
}

static void strides(bool quick)
{
    static const unsigned gaps[] = {20, 50, 75};

    for (size_t bytes = 64 << 10; bytes <= 16u << 20;
         bytes *= quick ? 1024 : 16) {
        for (int transport = BENCH_SHM; transport <= BENCH_TCP; transport++) {
            for (size_t row = 4; row <= 16384; row *= quick ? 4096 : 8) {
                for (size_t i = 0; i < (quick ? 1u : 3u); i++) {
                    if (!is_left_out(row)) {
                        rows(bytes, row, gaps[i], (bench_transport_t)transport,
                             quick);
                    }
                }
            }
        }
    }
}

bool bench_scale_run(const char *series, bool quick)
{
    static const struct {
        const char *name;
        void (*measure)(bool quick);
        bool is_asked_for; /* else not a part of "all" */
    } all[] = {{"tensors", tensors, false},
               {"bytes", bytes, false},
               {"endpoints", endpoints, false},
               {"processes", processes, false},
               {"strides", strides, true}};
    size_t name = strcspn(series, ":");
    bool found = false;

    only = series[name] == ':' ? strtoul(series + name + 1, NULL, 10) : 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if ((strcmp(series, "all") == 0 && !all[i].is_asked_for) ||
            (strncmp(series, all[i].name, name) == 0 &&
             all[i].name[name] == '\0')) {
            all[i].measure(quick);
            found = true;
        }
    }
    return found;
}
