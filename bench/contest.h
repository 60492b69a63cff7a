/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/contest.h - ways to do one work, measured in turns, so that what else
 * the machine does falls on all of them: forwards in one run and backwards in
 * the next (A B B A). The first way is ours. It takes part twice, at both ends
 * of a turn: what it differs by from itself is the control, within which
 * nothing is told apart. */
#ifndef TMSG_BENCH_CONTEST_H
#define TMSG_BENCH_CONTEST_H

#include "bench.h"
#include "report.h"

#define BENCH_WAYS_MAX 16
#define BENCH_IDLE_TIMES 5 /* idle calls that one beside bulk may take */

typedef struct {
    bench_run_t run;
    bool is_limit; /* raw UCX, as the row wants it */
    double values[BENCH_RUNS_MAX];
    double one_way[BENCH_RUNS_MAX];
    double p99[BENCH_RUNS_MAX];
    double loaded[BENCH_RUNS_MAX], allowed[BENCH_RUNS_MAX]; /* under bulk */
    bench_sample_t last;
} bench_entrant_t;

typedef struct {
    bench_entrant_t entrants[BENCH_WAYS_MAX];
    size_t count;
    bench_entrant_t control; /* ours once more */
    bool has_control;        /* not where ours is alone */
    unsigned runs;
    bool quick;
    bool verbose;
    bool alone; /* ours alone: what is compared is compared elsewhere */
} bench_contest_t;

/* One more way. A limit is whatever is not ours, until it is said otherwise.
 * NULL: it does not take part, for ours is alone. */
bench_entrant_t *bench_contest_enter(bench_contest_t *contest, bench_run_t run);

/* Measures all of them; a run that fails ends the process. */
void bench_contest_hold(bench_contest_t *contest);

/* Ours alone, in the row's unit of `scale`. */
void bench_contest_summarize(const double *values, unsigned runs, double scale,
                             bench_row_t *row);

/* Ours with its control beside one other: medians, the median of the ratios
 * within each run, and how far ours is from its control in three runs of
 * four. */
void bench_contest_compare(const bench_contest_t *contest,
                           const bench_entrant_t *other, double scale,
                           bench_row_t *row);

/* The same beside the best of the limits, by its median. */
void bench_contest_limit(const bench_contest_t *contest, double scale,
                         bench_row_t *row);

#endif
