/* SPDX-License-Identifier: BSD-3-Clause */
/* The loops that are timed. */
#include "side.h"

#define BLOCKS_MAX 1024
#define ROUNDS_MOST 10000
#define SETTLE_ROUNDS 24 /* from calls to maps and back, not timed */

/* What comes early, as while a block is drained, counts for later. */
void bench_await(bench_side_t *side, unsigned messages)
{
    side->awaited += messages;
    while (side->received < side->awaited) {
        side->progress(side);
    }
}

void bench_drain(bench_side_t *side)
{
    while (side->in_flight > 0) {
        side->progress(side);
    }
}

void bench_ping_pong(bench_side_t *side, unsigned rounds, bool first)
{
    for (unsigned i = 0; i < rounds; i++) {
        if (first) {
            side->send(side);
        }
        bench_await(side, 1);
        if (!first) {
            side->send(side);
        }
    }
    bench_drain(side);
}

/* The other side answers calls by itself. */
static void ask(bench_side_t *side, unsigned rounds, bool first)
{
    for (unsigned i = 0; i < rounds; i++) {
        if (first) {
            side->ask(side);
        }
        bench_await(side, 1);
    }
    bench_drain(side);
}

/* The other side answers fetches without knowing of them: it is told when all
 * have ended. */
static void fetch(bench_side_t *side, unsigned rounds, bool first)
{
    for (unsigned i = 0; i < rounds && first; i++) {
        side->fetch(side);
        bench_await(side, 1);
    }
    if (first) {
        side->answer(side);
    } else {
        bench_await(side, 1);
    }
    bench_drain(side);
}

/* The receiver answers when the last message is whole. */
static void stream(bench_side_t *side, unsigned rounds, unsigned window,
                   bool first)
{
    if (!first) {
        bench_await(side, rounds);
        side->answer(side);
        bench_drain(side);
        return;
    }
    for (unsigned i = 0; i < rounds; i++) {
        while (side->in_flight >= window) {
            side->progress(side);
        }
        side->send(side);
    }
    bench_await(side, 1);
    bench_drain(side);
}

static void block(bench_side_t *side, const bench_run_t *run, unsigned rounds,
                  bool first)
{
    if (run->metric == BENCH_BANDWIDTH) {
        stream(side, rounds, run->window, first);
        return;
    }
    if (run->metric == BENCH_UNARY || run->metric == BENCH_FETCH) {
        ask(side, rounds, first);
    }
    if (run->metric == BENCH_FETCH) {
        fetch(side, rounds, first);
        return;
    }
    bench_ping_pong(side, rounds, first);
}

/* Every map once each way, or one way, whose every byte is compared. */
static void verify(bench_side_t *side, const bench_run_t *run, uint64_t seed,
                   bool first, int socket)
{
    size_t maps = side->payload_count;
    unsigned times = run->metric == BENCH_UNARY                 ? 2
                     : run->metric == BENCH_FETCH               ? 1 + first
                     : run->metric != BENCH_BANDWIDTH || !first ? 1
                                                                : 0;
    uint64_t wanted = side->checked + times * maps;

    for (size_t i = 0; i < maps; i++) {
        bench_payload_fill(&side->payloads[i], seed + i);
    }
    side->turn = 0;
    side->check = true;
    bench_meet(socket);
    block(side, run, (unsigned)maps, first);
    bench_meet(socket); /* or what comes next would be compared, too */
    side->check = false;
    if (side->checked != wanted) {
        bench_die("a message was not compared");
    }
}

/* Of one message, or of half a round trip. */
static double measure(bench_side_t *side, const bench_run_t *run, bool first)
{
    double values[BLOCKS_MAX];
    double bytes =
        (double)side->payload_bytes * run->rounds / (double)side->payload_count;

    for (unsigned i = 0; i < run->blocks; i++) {
        double begin = bench_now();
        double seconds;

        block(side, run, run->rounds, first);
        seconds = bench_now() - begin;
        values[i] = run->metric == BENCH_BANDWIDTH ? bytes / seconds
                                                   : seconds / run->rounds / 2;
    }
    return bench_median(values, run->blocks);
}

/* Of a round of rounds, those before not counted. */
static double time_rounds(void (*go)(bench_side_t *side, unsigned rounds,
                                     bool first),
                          bench_side_t *side, unsigned rounds, bool first)
{
    double begin;

    go(side, rounds < SETTLE_ROUNDS ? rounds : SETTLE_ROUNDS, first);
    begin = bench_now();
    go(side, rounds, first);
    return (bench_now() - begin) / rounds;
}

/* Calls and maps in turns, so that whatever else happens, and where the host
 * has placed both cores, falls on both alike. */
static void measure_unary(bench_side_t *side, const bench_run_t *run,
                          bool first, bench_sample_t *sample_p)
{
    double ratios[BLOCKS_MAX], maps[BLOCKS_MAX];

    for (unsigned i = 0; i < run->blocks; i++) {
        double call = time_rounds(ask, side, run->rounds, first);

        maps[i] = time_rounds(bench_ping_pong, side, run->rounds, first) / 2;
        ratios[i] = call / maps[i];
    }
    sample_p->value = bench_median(ratios, run->blocks);
    sample_p->one_way = bench_median(maps, run->blocks);
}

/* Fetches and calls in turns, likewise. */
static void measure_fetch(bench_side_t *side, const bench_run_t *run,
                          bool first, bench_sample_t *sample_p)
{
    double ratios[BLOCKS_MAX], calls[BLOCKS_MAX];

    for (unsigned i = 0; i < run->blocks; i++) {
        double one = time_rounds(fetch, side, run->rounds, first);

        calls[i] = time_rounds(ask, side, run->rounds, first);
        ratios[i] = one / calls[i];
    }
    sample_p->value = bench_median(ratios, run->blocks);
    sample_p->one_way = bench_median(calls, run->blocks);
}

/* In a round trip each side sends one message and receives one, so what one
 * side allocates is what a message costs both. */
static void count(bench_side_t *side, const bench_run_t *run, bool first,
                  bench_sample_t *sample_p)
{
    unsigned long elsewhere, in_ucx;

    bench_counts_start();
    block(side, run, run->rounds, first);
    bench_counts_stop(&elsewhere, &in_ucx);
    sample_p->allocations = (double)elsewhere / run->rounds;
    sample_p->allocations_in_ucx = (double)in_ucx / run->rounds;
}

/* How many rounds of a workload, each map as often as the others, take as long
 * as is asked for; the first side finds out, and the second hears of it. */
static unsigned agree(bench_side_t *side, const bench_run_t *run, bool first,
                      int socket)
{
    unsigned maps = (unsigned)side->payload_count, times = 1;
    double begin = bench_now();

    block(side, run, maps, first);
    block(side, run, maps, first);
    if (!first) {
        bench_hear(socket, &times, sizeof(times));
        return times * maps;
    }
    while (times < ROUNDS_MOST / maps &&
           (bench_now() - begin) / 2 * times < run->block_s) {
        times++;
    }
    bench_tell(socket, &times, sizeof(times));
    return times * maps;
}

void bench_play(bench_side_t *side, const bench_run_t *given, bool first,
                int socket, bench_sample_t *sample_p)
{
    bench_run_t timed = *given;
    const bench_run_t *run = &timed;

    if (run->metric == BENCH_UNDER_BULK) {
        bench_bulk_play(side, run, first, socket, sample_p);
        return;
    }
    if (run->metric == BENCH_CALLS) {
        bench_calls_play(side, run, first, socket, sample_p);
        return;
    }
    verify(side, run, 1, first, socket);
    if (run->block_s > 0) {
        timed.rounds = agree(side, run, first, socket);
    }
    for (unsigned i = 0; i < run->blocks / 4 + 1; i++) { /* warm-up */
        block(side, run, run->rounds, first);
    }
    if (run->metric == BENCH_SHARED) {
        bench_shared_play(side, run, first, sample_p);
    } else if (run->metric == BENCH_ALLOCATIONS) {
        count(side, run, first, sample_p);
    } else if (run->metric == BENCH_UNARY) {
        measure_unary(side, run, first, sample_p);
    } else if (run->metric == BENCH_FETCH) {
        measure_fetch(side, run, first, sample_p);
    } else {
        sample_p->value = measure(side, run, first);
    }
    verify(side, run, 2, first, socket);
}
