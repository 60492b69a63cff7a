/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "tools/measure/fields.h"

/* "0,1", or "-" where there are no two sides. */
static void name_cores(bench_row_t *row)
{
    const char *named = row->cores != NULL         ? row->cores
                        : row->transport[0] == '-' ? "-"
                                                   : NULL;

    if (named != NULL) {
        snprintf(row->cores_text, sizeof(row->cores_text), "%s", named);
    } else {
        snprintf(row->cores_text, sizeof(row->cores_text), "%d,%d",
                 bench_core_of(0), bench_core_of(1));
    }
}

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
    if (row->spread == 0) {
        place->spread = NAN;
    }
    name_cores(place);
    report->count++;
}

bool bench_row_differs(const bench_row_t *row)
{
    return row->ratio > row->spread || row->ratio < 1 / row->spread;
}

static const char *verdict_of(const bench_row_t *row)
{
    return isnan(row->spread)       ? ""
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

    printf("%-16s %-4s %-5s %-19s %8s %8s %6s %6s %-13s %-5s %4llu  %s..%s  "
           "%s\n",
           row->work, row->transport, row->cores_text, row->metric,
           number(row->ours, ours), number(row->limit, limit),
           number(row->ratio, ratio), number(row->spread, spread),
           verdict_of(row), row->unit, (unsigned long long)row->runs,
           number(row->least, least), number(row->most, most), row->limit_way);
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

static const field_t fields[] = {
    {"work", FIELD_WORD, offsetof(bench_row_t, work)},
    {"transport", FIELD_WORD, offsetof(bench_row_t, transport)},
    {"metric", FIELD_WORD, offsetof(bench_row_t, metric)},
    {"unit", FIELD_WORD, offsetof(bench_row_t, unit)},
    {"ours", FIELD_REAL, offsetof(bench_row_t, ours)},
    {"limit", FIELD_REAL, offsetof(bench_row_t, limit)},
    {"ratio", FIELD_REAL, offsetof(bench_row_t, ratio)},
    {"spread", FIELD_REAL, offsetof(bench_row_t, spread)},
    {"cores", FIELD_TEXT, offsetof(bench_row_t, cores_text)},
    {"runs", FIELD_WHOLE, offsetof(bench_row_t, runs)},
};

void bench_report_write(const bench_report_t *report, const char *path)
{
    cJSON *array =
        fields_json(fields, sizeof(fields) / sizeof(fields[0]), report->rows,
                    sizeof(report->rows[0]), report->count);
    FILE *file = fopen(path, "w");
    char *text = cJSON_Print(array);

    if (file == NULL || text == NULL || fprintf(file, "%s\n", text) < 0 ||
        fclose(file) != 0) {
        bench_die("%s: %s", path, strerror(errno));
    }
    cJSON_free(text);
    cJSON_Delete(array);
}
