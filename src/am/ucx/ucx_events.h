/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/ucx_events.h - the table by which this room tells the worker of the
 * UCX worker what happened, and asks it for help. engine/engine.c fills the
 * table. */
#ifndef TMSG_AM_UCX_UCX_EVENTS_H
#define TMSG_AM_UCX_UCX_EVENTS_H

#include <stdbool.h>

#include "am/ucx/ucx.h"

/* The rooms ucx and connect call these with the worker's lock held. No entry
 * calls a function of the application. */
typedef struct {
    /* UCX reports, inside UCX, that it has lost an endpoint. The entry only
     * notes it. */
    void (*lost)(tmsg_ucx_t *ucx, tmsg_ucx_ep_t ep, tmsg_ucx_status_t status);
    /* A stream brings no more: PEER_LOST, MALFORMED, NO_MEMORY. Called inside
     * UCX, so to speak. The entry only notes it. */
    void (*ended)(tmsg_ucx_t *ucx, tmsg_ucx_ep_t ep, tmsg_status_t status,
                  const char *why);
    /* Handles everything that UCX has received and not reported yet. Outside
     * UCX. False: UCX did not become silent within a bound. */
    bool (*drain)(tmsg_ucx_t *ucx);
    /* Makes another UCX worker take the new connections of this one, because
     * peers were told BUSY: it has no room for what they ask. A stranger can
     * bring this about, so it happens once in a second at most, and otherwise
     * as soon as the second is over. Outside UCX. This one goes on as if it had
     * lost a peer, and takes connections by a blob, whose address stays. */
    void (*doubt)(tmsg_ucx_t *ucx);
    /* Makes another UCX worker take the new connections of this one, which has
     * no shared memory, or has met too many peers. Outside UCX. This one stays
     * open for the connections that it has, and for a blob. */
    void (*supersede)(tmsg_ucx_t *ucx);
    /* Closes the retired UCX workers of a worker that nobody uses. Outside
     * UCX. */
    void (*sweep)(tmsg_worker_t *worker);
} tmsg_ucx_events_t;

extern const tmsg_ucx_events_t tmsg_ucx_events;

#endif
