/* SPDX-License-Identifier: BSD-3-Clause */
/* svg.h - curves over logarithmic axes, as an SVG picture. */
#ifndef TMSG_PERF_SVG_H
#define TMSG_PERF_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct {
    double x, y;    /* above 0 */
    double high;    /* where a thin line above the point ends; NAN: none */
    char text[160]; /* shown by a viewer that is asked for it */
} svg_point_t;

typedef struct {
    char name[120];
    svg_point_t *points; /* in the order of x */
    size_t count;
} svg_series_t;

typedef struct {
    const char *title, *x_title;
    bool x_is_bytes;
    const svg_series_t *series;
    size_t count;
} svg_panel_t;

/* Writes panels side by side, of which there is one at least, and under them
 * what the colours mean: all panels have the same series, some maybe without
 * points. */
void svg_write(FILE *stream, const char *title, const svg_panel_t *panels,
               size_t count);

#endif
