/* SPDX-License-Identifier: BSD-3-Clause */
#include "svg.h"

#include <math.h>
#include <string.h>

#include "core/shown.h"
#include "numbers.h"

/* These are the sizes of a panel, in units of the picture. The field of the
 * curves lies within the panel. */
#define PANEL_WIDTH 460.0
#define LEFT 62.0
#define TOP 62.0
#define FIELD_WIDTH 380.0
#define FIELD_HEIGHT 280.0
#define LEGEND_TOP (TOP + FIELD_HEIGHT + 62)
#define LEGEND_LINE 18.0

#define TICKS_MOST 8

/* These colours can also be told apart by people who do not see all colours
 * (Okabe and Ito). */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73",
                                      "#cc79a7", "#e69f00", "#56b4e9",
                                      "#000000", "#8b8000"};
static const char *const dashes[] = {"", " stroke-dasharray=\"6 3\"",
                                     " stroke-dasharray=\"2 3\""};

#define COLOURS (sizeof(colours) / sizeof(colours[0]))
#define DASHES (sizeof(dashes) / sizeof(dashes[0]))

/* Holds an axis. `first` and `last` are logarithms to `base`. */
typedef struct {
    double base, first, last;
} axis_t;

typedef struct {
    FILE *stream;
    const svg_panel_t *panel;
    axis_t x, y;
    double left;
} drawing_t;

static void put_escaped(FILE *stream, const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        char escape[TMSG_SHOWN_ESCAPE];
        uint32_t code;
        size_t length = tmsg_shown_read(text, left, &code);

        if (code == '&') {
            fputs("&amp;", stream);
        } else if (code == '<') {
            fputs("&lt;", stream);
        } else if (code == '>') {
            fputs("&gt;", stream);
        } else if (tmsg_shown_hides(code)) {
            fwrite(escape, 1, tmsg_shown_escape(escape, code), stream);
        } else {
            fwrite(text, 1, length, stream);
        }
        text += length;
        left -= length;
    }
}

static void put_svg_text(FILE *stream, double x, double y,
                         const char *attributes, const char *text)
{
    fprintf(stream, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, attributes);
    put_escaped(stream, text);
    fputs("</text>\n", stream);
}

static void widen_axis(axis_t *axis, double value)
{
    double at = log(value) / log(axis->base);

    axis->first = fmin(axis->first, at);
    axis->last = fmax(axis->last, at);
}

/* Rounds the ends of an axis to whole powers. */
static void round_axis(axis_t *axis)
{
    if (axis->first > axis->last) {
        axis->first = axis->last = 0;
    }
    axis->first = floor(axis->first + 1e-9);
    axis->last = ceil(axis->last - 1e-9);
    if (axis->last - axis->first < 1) {
        axis->last = axis->first + 1;
    }
}

static void measure_axes(drawing_t *drawing)
{
    const svg_panel_t *panel = drawing->panel;

    drawing->x = (axis_t){2, INFINITY, -INFINITY};
    drawing->y = (axis_t){10, INFINITY, -INFINITY};
    for (size_t i = 0; i < panel->count; i++) {
        for (size_t j = 0; j < panel->series[i].count; j++) {
            const svg_point_t *point = &panel->series[i].points[j];

            widen_axis(&drawing->x, point->x);
            widen_axis(&drawing->y, point->y);
            if (!isnan(point->high)) {
                widen_axis(&drawing->y, point->high);
            }
        }
    }
    round_axis(&drawing->x);
    round_axis(&drawing->y);
}

static double axis_position(const axis_t *axis, double value)
{
    return (log(value) / log(axis->base) - axis->first) /
           (axis->last - axis->first);
}

static double drawing_x(const drawing_t *drawing, double value)
{
    return drawing->left + LEFT +
           axis_position(&drawing->x, value) * FIELD_WIDTH;
}

static double drawing_y(const drawing_t *drawing, double value)
{
    return TOP + (1 - axis_position(&drawing->y, value)) * FIELD_HEIGHT;
}

static void put_svg_line(const drawing_t *drawing, double x1, double y1,
                         double x2, double y2, const char *colour)
{
    fprintf(drawing->stream,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
            "stroke=\"%s\"/>\n",
            x1, y1, x2, y2, colour);
}

static void draw_x_axis(const drawing_t *drawing)
{
    const axis_t *axis = &drawing->x;
    double step = ceil((axis->last - axis->first) / TICKS_MOST);
    double bottom = TOP + FIELD_HEIGHT;

    for (double at = axis->first; at <= axis->last + 1e-9; at += step) {
        double value = exp2(at), x = drawing_x(drawing, value);
        char text[NUMBERS_TEXT];

        put_svg_line(drawing, x, TOP, x, bottom, "#e0e0e0");
        if (drawing->panel->x_is_bytes) {
            numbers_format_bytes((uint64_t)llround(value), text);
        } else {
            snprintf(text, sizeof(text), "%.0f", value);
        }
        put_svg_text(drawing->stream, x, bottom + 16,
                     " text-anchor=\"middle\" fill=\"#444\"", text);
    }
    put_svg_text(drawing->stream, drawing->left + LEFT + FIELD_WIDTH / 2,
                 bottom + 36, " text-anchor=\"middle\"",
                 drawing->panel->x_title);
}

/* Draws lines at 1, 2 and 5 of each power of ten, or at the powers alone if
 * there are many. */
static void draw_y_axis(const drawing_t *drawing)
{
    const axis_t *axis = &drawing->y;
    double left = drawing->left + LEFT;
    bool few = axis->last - axis->first <= 3;

    for (double at = axis->first; at <= axis->last + 1e-9; at++) {
        for (int digit = 1; digit <= (few && at < axis->last ? 5 : 1);
             digit += digit == 2 ? 3 : 1) {
            double value = pow(10, at) * digit, y = drawing_y(drawing, value);
            char text[32];

            put_svg_line(drawing, left, y, left + FIELD_WIDTH, y,
                         digit == 1 ? "#c8c8c8" : "#ececec");
            snprintf(text, sizeof(text), value >= 1e5 ? "%.0e" : "%g", value);
            put_svg_text(drawing->stream, left - 6, y + 4,
                         " text-anchor=\"end\" fill=\"#444\"", text);
        }
    }
}

static void draw_curve(const drawing_t *drawing, const svg_series_t *series,
                       const char *colour, const char *dash)
{
    fputs("<polyline fill=\"none\" stroke-width=\"1.8\" points=\"",
          drawing->stream);
    for (size_t i = 0; i < series->count; i++) {
        fprintf(drawing->stream, "%s%.1f,%.1f", i == 0 ? "" : " ",
                drawing_x(drawing, series->points[i].x),
                drawing_y(drawing, series->points[i].y));
    }
    fprintf(drawing->stream, "\" stroke=\"%s\"%s/>\n", colour, dash);
}

static void draw_points(const drawing_t *drawing, const svg_series_t *series,
                        const char *colour)
{
    for (size_t i = 0; i < series->count; i++) {
        const svg_point_t *point = &series->points[i];
        double x = drawing_x(drawing, point->x),
               y = drawing_y(drawing, point->y);

        if (!isnan(point->high)) {
            put_svg_line(drawing, x, y, x, drawing_y(drawing, point->high),
                         colour);
        }
        fprintf(drawing->stream,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\" fill=\"%s\"><title>",
                x, y, colour);
        put_escaped(drawing->stream, point->text);
        fputs("</title></circle>\n", drawing->stream);
    }
}

static void draw_panel(FILE *stream, const svg_panel_t *panel, double left)
{
    drawing_t drawing = {.stream = stream, .panel = panel, .left = left};

    measure_axes(&drawing);
    put_svg_text(stream, left + LEFT, TOP - 12, " font-weight=\"bold\"",
                 panel->title);
    draw_x_axis(&drawing);
    draw_y_axis(&drawing);
    for (size_t i = 0; i < panel->count; i++) {
        const char *colour = colours[i % COLOURS];

        if (panel->series[i].count == 0) {
            continue;
        }
        draw_curve(&drawing, &panel->series[i], colour,
                   dashes[i / COLOURS % DASHES]);
        draw_points(&drawing, &panel->series[i], colour);
    }
}

static void draw_legend(FILE *stream, const svg_panel_t *panel)
{
    for (size_t i = 0; i < panel->count; i++) {
        double y = LEGEND_TOP + (double)i * LEGEND_LINE;

        fprintf(stream,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                "stroke-width=\"2.5\" stroke=\"%s\"%s/>\n",
                LEFT, y - 4, LEFT + 28, y - 4, colours[i % COLOURS],
                dashes[i / COLOURS % DASHES]);
        put_svg_text(stream, LEFT + 36, y, "", panel->series[i].name);
    }
}

void svg_write(FILE *stream, const char *title, const svg_panel_t *panels,
               size_t count)
{
    double width = (double)count * PANEL_WIDTH + 20;
    double height = LEGEND_TOP + (double)panels->count * LEGEND_LINE + 6;

    fprintf(stream,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<title>",
            width, height, width, height);
    put_escaped(stream, title);
    fputs("</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
          stream);
    put_svg_text(stream, LEFT, 24, " font-size=\"15\"", title);
    for (size_t i = 0; i < count; i++) {
        draw_panel(stream, &panels[i], (double)i * PANEL_WIDTH);
    }
    draw_legend(stream, panels);
    fputs("</svg>\n", stream);
}
