/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

void bench_report_add(bench_report_t *report, const bench_row_t *row)
{
    bench_row_t *place = &report->rows[report->count];

    if (report->count == BENCH_ROWS_MAX) {
        bench_die("more than %d rows", BENCH_ROWS_MAX);
    }
    *place = *row;
    if (row->ratio == 0) {
        place->ratio = row->limit > 0 ? row->ours / row->limit : NAN;
    }
    report->count++;
}

bool bench_row_differs(const bench_row_t *row)
{
    return row->ratio > row->spread || row->ratio < 1 / row->spread;
}

/* "0,1", or "-" where there are no two sides. */
static const char *cores_of(const bench_row_t *row, char text[24])
{
    if (row->cores != NULL) {
        return row->cores;
    }
    if (row->transport[0] == '-') {
        return "-";
    }
    snprintf(text, 24, "%d,%d", bench_core_of(0), bench_core_of(1));
    return text;
}

static const char *verdict_of(const bench_row_t *row)
{
    return row->spread == 0         ? ""
           : bench_row_differs(row) ? "differs"
                                    : "no difference";
}

/* Three digits or all of the integer part, into `text`. */
static const char *number(double value, char text[16])
{
    int digits = fabs(value) >= 100 ? 0 : fabs(value) >= 10 ? 1 : 2;

    if (isnan(value)) {
        return "-";
    }
    snprintf(text, 16, "%.*f", digits, value);
    return text;
}

static void print_row(const bench_row_t *row)
{
    char ours[16], limit[16], ratio[16], least[16], most[16], spread[16];
    char cores[24];

    printf("%-16s %-4s %-5s %-19s %8s %8s %6s %6s %-13s %-5s %4u  %s..%s  "
           "%s\n",
           row->work, row->transport, cores_of(row, cores), row->metric,
           number(row->ours, ours), number(row->limit, limit),
           number(row->ratio, ratio),
           number(row->spread == 0 ? NAN : row->spread, spread),
           verdict_of(row), row->unit, row->runs, number(row->least, least),
           number(row->most, most), row->limit_way);
}

void bench_report_print(const bench_report_t *report)
{
    printf("%-16s %-4s %-5s %-19s %8s %8s %6s %6s %-13s %-5s %4s  %s  %s\n",
           "work", "over", "cores", "metric", "ours", "limit", "ratio",
           "spread", "", "unit", "runs", "ours, least..most", "limit by");
    for (size_t i = 0; i < report->count; i++) {
        print_row(&report->rows[i]);
    }
}

static void add_number(cJSON *object, const char *name, double value)
{
    if (isnan(value)) {
        cJSON_AddNullToObject(object, name);
    } else {
        cJSON_AddNumberToObject(object, name, value);
    }
}

static cJSON *to_json(const bench_row_t *row)
{
    cJSON *object = cJSON_CreateObject();
    char cores[24];

    cJSON_AddStringToObject(object, "work", row->work);
    cJSON_AddStringToObject(object, "transport", row->transport);
    cJSON_AddStringToObject(object, "metric", row->metric);
    cJSON_AddStringToObject(object, "unit", row->unit);
    add_number(object, "ours", row->ours);
    add_number(object, "limit", row->limit);
    add_number(object, "ratio", row->ratio);
    add_number(object, "spread", row->spread == 0 ? NAN : row->spread);
    cJSON_AddStringToObject(object, "cores", cores_of(row, cores));
    cJSON_AddNumberToObject(object, "runs", row->runs);
    return object;
}

void bench_report_write(const bench_report_t *report, const char *path)
{
    cJSON *array = cJSON_CreateArray();
    FILE *file = fopen(path, "w");
    char *text;

    for (size_t i = 0; i < report->count; i++) {
        cJSON_AddItemToArray(array, to_json(&report->rows[i]));
    }
    text = cJSON_Print(array);
    if (file == NULL || text == NULL || fprintf(file, "%s\n", text) < 0 ||
        fclose(file) != 0) {
        bench_die("%s: %s", path, strerror(errno));
    }
    cJSON_free(text);
    cJSON_Delete(array);
}
