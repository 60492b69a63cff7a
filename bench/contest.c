/* SPDX-License-Identifier: BSD-3-Clause */
#include "contest.h"

#include <math.h>
#include <stdio.h>

#include "tools/measure/figures.h"

bench_entrant_t *bench_contest_enter(bench_contest_t *contest, bench_run_t run)
{
    bench_entrant_t *entrant = &contest->entrants[contest->count];

    if (contest->count == BENCH_WAYS_MAX) {
        bench_die("more than %d ways", BENCH_WAYS_MAX);
    }
    if (contest->alone && run.way.layout != BENCH_MAP) {
        return NULL;
    }
    if (contest->quick) {
        run.blocks = 1;
        run.rounds = run.metric == BENCH_BANDWIDTH ? 2 : 10;
        run.seconds = 0.01;
    }
    entrant->run = run;
    entrant->is_limit = run.way.layout != BENCH_MAP;
    contest->count++;
    return entrant;
}

static void measure(bench_entrant_t *entrant, unsigned run)
{
    char name[64];

    if (!bench_pair_run(&entrant->run, &entrant->last)) {
        bench_way_name(entrant->run.way, name, sizeof(name));
        bench_die("a run of %zu x %zu bytes over %s (%s) failed",
                  entrant->run.tensors, entrant->run.tensor_bytes,
                  bench_transport_name(entrant->run.transport), name);
    }
    entrant->values[run] = entrant->last.value;
    entrant->one_way[run] = entrant->last.one_way;
    entrant->p99[run] = entrant->last.p99;
    entrant->loaded[run] = entrant->last.loaded;
    entrant->allowed[run] =
        BENCH_IDLE_TIMES * entrant->last.idle + entrant->last.chunk;
}

static void tell(const bench_entrant_t *entrant, unsigned runs)
{
    const bench_run_t *run = &entrant->run;
    double scale = run->metric == BENCH_BANDWIDTH ? 1e-9
                   : run->metric == BENCH_CALLS || run->metric == BENCH_UNARY ||
                           run->metric == BENCH_FETCH ||
                           run->metric == BENCH_SHARED
                       ? 1
                       : 1e6;
    char name[64];

    bench_way_name(run->way, name, sizeof(name));
    fprintf(stderr, "  %zux%zu %s %-28s", run->tensors, run->tensor_bytes,
            bench_transport_name(run->transport), name);
    for (unsigned i = 0; i < runs; i++) {
        fprintf(stderr, " %.3f", entrant->values[i] * scale);
    }
    fprintf(stderr, "\n");
}

static bench_entrant_t *entrant_at(bench_contest_t *contest, size_t turn)
{
    return turn == contest->count ? &contest->control
                                  : &contest->entrants[turn];
}

void bench_contest_hold(bench_contest_t *contest)
{
    size_t turns;

    contest->control = contest->entrants[0];
    contest->has_control = contest->count > 1 && !contest->alone;
    turns = contest->count + contest->has_control;
    for (unsigned i = 0; i < contest->runs; i++) {
        for (size_t j = 0; j < turns; j++) {
            measure(entrant_at(contest, i % 2 == 0 ? j : turns - 1 - j), i);
        }
    }
    for (size_t j = 0; contest->verbose && j < turns; j++) {
        tell(entrant_at(contest, j), contest->runs);
    }
}

void bench_contest_summarize(const double *values, unsigned runs, double scale,
                             bench_row_t *row)
{
    row->ours = bench_median(values, runs) * scale;
    row->least = row->most = values[0] * scale;
    row->runs = runs;
    for (unsigned i = 1; i < runs; i++) {
        row->least = fmin(row->least, values[i] * scale);
        row->most = fmax(row->most, values[i] * scale);
    }
}

/* Each pair tells as much one way round as the other. The upper quartile: one
 * run in which the host did something else tells nothing of the others. */
static double spread_of(const double *ours, const double *control,
                        unsigned runs)
{
    double apart[BENCH_RUNS_MAX];

    for (unsigned i = 0; i < runs; i++) {
        double ratio = control[i] / ours[i];

        apart[i] = fmax(ratio, 1 / ratio);
    }
    figures_sort(apart, runs);
    return figures_quantile(apart, runs, 0.75);
}

void bench_contest_compare(const bench_contest_t *contest,
                           const bench_entrant_t *other, double scale,
                           bench_row_t *row)
{
    const double *ours = contest->entrants[0].values;
    const double *control =
        contest->has_control ? contest->control.values : ours;
    double ratios[BENCH_RUNS_MAX], both[BENCH_RUNS_MAX];

    /* The two stand around the other in time. */
    for (unsigned i = 0; i < contest->runs; i++) {
        both[i] = (ours[i] + control[i]) / 2;
        ratios[i] = both[i] / other->values[i];
    }
    bench_contest_summarize(both, contest->runs, scale, row);
    row->limit = bench_median(other->values, contest->runs) * scale;
    row->ratio = bench_median(ratios, contest->runs);
    bench_way_name(other->run.way, row->limit_way, sizeof(row->limit_way));
    row->spread =
        contest->has_control ? spread_of(ours, control, contest->runs) : 0;
}

void bench_contest_limit(const bench_contest_t *contest, double scale,
                         bench_row_t *row)
{
    const bench_entrant_t *best = NULL;
    double best_value = 0;

    if (contest->alone) {
        bench_contest_summarize(contest->entrants[0].values, contest->runs,
                                scale, row);
        row->limit = row->ratio = NAN;
        return;
    }
    for (size_t i = 0; i < contest->count; i++) {
        const bench_entrant_t *entrant = &contest->entrants[i];
        double value = bench_median(entrant->values, contest->runs);
        bool better = entrant->run.metric == BENCH_BANDWIDTH
                          ? value > best_value
                          : value < best_value;

        if (entrant->is_limit && (best == NULL || better)) {
            best = entrant;
            best_value = value;
        }
    }
    bench_contest_compare(contest, best, scale, row);
}
