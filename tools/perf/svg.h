/* SPDX-License-Identifier: BSD-3-Clause */
/* svg.h - draws curves over logarithmic axes as an SVG picture. */
#ifndef TMSG_PERF_SVG_H
#define TMSG_PERF_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct {
    double x, y;    /* above 0 */
    double high;    /* end of a thin line above the point; NAN: none */
    char text[160]; /* text that a viewer shows for the point */
} svg_point_t;

typedef struct {
    char name[120];
    svg_point_t *points; /* in ascending order of x */
    size_t count;
} svg_series_t;

typedef struct {
    const char *title, *x_title;
    bool x_is_bytes;
    const svg_series_t *series;
    size_t count;
} svg_panel_t;

/* Writes at least one panel; several stand side by side. A legend below
 * explains the colours. All panels have the same series, and a series may have
 * no points in a panel. */
void svg_write(FILE *stream, const char *title, const svg_panel_t *panels,
               size_t count);

#endif
