/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.h - what was measured, a row each. */
#ifndef TMSG_PERF_ROWS_H
#define TMSG_PERF_ROWS_H

#include "run.h"

/* A time or rate that was not measured is NAN. */
typedef struct {
    const char *measure; /* "latency", ... */
    unsigned kind;       /* PERF_* */
    char transport[16];
    char transports[192];
    char memory[24];
    char map[80];
    uint64_t tensors, bytes; /* of a message; of several, their mean */
    uint64_t in_flight, repetitions, messages;
    double p50_us, p90_us, p99_us, p999_us, max_us, mean_us;
    double messages_per_s, gb_per_s; /* the median of the repetitions */
    double spread_percent; /* between the slowest of them and the fastest */
    double prepare_us, post_us, transfer_us; /* medians */
    bool by_bulk; /* some of the messages; docs/transfer-ways.md */
    bool verified;
    bool is_file; /* the map: of a workload */
} perf_row_t;

typedef struct {
    perf_row_t *rows;
    size_t count, room;
} perf_rows_t;

/* Adds a row, all of it but what is known of it already; NULL: out of memory,
 * which was said. */
perf_row_t *perf_rows_add(perf_rows_t *rows, const perf_peer_t *peer,
                          const load_t *load, unsigned measure,
                          unsigned in_flight, const result_t *result);

/* Writes what a program reads; false: it was said why not. */
void perf_csv_head(FILE *stream);
void perf_csv_row(FILE *stream, const perf_row_t *row);
bool perf_json(FILE *stream, const perf_rows_t *rows);

/* What a person reads: the head of a transport and memory; then the rows of one
 * map and one number under way, of which there is one for each measure at most,
 * as one line. */
void perf_table_head(const perf_options_t *options, const perf_peer_t *peer,
                     const perf_memory_t *memory);
void perf_table_line(const perf_options_t *options, const perf_row_t *rows,
                     size_t count);

/* Writes an SVG picture. False: it was said why not. */
bool perf_plot(const char *path, bool force, const perf_rows_t *rows);

/* Whether it may be written, before anything is measured. False: likewise. */
bool perf_plot_check(const perf_options_t *options);

#endif
