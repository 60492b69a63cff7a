/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "perf.h"

#define NS_PER_MS 1000000ULL

/* Tells whether the plan has anything that --tune and --listen do not use. */
static bool has_plan(const perf_plan_t *plan)
{
    return plan->measures != 0 || plan->bytes.count > 0 ||
           plan->tensors.count > 0 || plan->in_flight.count > 0 ||
           plan->memory_count > 0 || plan->workload_count > 0 ||
           plan->block_ns > 0 || plan->warmup_ns > 0 || plan->messages > 0 ||
           plan->repetitions > 0 || plan->phases || plan->verify || plan->sleep;
}

static bool is_transports(const char *over)
{
    return strcmp(over, "shm") == 0 || strcmp(over, "tcp") == 0 ||
           strcmp(over, "shm,tcp") == 0 || strcmp(over, "tcp,shm") == 0;
}

static const char *check_listen(const perf_options_t *options)
{
    if (options->connection.listen == NULL) {
        return options->count > 0 ? "--count goes with --listen" : NULL;
    }
    if (options->connection.url != NULL || options->tune || options->json ||
        options->csv || options->quick || options->over != NULL ||
        options->out != NULL || has_plan(&options->plan)) {
        return "--listen makes this the other side of a measurement: give the "
               "options of the measurement at the side that connects";
    }
    return NULL;
}

static const char *check_output(const perf_options_t *options)
{
    if (options->tune && (options->json || options->csv)) {
        return "--json and --csv do not go with --tune, which always writes "
               "JSON";
    }
    if (options->json && options->csv) {
        return "--json and --csv exclude each other";
    }
    if (options->tune && has_plan(&options->plan)) {
        return "--tune takes no other options of a measurement than --over, "
               "--quick and --timeout";
    }
    if (options->out != NULL && !options->tune) {
        return "--out goes with --tune";
    }
    if (options->update && options->out == NULL) {
        return "--update goes with --out";
    }
    if (options->force && options->out == NULL) {
        return "--force goes with --out";
    }
    if (options->update && options->force) {
        return "--update and --force exclude each other";
    }
    return NULL;
}

const char *perf_options_check(const perf_options_t *options)
{
    const perf_plan_t *plan = &options->plan;
    const char *wrong = check_listen(options);

    if (wrong != NULL) {
        return wrong;
    }
    if (options->over != NULL && !is_transports(options->over)) {
        return "--over is shm or tcp, or both: shm,tcp";
    }
    if (options->over != NULL && options->connection.url != NULL) {
        return "--over is for two processes here: it does not go with a URL";
    }
    if (plan->messages > 0 && plan->block_ns > 0) {
        return "--messages and --seconds exclude each other";
    }
    if (plan->workload_count > 0 &&
        (plan->bytes.count > 0 || plan->tensors.count > 0)) {
        return "--workload says how many tensors there are and of how many "
               "bytes: it goes without --bytes and --tensors";
    }
    return check_output(options);
}

void perf_options_complete(perf_options_t *options)
{
    perf_plan_t *plan = &options->plan;
    bool quick = options->quick;

    if (plan->measures == 0) {
        plan->measures = PERF_LATENCY | PERF_BANDWIDTH;
    }
    if (plan->in_flight.count == 0) {
        plan->in_flight = (numbers_t){.values = {8}, .count = 1};
    }
    if (plan->memory_count == 0) {
        plan->memories[plan->memory_count++] =
            (perf_memory_t){{.type = TMSG_DEVICE_CPU}, "host"};
    }
    if (plan->block_ns == 0) {
        plan->block_ns = (quick ? 10 : 100) * NS_PER_MS;
    }
    if (plan->warmup_ns == 0) {
        plan->warmup_ns = (quick ? 5 : 50) * NS_PER_MS;
    }
    if (plan->repetitions == 0) {
        plan->repetitions = quick ? 1 : 3;
    }
}
