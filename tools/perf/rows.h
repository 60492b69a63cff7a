/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.h - the results, a row for each measurement. */
#ifndef TMSG_PERF_ROWS_H
#define TMSG_PERF_ROWS_H

#include "run.h"

/* Holds the result of a measurement. A time or rate that was not measured is
 * NAN. */
typedef struct {
    const char *measure; /* "latency", ... */
    unsigned kind;       /* PERF_* */
    char transport[16];
    char transports[192];
    char memory[24];
    char map[80];
    uint64_t tensors, bytes; /* of a message; for several maps, their mean */
    uint64_t in_flight, repetitions, messages;
    double p50_us, p90_us, p99_us, p999_us, max_us, mean_us;
    double messages_per_s, gb_per_s; /* median of the repetitions */
    double spread_percent; /* between the slowest and the fastest repetition */
    double prepare_us, post_us, transfer_us; /* medians of the phases */
    bool by_bulk; /* some messages used the bulk stream */
    bool verified;
} perf_row_t;

typedef struct {
    perf_row_t *rows;
    size_t count, room;
} perf_rows_t;

/* Adds a row for a result, and fills it in. Returns NULL after a complaint if
 * there is no memory. */
perf_row_t *perf_rows_add(perf_rows_t *rows, const perf_peer_t *peer,
                          const load_t *load, unsigned measure,
                          unsigned in_flight, const result_t *result);

/* These functions write the results for programs. perf_json() returns false
 * after a complaint. */
void perf_csv_head(FILE *stream);
void perf_csv_row(FILE *stream, const perf_row_t *row);
bool perf_json(FILE *stream, const perf_rows_t *rows);

/* These functions write the results for people. perf_table_head() writes the
 * head for a transport and a memory. perf_table_line() writes one line: the
 * rows of one map and one number in flight, with at most one row for each
 * measure. */
void perf_table_head(const perf_options_t *options, const perf_peer_t *peer,
                     const perf_memory_t *memory);
void perf_table_line(const perf_options_t *options, const perf_row_t *rows,
                     size_t count);

#endif
