/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/session/heir.h"

#include "am/connect/handshake.h"
#include "am/endpoint/log.h"
#include "am/endpoint/session.h"
#include "am/session/resume.h"
#include "am/worker/engine.h"
#include "core/error.h"

/* Returns whether a new session is to follow this end. */
static bool is_due(const tmsg_endpoint_t *old, tmsg_status_t status)
{
    const tmsg_resume_t *resume = old->resume;

    return resume != NULL && old->dialling && resume->stood && !resume->final &&
           !resume->same_process && old->handle && old->face->handle &&
           !old->close_wanted && !old->worker->ending &&
           (status == TMSG_ERR_PEER_LOST || status == TMSG_ERR_UNAVAILABLE ||
            (status == TMSG_ERR_CLOSED && old->peer_leaves));
}

static tmsg_status_t create_heir(tmsg_endpoint_t *old, const char *error,
                                 tmsg_endpoint_t **heir_p)
{
    tmsg_endpoint_t *heir;
    tmsg_status_t status =
        tmsg_endpoint_create(old->worker, old->dialect, &heir);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_handshake_inherit(heir, old);
    heir->face = old->face;
    tmsg_endpoint_hold(heir->face);
    heir->queue.bounds = old->queue.bounds;
    status = tmsg_resume_inherit(heir, old, error);
    if (status == TMSG_OK) {
        *heir_p = heir;
    } else {
        tmsg_engine.release(heir);
    }
    return status;
}

tmsg_endpoint_t *tmsg_heir_create(tmsg_endpoint_t *old, tmsg_status_t status,
                                  const char *error)
{
    tmsg_endpoint_t *heir = NULL;

    if (is_due(old, status) && create_heir(old, error, &heir) != TMSG_OK) {
        tmsg_endpoint_log(old, TMSG_LOG_ATTEMPT_KIND, TMSG_LOG_WARN,
                          "no new session: %s", tmsg_error_message());
    }
    return heir;
}

static void run_let_go(tmsg_due_t *due)
{
    tmsg_endpoint_t *old = TMSG_CONTAINER_OF(due, tmsg_endpoint_t, due);
    tmsg_worker_t *worker = old->worker;

    tmsg_worker_lock(worker);
    if (old->handle) {
        tmsg_engine.release(old);
    }
    tmsg_worker_unlock(worker);
    tmsg_endpoint_drop(old);
}

void tmsg_heir_succeed(tmsg_endpoint_t *heir, tmsg_endpoint_t *old)
{
    atomic_store_explicit(&heir->face->now, heir, memory_order_relaxed);
    if (old != heir->face) {
        old->due.run = run_let_go;
        tmsg_endpoint_hold(old);
        tmsg_worker_due(old->worker, &old->due);
    }
}
