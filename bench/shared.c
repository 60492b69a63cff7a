/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs of processes in lock step where processors are shared: all on one core,
 * or more processes than cores, with or without some that only compute. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "side.h"
#include "tools/measure/figures.h"

#define TRIPS_MOST (1u << 20) /* that are kept, of a pair */
#define SETTLE_S 0.05         /* lock step that is not timed yet */
#define PATH_BYTES 128

struct bench_gate {
    atomic_uint arrived;
    atomic_bool over[BENCH_PAIRS_MAX]; /* the round trip at hand is the last */
};

/* All first sides, when their pair is ready. */
static void pass(bench_gate_t *gate, unsigned pairs)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    atomic_fetch_add(&gate->arrived, 1);
    while (atomic_load(&gate->arrived) < pairs) {
        nanosleep(&moment, NULL);
    }
}

/* Round trips until so many seconds have passed; how many. */
static size_t time_trips(bench_side_t *side, double seconds, double *trips)
{
    double begin = bench_now(), before = begin, now = begin;
    size_t count = 0;

    while (now - begin < seconds) {
        bench_ping_pong(side, 1, true);
        now = bench_now();
        trips[count++ % TRIPS_MOST] = now - before;
        before = now;
    }
    return count;
}

static void summarize(double *trips, size_t count, double seconds,
                      bench_sample_t *sample_p)
{
    size_t kept = count < TRIPS_MOST ? count : TRIPS_MOST;

    figures_sort(trips, kept);
    sample_p->value = (double)count / seconds;
    sample_p->one_way = figures_median(trips, kept) / 2;
    sample_p->p99 = figures_quantile(trips, kept, 0.99) / 2;
}

void bench_shared_play(bench_side_t *side, const bench_run_t *run, bool first,
                       bench_sample_t *sample_p)
{
    atomic_bool *over = &run->gate->over[run->pair];
    double *trips;

    if (!first) {
        bool last;

        do {
            bench_await(side, 1);
            last = atomic_load(over); /* it was set before this was sent */
            side->send(side);
            bench_drain(side);
        } while (!last);
        return;
    }
    trips = bench_memory(TRIPS_MOST * sizeof(*trips));
    memset(trips, 1, TRIPS_MOST * sizeof(*trips)); /* its pages are there */
    pass(run->gate, run->pairs);
    time_trips(side, SETTLE_S, trips);
    summarize(trips, time_trips(side, run->seconds, trips), run->seconds,
              sample_p);
    bench_ping_pong(side, 1, true); /* while others still are timed */
    atomic_store(over, true);
    bench_ping_pong(side, 1, true);
    free(trips);
}

static pid_t compute(bench_place_t place)
{
    volatile unsigned long number = 0;
    pid_t pid = fork();

    if (pid < 0) {
        bench_die("fork: %s", strerror(errno));
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (place == BENCH_ONE_CORE) {
            bench_bind_core(0);
        }
        while (true) {
            number++;
        }
    }
    return pid;
}

/* A pair's sockets are in a folder of its own. */
static void start_pair(const bench_run_t *run, bench_gate_t *gate,
                       unsigned number, bench_pair_t *pair_p)
{
    char folder[PATH_BYTES];
    bench_run_t own = *run;

    own.gate = gate;
    own.pair = number;
    if (run->folder != NULL) {
        snprintf(folder, sizeof(folder), "%s/%u", run->folder, number);
        if (mkdir(folder, 0700) != 0) {
            bench_die("%s: %s", folder, strerror(errno));
        }
        own.folder = folder;
    }
    bench_pair_start(&own, pair_p);
}

static void remove_folder(const bench_run_t *run, unsigned number)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%u/socket", run->folder, number);
    unlink(path);
    snprintf(path, sizeof(path), "%s/%u", run->folder, number);
    rmdir(path);
}

/* The rate is that of all pairs, the rest is the slowest pair's. */
static void add(const bench_sample_t *pair, bench_sample_t *sample_p)
{
    sample_p->value += pair->value;
    if (pair->one_way > sample_p->one_way) {
        sample_p->one_way = pair->one_way;
    }
    if (pair->p99 > sample_p->p99) {
        sample_p->p99 = pair->p99;
    }
}

bool bench_shared_run(const bench_run_t *run, bench_sample_t *sample_p)
{
    bench_pair_t pairs[BENCH_PAIRS_MAX];
    pid_t computing[BENCH_PAIRS_MAX];
    bench_sample_t sample;
    bench_gate_t *gate = mmap(NULL, sizeof(*gate), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool ok = true;

    if (run->pairs > BENCH_PAIRS_MAX || run->computing > BENCH_PAIRS_MAX ||
        gate == MAP_FAILED) {
        bench_die("%u pairs beside %u processes cannot be run", run->pairs,
                  run->computing);
    }
    *sample_p = (bench_sample_t){0};
    for (unsigned i = 0; i < run->pairs; i++) {
        start_pair(run, gate, i, &pairs[i]);
    }
    for (unsigned i = 0; i < run->computing; i++) {
        computing[i] = compute(run->place);
    }
    for (unsigned i = 0; i < run->pairs; i++) {
        ok = bench_pair_end(&pairs[i], &sample) && ok;
        if (ok) {
            add(&sample, sample_p);
        }
        if (run->folder != NULL) {
            remove_folder(run, i);
        }
    }
    for (unsigned i = 0; i < run->computing; i++) {
        kill(computing[i], SIGKILL);
        waitpid(computing[i], NULL, 0);
    }
    bench_join(run);
    munmap(gate, sizeof(*gate));
    return ok;
}
