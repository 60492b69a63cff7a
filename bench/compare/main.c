/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg-compare WAY WORKLOAD TRANSPORT SECONDS: measures one way to move
 * the maps of a workload file between two processes, and prints a line of JSON.
 * With "sleep" behind, a side that waits does not spin.
 * With PAIRS COMPUTING PLACE BETWEEN behind: so many pairs of processes that
 * sleep while they wait, beside so many processes that only compute, PLACE
 * "one" core or "any"; BETWEEN the two of a pair may be "nice", "session",
 * "cgroup" or "fifo" (bench_between_t), or "nothing". With a TRANSPORT alone
 * ("shm", "tcp", "encrypted"): the ways over it, a line each; --version:
 * theirs. Who compares is compare.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "way.h"

#define BLOCKS 8

/* In the order of COMPARE_*. */
static const char *const overs[] = {"shm", "tcp", "encrypted", NULL};

static const compare_way_t *find(const char *name, unsigned over)
{
    const compare_way_t *way = compare_ways;

    while (way->name != NULL &&
           (strcmp(way->name, name) != 0 || (way->over & over) == 0)) {
        way++;
    }
    if (way->name == NULL) {
        bench_die("no way '%s' here over that", name);
    }
    return way;
}

static int list(unsigned over)
{
    for (const compare_way_t *way = compare_ways; way->name != NULL; way++) {
        if ((way->over & over) != 0) {
            puts(way->name);
        }
    }
    return 0;
}

static int tell_versions(void)
{
    const char *comma = "";

    for (const compare_way_t *way = compare_ways; way->name != NULL; way++) {
        if (way->version != NULL) {
            printf("%s%s %s", comma, way->name, way->version());
            comma = ", ";
        }
    }
    puts("");
    return 0;
}

/* A folder for what both processes of a run must find. */
static void make_folder(bench_run_t *run, char *name)
{
    if (mkdtemp(name) == NULL) {
        bench_die("no folder in /tmp");
    }
    run->folder = name;
#ifdef COMPARE_OPENSSL
    if (run->encrypted) {
        compare_certificates_make(name);
    }
#endif
}

static void remove_folder(const char *name)
{
    char path[64];

#ifdef COMPARE_OPENSSL
    compare_certificates_remove(name);
#endif
    snprintf(path, sizeof(path), "%s/socket", name);
    unlink(path);
    rmdir(name);
}

static bench_sample_t measure(bench_run_t run, bench_metric_t metric)
{
    char folder[] = "/tmp/tensormsg-compare-XXXXXX";
    bench_sample_t sample;
    bool ok;

    make_folder(&run, folder);
    run.metric = metric;
    ok = bench_pair_run(&run, &sample);
    remove_folder(folder);
    if (!ok) {
        bench_die("a run failed");
    }
    return sample;
}

/* A number of processes, at most `most`. */
static unsigned number(const char *text, unsigned most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*text == '\0' || *end != '\0' || value > most) {
        bench_die("'%s' is no number up to %u", text, most);
    }
    return (unsigned)value;
}

/* Which of these words it is; the last is NULL. */
static unsigned one_of(const char *text, const char *const *words)
{
    unsigned i = 0;

    while (words[i] != NULL && strcmp(text, words[i]) != 0) {
        i++;
    }
    if (words[i] == NULL) {
        bench_die("'%s' is none of the words that may stand there", text);
    }
    return i;
}

static void measure_shared(const compare_way_t *way, bench_run_t run,
                           char **args)
{
    static const char *const places[] = {"one", "any", NULL};
    static const char *const betweens[] = {"nothing", "nice", "session",
                                           "cgroup",  "fifo", NULL};
    bench_sample_t sample;

    run.pairs = number(args[0], BENCH_PAIRS_MAX);
    run.computing = number(args[1], BENCH_PAIRS_MAX);
    run.place = (bench_place_t)(BENCH_ONE_CORE + one_of(args[2], places));
    run.between = (bench_between_t)one_of(args[3], betweens);
    run.seconds = run.block_s * run.blocks;
    run.block_s = 0;
    run.blocks = 4;
    run.rounds = (unsigned)run.workload->count;
    run.sleeps = true;
    sample = measure(run, BENCH_SHARED);
    printf("{\"way\": \"%s\", \"round_trips_per_s\": %.1f, "
           "\"half_round_trip_us\": %.3f, \"p99_us\": %.3f}\n",
           way->name, sample.value, sample.one_way * 1e6, sample.p99 * 1e6);
}

/* Half a call and its reply, in seconds. */
static double measure_calls(const bench_run_t *run)
{
    bench_sample_t sample = measure(*run, BENCH_UNARY);

    return sample.value * sample.one_way / 2;
}

/* Two processes, each on a core of its own. Calls have no bandwidth. */
static void measure_apart(const compare_way_t *way, const bench_run_t *run,
                          const char *over)
{
    double half_round_trip =
        way->calls ? measure_calls(run) : measure(*run, BENCH_LATENCY).value;
    char gb_per_s[32] = "null";

    if (!way->calls) {
        snprintf(gb_per_s, sizeof(gb_per_s), "%.6f",
                 measure(*run, BENCH_BANDWIDTH).value * 1e-9);
    }
    printf("{\"way\": \"%s\", \"workload\": \"%s\", \"over\": \"%s\", "
           "\"half_round_trip_us\": %.3f, \"gb_per_s\": %s}\n",
           way->name, run->workload->name, over, half_round_trip * 1e6,
           gb_per_s);
}

int main(int argc, char **argv)
{
    char why[WORKLOAD_WHY_BYTES];
    workload_t workload;
    const compare_way_t *way;
    bench_run_t run;
    unsigned over;

    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        return tell_versions();
    }
    if (argc == 2) {
        return list(1u << one_of(argv[1], overs));
    }
    if (argc != 5 && argc != 6 && argc != 9) {
        bench_die("needs WAY WORKLOAD TRANSPORT SECONDS [sleep | PAIRS "
                  "COMPUTING PLACE BETWEEN], a TRANSPORT or --version");
    }
    over = 1u << one_of(argv[3], overs);
    way = find(argv[1], over);
    if (!workload_read(argv[2], &workload, why)) {
        bench_die("%s", why);
    }
    run = (bench_run_t){
        .workload = &workload,
        .transport = over == COMPARE_SHM ? BENCH_SHM : BENCH_TCP,
        .open = way->open,
        .way = way->way,
        .by_stream = way->by_stream,
        .encrypted = over == COMPARE_ENCRYPTED,
        .has_threads = way->has_threads,
        .window = BENCH_WINDOW_MAX,
        .blocks = BLOCKS,
        .block_s = strtod(argv[4], NULL) / BLOCKS,
    };
    if (argc == 6) {
        one_of(argv[5], (const char *const[]){"sleep", NULL});
        run.sleeps = true;
    }
    if (argc == 9) {
        measure_shared(way, run, argv + 5);
    } else {
        measure_apart(way, &run, argv[3]);
    }
    workload_free(&workload);
    return 0;
}
