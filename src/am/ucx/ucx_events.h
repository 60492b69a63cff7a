/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_events.h - what this room tells the worker that has the UCX
 * worker, and asks of it: a table, which engine/engine.c fills. The worker's
 * lock is held in all of them. */
#ifndef TMSG_AM_UCX_UCX_EVENTS_H
#define TMSG_AM_UCX_UCX_EVENTS_H

#include <stdbool.h>

#include "am/ucx/ucx.h"

typedef struct {
    /* Inside UCX: it has lost a UCX endpoint. */
    void (*lost)(tmsg_ucx_t *ucx, tmsg_ucx_ep_t ep, tmsg_ucx_status_t status);
    /* Outside UCX: hears what UCX has received and not told yet. False: it had
     * not fallen silent within a bound. */
    bool (*drain)(tmsg_ucx_t *ucx);
    /* A peer that was killed while it wrote to shared memory may have left our
     * queue blocked for everybody: it takes no new connections, but for those
     * that come by a blob, whose address stays; and if it is blocked those that
     * do end, and its blobs with them. Outside UCX. */
    void (*retire)(tmsg_ucx_t *ucx);
    /* Another takes the new connections of this one, which has no shared
     * memory. It stays open for those that it has, and for a blob. */
    void (*supersede)(tmsg_ucx_t *ucx);
    /* Closes those of a worker's that are retired and that nobody uses. Outside
     * UCX. */
    void (*sweep)(tmsg_worker_t *worker);
} tmsg_ucx_events_t;

extern const tmsg_ucx_events_t tmsg_ucx_events;

#endif
