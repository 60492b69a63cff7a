/* SPDX-License-Identifier: BSD-3-Clause */
/* Works for which there are fewer processors than processes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "contest.h"
#include "works.h"

#define SECONDS 0.5 /* of a run */

/* Raw UCX with wake-ups, which only these settings have. */
static const bench_way_t raw_way = {BENCH_IOV, BENCH_OUR_SETTINGS, BENCH_AUTO};

static const bench_run_t small_maps = {.tensors = 8,
                                       .tensor_bytes = 64,
                                       .metric = BENCH_SHARED,
                                       .way = {.layout = BENCH_MAP},
                                       .blocks = 5,
                                       .rounds = 64,
                                       .sleeps = true,
                                       .pairs = 1,
                                       .seconds = SECONDS};

/* Another of a contest's figures is the one that counts. */
static void count_latency(bench_entrant_t *entrant)
{
    memcpy(entrant->values, entrant->one_way, sizeof(entrant->values));
}

static void count_p99(bench_entrant_t *entrant)
{
    memcpy(entrant->values, entrant->p99, sizeof(entrant->values));
}

static void recount(bench_contest_t *contest,
                    void (*count)(bench_entrant_t *entrant))
{
    for (size_t i = 0; i < contest->count; i++) {
        count(&contest->entrants[i]);
    }
    count(&contest->control);
}

static void report_p99(const bench_contest_t *contest, bench_row_t row,
                       bench_report_t *report)
{
    double ratios[BENCH_RUNS_MAX];

    for (unsigned i = 0; i < contest->runs; i++) {
        ratios[i] =
            contest->entrants[0].p99[i] / contest->entrants[0].one_way[i];
    }
    row.metric = "p99_over_median";
    row.unit = "x";
    bench_contest_summarize(ratios, contest->runs, 1, &row);
    row.limit = NAN;
    bench_report_add(report, &row);
}

void bench_one_core(const bench_options_t *options, const char *work,
                    bench_transport_t transport, bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);
    bench_run_t run = small_maps;
    bench_row_t named = bench_works_row(work, transport, NULL, "us");
    bench_row_t row;
    bench_entrant_t *raw;

    named.cores = "one";
    row = named;
    run.transport = transport;
    run.place = BENCH_ONE_CORE;
    bench_contest_enter(&contest, run);
    run.way.layout = BENCH_LINES;
    bench_contest_enter(&contest, run);
    run.way = raw_way;
    raw = bench_contest_enter(&contest, run);
    bench_contest_hold(&contest);
    report_p99(&contest, named, report);
    recount(&contest, count_latency);
    if (raw != NULL) {
        raw->is_limit = false;
    }
    row.metric = "latency_over_futex";
    bench_contest_limit(&contest, 1e6, &row);
    snprintf(row.limit_way, sizeof(row.limit_way), "a futex, no library");
    bench_report_add(report, &row);
    if (raw != NULL) {
        row = named;
        row.metric = "latency_over_raw";
        bench_contest_compare(&contest, raw, 1e6, &row);
        bench_report_add(report, &row);
    }
}

/* A call and its reply over a map there and one back. */
void bench_one_core_call(const bench_options_t *options, const char *work,
                         bench_transport_t transport, bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);
    bench_run_t run = small_maps;
    bench_row_t row =
        bench_works_row(work, transport, "latency_over_maps", "x");

    run.transport = transport;
    row.cores = "one";
    run.metric = BENCH_UNARY;
    run.place = BENCH_ONE_CORE;
    run.blocks = 101;
    bench_contest_enter(&contest, run);
    bench_contest_hold(&contest);
    bench_contest_summarize(contest.entrants[0].values, options->runs, 0.5,
                            &row);
    bench_report_add(report, &row);
}

void bench_one_core_large(const bench_options_t *options, const char *work,
                          bench_transport_t transport, bench_report_t *report)
{
    bench_run_t run = bench_works_large(work, transport);

    run.blocks = 9;
    run.sleeps = true;
    run.place = BENCH_ONE_CORE;
    bench_works_bandwidth(options, work, run,
                          options->quick ? BENCH_OUR_SETTINGS : BENCH_UNTOUCHED,
                          report);
}

/* So many pairs as the work's name says, and whether one computes beside. */
void bench_oversubscribed(const bench_options_t *options, const char *work,
                          bench_transport_t transport, bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);
    bench_run_t run = small_maps;
    bench_row_t row = bench_works_row(work, transport, "rate", "/s");

    run.transport = transport;
    row.cores = "any";
    run.place = BENCH_ANY_CORE;
    run.pairs = (unsigned)strtoul(work + strlen("oversubscribed_"), NULL, 10);
    run.computing = strstr(work, "_busy") != NULL;
    run.seconds = 2 * SECONDS;
    bench_contest_enter(&contest, run);
    run.way = raw_way;
    bench_contest_enter(&contest, run);
    bench_contest_hold(&contest);
    bench_contest_limit(&contest, 1, &row);
    bench_report_add(report, &row);
    recount(&contest, count_p99);
    row.metric = "p99";
    row.unit = "us";
    row.ratio = 0;
    bench_contest_limit(&contest, 1e6, &row);
    bench_report_add(report, &row);
}
