/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/engine.h - what the rooms below ask of the engine, which assembles
 * them all: the one table by which calls go up to it. engine/engine.c fills it.
 */
#ifndef TMSG_AM_WORKER_ENGINE_H
#define TMSG_AM_WORKER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

#include <tensormsg/endpoint.h>

#include "am/ucx/ucx.h"

/* The worker's lock is held, but where it says else. */
typedef struct {
    /* One round of progress, without callbacks of the application. Gives how
     * much was done. */
    unsigned (*step)(tmsg_worker_t *worker);
    /* The worker's descriptor is signalled when there is something to do.
     * Errors: BUSY (there is now), INTERNAL. */
    tmsg_status_t (*arm)(tmsg_worker_t *worker);
    /* Whether nothing is to be done, or to be expected, but by a box. */
    bool (*idle)(tmsg_worker_t *worker);
    /* Without the lock: ends everything and frees the worker, which no call is
     * in any more. */
    void (*finish)(tmsg_worker_t *worker);

    /* Inside UCX: a message came. */
    tmsg_ucx_arrived_t arrived;

    /* The connection stands. */
    void (*opened)(tmsg_endpoint_t *endpoint);
    /* Outside UCX: ends it now. Whatever is pending ends with this status;
     * `error` names the cause, the peer is put in front. */
    void (*end)(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                const char *error);
    /* Outside UCX: takes the connection away from an endpoint that lives on. In
     * order; UCX still has to report. `alive`: the peer is there yet. */
    void (*part)(tmsg_endpoint_t *endpoint, bool alive);
    /* Frees the handle, for the application or a listener. */
    void (*release)(tmsg_endpoint_t *endpoint);
    /* Takes an endpoint out of the table that has ended, has nothing in UCX and
     * is nobody's any more: until then its worker's end finds it there. */
    void (*forget)(tmsg_endpoint_t *endpoint);
    /* Its last reference is gone; from any thread, without the lock. */
    void (*free)(tmsg_endpoint_t *endpoint);
} tmsg_engine_t;

extern const tmsg_engine_t tmsg_engine;

#endif
