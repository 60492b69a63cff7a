/* SPDX-License-Identifier: BSD-3-Clause */
/* bench/report.h - the rows, as a table and as JSON. */
#ifndef TMSG_BENCH_REPORT_H
#define TMSG_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_ROWS_MAX 64
#define BENCH_RUNS_MAX 99

/* Where the metric has no limit, or is a ratio itself, `limit` and `ratio` are
 * NAN, which JSON says as null. */
typedef struct {
    const char *work;
    const char *transport; /* "shm", "tcp" or "-" */
    const char *metric;
    const char *unit;
    double ours; /* median of the runs */
    double limit;
    double ratio;  /* median of ours / limit within a run; 0: of the medians */
    double spread; /* by how much ours differs from itself within a run, 1.04
                      say, in three of four at most; NAN, and 0 until it is
                      added: that was not measured */
    uint64_t runs;
    const char *cores;   /* where the two sides were; NULL: as bound */
    char cores_text[24]; /* the same in words, of bench_report_add() */
    double least, most;  /* ours, over the runs; table only */
    char limit_way[48];  /* which raw way it was; table only */
} bench_row_t;

/* Whether ours and the limit differ by more than ours from itself. */
bool bench_row_differs(const bench_row_t *row);

typedef struct {
    bench_row_t rows[BENCH_ROWS_MAX];
    size_t count;
} bench_report_t;

/* Appends a copy, its ratio worked out from ours and limit where it has
 * none. */
void bench_report_add(bench_report_t *report, const bench_row_t *row);

void bench_report_print(const bench_report_t *report);

/* Writes the array of rows; dies if that cannot be done. */
void bench_report_write(const bench_report_t *report, const char *path);

#endif
