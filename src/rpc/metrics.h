/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/metrics.h - counts of calls, by method and side. */
#ifndef TMSG_RPC_METRICS_H
#define TMSG_RPC_METRICS_H

#include <tensormsg/metrics.h>

#include "rpc/hub.h"

#define TMSG_METER_STEPS 1056

/* Never freed before its hub. */
typedef struct tmsg_meter {
    tmsg_node_t node;   /* of the hub's */
    tmsg_keyed_t keyed; /* by side and name */
    tmsg_side_t side;
    tmsg_call_metrics_t counts;
    uint64_t steps[TMSG_METER_STEPS];
    size_t name_bytes;
    char name[TMSG_METHOD_BYTES_MAX + 1];
} tmsg_meter_t;

/* The lock of the hub held, all of these; a NULL meter is none, and nothing is
 * counted by it. */

/* One call more of that method; NULL: nothing is counted, or no memory. */
tmsg_meter_t *tmsg_meter_begin(tmsg_hub_t *hub, tmsg_side_t side,
                               const char *name, size_t bytes);

/* It has ended, begun at that time of tmsg_calls_now_ns(). */
void tmsg_meter_end(tmsg_meter_t *meter, tmsg_status_t status,
                    uint64_t begun_ns);

/* One was not taken by the server. */
void tmsg_meter_reject(tmsg_hub_t *hub, const char *name, size_t bytes,
                       tmsg_status_t status);

/* Bytes of the tensors of a map, or 0 of NULL. */
uint64_t tmsg_meter_bytes(const tmsg_map_t *map);

/* The step of a latency; the lowest value of a step. */
size_t tmsg_meter_step(uint64_t ns);
uint64_t tmsg_meter_from(size_t step);

void tmsg_meters_free(tmsg_hub_t *hub); /* without a lock */

#endif
