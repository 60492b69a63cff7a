/* SPDX-License-Identifier: BSD-3-Clause */
/* 1,000 endpoints at once from 10 client workers to one server worker, over
 * each link: messages there and back over all of them in turn, and what an
 * endpoint costs in memory of ours. The place is kept after each link. */
#include <stdio.h>
#include <sys/resource.h>

#include "support/many_endpoints.h"
#include "support/own_code_alloc.h"
#include "support/soak_progress.h"

enum { CLIENTS = 10, EACH = 100, ROUNDS = 20, BYTES_EACH_MAX = 64 << 10 };

static void run(link_t link)
{
    const many_t many = {.clients = CLIENTS,
                         .each = EACH,
                         .rounds = ROUNDS,
                         .link = link,
                         .held = watched_alloc_bytes};
    many_result_t result;

    many_run(&many, &result);
    printf("%s: %d endpoints, %d messages, %.0f a second, %zu and %zu bytes "
           "an endpoint\n",
           link_names[link], CLIENTS * EACH, 2 * CLIENTS * EACH * ROUNDS,
           result.rate, result.server_bytes, result.client_bytes);
    must_true(result.server_bytes <= BYTES_EACH_MAX &&
              result.client_bytes <= BYTES_EACH_MAX);
}

/* Two an endpoint: ours and UCX's. */
static bool has_descriptors(void)
{
    const rlim_t wanted = 200 + 2 * CLIENTS * EACH;
    struct rlimit limit;

    must_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    must_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit.rlim_max >= wanted;
}

int main(void)
{
    static const link_t links[] = {LINK_TCP, LINK_SHM, LINK_UNIX};
    const char *name = "many";

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!has_descriptors()) {
        printf("SKIPPED: RLIMIT_NOFILE allows too few descriptors\n");
        return 77;
    }
    watched_alloc_start();
    for (uint64_t slice = soak_place(name); slice < 3; slice++) {
        run(links[slice]);
        soak_keep(name, slice + 1);
    }
    soak_keep(name, 0);
    return 0;
}
