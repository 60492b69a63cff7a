/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel's scheduler tells processes apart by. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "side.h"

#define CGROUPS "/sys/fs/cgroup/cpu"
#define NICE 10
#define PATH_BYTES 128

/* Of the process that measures, for one side of all its pairs. */
static void cgroup_path(pid_t owner, bool first, const char *file,
                        char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, CGROUPS "/tensormsg-bench-%d-%d%s", (int)owner,
             first, file);
}

static void join_cgroup(bool first)
{
    char path[PATH_BYTES];
    FILE *file;

    cgroup_path(getppid(), first, "", path);
    if (mkdir(path, 0755) != 0 && errno != EEXIST) {
        bench_die("no cgroup (version 1) can be made: %s: %s", path,
                  strerror(errno));
    }
    cgroup_path(getppid(), first, "/tasks", path);
    file = fopen(path, "r+"); /* which the kernel has made */
    if (file == NULL || fputs("0", file) < 0 || fclose(file) != 0) {
        bench_die("%s: %s", path, strerror(errno));
    }
}

void bench_part(const bench_run_t *run, bool first)
{
    const struct sched_param least = {.sched_priority = 1};
    int failed = 0;

    switch (run->between) {
    case BENCH_ALIKE:
        return;
    case BENCH_NICE:
        failed = first ? 0 : setpriority(PRIO_PROCESS, 0, NICE);
        break;
    case BENCH_SESSION:
        failed = setsid() < 0;
        break;
    case BENCH_CGROUP:
        join_cgroup(first);
        break;
    case BENCH_FIFO:
        failed = first ? sched_setscheduler(0, SCHED_FIFO, &least) : 0;
        break;
    }
    if (failed != 0) {
        bench_die("the kernel does not tell the sides apart: %s",
                  strerror(errno));
    }
}

void bench_join(const bench_run_t *run)
{
    char path[PATH_BYTES];

    for (int first = 0; run->between == BENCH_CGROUP && first < 2; first++) {
        cgroup_path(getpid(), first, "", path);
        rmdir(path);
    }
}
