/* SPDX-License-Identifier: BSD-3-Clause */
#include "works.h"
#include "header.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "contest.h"

#define HEADER_TENSORS 8
#define STEADY_TENSORS 8

bench_contest_t bench_works_contest(const bench_options_t *options)
{
    return (bench_contest_t){.runs = options->runs,
                             .quick = options->quick,
                             .verbose = options->verbose,
                             .alone = options->alone};
}

bench_row_t bench_works_row(const char *work, bench_transport_t transport,
                            const char *metric, const char *unit)
{
    return (bench_row_t){.work = work,
                         .transport = bench_transport_name(transport),
                         .metric = metric,
                         .unit = unit,
                         .limit = NAN};
}

static const bench_way_t map_way = {.layout = BENCH_MAP};

/* Of 8 x 64 B. */
static bench_run_t small_run(bench_transport_t transport, bench_metric_t metric)
{
    return (bench_run_t){.tensors = 8,
                         .tensor_bytes = 64,
                         .transport = transport,
                         .metric = metric,
                         .way = map_way,
                         .blocks = 401,
                         .rounds = 64};
}

/* By lines of the cache alone a payload takes as long as it takes two cores to
 * see them: nobody is faster. */
static void compare_latency(const bench_options_t *options, const char *work,
                            bench_transport_t transport, bool look,
                            bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);
    bench_run_t run = small_run(transport, BENCH_LATENCY);
    bench_row_t row = bench_works_row(work, transport, "latency", "us");
    bench_entrant_t *lines = NULL;

    run.look = look;
    bench_contest_enter(&contest, run);
    run.way = (bench_way_t){BENCH_IOV, BENCH_OUR_SETTINGS, BENCH_AUTO};
    bench_contest_enter(&contest, run);
    run.way.settings = BENCH_BEST;
    bench_contest_enter(&contest, run);
    if (transport == BENCH_SHM) {
        run.way = (bench_way_t){.layout = BENCH_LINES};
        lines = bench_contest_enter(&contest, run);
    }
    if (lines != NULL) {
        lines->is_limit = false;
    }
    bench_contest_hold(&contest);
    bench_contest_limit(&contest, 1e6, &row);
    bench_report_add(report, &row);
    if (lines != NULL) {
        row.metric = "latency_over_lines";
        bench_contest_compare(&contest, lines, 1e6, &row);
        bench_report_add(report, &row);
    }
}

static void latency(const bench_options_t *options, const char *work,
                    bench_transport_t transport, bench_report_t *report)
{
    compare_latency(options, work, transport, false, report);
}

/* Where nobody looks, raw UCX's bytes never leave the cache of their sender. */
static void latency_read(const bench_options_t *options, const char *work,
                         bench_transport_t transport, bench_report_t *report)
{
    compare_latency(options, work, transport, true, report);
}

/* Of runs near and far, which the other's time tells: the quickest and the
 * slowest. */
static void tell_apart(const bench_entrant_t *ours, unsigned runs,
                       const char *others, bench_row_t *row)
{
    const double *ratios = ours->values, *times = ours->one_way;
    unsigned least = 0, most = 0;

    for (unsigned i = 1; i < runs; i++) {
        least = times[i] < times[least] ? i : least;
        most = times[i] > times[most] ? i : most;
    }
    snprintf(row->limit_way, sizeof(row->limit_way),
             "%.2f of %s of %.2f us, %.2f of %.2f", ratios[least], others,
             times[least] * 1e6, ratios[most], times[most] * 1e6);
}

/* Of one thing over the time of another, in turns. */
static void compare_turns(const bench_options_t *options, bench_run_t run,
                          bench_row_t row, const char *others,
                          bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);

    bench_contest_enter(&contest, run);
    bench_contest_hold(&contest);
    bench_contest_summarize(contest.entrants[0].values, options->runs, 1, &row);
    tell_apart(&contest.entrants[0], options->runs, others, &row);
    bench_report_add(report, &row);
}

/* A call and its reply, each 8 x 64 B, over the time of one such message. */
static void unary(const bench_options_t *options, const char *work,
                  bench_transport_t transport, bench_report_t *report)
{
    compare_turns(options, small_run(transport, BENCH_UNARY),
                  bench_works_row(work, transport, "latency_over_one_way", "x"),
                  "maps", report);
}

/* A fetch of an offer over a call and its reply, all of 8 x 64 B. */
static void fetch(const bench_options_t *options, const char *work,
                  bench_transport_t transport, bench_report_t *report)
{
    compare_turns(options, small_run(transport, BENCH_FETCH),
                  bench_works_row(work, transport, "latency_over_call", "x"),
                  "calls", report);
}

static void report_calls(const bench_contest_t *contest, bench_row_t row,
                         bench_report_t *report)
{
    unsigned runs = contest->runs;
    const double *ours = contest->entrants[0].values;
    const double *grpc = contest->entrants[1].values;
    double ratios[BENCH_RUNS_MAX];

    row.metric = "rate";
    row.unit = "/s";
    bench_contest_summarize(ours, runs, 1, &row);
    bench_report_add(report, &row);
    if (contest->count > 1) {
        row.metric = "grpc_rate";
        row.cores = "any";
        bench_contest_summarize(grpc, runs, 1, &row);
        bench_report_add(report, &row);
        for (unsigned i = 0; i < runs; i++) {
            ratios[i] = ours[i] / grpc[i];
        }
        row.metric = "rate_over_grpc";
        row.cores = NULL;
        row.unit = "x";
        bench_contest_summarize(ratios, runs, 1, &row);
        bench_report_add(report, &row);
    }
}

/* Calls with as many in flight as the work's name says, beside gRPC's, which
 * has a Unix socket where we have shared memory. */
static void calls(const bench_options_t *options, const char *work,
                  bench_transport_t transport, bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);
    bench_run_t run = small_run(transport, BENCH_CALLS);
    bench_row_t row = bench_works_row(work, transport, NULL, NULL);

    run.window = (unsigned)strtoul(work + strlen("calls_"), NULL, 10);
    run.blocks = 21;
    bench_contest_enter(&contest, run);
    if (bench_grpc_program != NULL) {
        run.way.layout = BENCH_GRPC;
        bench_contest_enter(&contest, run);
    }
    bench_contest_hold(&contest);
    report_calls(&contest, row, report);
}

/* In the processes that did 8 x 64 B; both sides together. */
static void allocations(const bench_options_t *options, const char *work,
                        bench_transport_t transport, bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);
    bench_run_t run = small_run(transport, BENCH_ALLOCATIONS);
    bench_row_t row = bench_works_row(work, transport, "allocations", "/msg");

    if (!bench_counts_available()) {
        return;
    }
    contest.runs = 1;
    run.blocks = 1;
    run.rounds = 2000;
    bench_contest_enter(&contest, run);
    run.way = (bench_way_t){BENCH_IOV, BENCH_OUR_SETTINGS, BENCH_AUTO};
    bench_contest_enter(&contest, run);
    bench_contest_hold(&contest);
    row.runs = 1;
    row.ours = row.least = row.most = contest.entrants[0].last.allocations;
    row.limit =
        options->alone ? NAN : contest.entrants[1].last.allocations_in_ucx;
    snprintf(row.limit_way, sizeof(row.limit_way), "UCX's own, beside: %.2f",
             contest.entrants[0].last.allocations_in_ucx);
    bench_report_add(report, &row);
}

static void enter_raw(bench_contest_t *contest, bench_run_t run,
                      bench_layout_t layout, bench_settings_t last)
{
    for (int settings = BENCH_OUR_SETTINGS; settings <= (int)last; settings++) {
        for (int protocol = BENCH_EAGER; protocol <= BENCH_RNDV; protocol++) {
            run.way = (bench_way_t){layout, (bench_settings_t)settings,
                                    (bench_protocol_t)protocol};
            bench_contest_enter(contest, run);
        }
    }
}

void bench_works_bandwidth(const bench_options_t *options, const char *work,
                           bench_run_t run, bench_settings_t last,
                           bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);
    bench_row_t row = bench_works_row(work, run.transport, "bandwidth", "GB/s");

    row.cores = run.place == BENCH_ONE_CORE ? "one" : NULL;
    bench_contest_enter(&contest, run);
    enter_raw(&contest, run, BENCH_CONTIGUOUS, last);
    bench_contest_hold(&contest);
    bench_contest_limit(&contest, 1e-9, &row);
    bench_report_add(report, &row);
}

bench_run_t bench_works_large(const char *work, bench_transport_t transport)
{
    bool few = strstr(work, "8x2MiB") != NULL;

    return (bench_run_t){.tensors = few ? 8 : 64,
                         .tensor_bytes = few ? 2u << 20 : 256u << 10,
                         .transport = transport,
                         .metric = BENCH_BANDWIDTH,
                         .way = map_way,
                         .window = 4,
                         .blocks = 15,
                         .rounds = 4};
}

static void large_maps(const bench_options_t *options, const char *work,
                       bench_transport_t transport, bench_report_t *report)
{
    bench_works_bandwidth(options, work, bench_works_large(work, transport),
                          BENCH_UNTOUCHED, report);
}

static void thousand(const bench_options_t *options, const char *work,
                     bench_transport_t transport, bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);
    bench_run_t run = {.tensors = 1000,
                       .tensor_bytes = 1024,
                       .transport = transport,
                       .metric = BENCH_BANDWIDTH,
                       .way = map_way,
                       .window = 8,
                       .blocks = 25,
                       .rounds = 16};
    bench_row_t row = bench_works_row(work, transport, "bandwidth", "GB/s");
    double speedups[BENCH_RUNS_MAX];
    bench_entrant_t *untouched;

    bench_contest_enter(&contest, run);
    run.way = (bench_way_t){BENCH_IOV, BENCH_UNTOUCHED, BENCH_AUTO};
    untouched = bench_contest_enter(&contest, run);
    if (untouched != NULL) {
        untouched->is_limit = false;
    }
    run.way = map_way;
    enter_raw(&contest, run, BENCH_IOV, BENCH_BEST);
    enter_raw(&contest, run, BENCH_GATHER, BENCH_BEST);
    bench_contest_hold(&contest);
    bench_contest_limit(&contest, 1e-9, &row);
    bench_report_add(report, &row);

    if (untouched == NULL) {
        return;
    }
    for (unsigned i = 0; i < options->runs; i++) {
        speedups[i] = contest.entrants[0].values[i] / untouched->values[i];
    }
    row = bench_works_row(work, transport, "speedup_over_iov", "x");
    bench_contest_summarize(speedups, options->runs, 1, &row);
    bench_report_add(report, &row);
}

/* How much longer a message with 64 tensors of 64 B takes than one with 8, a
 * tensor, for the sending and the receiving side together. */
static void small_tensor(const bench_options_t *options, const char *work,
                         bench_transport_t transport, bench_report_t *report)
{
    static const bench_way_t ways[] = {
        {.layout = BENCH_MAP},
        {BENCH_IOV, BENCH_OUR_SETTINGS, BENCH_AUTO},
        {BENCH_IOV, BENCH_BEST, BENCH_AUTO}};
    bench_contest_t contest = bench_works_contest(options);
    bench_run_t run = small_run(transport, BENCH_LATENCY);
    bench_row_t row = bench_works_row(work, transport, "cost_ns", "ns");

    for (size_t i = 0; i < 3; i++) {
        run.way = ways[i];
        run.tensors = 8;
        bench_contest_enter(&contest, run);
        run.tensors = 64;
        bench_contest_enter(&contest, run);
    }
    bench_contest_hold(&contest);
    for (size_t i = 0; i < contest.count / 2; i++) {
        bench_entrant_t *few = &contest.entrants[2 * i];
        bench_entrant_t *many = few + 1;

        for (unsigned j = 0; j < options->runs; j++) {
            few->values[j] = (many->values[j] - few->values[j]) / (64 - 8);
        }
        contest.entrants[i] = *few;
    }
    contest.count /= 2;
    contest.has_control = false; /* it was of one of two */
    bench_contest_limit(&contest, 1e9, &row);
    bench_report_add(report, &row);
}

/* p99 of a call of 64 B on one channel while such maps flow on another, over
 * p99 of the same call alone. */
static void under(const bench_options_t *options, const char *work,
                  size_t tensors, size_t tensor_bytes,
                  bench_transport_t transport, bench_report_t *report)
{
    bench_contest_t contest = bench_works_contest(options);
    bench_run_t run = {.tensors = tensors,
                       .tensor_bytes = tensor_bytes,
                       .transport = transport,
                       .metric = BENCH_UNDER_BULK,
                       .way = map_way,
                       .blocks = 1,
                       .rounds = 4000};
    bench_row_t row = bench_works_row(work, transport, "p99_over_idle", "x");

    bench_contest_enter(&contest, run);
    bench_contest_hold(&contest);
    bench_contest_summarize(contest.entrants[0].values, options->runs, 1, &row);
    snprintf(row.limit_way, sizeof(row.limit_way),
             "last run: idle %.1f us, loaded %.0f us",
             contest.entrants[0].last.idle * 1e6,
             contest.entrants[0].last.loaded * 1e6);
    bench_report_add(report, &row);
    row.metric = "p99";
    row.unit = "us";
    bench_contest_summarize(contest.entrants[0].loaded, options->runs, 1e6,
                            &row);
    row.limit = bench_median(contest.entrants[0].allowed, options->runs) * 1e6;
    snprintf(row.limit_way, sizeof(row.limit_way),
             "%d x idle + a chunk; last run's: %.0f us", BENCH_IDLE_TIMES,
             contest.entrants[0].last.chunk * 1e6);
    bench_report_add(report, &row);
}

static void under_bulk(const bench_options_t *options, const char *work,
                       bench_transport_t transport, bench_report_t *report)
{
    under(options, work, 1, options->quick ? 16u << 20 : 1u << 30, transport,
          report);
}

/* Maps of 256 MiB, of which no tensor is large. */
static void under_lists(const bench_options_t *options, const char *work,
                        bench_transport_t transport, bench_report_t *report)
{
    under(options, work, options->quick ? 512 : 4096, 64u << 10, transport,
          report);
}

static void header(const bench_options_t *options, const char *work,
                   bench_transport_t transport, bench_report_t *report)
{
    static const struct {
        const char *metric;
        size_t tensors;
        double (*measure)(size_t tensors, unsigned rounds);
    } rows[] = {
        {"first_ns_per_tensor", HEADER_TENSORS, bench_header_first},
        {"known_ns_per_message", STEADY_TENSORS, bench_header_known},
        {"steady_ns_per_message", STEADY_TENSORS, bench_header_steady},
        {"msgpackc_ns_per_tensor", HEADER_TENSORS, bench_header_msgpack},
        {"safetensors_ns_per_tensor", HEADER_TENSORS, bench_header_safetensors},
    };
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
    double values[ROWS][BENCH_RUNS_MAX] = {{0}};

    for (unsigned i = 0; i < options->runs; i++) {
        for (size_t j = 0; j < ROWS; j++) {
            values[j][i] =
                rows[j].measure(rows[j].tensors, options->quick ? 10 : 1000);
        }
    }
    for (size_t j = 0; j < ROWS; j++) {
        bench_row_t row =
            bench_works_row(work, transport, rows[j].metric, "ns");

        bench_contest_summarize(values[j], options->runs, 1, &row);
        bench_report_add(report, &row);
    }
}

/* Who has many endpoints, and beside it one a client. */
typedef struct {
    bench_way_t way;
    double many[BENCH_RUNS_MAX], one[BENCH_RUNS_MAX];
    double bytes[BENCH_RUNS_MAX];
} crowd_t;

static void gather_crowd(const bench_many_t *wanted, unsigned run,
                         crowd_t *crowd)
{
    bench_many_t many = *wanted;
    bench_many_sample_t sample;

    many.way = crowd->way;
    bench_many_run(&many, &sample);
    crowd->many[run] = sample.rate;
    crowd->bytes[run] = sample.bytes_each;
    many.endpoints = many.clients;
    bench_many_run(&many, &sample);
    crowd->one[run] = sample.rate;
}

/* The rate over all endpoints in turn, beside that over one, and beside raw
 * UCX's over as many, by our settings. */
static void endpoints(const bench_options_t *options, const char *work,
                      bench_transport_t transport, bench_report_t *report)
{
    const bench_many_t many = {.transport = transport,
                               .clients = options->quick ? 2 : 10,
                               .endpoints = options->quick ? 20 : 1000,
                               .blocks = options->quick ? 1 : 9,
                               .messages = options->quick ? 200 : 20000};
    crowd_t ours = {.way = {BENCH_MAP, BENCH_OUR_SETTINGS, BENCH_EAGER}};
    crowd_t raw = {.way = {BENCH_CONTIGUOUS, BENCH_OUR_SETTINGS, BENCH_EAGER}};
    unsigned runs = options->runs;
    bench_row_t row = bench_works_row(work, transport, "rate", "/s");

    for (unsigned i = 0; i < runs; i++) {
        crowd_t *turns[] = {i % 2 == 0 ? &ours : &raw,
                            i % 2 == 0 ? &raw : &ours};

        for (int j = 0; j < 2; j++) {
            if (turns[j] == &ours || !options->alone) {
                gather_crowd(&many, i, turns[j]);
            }
        }
    }
    bench_contest_summarize(ours.many, runs, 1, &row);
    row.limit = bench_median(ours.one, runs);
    snprintf(row.limit_way, sizeof(row.limit_way), "one endpoint a client");
    bench_report_add(report, &row);
    if (!options->alone) {
        row.metric = "rate_beside_raw";
        row.limit = bench_median(raw.many, runs);
        snprintf(row.limit_way, sizeof(row.limit_way),
                 "contiguous, PEER, as many: %.2f of its one",
                 row.limit / bench_median(raw.one, runs));
        bench_report_add(report, &row);
    }
    if (bench_counts_available()) {
        row.metric = "bytes_each";
        row.unit = "B";
        row.limit_way[0] = '\0';
        bench_contest_summarize(ours.bytes, runs, 1, &row);
        row.limit = NAN;
        bench_report_add(report, &row);
    }
}

static const struct {
    const char *name;
    bench_transport_t transport;
    bench_work_t *measure;
} works[] = {
    {"8x64B", BENCH_SHM, latency},
    {"8x64B", BENCH_TCP, latency},
    {"8x64B_read", BENCH_SHM, latency_read},
    {"8x64B", BENCH_SHM, allocations},
    {"unary_8x64B", BENCH_SHM, unary},
    {"unary_8x64B", BENCH_TCP, unary},
    {"fetch_8x64B", BENCH_SHM, fetch},
    {"fetch_8x64B", BENCH_TCP, fetch},
    {"calls_1", BENCH_SHM, calls},
    {"calls_16", BENCH_SHM, calls},
    {"calls_256", BENCH_SHM, calls},
    {"calls_1", BENCH_TCP, calls},
    {"calls_16", BENCH_TCP, calls},
    {"calls_256", BENCH_TCP, calls},
    {"8x2MiB", BENCH_SHM, large_maps},
    {"8x2MiB", BENCH_TCP, large_maps},
    {"64x256KiB", BENCH_SHM, large_maps},
    {"64x256KiB", BENCH_TCP, large_maps},
    {"1000x1KiB", BENCH_TCP, thousand},
    {"small_tensor", BENCH_SHM, small_tensor},
    {"call_under_bulk", BENCH_SHM, under_bulk},
    {"call_under_bulk", BENCH_TCP, under_bulk},
    {"call_under_lists", BENCH_SHM, under_lists},
    {"call_under_lists", BENCH_TCP, under_lists},
    {"header", BENCH_NOWHERE, header},
    {"endpoints_1000", BENCH_TCP, endpoints},
    {"one_core_8x64B", BENCH_SHM, bench_one_core},
    {"one_core_unary_8x64B", BENCH_SHM, bench_one_core_call},
    {"one_core_8x2MiB", BENCH_SHM, bench_one_core_large},
    {"one_core_64x256KiB", BENCH_SHM, bench_one_core_large},
    {"oversubscribed_2", BENCH_SHM, bench_oversubscribed},
    {"oversubscribed_2_busy", BENCH_SHM, bench_oversubscribed},
    {"oversubscribed_4", BENCH_SHM, bench_oversubscribed},
    {"oversubscribed_4_busy", BENCH_SHM, bench_oversubscribed},
};

void bench_works_list(void)
{
    for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
        printf("%s %s\n", works[i].name,
               bench_transport_name(works[i].transport));
    }
}

bool bench_works_run(const bench_options_t *options, const char *only,
                     const char *over, bench_report_t *report)
{
    bool found = false;

    for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
        const char *transport = bench_transport_name(works[i].transport);

        if ((only == NULL || strcmp(only, works[i].name) == 0) &&
            (over == NULL || strcmp(over, transport) == 0)) {
            works[i].measure(options, works[i].name, works[i].transport,
                             report);
            found = true;
        }
    }
    return found;
}
