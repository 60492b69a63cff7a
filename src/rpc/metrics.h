/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/metrics.h - counts of calls, by method and side. */
#ifndef TMSG_RPC_METRICS_H
#define TMSG_RPC_METRICS_H

#include <tensormsg/metrics.h>

#include "rpc/hub.h"

/* Number of steps of the latency histogram in tensormsg/metrics.h. */
#define TMSG_METER_STEPS 1056

/* A meter counts the calls of one method on one side. It lives as long as its
 * hub. */
typedef struct tmsg_meter {
    tmsg_node_t node;   /* in the hub's list of meters */
    tmsg_keyed_t keyed; /* entry in the hub's meters_by_name */
    tmsg_side_t side;
    tmsg_call_metrics_t counts;
    /* number of ended calls, by the step of their latency */
    uint64_t steps[TMSG_METER_STEPS];
    size_t name_bytes; /* 0: all names without a meter of their own */
    char name[TMSG_METHOD_BYTES_MAX + 1];
} tmsg_meter_t;

/* The caller of tmsg_meter_begin(), tmsg_meter_end() and tmsg_meter_reject()
 * holds the hub's lock, or is the thread of a worker that is not shared. */

/* Counts a call of that method as under way, and returns its meter. Returns
 * NULL if the application wants no metrics, or there is no memory. */
tmsg_meter_t *tmsg_meter_begin(tmsg_hub_t *hub, tmsg_side_t side,
                               const char *name, size_t bytes);

/* Counts the end of a call that began at `begun_ns`, a time of
 * tmsg_calls_now_ns(). A NULL meter counts nothing. */
void tmsg_meter_end(tmsg_meter_t *meter, tmsg_status_t status,
                    uint64_t begun_ns);

/* Counts a call or stream that the server refused when its head arrived, if the
 * application wants metrics. `bytes` is 0 if the server has no such method. */
void tmsg_meter_reject(tmsg_hub_t *hub, const char *name, size_t bytes,
                       tmsg_status_t status);

/* Adds what the meter's method does at the moment, if it is a server's. Lock
 * held. */
void tmsg_meter_add_load(const tmsg_hub_t *hub, const tmsg_meter_t *meter,
                         tmsg_call_metrics_t *metrics);

/* Returns the bytes of the tensors of a map; NULL has 0. Needs no lock. */
uint64_t tmsg_meter_bytes(const tmsg_map_t *map);

/* tmsg_meter_step() returns the step that a latency belongs to,
 * tmsg_meter_from() the lowest latency of a step. Latencies are in ns. */
size_t tmsg_meter_step(uint64_t ns);
uint64_t tmsg_meter_from(size_t step);

/* Frees the meters of a hub that nobody has any more. Lock not held. */
void tmsg_meters_free(tmsg_hub_t *hub);

#endif
