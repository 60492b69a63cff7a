/* SPDX-License-Identifier: BSD-3-Clause */
#include "side.h"

#include <stdio.h>
#include <stdlib.h>

void bench_side_load(bench_side_t *side, const bench_run_t *run,
                     bool in_one_piece)
{
    const workload_t *workload = run->workload;

    if (workload == NULL) {
        char why[WORKLOAD_WHY_BYTES];

        if (!workload_uniform(run->tensors, run->tensor_bytes, &side->plain,
                              why)) {
            bench_die("%s", why);
        }
        workload = &side->plain;
    }
    side->look = run->look;
    side->payload_count = workload->count;
    side->payload_bytes = workload->bytes;
    side->payloads = bench_memory(workload->count * sizeof(*side->payloads));
    for (size_t i = 0; i < workload->count; i++) {
        bench_payload_create(&workload->maps[i], in_one_piece,
                             &side->payloads[i]);
    }
}

void bench_side_unload(bench_side_t *side)
{
    for (size_t i = 0; i < side->payload_count; i++) {
        bench_payload_free(&side->payloads[i]);
    }
    free(side->payloads);
    workload_free(&side->plain);
}

const bench_payload_t *bench_side_next(bench_side_t *side)
{
    const bench_payload_t *payload = &side->payloads[side->turn];

    side->turn = side->turn + 1 == side->payload_count ? 0 : side->turn + 1;
    return payload;
}

const bench_payload_t *bench_side_expected(const bench_side_t *side)
{
    return &side->payloads[side->checked % side->payload_count];
}

void bench_certificates(const char *folder, bool dialling,
                        bench_certificates_t *paths_p)
{
    const char *who = dialling ? "client" : "server";

    snprintf(paths_p->ca, sizeof(paths_p->ca), "%s/ca.pem", folder);
    snprintf(paths_p->certificate, sizeof(paths_p->certificate), "%s/%s.pem",
             folder, who);
    snprintf(paths_p->key, sizeof(paths_p->key), "%s/%s.key", folder, who);
}
