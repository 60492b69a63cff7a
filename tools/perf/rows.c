/* SPDX-License-Identifier: BSD-3-Clause */
#include "rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure/fields.h"

#define FIELD(name, type)                                                      \
    {                                                                          \
#name, FIELD_##type, offsetof(perf_row_t, name)                        \
    }

/* The table gives the columns of CSV and the keys of JSON. The man page lists
 * them. */
static const field_t fields[] = {
    FIELD(measure, WORD),
    FIELD(transport, TEXT),
    FIELD(transports, TEXT),
    FIELD(memory, TEXT),
    FIELD(map, TEXT),
    FIELD(tensors, WHOLE),
    FIELD(bytes, WHOLE),
    FIELD(in_flight, WHOLE),
    FIELD(repetitions, WHOLE),
    FIELD(messages, WHOLE),
    FIELD(p50_us, REAL),
    FIELD(p90_us, REAL),
    FIELD(p99_us, REAL),
    FIELD(p999_us, REAL),
    FIELD(max_us, REAL),
    FIELD(mean_us, REAL),
    FIELD(messages_per_s, REAL),
    FIELD(gb_per_s, REAL),
    FIELD(spread_percent, REAL),
    FIELD(prepare_us, REAL),
    FIELD(post_us, REAL),
    FIELD(transfer_us, REAL),
    FIELD(verified, TRUTH),
    FIELD(by_bulk, TRUTH),
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static const char *measure_name(unsigned measure)
{
    return measure == PERF_LATENCY     ? "latency"
           : measure == PERF_BANDWIDTH ? "bandwidth"
                                       : "calls";
}

static double percentile_us(const histogram_t *histogram, double percent)
{
    return histogram->count == 0
               ? NAN
               : histogram_percentile(histogram, percent) / 1e3;
}

/* Sets the rates. A latency has no rate. */
static void set_rates(perf_row_t *row, const result_t *result)
{
    double rates[PERF_REPETITIONS_MOST];
    size_t count = result->repetitions;
    double middle;

    memcpy(rates, result->rates, sizeof(rates));
    middle = perf_median(rates, count);
    row->spread_percent = (rates[count - 1] - rates[0]) / middle * 100;
    row->messages_per_s = row->kind == PERF_LATENCY ? NAN : middle;
    row->gb_per_s = row->messages_per_s * (double)row->bytes / 1e9;
}

static void set_times(perf_row_t *row, const result_t *result)
{
    const histogram_t *times = &result->times;

    row->messages = times->count;
    row->p50_us = percentile_us(times, 50);
    row->p90_us = percentile_us(times, 90);
    row->p99_us = percentile_us(times, 99);
    row->p999_us = percentile_us(times, 99.9);
    row->max_us = percentile_us(times, 100);
    row->mean_us = histogram_mean(times) / 1e3;
    row->prepare_us = percentile_us(&result->prepare, 50);
    row->post_us = percentile_us(&result->post, 50);
    row->transfer_us = percentile_us(&result->transfer, 50);
}

static perf_row_t *make_row(perf_rows_t *rows)
{
    if (rows->count == rows->room) {
        size_t room = rows->room * 2 + 16;
        perf_row_t *more = realloc(rows->rows, room * sizeof(*more));

        if (more == NULL) {
            complain("out of memory");
            return NULL;
        }
        rows->rows = more;
        rows->room = room;
    }
    return &rows->rows[rows->count++];
}

perf_row_t *perf_rows_add(perf_rows_t *rows, const perf_peer_t *peer,
                          const load_t *load, unsigned measure,
                          unsigned in_flight, const result_t *result)
{
    const workload_t *workload = &load->workload;
    perf_row_t *row = make_row(rows);
    size_t tensors = 0;

    if (row == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < workload->count; i++) {
        tensors += workload->maps[i].count;
    }
    *row = (perf_row_t){
        .measure = measure_name(measure),
        .kind = measure,
        .tensors = tensors / workload->count,
        .bytes = workload->bytes / workload->count,
        .in_flight = measure == PERF_LATENCY ? 1 : in_flight,
        .repetitions = result->repetitions,
        .by_bulk = result->by_bulk,
        .verified = load->verify,
    };
    memcpy(row->transport, peer->transport, sizeof(row->transport));
    memcpy(row->transports, peer->transports, sizeof(row->transports));
    memcpy(row->memory, load->memory.name, sizeof(row->memory));
    memcpy(row->map, load->name, sizeof(row->map));
    set_times(row, result);
    set_rates(row, result);
    return row;
}

void perf_csv_head(FILE *stream) { fields_csv_head(fields, FIELDS, stream); }

void perf_csv_row(FILE *stream, const perf_row_t *row)
{
    fields_csv(fields, FIELDS, row, stream);
}

bool perf_json(FILE *stream, const perf_rows_t *rows)
{
    cJSON *array = fields_json(fields, FIELDS, rows->rows, sizeof(*rows->rows),
                               rows->count);
    char *text = array == NULL ? NULL : cJSON_Print(array);

    if (text == NULL) {
        complain("out of memory");
    } else {
        put_json(stream, text);
        putc('\n', stream);
    }
    free(text);
    cJSON_Delete(array);
    return text != NULL;
}
