/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg-bench: tensormsg beside raw UCX, on this machine. */
#include <argp.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"
#include "works.h"

#define RUNS_DEFAULT 5

typedef struct {
    bench_options_t options;
    const char *json;
    const char *only;
    const char *over;
    const char *grpc;
    const char *scale; /* a series, or "all" */
} arguments_t;

static const struct argp_option options[] = {
    {"json", 'j', "FILE", 0, "Write the rows to FILE as JSON, too", 0},
    {"only", 'o', "WORK", 0, "Only the rows of WORK", 0},
    {"over", 't', "TRANSPORT", 0, "Only the rows over TRANSPORT: shm, tcp", 0},
    {"grpc", 'g', "PROGRAM", 0, "Calls beside those of PROGRAM, of bench/grpc",
     0},
    {"runs", 'r', "N", 0, "Median of N runs (5)", 0},
    {"scale", 's', "SERIES", OPTION_ARG_OPTIONAL,
     "No table, but how figures go with a number: of tensors, bytes, "
     "endpoints, processes, or (all) each of these; or strides",
     0},
    {"quick", 'q', NULL, 0,
     "A short run to see that it works; its figures "
     "mean nothing",
     0},
    {"alone", 'a', NULL, 0, "Ours alone, with nothing beside it", 0},
    {"list", 'l', NULL, 0, "Only say which works there are, over what", 0},
    {"verbose", 'v', NULL, 0, "Say what every way reached in every run", 0},
    {0}};

static error_t parse(int key, char *value, struct argp_state *state)
{
    arguments_t *arguments = state->input;
    long runs;
    char *end;

    switch (key) {
    case 'j':
        arguments->json = value;
        return 0;
    case 'o':
        arguments->only = value;
        return 0;
    case 't':
        arguments->over = value;
        return 0;
    case 'g':
        arguments->grpc = value;
        return 0;
    case 'r':
        runs = strtol(value, &end, 10);
        if (*end != '\0' || runs < 1 || runs > BENCH_RUNS_MAX) {
            argp_error(state, "--runs takes 1 to %d", BENCH_RUNS_MAX);
        }
        arguments->options.runs = (unsigned)runs;
        return 0;
    case 's':
        arguments->scale = value == NULL ? "all" : value;
        return 0;
    case 'q':
        arguments->options.quick = true;
        return 0;
    case 'a':
        arguments->options.alone = true;
        return 0;
    case 'l':
        bench_works_list();
        exit(0);
    case 'v':
        arguments->options.verbose = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        NULL,
        "Measures tensor maps against raw ucp_am doing the same bytes in the "
        "same run, and prints a table.\v"
        "Latency is half a round trip. The limit is the better of raw UCX "
        "with our settings (error mode PEER) and its best (error mode NONE). "
        "All ways run in turns, forwards and backwards (A B B A), and ours at "
        "both ends of each: `spread` is by how much ours differs from itself "
        "in "
        "three runs of four at most, and a ratio within it is no difference. "
        "`cores` are where "
        "the two sides were.",
        NULL,
        NULL,
        NULL};
    static bench_report_t report;
    arguments_t arguments = {0};
    bench_machine_t machine;

    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    if (arguments.options.runs == 0) {
        arguments.options.runs = arguments.options.quick ? 1 : RUNS_DEFAULT;
    }
    if (arguments.grpc != NULL && access(arguments.grpc, X_OK) == 0) {
        bench_grpc_program = arguments.grpc;
    }
    if (arguments.scale != NULL) {
        if (!bench_scale_run(arguments.scale, arguments.options.quick)) {
            bench_die("there is no series %s", arguments.scale);
        }
        return 0;
    }
    bench_machine_look(&machine);
    if (!bench_works_run(&arguments.options, arguments.only, arguments.over,
                         &report)) {
        bench_die("there is no such row: see the table of a run without "
                  "--only and --over");
    }
    bench_report_print(&report);
    bench_machine_tell(&machine);
    if (arguments.json != NULL) {
        bench_report_write(&report, arguments.json);
    }
}
