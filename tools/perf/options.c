/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the command line of `tensormsg perf`. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

#define BYTES_MOST (1ULL << 40)
#define TENSORS_MOST (1ULL << 20)
#define NS_PER_MS 1000000ULL

enum {
    KEY_TUNE = 1000,
    KEY_OVER,
    KEY_UPDATE,
    KEY_QUICK,
    KEY_JSON,
    KEY_CSV,
    KEY_MEMORY,
    KEY_IN_FLIGHT,
    KEY_SECONDS,
    KEY_MESSAGES,
    KEY_WARMUP,
    KEY_REPEAT,
    KEY_PHASES,
    KEY_VERIFY,
    KEY_SLEEP,
};

static const struct argp_option option_list[] = {
    {NULL, 0, NULL, 0, "Measurement:", 1},
    {"measure", 'm', "LIST", 0,
     "List of latency, bandwidth (with message rate) and calls (with call "
     "rate); default latency,bandwidth",
     1},
    {"bytes", 'b', "LIST", 0,
     "Bytes of each tensor: 64,4K,1M, or 64:1M (twice as many each time), or "
     "64:1M:4 "
     "(four times)",
     1},
    {"tensors", 'T', "LIST", 0, "Tensors of each map: a list of numbers", 1},
    {"workload", 'w', "FILE", 0,
     "The maps of a file instead (docs/reference/perf.md); may be given "
     "several times",
     1},
    {"in-flight", KEY_IN_FLIGHT, "LIST", 0,
     "Messages or calls under way at a time; default 8", 1},
    {"over", KEY_OVER, "LIST", 0,
     "Transports between two processes here: shm, tcp or both; default both",
     1},
    {"memory", KEY_MEMORY, "LIST", 0,
     "Memory of the tensors: host, cuda and cuda:N; default host", 1},
    {NULL, 0, NULL, 0, "How:", 2},
    {"seconds", KEY_SECONDS, "S", 0,
     "Measure each figure for S seconds; default 0.1", 2},
    {"messages", KEY_MESSAGES, "N", 0,
     "Measure each figure with N messages instead", 2},
    {"warmup", KEY_WARMUP, "S", 0,
     "Warm up for S seconds before each figure; default 0.05", 2},
    {"repeat", KEY_REPEAT, "N", 0, "Repeat each measurement N times; default 3",
     2},
    {"quick", KEY_QUICK, NULL, 0,
     "Measure in a second or two, and less exactly", 2},
    {"phases", KEY_PHASES, NULL, 0,
     "Make a new map for each message, and show the time of making it "
     "(prepare), handing it over (post) and its transfer",
     2},
    {"verify", KEY_VERIFY, NULL, 0,
     "Compare every byte that arrives, which takes time", 2},
    {"sleep", KEY_SLEEP, NULL, 0,
     "Let both sides sleep while nothing comes, as programs with other work "
     "do; by default they poll, each on its own core",
     2},
    {NULL, 0, NULL, 0, "Output:", 3},
    {"csv", KEY_CSV, NULL, 0, "Print CSV, with a line of names first", 3},
    {"json", KEY_JSON, NULL, 0, "Print a JSON array of objects", 3},
    {NULL, 0, NULL, 0, "Thresholds:", 4},
    {"tune", KEY_TUNE, NULL, 0,
     "Measure the thresholds of docs/reference/thresholds.md and write them as "
     "a configuration file",
     4},
    {"out", 'o', "FILE", 0, "With --tune: write FILE, not standard output", 4},
    {"update", KEY_UPDATE, NULL, 0,
     "With --out: if FILE exists, keep its other settings", 4},
    {"force", 'f', NULL, 0, "With --out: replace FILE", 4},
    {NULL, 0, NULL, 0, "The other side (--listen):", 5},
    {"count", 'n', "N", 0, "End when N connections have come and gone", 5},
    {0},
};

static void parse_numbers(const char *arg, uint64_t most, numbers_t *numbers,
                          const struct argp_state *state)
{
    const char *wrong = numbers_parse(arg, 1, most, numbers);

    if (wrong != NULL) {
        argp_error(state, "'%s': %s", arg, wrong);
    }
}

/* Calls take() for each word of a list. take() returns false for a wrong
 * word. */
static void each_word(char *list, struct argp_state *state,
                      bool (*take)(perf_options_t *options, const char *word),
                      const char *words)
{
    char *rest;

    if (list[strspn(list, ",")] == '\0') {
        argp_error(state, "'%s' is not one of: %s", list, words);
    }
    for (char *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        if (!take(state->input, word)) {
            argp_error(state, "'%s' is not one of: %s", word, words);
        }
    }
}

static bool take_measure(perf_options_t *options, const char *word)
{
    static const char *const names[] = {"latency", "bandwidth", "calls"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(word, names[i]) == 0) {
            options->plan.measures |= 1u << i;
            return true;
        }
    }
    return false;
}

static bool take_memory(perf_options_t *options, const char *word)
{
    perf_plan_t *plan = &options->plan;
    perf_memory_t memory = {.device = {.type = TMSG_DEVICE_CPU}};
    char *end = NULL;
    unsigned long id = 0;

    if (plan->memory_count == PERF_MEMORIES_MOST ||
        strlen(word) >= sizeof(memory.name)) {
        return false;
    }
    strcpy(memory.name, word);
    if (strncmp(word, "cuda", 4) == 0) {
        memory.device.type = TMSG_DEVICE_CUDA;
        if (word[4] == ':' && word[5] >= '0' && word[5] <= '9') {
            id = strtoul(word + 5, &end, 10);
        }
        if ((word[4] != '\0' && (end == NULL || *end != '\0')) ||
            id > INT_MAX) {
            return false;
        }
        memory.device.id = (int)id;
    } else if (strcmp(word, "host") != 0) {
        return false;
    }
    plan->memories[plan->memory_count++] = memory;
    return true;
}

static void parse_workload(const char *path, struct argp_state *state)
{
    perf_plan_t *plan = &((perf_options_t *)state->input)->plan;

    if (plan->workload_count == PERF_WORKLOADS_MOST) {
        argp_error(state, "more than %d workloads", PERF_WORKLOADS_MOST);
    }
    plan->workloads[plan->workload_count++] = path;
}

static uint64_t parse_ns(const char *arg, struct argp_state *state)
{
    return (uint64_t)(unsigned)parse_seconds(arg, state) * NS_PER_MS;
}

/* Parses the options that tell how to measure. */
static error_t parse_plan(int key, char *arg, struct argp_state *state)
{
    perf_options_t *options = state->input;
    perf_plan_t *plan = &options->plan;

    switch (key) {
    case 'm':
        each_word(arg, state, take_measure, "latency, bandwidth and calls");
        return 0;
    case 'b':
        parse_numbers(arg, BYTES_MOST, &plan->bytes, state);
        return 0;
    case 'T':
        parse_numbers(arg, TENSORS_MOST, &plan->tensors, state);
        return 0;
    case 'w':
        parse_workload(arg, state);
        return 0;
    case KEY_IN_FLIGHT:
        parse_numbers(arg, PERF_IN_FLIGHT_MOST, &plan->in_flight, state);
        return 0;
    case KEY_MEMORY:
        each_word(arg, state, take_memory, "host, cuda and cuda:N");
        return 0;
    case KEY_SECONDS:
        plan->block_ns = parse_ns(arg, state);
        return 0;
    case KEY_MESSAGES:
        plan->messages = parse_count(arg, state);
        return 0;
    case KEY_WARMUP:
        plan->warmup_ns = parse_ns(arg, state);
        return 0;
    case KEY_REPEAT:
        plan->repetitions = parse_count(arg, state);
        if (plan->repetitions > PERF_REPETITIONS_MOST) {
            argp_error(state, "'%s' is more than %d times", arg,
                       PERF_REPETITIONS_MOST);
        }
        return 0;
    case KEY_PHASES:
        plan->phases = true;
        return 0;
    case KEY_VERIFY:
        plan->verify = true;
        return 0;
    case KEY_SLEEP:
        plan->sleep = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_perf_option(int key, char *arg, struct argp_state *state)
{
    perf_options_t *options = state->input;

    switch (key) {
    case 'n':
        options->count = parse_count(arg, state);
        return 0;
    case KEY_OVER:
        options->over = arg;
        return 0;
    case KEY_TUNE:
        options->tune = true;
        return 0;
    case 'o':
        options->out = arg;
        return 0;
    case KEY_UPDATE:
        options->update = true;
        return 0;
    case 'f':
        options->force = true;
        return 0;
    case KEY_QUICK:
        options->quick = true;
        return 0;
    case KEY_JSON:
        options->json = true;
        return 0;
    case KEY_CSV:
        options->csv = true;
        return 0;
    default:
        return parse_plan(key, arg, state);
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_perf_option,
    .args_doc = "[URL]",
    .doc = "Measure between two processes here, or to a 'tensormsg perf "
           "--listen' at URL: a table of latency (half a round trip), message "
           "rate and bandwidth. With --tune: find the thresholds that suit "
           "this machine. With --listen: be the other side of a measurement.",
};

void perf_options_read(int argc, char **argv, perf_options_t *options)
{
    const char *wrong;

    parse_command(&parser, LISTENS | CONNECTS, argc, argv, options,
                  &options->connection);
    wrong = perf_options_check(options);
    if (wrong != NULL) {
        complain("%s", wrong);
        exit(EXIT_USAGE);
    }
    perf_options_complete(options);
}
