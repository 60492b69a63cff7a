/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/works.h - the rows of the table and how each is measured. */
#ifndef TMSG_BENCH_WORKS_H
#define TMSG_BENCH_WORKS_H

#include "contest.h"
#include "report.h"

typedef struct {
    unsigned runs;
    bool quick;   /* a few rounds: that it works, not how fast */
    bool verbose; /* every way that was measured, on stderr */
    bool alone;   /* ours alone: nothing beside it, and no control */
} bench_options_t;

/* Prints a line "WORK TRANSPORT" for each work. */
void bench_works_list(void);

/* Measures the rows of a work, of a transport, or (NULL) of all. False: there
 * is no such row. */
bool bench_works_run(const bench_options_t *options, const char *only,
                     const char *over, bench_report_t *report);

/* A contest as the options say. */
bench_contest_t bench_works_contest(const bench_options_t *options);

/* A row without figures and without a limit. */
bench_row_t bench_works_row(const char *work, bench_transport_t transport,
                            const char *metric, const char *unit);

/* Large maps of a size that the work's name says, one way; and their row beside
 * raw UCX by each of its protocols, with settings up to the last. */
bench_run_t bench_works_large(const char *work, bench_transport_t transport);
void bench_works_bandwidth(const bench_options_t *options, const char *work,
                           bench_run_t run, bench_settings_t last,
                           bench_report_t *report);

/* Works for which there are fewer processors than processes. */
typedef void bench_work_t(const bench_options_t *options, const char *work,
                          bench_transport_t transport, bench_report_t *report);
bench_work_t bench_one_core, bench_one_core_call, bench_one_core_large,
    bench_oversubscribed;

#endif
