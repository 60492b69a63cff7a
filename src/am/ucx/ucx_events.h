/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_events.h - what this room tells the worker that has the UCX
 * worker, and asks of it: a table, which engine/engine.c fills. The worker's
 * lock is held in all of them. */
#ifndef TMSG_AM_UCX_UCX_EVENTS_H
#define TMSG_AM_UCX_UCX_EVENTS_H

#include <stdbool.h>

#include "am/ucx/ucx.h"

/* The rooms ucx and connect call these with the worker's lock held. No entry
 * calls a function of the application. */
typedef struct {
    /* UCX reports, inside UCX, that it has lost an endpoint. Only notes it. */
    void (*lost)(tmsg_ucx_t *ucx, tmsg_ucx_ep_t ep, tmsg_ucx_status_t status);
    /* Outside UCX: handles everything that UCX has received and not reported
     * yet. False: it did not become silent within a bound. */
    bool (*drain)(tmsg_ucx_t *ucx);
    /* Outside UCX: a peer that was killed while it wrote to shared memory may
     * have left our queue blocked for everybody. The UCX worker takes no new
     * connections, except by a blob, whose address stays. If it is blocked, its
     * connections and its blobs end. */
    void (*retire)(tmsg_ucx_t *ucx);
    /* Outside UCX: another UCX worker takes the new connections of this one,
     * which has no shared memory. This one stays open for those that it has,
     * and for a blob. */
    void (*supersede)(tmsg_ucx_t *ucx);
    /* Outside UCX: closes the retired UCX workers of a worker that nobody
     * uses. */
    void (*sweep)(tmsg_worker_t *worker);
} tmsg_ucx_events_t;

extern const tmsg_ucx_events_t tmsg_ucx_events;

#endif
