/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the results for people: a line for each map, a group of columns for
 * each measure. */
#include <math.h>
#include <string.h>

#include "output.h"
#include "rows.h"

#define COLUMNS_MOST 8

typedef struct {
    const char *title;
    size_t offset; /* offset of a double in a row */
    int width;
} column_t;

typedef struct {
    unsigned measure;
    const char *title;
    column_t columns[COLUMNS_MOST];
} group_t;

#define COLUMN(title, name, width)                                             \
    {                                                                          \
        title, offsetof(perf_row_t, name), width                               \
    }

/* The columns have room for a second in microseconds. */
static const group_t groups[] = {
    {PERF_LATENCY,
     "latency, us",
     {COLUMN("p50", p50_us, 9), COLUMN("p90", p90_us, 9),
      COLUMN("p99", p99_us, 9), COLUMN("p99.9", p999_us, 9),
      COLUMN("max", max_us, 9)}},
    {PERF_BANDWIDTH,
     "bandwidth",
     {COLUMN("messages/s", messages_per_s, 12), COLUMN("GB/s", gb_per_s, 8)}},
    {PERF_CALLS,
     "calls, us",
     {COLUMN("p50", p50_us, 9), COLUMN("p99", p99_us, 9),
      COLUMN("max", max_us, 9), COLUMN("calls/s", messages_per_s, 10)}},
};

static const column_t phases[] = {
    COLUMN("prepare", prepare_us, 9),
    COLUMN("post", post_us, 9),
    COLUMN("transfer", transfer_us, 9),
};

#define GROUPS (sizeof(groups) / sizeof(groups[0]))
#define PHASES (sizeof(phases) / sizeof(phases[0]))
#define NAME_WIDTH 12
#define FILE_NAME_WIDTH 22
#define NUMBER_WIDTH 7

static int name_width(const perf_options_t *options)
{
    return options->plan.workload_count > 0 ? FILE_NAME_WIDTH : NAME_WIDTH;
}

/* Returns the width of a group's columns. Those of --phases come after the
 * others. */
static int width_of(const group_t *group, bool with_phases)
{
    int width = 0;

    for (size_t i = 0; group->columns[i].title != NULL; i++) {
        width += group->columns[i].width;
    }
    for (size_t i = 0; i < PHASES && with_phases; i++) {
        width += phases[i].width;
    }
    return width;
}

static void put_titles(const group_t *group, bool with_phases)
{
    for (size_t i = 0; group->columns[i].title != NULL; i++) {
        printf("%*s", group->columns[i].width, group->columns[i].title);
    }
    for (size_t i = 0; i < PHASES && with_phases; i++) {
        printf("%*s", phases[i].width, phases[i].title);
    }
}

/* Prints a number. Five digits suffice for a table; a clock is not more
 * precise. */
static void put_table_number(double value, int width)
{
    if (isnan(value)) {
        printf("%*s", width, "-");
    } else {
        printf("%*.*f", width, value < 10 ? 2 : value < 1000 ? 1 : 0, value);
    }
}

static void put_values(const group_t *group, bool with_phases,
                       const perf_row_t *row)
{
    const char *at = (const char *)row;

    for (size_t i = 0; group->columns[i].title != NULL; i++) {
        put_table_number(row == NULL
                             ? NAN
                             : *(const double *)(at + group->columns[i].offset),
                         group->columns[i].width);
    }
    for (size_t i = 0; i < PHASES && with_phases; i++) {
        put_table_number(row == NULL ? NAN
                                     : *(const double *)(at + phases[i].offset),
                         phases[i].width);
    }
}

static bool many_in_flight(const perf_options_t *options)
{
    return options->plan.in_flight.count > 1;
}

void perf_table_head(const perf_options_t *options, const perf_peer_t *peer,
                     const perf_memory_t *memory)
{
    const perf_plan_t *plan = &options->plan;
    int number = many_in_flight(options) ? NUMBER_WIDTH : 0;

    printf("%s: ", peer->transport);
    put_text(stdout, peer->transports);
    printf("%s (",
           strcmp(peer->bulk, "stands") == 0 ? " and its bulk stream" : "");
    put_text(stdout, peer->why);
    printf(")%s%s\n  %-*s%*s", plan->memory_count > 1 ? ", memory: " : "",
           plan->memory_count > 1 ? memory->name : "", name_width(options), "",
           number, "");
    for (size_t i = 0; i < GROUPS; i++) {
        if (plan->measures & groups[i].measure) {
            printf("%*s", width_of(&groups[i], plan->phases), groups[i].title);
        }
    }
    printf("\n  %-*s%*s", name_width(options), "map", number,
           number > 0 ? "flight" : "");
    for (size_t i = 0; i < GROUPS; i++) {
        if (plan->measures & groups[i].measure) {
            put_titles(&groups[i], plan->phases);
        }
    }
    putchar('\n');
}

void perf_table_line(const perf_options_t *options, const perf_row_t *rows,
                     size_t count)
{
    const perf_plan_t *plan = &options->plan;
    int pad;

    if (count == 0) {
        return;
    }
    pad = name_width(options) - (int)strlen(rows->map);
    printf("  ");
    put_text(stdout, rows->map);
    printf("%*s", pad > 0 ? pad : 1, "");
    if (many_in_flight(options)) {
        printf("%*llu", NUMBER_WIDTH,
               (unsigned long long)rows[count - 1].in_flight);
    }
    for (size_t i = 0; i < GROUPS; i++) {
        const perf_row_t *row = NULL;

        for (size_t j = 0; j < count; j++) {
            row = rows[j].kind == groups[i].measure ? &rows[j] : row;
        }
        if (plan->measures & groups[i].measure) {
            put_values(&groups[i], plan->phases, row);
        }
    }
    putchar('\n');
}
