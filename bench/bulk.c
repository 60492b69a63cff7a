/* SPDX-License-Identifier: BSD-3-Clause */
/* What a small call takes on one channel while large maps flow on another, the
 * same way. */
#include <poll.h>

#include "side.h"
#include "tools/measure/figures.h"

#define IN_FLIGHT 2 /* maps: one travels, one is ready */
#define CALLS_MAX 4000
#define CALLS_LEAST 1
#define MAPS_AHEAD 4   /* before calls are timed: memory was touched */
#define MAPS_TIMED 2   /* of them, the last */
#define SECONDS_MOST 6 /* of calls, where each of them takes long */

/* `chunk_bytes` of a transport: docs/reference/thresholds.md. */
static double chunk_bytes(bench_transport_t transport)
{
    return transport == BENCH_TCP ? 128 << 10 : 256 << 10;
}

/* Keeps maps flowing. Returns how many it sent. */
static unsigned feed(bench_side_t *side)
{
    unsigned count = 0;

    for (; side->in_flight < IN_FLIGHT; count++) {
        side->send(side);
    }
    return count;
}

/* Seconds. */
static double one_call(bench_side_t *side)
{
    double begin = bench_now();

    side->awaited++;
    side->call(side);
    while (side->received < side->awaited) {
        side->progress(side);
    }
    return bench_now() - begin;
}

/* What 99 of 100 calls took, or less. */
static double p99_of_calls(bench_side_t *side, unsigned calls, bool bulk)
{
    static double values[CALLS_MAX];
    double end = bench_now() + SECONDS_MOST;
    unsigned count = 0;

    while (count < calls && (count < CALLS_LEAST || bench_now() < end)) {
        if (bulk) {
            feed(side);
        }
        values[count++] = one_call(side);
    }
    figures_sort(values, count);
    return figures_quantile(values, count, 0.99);
}

void bench_serve(bench_side_t *side, int socket)
{
    struct pollfd heard = {socket, POLLIN, 0};

    while (poll(&heard, 1, 0) == 0) {
        for (int i = 0; i < 1000; i++) {
            side->progress(side);
        }
    }
}

void bench_bulk_play(bench_side_t *side, const bench_run_t *run, bool first,
                     int socket, bench_sample_t *sample_p)
{
    unsigned calls = run->rounds < CALLS_MAX ? run->rounds : CALLS_MAX;
    double bytes = (double)run->tensors * (double)run->tensor_bytes;
    double begin = 0;

    if (!first) {
        bench_serve(side, socket);
        bench_meet(socket);
        return;
    }
    p99_of_calls(side, calls, false); /* warm-up */
    sample_p->idle = p99_of_calls(side, calls, false);
    for (unsigned maps = 0; maps < IN_FLIGHT + MAPS_AHEAD;) {
        unsigned more = feed(side);

        maps += more;
        if (more > 0 && maps <= IN_FLIGHT + MAPS_AHEAD - MAPS_TIMED) {
            begin = bench_now();
        }
        one_call(side);
    }
    sample_p->chunk = (bench_now() - begin) / (MAPS_TIMED * bytes) *
                      chunk_bytes(run->transport);
    sample_p->loaded = p99_of_calls(side, calls, true);
    sample_p->value = sample_p->loaded / sample_p->idle;
    while (side->in_flight > 0) {
        side->progress(side);
    }
    bench_meet(socket);
}
