/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "core/shown.h"
#include "rpc/builtin.h"
#include "rpc/stall.h"

#define NAMES_MOST 256 /* method names that callers' meters tell apart */
#define UNIT_BITS 5    /* a unit has 32 ns */
#define SUB_BITS 5     /* a power of 2 has 32 steps */
#define SUBS (1u << SUB_BITS)

size_t tmsg_meter_step(uint64_t ns)
{
    uint64_t units = ns >> UNIT_BITS;
    unsigned shift;
    size_t step;

    if (units < 2 * SUBS) {
        return (size_t)units;
    }
    shift = 63 - (unsigned)__builtin_clzll(units) - SUB_BITS;
    step = (size_t)shift * SUBS + (size_t)(units >> shift);
    return step < TMSG_METER_STEPS ? step : TMSG_METER_STEPS - 1;
}

uint64_t tmsg_meter_from(size_t step)
{
    size_t shift = step / SUBS;

    if (step < 2 * SUBS) {
        return (uint64_t)step << UNIT_BITS;
    }
    shift--;
    return (uint64_t)(step - shift * SUBS) << (shift + UNIT_BITS);
}

static uint64_t key_of(tmsg_side_t side, const char *name, size_t bytes)
{
    return tmsg_table_key(name, bytes) * 2 + (side == TMSG_SIDE_SERVER);
}

/* Returns the meter of a method; NULL: there is none. Lock held. */
static tmsg_meter_t *find_meter(const tmsg_hub_t *hub, tmsg_side_t side,
                                const char *name, size_t bytes)
{
    tmsg_keyed_t *item =
        tmsg_table_find(&hub->meters_by_name, key_of(side, name, bytes));

    for (; item != NULL; item = tmsg_table_next(item)) {
        tmsg_meter_t *meter = TMSG_CONTAINER_OF(item, tmsg_meter_t, keyed);

        if (meter->side == side && meter->name_bytes == bytes &&
            memcmp(meter->name, name, bytes) == 0) {
            return meter;
        }
    }
    return NULL;
}

/* Returns the meter of a method, which it makes if there is none; NULL: no
 * memory. A caller's names beyond NAMES_MOST share the meter of the empty name.
 * Lock held. */
static tmsg_meter_t *get_meter(tmsg_hub_t *hub, tmsg_side_t side,
                               const char *name, size_t bytes)
{
    tmsg_meter_t *meter = find_meter(hub, side, name, bytes);

    if (meter == NULL && side == TMSG_SIDE_CALLER &&
        hub->names_called >= NAMES_MOST) {
        bytes = 0;
        meter = find_meter(hub, side, name, bytes);
    }
    if (meter != NULL) {
        return meter;
    }
    meter = calloc(1, sizeof(*meter));
    if (meter != NULL) {
        meter->side = side;
        meter->name_bytes = bytes;
        memcpy(meter->name, name, bytes);
        hub->names_called += side == TMSG_SIDE_CALLER;
        tmsg_table_add(&hub->meters_by_name, &meter->keyed,
                       key_of(side, name, bytes));
        tmsg_list_push(&hub->meters, &meter->node);
    }
    return meter;
}

tmsg_meter_t *tmsg_meter_begin(tmsg_hub_t *hub, tmsg_side_t side,
                               const char *name, size_t bytes)
{
    tmsg_meter_t *meter =
        hub->counts ? get_meter(hub, side, name, bytes) : NULL;

    if (meter != NULL) {
        meter->counts.in_flight++;
    }
    return meter;
}

void tmsg_meter_end(tmsg_meter_t *meter, tmsg_status_t status,
                    uint64_t begun_ns)
{
    tmsg_call_metrics_t *counts;
    uint64_t ns;

    if (meter == NULL) {
        return;
    }
    counts = &meter->counts;
    ns = tmsg_calls_now_ns() - begun_ns;
    counts->ended++;
    counts->in_flight--;
    counts->latency_sum_ns += ns;
    if (ns > counts->latency_most_ns) {
        counts->latency_most_ns = ns;
    }
    if (status <= 0 && status > -TMSG_METRICS_STATUSES) {
        counts->by_status[-status]++;
    }
    meter->steps[tmsg_meter_step(ns)]++;
}

void tmsg_meter_reject(tmsg_hub_t *hub, const char *name, size_t bytes,
                       tmsg_status_t status)
{
    tmsg_meter_t *meter =
        hub->counts ? get_meter(hub, TMSG_SIDE_SERVER, name, bytes) : NULL;

    if (meter != NULL) {
        meter->counts.rejected++;
        if (status <= 0 && status > -TMSG_METRICS_STATUSES) {
            meter->counts.rejected_by_status[-status]++;
        }
    }
}

uint64_t tmsg_meter_bytes(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries =
        map == NULL ? NULL : tmsg_map_entries(map);
    uint64_t bytes = 0;

    for (size_t i = 0; map != NULL && i < tmsg_map_size(map); i++) {
        bytes += entries[i].bytes;
    }
    return bytes;
}

void tmsg_meters_free(tmsg_hub_t *hub)
{
    tmsg_node_t *node;

    while ((node = tmsg_list_pop(&hub->meters)) != NULL) {
        free(TMSG_CONTAINER_OF(node, tmsg_meter_t, node));
    }
    tmsg_table_free(&hub->meters_by_name);
}

static tmsg_status_t hub_of(tmsg_worker_t *worker, tmsg_hub_t **hub_p)
{
    void *start;
    tmsg_status_t status = tmsg_calls_start(worker, &tmsg_hub_ops, &start);

    if (status == TMSG_OK) {
        *hub_p = start;
    }
    return status;
}

tmsg_status_t tmsg_metrics_start(tmsg_worker_t *worker)
{
    tmsg_hub_t *hub;
    tmsg_status_t status = hub_of(worker, &hub);

    if (status == TMSG_OK) {
        tmsg_hub_lock(hub);
        hub->counts = true;
        tmsg_hub_unlock(hub);
    }
    return status;
}

tmsg_status_t tmsg_metrics_late_replies(tmsg_worker_t *worker,
                                        uint64_t *count_p)
{
    tmsg_hub_t *hub;
    tmsg_status_t status = TMSG_OK;

    if (worker == NULL || count_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "metrics: a pointer is NULL");
    }
    status = hub_of(worker, &hub);
    if (status == TMSG_OK) {
        tmsg_hub_lock(hub);
        *count_p = hub->late_replies;
        tmsg_hub_unlock(hub);
    }
    return status;
}

/* Stores the hub of the worker and the meter of a method. The meter lives as
 * long as the hub. Takes the lock. Errors: INVALID_PARAM, NOT_FOUND, those of
 * tmsg_calls_start(). */
static tmsg_status_t look_up_meter(tmsg_worker_t *worker, tmsg_side_t side,
                                   const char *method, tmsg_hub_t **hub_p,
                                   tmsg_meter_t **meter_p)
{
    tmsg_status_t status;

    if (method == NULL ||
        (side != TMSG_SIDE_CALLER && side != TMSG_SIDE_SERVER)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "metrics: side %d of method '%s'", side,
                              method == NULL ? "NULL" : method);
    }
    status = hub_of(worker, hub_p);
    if (status != TMSG_OK) {
        return status;
    }
    tmsg_hub_lock(*hub_p);
    *meter_p = find_meter(*hub_p, side, method, strlen(method));
    tmsg_hub_unlock(*hub_p);
    return *meter_p != NULL
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_NOT_FOUND,
                                "metrics: no call of method '%s' was counted",
                                method);
}

void tmsg_meter_add_load(const tmsg_hub_t *hub, const tmsg_meter_t *meter,
                         tmsg_call_metrics_t *metrics)
{
    const tmsg_method_t *method = NULL;
    tmsg_health_report_t report;

    if (meter->side == TMSG_SIDE_SERVER && hub->server != NULL) {
        method = tmsg_method_find(hub->server, meter->name, meter->name_bytes);
    }
    if (method != NULL) {
        tmsg_stall_report(hub->server, method, &report);
        metrics->running = report.running;
        metrics->waiting = report.waiting;
        metrics->held = report.held;
        metrics->stalls = report.stalls;
        metrics->long_handlers = method->longs;
    }
}

tmsg_status_t tmsg_metrics_read(tmsg_worker_t *worker, tmsg_side_t side,
                                const char *method,
                                tmsg_call_metrics_t *metrics_p)
{
    tmsg_meter_t *meter;
    tmsg_hub_t *hub;
    tmsg_status_t status = look_up_meter(worker, side, method, &hub, &meter);

    if (status == TMSG_OK) {
        tmsg_hub_lock(hub);
        *metrics_p = meter->counts;
        tmsg_meter_add_load(hub, meter, metrics_p);
        tmsg_hub_unlock(hub);
    }
    return status;
}

tmsg_status_t tmsg_metrics_note_long(tmsg_worker_t *worker, const char *name)
{
    tmsg_method_t *method = NULL;
    tmsg_status_t status;
    tmsg_hub_t *hub;

    if (worker == NULL || name == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "metrics: a pointer is NULL");
    }
    status = hub_of(worker, &hub);
    if (status != TMSG_OK) {
        return status;
    }
    tmsg_hub_lock(hub);
    if (hub->server != NULL) {
        method = tmsg_method_find(hub->server, name, strlen(name));
    }
    if (method != NULL) {
        method->longs++;
    }
    tmsg_hub_unlock(hub);
    return method != NULL ? TMSG_OK
                          : tmsg_error_set(TMSG_ERR_NOT_FOUND,
                                           "metrics: no method '%s' is served",
                                           tmsg_shown_short(name).text);
}

/* Returns the latency in ns that `millionths` of the ended calls do not exceed.
 * The value is the middle of a step, and the greatest latency at most. Lock
 * held. */
static uint64_t latency_of(const tmsg_meter_t *meter, uint32_t millionths)
{
    uint64_t ended = meter->counts.ended, below = 0;
    uint64_t wanted = ended / 1000000 * millionths +
                      (ended % 1000000 * millionths + 999999) / 1000000;
    uint64_t middle = 0;

    if (millionths == 1000000 || ended == 0) {
        return meter->counts.latency_most_ns;
    }
    for (size_t i = 0; i < TMSG_METER_STEPS; i++) {
        below += meter->steps[i];
        if (below >= wanted && below > 0) {
            middle = (tmsg_meter_from(i) + tmsg_meter_from(i + 1)) / 2;
            break;
        }
    }
    return middle < meter->counts.latency_most_ns
               ? middle
               : meter->counts.latency_most_ns;
}

tmsg_status_t tmsg_metrics_latency(tmsg_worker_t *worker, tmsg_side_t side,
                                   const char *method, uint32_t millionths,
                                   uint64_t *latency_ns_p)
{
    tmsg_meter_t *meter;
    tmsg_hub_t *hub;
    tmsg_status_t status;

    if (millionths > 1000000) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "metrics: %u millionths",
                              millionths);
    }
    status = look_up_meter(worker, side, method, &hub, &meter);
    if (status == TMSG_OK) {
        tmsg_hub_lock(hub);
        *latency_ns_p = latency_of(meter, millionths);
        tmsg_hub_unlock(hub);
    }
    return status;
}
