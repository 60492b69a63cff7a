/* SPDX-License-Identifier: BSD-3-Clause */
/* --plot: draws rows as curves, with a panel for each measure. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rows.h"
#include "svg.h"

/* The x axis is the first of these values that differs between rows. */
typedef enum { X_BYTES, X_TENSORS, X_IN_FLIGHT } x_t;

static const struct {
    unsigned kind;
    const char *title;
    size_t offset; /* offset of the drawn value in a row */
} kinds[] = {
    {PERF_LATENCY, "latency, us: p50, up to p99", offsetof(perf_row_t, p50_us)},
    {PERF_BANDWIDTH, "bandwidth, GB/s", offsetof(perf_row_t, gb_per_s)},
    {PERF_CALLS, "calls a second", offsetof(perf_row_t, messages_per_s)},
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

typedef struct {
    const perf_rows_t *rows;
    x_t x;
    bool memories, transports, tensors, in_flight; /* rows differ in it */
    svg_series_t *series; /* panel by panel, with the same names */
    size_t count, panels;
} plotting_t;

static uint64_t row_x(const perf_row_t *row, x_t x)
{
    uint64_t value = x == X_BYTES     ? row->bytes
                     : x == X_TENSORS ? row->tensors
                                      : row->in_flight;

    return value == 0 ? 1 : value;
}

/* A latency always has one message in flight. So rows are compared only within
 * their kind. */
static bool differ_in_flight(const perf_row_t *a, const perf_row_t *b)
{
    return a->kind == b->kind && a->in_flight != b->in_flight;
}

static void find_differences(plotting_t *plotting)
{
    const perf_rows_t *rows = plotting->rows;
    bool bytes = false;

    for (size_t i = 1; i < rows->count; i++) {
        const perf_row_t *row = &rows->rows[i], *first = rows->rows;

        bytes |= row->bytes != first->bytes;
        plotting->tensors |= row->tensors != first->tensors;
        plotting->memories |= strcmp(row->memory, first->memory) != 0;
        plotting->transports |= strcmp(row->transport, first->transport) != 0;
        for (size_t j = 0; j < i; j++) {
            plotting->in_flight |= differ_in_flight(row, &rows->rows[j]);
        }
    }
    plotting->x = bytes                 ? X_BYTES
                  : plotting->tensors   ? X_TENSORS
                  : plotting->in_flight ? X_IN_FLIGHT
                                        : X_BYTES;
}

__attribute__((format(printf, 2, 3))) static void
append_name(char name[120], const char *format, ...)
{
    size_t length = strlen(name);
    va_list args;

    va_start(args, format);
    vsnprintf(name + length, 120 - length, format, args);
    va_end(args);
}

/* Writes the name of a row's series: all that tells it from other rows, except
 * its position on the x axis. */
static void row_series_name(const plotting_t *plotting, const perf_row_t *row,
                            char name[120])
{
    snprintf(name, 120, "%s", row->transport);
    if (plotting->memories) {
        append_name(name, ", %s", row->memory);
    }
    if (row->is_file) {
        append_name(name, ", %s", row->map);
    } else if (plotting->tensors && plotting->x != X_TENSORS) {
        append_name(name, ", %llu tensor%s", (unsigned long long)row->tensors,
                    plural(row->tensors));
    }
    if (plotting->in_flight && plotting->x != X_IN_FLIGHT &&
        row->kind != PERF_LATENCY) {
        append_name(name, ", %llu in flight",
                    (unsigned long long)row->in_flight);
    }
}

/* Returns the index of a name among the series of a panel. There is always room
 * for another one. */
static size_t series_of(plotting_t *plotting, const char *name)
{
    size_t i = 0;

    while (i < plotting->count && strcmp(plotting->series[i].name, name) != 0) {
        i++;
    }
    if (i == plotting->count) {
        plotting->count++;
        snprintf(plotting->series[i].name, sizeof(plotting->series[i].name),
                 "%s", name);
    }
    return i;
}

static double row_value(const perf_row_t *row, size_t kind)
{
    return *(const double *)((const char *)row + kinds[kind].offset);
}

static int by_x(const void *a, const void *b)
{
    double x = ((const svg_point_t *)a)->x, y = ((const svg_point_t *)b)->x;

    return (x > y) - (x < y);
}

static bool add_point(const plotting_t *plotting, svg_series_t *series,
                      const perf_row_t *row, size_t kind)
{
    svg_point_t *more =
        realloc(series->points, (series->count + 1) * sizeof(*series->points));
    svg_point_t *point;

    if (more == NULL) {
        return false;
    }
    series->points = more;
    point = &more[series->count++];
    *point = (svg_point_t){
        .x = (double)row_x(row, plotting->x),
        .y = row_value(row, kind),
        .high = row->kind == PERF_LATENCY ? row->p99_us : NAN,
    };
    snprintf(point->text, sizeof(point->text),
             "%s, %s: %.6g (p50 %.6g us, p99 %.6g us)", row->map,
             row->transport, point->y, row->p50_us, row->p99_us);
    qsort(series->points, series->count, sizeof(*point), by_x);
    return true;
}

/* Fills the series of a panel. Values that are NAN or not above 0 have no
 * logarithm, and are left out. */
static bool fill_panel(plotting_t *plotting, svg_series_t *series, size_t kind)
{
    for (size_t i = 0; i < plotting->rows->count; i++) {
        const perf_row_t *row = &plotting->rows->rows[i];
        char name[120];

        row_series_name(plotting, row, name);
        if (row->kind == kinds[kind].kind && row_value(row, kind) > 0 &&
            !add_point(plotting, &series[series_of(plotting, name)], row,
                       kind)) {
            return false;
        }
    }
    return true;
}

static bool has_kind(const perf_rows_t *rows, unsigned kind)
{
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->rows[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static bool draw_plot(FILE *stream, plotting_t *plotting)
{
    static const char *const x_titles[] = {
        "bytes of a message", "tensors of a message", "under way at a time"};
    size_t most = plotting->rows->count;
    svg_panel_t panels[KINDS];
    char title[160], name[120];

    /* The loop fixes the order of the series for all panels. */
    for (size_t i = 0; i < most; i++) {
        row_series_name(plotting, &plotting->rows->rows[i], name);
        series_of(plotting, name);
    }
    for (size_t kind = 0; kind < KINDS; kind++) {
        svg_series_t *series = plotting->series + plotting->panels * most;

        if (has_kind(plotting->rows, kinds[kind].kind)) {
            if (!fill_panel(plotting, series, kind)) {
                return false;
            }
            panels[plotting->panels++] = (svg_panel_t){
                .title = kinds[kind].title,
                .x_title = x_titles[plotting->x],
                .x_is_bytes = plotting->x == X_BYTES,
                .series = series,
                .count = plotting->count,
            };
        }
    }
    for (size_t i = 0; i < plotting->panels && i < KINDS; i++) {
        for (size_t j = 0; j < plotting->count; j++) {
            memcpy(plotting->series[i * most + j].name,
                   plotting->series[j].name, sizeof(plotting->series[j].name));
        }
    }
    snprintf(title, sizeof(title), "tensormsg perf %s", tmsg_version());
    svg_write(stream, title, panels, plotting->panels);
    return true;
}

static bool write_plot(FILE *stream, const perf_rows_t *rows)
{
    plotting_t plotting = {.rows = rows};
    bool ok;

    plotting.series = calloc(KINDS * rows->count, sizeof(*plotting.series));
    if (plotting.series == NULL) {
        return false;
    }
    find_differences(&plotting);
    ok = draw_plot(stream, &plotting);
    for (size_t i = 0; i < KINDS * rows->count; i++) {
        free(plotting.series[i].points);
    }
    free(plotting.series);
    return ok;
}

bool perf_plot(const char *path, bool force, const perf_rows_t *rows)
{
    FILE *stream = fopen(path, force ? "we" : "wxe");
    bool ok = stream != NULL && write_plot(stream, rows);
    int error = errno;

    if (stream != NULL && (ferror(stream) || fclose(stream) != 0)) {
        error = errno;
        ok = false;
    }
    if (!ok) {
        complain("%s: %s", path, strerror(error));
    }
    return ok;
}

bool perf_plot_check(const perf_options_t *options)
{
    if (options->plot == NULL) {
        return true;
    }
    if (!options->force && access(options->plot, F_OK) == 0) {
        complain("%s: the file exists (--force replaces it)", options->plot);
        return false;
    }
    return perf_folder_check(options->plot);
}
