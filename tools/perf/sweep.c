/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures each measure of each map, for each number in flight, each memory and
 * each transport that the options name. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"
#include "rows.h"
#include "show.h"
#include "signals.h"

/* These maps show most about a machine in the least time. */
static const struct {
    size_t tensors;
    uint64_t bytes;
} usual[] = {
    {8, 64},      {8, 1 << 10},    {8, 16 << 10}, {8, 256 << 10},
    {8, 2 << 20}, {64, 256 << 10}, {1000, 1024},
};

#define USUAL (sizeof(usual) / sizeof(usual[0]))

typedef struct {
    const perf_options_t *options;
    perf_rows_t rows;
    size_t printed; /* rows printed so far */
    result_t *result;
} sweep_t;

static size_t or_one(size_t count) { return count == 0 ? 1 : count; }

static size_t maps_of(const perf_plan_t *plan)
{
    if (plan->workload_count > 0) {
        return plan->workload_count;
    }
    return plan->bytes.count == 0 && plan->tensors.count == 0
               ? USUAL
               : or_one(plan->bytes.count) * or_one(plan->tensors.count);
}

/* Makes the nth map: from a file, from the lists, or from the usual ones. */
static bool choose_map(const perf_plan_t *plan, size_t n, load_t *load)
{
    char why[WORKLOAD_WHY_BYTES], text[NUMBERS_TEXT];
    uint64_t bytes = 1024, tensors = 8;
    bool ok;

    if (plan->workload_count > 0) {
        ok = workload_read(plan->workloads[n], &load->workload, why);
        snprintf(load->name, sizeof(load->name), "%s",
                 ok ? load->workload.name : "");
    } else {
        if (maps_of(plan) == USUAL && plan->bytes.count == 0 &&
            plan->tensors.count == 0) {
            bytes = usual[n].bytes;
            tensors = usual[n].tensors;
        }
        if (plan->bytes.count > 0) {
            bytes = plan->bytes.values[n % plan->bytes.count];
        }
        if (plan->tensors.count > 0) {
            tensors = plan->tensors.values[n / or_one(plan->bytes.count)];
        }
        ok = workload_uniform(tensors, bytes, &load->workload, why);
        snprintf(load->name, sizeof(load->name), "%llux%s",
                 (unsigned long long)tensors,
                 numbers_format_bytes(bytes, text));
    }
    if (!ok) {
        complain("%s", why);
    }
    return ok;
}

static bool show_row(sweep_t *sweep)
{
    if (sweep->options->csv) {
        perf_csv_row(stdout, &sweep->rows.rows[sweep->rows.count - 1]);
    }
    return !sweep->options->csv || output_flush();
}

/* Prints a line of the table. It has all measures of a map. */
static bool show_line(sweep_t *sweep)
{
    const perf_options_t *options = sweep->options;
    size_t printed = sweep->printed;

    sweep->printed = sweep->rows.count;
    if (options->csv || options->json) {
        return true;
    }
    perf_table_line(options, sweep->rows.rows + printed,
                    sweep->rows.count - printed);
    return output_flush();
}

static bool measure_one(sweep_t *sweep, perf_peer_t *peer, load_t *load,
                        unsigned measure, unsigned in_flight)
{
    route_t before, after;

    look_up_route(peer->endpoint, &before);
    if (!perf_run(peer, load, measure, in_flight, sweep->result)) {
        return false;
    }
    look_up_route(peer->endpoint, &after);
    sweep->result->by_bulk = after.by_bulk > before.by_bulk;
    /* A signal may have come before the first repetition ended. */
    return sweep->result->repetitions == 0 ||
           (perf_rows_add(&sweep->rows, peer, load, measure, in_flight,
                          sweep->result) != NULL &&
            show_row(sweep));
}

/* A latency is measured once for all numbers in flight: only one message is in
 * flight there. */
static bool measure_line(sweep_t *sweep, perf_peer_t *peer, load_t *load,
                         size_t nth)
{
    const perf_plan_t *plan = &sweep->options->plan;
    bool ok = true;

    for (unsigned measure = PERF_LATENCY; measure <= PERF_CALLS && ok;
         measure <<= 1) {
        if ((plan->measures & measure) &&
            (measure != PERF_LATENCY || nth == 0) && !signals_came()) {
            ok = measure_one(sweep, peer, load, measure,
                             (unsigned)plan->in_flight.values[nth]);
        }
    }
    return show_line(sweep) && ok;
}

static uint64_t most_number(const numbers_t *numbers)
{
    uint64_t most = 1;

    for (size_t i = 0; i < numbers->count; i++) {
        most = numbers->values[i] > most ? numbers->values[i] : most;
    }
    return most;
}

static bool measure_map(sweep_t *sweep, perf_peer_t *peer, size_t n,
                        const perf_memory_t *memory)
{
    const perf_plan_t *plan = &sweep->options->plan;
    bool copies = plan->verify || plan->phases;
    load_t load = {.copies = 0};
    bool ok = choose_map(plan, n, &load) &&
              perf_load_open(&load, memory,
                             copies ? most_number(&plan->in_flight) : 1,
                             plan->verify);

    for (size_t i = 0; i < plan->in_flight.count && ok && !signals_came();
         i++) {
        if (plan->in_flight.count > 1 && plan->measures == PERF_LATENCY &&
            i > 0) {
            break;
        }
        ok = measure_line(sweep, peer, &load, i);
    }
    perf_load_close(&load);
    return ok;
}

static bool measure_peer(void *arg, perf_peer_t *peer)
{
    sweep_t *sweep = arg;
    const perf_options_t *options = sweep->options;
    const perf_plan_t *plan = &options->plan;
    bool ok = true;

    for (size_t i = 0; i < plan->memory_count && ok; i++) {
        if (!options->csv && !options->json) {
            perf_table_head(options, peer, &plan->memories[i]);
            ok = output_flush();
        }
        for (size_t n = 0; n < maps_of(plan) && ok && !signals_came(); n++) {
            ok = measure_map(sweep, peer, n, &plan->memories[i]);
        }
    }
    return ok;
}

/* Reads all files, so that errors are found before anything is measured. */
static bool check_workloads(const perf_plan_t *plan)
{
    char why[WORKLOAD_WHY_BYTES];
    bool ok = true;

    for (size_t i = 0; i < plan->workload_count && ok; i++) {
        workload_t workload;

        ok = workload_read(plan->workloads[i], &workload, why);
        if (!ok) {
            complain("%s", why);
        }
        workload_free(&workload);
    }
    return ok;
}

static bool check_memories(const perf_plan_t *plan)
{
    const tmsg_domain_t *domain;
    bool ok = true;

    for (size_t i = 0; i < plan->memory_count && ok; i++) {
        ok = perf_memory_find(&plan->memories[i], &domain);
    }
    return ok;
}

/* Shows what was measured, even if a measurement failed. */
static int finish_sweep(sweep_t *sweep, int code)
{
    const perf_options_t *options = sweep->options;

    if (options->json && !perf_json(stdout, &sweep->rows)) {
        code = EXIT_FAILED;
    }
    if (signals_came()) {
        complain("a signal came: these are the measurements until then");
        code = EXIT_FAILED;
    }
    return code;
}

int perf_sweep(const perf_options_t *options)
{
    sweep_t sweep = {.options = options};
    int code;

    if (!check_workloads(&options->plan)) {
        return EXIT_USAGE;
    }
    if (!check_memories(&options->plan)) {
        return EXIT_FAILED;
    }
    if (signals_open(false) < 0) {
        complain("%s", strerror(errno));
        return EXIT_FAILED;
    }
    sweep.result = malloc(sizeof(*sweep.result));
    if (sweep.result == NULL) {
        complain("out of memory");
        return EXIT_FAILED;
    }
    if (options->csv) {
        perf_csv_head(stdout);
    }
    code = perf_each_transport(options, measure_peer, &sweep);
    code = finish_sweep(&sweep, code);
    free(sweep.result);
    free(sweep.rows.rows);
    return code;
}
