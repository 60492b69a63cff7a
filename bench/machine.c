/* SPDX-License-Identifier: BSD-3-Clause */
/* How much of the machine was ours while we measured. */
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench.h"

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static double own_seconds(void)
{
    struct rusage self, children;

    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return seconds(self.ru_utime) + seconds(self.ru_stime) +
           seconds(children.ru_utime) + seconds(children.ru_stime);
}

void bench_machine_look(bench_machine_t *machine)
{
    unsigned long long user, nice, system, idle, wait, irq, softirq, stolen;
    FILE *file = fopen("/proc/stat", "r");
    double tick = (double)sysconf(_SC_CLK_TCK);

    *machine = (bench_machine_t){0};
    if (file == NULL) {
        return;
    }
    if (fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user,
               &nice, &system, &idle, &wait, &irq, &softirq, &stolen) == 8) {
        machine->busy = (double)(user + nice + system + irq + softirq) / tick;
        machine->stolen = (double)stolen / tick;
        machine->all =
            machine->busy + machine->stolen + (double)(idle + wait) / tick;
        machine->own = own_seconds();
    }
    fclose(file);
}

void bench_machine_tell(const bench_machine_t *before)
{
    bench_machine_t now;
    double all;

    bench_machine_look(&now);
    all = now.all - before->all;
    if (all > 0) {
        printf("Other programs took %.0f %% of the %ld cores meanwhile, the "
               "host %.0f %%.\n",
               100 * ((now.busy - before->busy) - (now.own - before->own)) /
                   all,
               sysconf(_SC_NPROCESSORS_ONLN),
               100 * (now.stolen - before->stolen) / all);
    }
}
