/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/engine.h - what the rooms below ask of the engine.
 *
 * The engine assembles all rooms. This table is the only way by which calls go
 * up to it. engine/engine.c fills the table. */
#ifndef TMSG_AM_WORKER_ENGINE_H
#define TMSG_AM_WORKER_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

#include <tensormsg/endpoint.h>

#include "am/ucx/ucx.h"

/* The rooms below the engine call these. Unless an entry says otherwise, the
 * caller holds the worker's lock and is outside UCX. No entry calls a function
 * of the application: it queues the call (tmsg_worker_due()), and
 * tmsg_worker_dispatch() makes it without the lock. */
typedef struct {
    /* Makes one round of progress. The leading thread calls it (lead.c).
     * Returns how many things were done. */
    unsigned (*step)(tmsg_worker_t *worker);
    /* The leading thread calls it before it sleeps. From then on the worker's
     * descriptor is signalled when there is something to do. Errors: BUSY
     * (there is something to do now), INTERNAL. */
    tmsg_status_t (*arm)(tmsg_worker_t *worker);
    /* Returns whether nothing is to be done, and only fast boxes can bring
     * something. */
    bool (*idle)(tmsg_worker_t *worker);
    /* Ends everything and frees the worker. The last call that leaves a
     * destroyed worker makes it, without the lock. */
    void (*finish)(tmsg_worker_t *worker);

    /* UCX calls it for every active message; the call is inside UCX. */
    tmsg_ucx_arrived_t arrived;

    /* The handshake calls it when the connection stands. */
    void (*opened)(tmsg_endpoint_t *endpoint);
    /* Ends the endpoint at once. Pending requests end with `status` and with
     * `error`, which names the cause; the engine puts the peer's name in front.
     * A caller inside UCX uses tmsg_endpoint_break() instead. */
    void (*end)(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                const char *error);
    /* Takes the connection away from an endpoint that lives on. UCX still has
     * to report its operations. `alive`: the peer's process is known to
     * live. */
    void (*detach)(tmsg_endpoint_t *endpoint, bool alive);
    /* Gives back the handle of the application or of a listener, and ends the
     * endpoint. If the endpoint has no connection, the caller may be inside
     * UCX. */
    void (*release)(tmsg_endpoint_t *endpoint);
    /* Removes the endpoint from the table if it has ended, UCX has nothing of
     * it, and nobody holds its handle; else does nothing. The caller may be
     * inside UCX. */
    void (*forget)(tmsg_endpoint_t *endpoint);
    /* The thread that drops the last reference calls it, with or without the
     * lock. It frees memory and does nothing else. */
    void (*free)(tmsg_endpoint_t *endpoint);
} tmsg_engine_t;

extern const tmsg_engine_t tmsg_engine;

#endif
