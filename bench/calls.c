/* SPDX-License-Identifier: BSD-3-Clause */
/* How many calls there are in a second, with so many under way. */
#include "side.h"

#define BLOCKS_MAX 1024
#define TURNS 64 /* between two looks at the clock */

/* As many as may be under way, unless all have been made. */
static void call(bench_side_t *side, uint64_t *called, unsigned window,
                 uint64_t end)
{
    while (*called < end && *called - side->received < window) {
        (*called)++;
        side->ask(side);
    }
    side->progress(side);
}

/* So many more, and the end of all. */
static void settle(bench_side_t *side, uint64_t *called, unsigned window,
                   unsigned count)
{
    uint64_t end = *called + count;

    while (side->received < end) {
        call(side, called, window, end);
    }
}

static double rate(bench_side_t *side, uint64_t *called, unsigned window)
{
    double begin = bench_now(), now;
    uint64_t before = side->received;

    do {
        for (unsigned i = 0; i < TURNS; i++) {
            call(side, called, window, UINT64_MAX);
        }
        now = bench_now();
    } while (now - begin < BENCH_CALLS_MS * 1e-3);
    return (double)(side->received - before) / (now - begin);
}

static double measure(bench_side_t *side, const bench_run_t *run,
                      uint64_t *called)
{
    double values[BLOCKS_MAX];

    for (unsigned i = 0; i < run->blocks / 4 + 1; i++) { /* warm-up */
        rate(side, called, run->window);
    }
    for (unsigned i = 0; i < run->blocks; i++) {
        values[i] = rate(side, called, run->window);
    }
    settle(side, called, run->window, 0);
    return bench_median(values, run->blocks);
}

/* So many calls at once whose every byte is compared, there and back. */
static void verify(bench_side_t *side, const bench_run_t *run, uint64_t seed,
                   uint64_t *called, int socket)
{
    uint64_t wanted = side->checked + run->window;

    bench_payload_fill(&side->payloads[0], seed);
    side->check = true;
    bench_meet(socket);
    if (called != NULL) {
        settle(side, called, run->window, run->window);
    } else {
        bench_serve(side, socket);
    }
    bench_meet(socket);
    side->check = false;
    if (side->checked != wanted) {
        bench_die("a call or its reply was not compared");
    }
}

void bench_calls_play(bench_side_t *side, const bench_run_t *run, bool first,
                      int socket, bench_sample_t *sample_p)
{
    uint64_t count = 0, *called = first ? &count : NULL;

    verify(side, run, 1, called, socket);
    if (first) {
        sample_p->value = measure(side, run, called);
    } else {
        bench_serve(side, socket);
    }
    bench_meet(socket);
    verify(side, run, 2, called, socket);
}
