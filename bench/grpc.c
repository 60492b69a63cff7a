/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs gRPC's own program, which is C++ and so no part of this one. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "bench.h"

const char *bench_grpc_program;

bool bench_grpc_run(const bench_run_t *run, bench_sample_t *sample_p)
{
    char command[512], line[64] = "";
    FILE *out;
    int status;

    snprintf(command, sizeof(command), "timeout 60 '%s' %s %u %u %d 1",
             bench_grpc_program, run->transport == BENCH_TCP ? "tcp" : "unix",
             run->window, run->blocks, BENCH_CALLS_MS);
    out = popen(command, "r");
    if (out == NULL) {
        return false;
    }
    sample_p->value =
        fgets(line, sizeof(line), out) == NULL ? 0 : strtod(line, NULL);
    status = pclose(out);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && sample_p->value > 0;
}
