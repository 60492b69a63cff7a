/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/connect/ucx_for.h"

#include <errno.h>

#include "am/boot/device_ids.h"
#include "am/endpoint/fragments.h"
#include "am/endpoint/scheme.h"
#include "am/path/fastboxes.h"
#include "am/recv/schemas.h"
#include "am/ucx/ucx_events.h"
#include "am/ucx/ucx_pipe.h"
#include "am/worker/engine.h"
#include "serialize/checksum.h"

/* Returns the UCX worker for a scope and role: one with shared memory, else one
 * without, or NULL. */
static tmsg_ucx_t *find_ucx(const tmsg_worker_t *worker,
                            const tmsg_ucx_scope_t *scope, bool dialling)
{
    tmsg_ucx_t *without = NULL;

    for (tmsg_ucx_t *ucx = worker->ucx; ucx != NULL; ucx = ucx->next) {
        if (ucx->dialling != dialling || ucx->retired ||
            ucx->cm_listener != NULL ||
            !tmsg_ucx_scope_equal(&ucx->scope, scope)) {
            continue;
        }
        if (!ucx->scope.net_only) {
            return ucx;
        }
        without = ucx;
    }
    return without;
}

static tmsg_status_t open_ucx(tmsg_worker_t *worker,
                              const tmsg_ucx_scope_t *scope, bool dialling,
                              tmsg_ucx_t **ucx_p)
{
    const tmsg_limits_t *limits = &worker->context->limits;
    const tmsg_ucx_owner_t owner = {worker, &worker->loop,
                                    tmsg_context_ucx(worker->context)};
    tmsg_hello_t hello;
    tmsg_ucx_t *ucx;
    tmsg_status_t status;

    tmsg_hello_fill_local(worker->context->instance_id, &hello);
    hello.queue_depth = worker->queue_depth;
    hello.channels = worker->channels;
    hello.heartbeat_ms = tmsg_context_heartbeat_ms(worker->context);
    hello.max_tensors = limits->tensors;
    hello.max_ndim = limits->ndim;
    hello.max_name_bytes = limits->name_bytes;
    hello.max_metadata_bytes = limits->metadata_bytes;
    hello.max_header_bytes = limits->header_bytes;
    hello.max_message_bytes = limits->message_bytes;
    hello.max_metadata_keys = limits->metadata_keys;
    hello.checksums = tmsg_checksum_mask();
    hello.aborts = 1;
    hello.fragments = TMSG_FRAGMENTS_KEPT;
    hello.features =
        TMSG_FEATURE_PING | TMSG_FEATURE_BROADCAST | TMSG_FEATURE_CALLS |
        TMSG_FEATURE_SLICES | TMSG_FEATURE_STREAMS | TMSG_FEATURE_SPANS |
        TMSG_FEATURE_LEASE | TMSG_FEATURE_BULK | TMSG_FEATURE_RINGS |
        TMSG_FEATURE_FASTBOXES | TMSG_FEATURE_READS | TMSG_FEATURE_REPLIES |
        TMSG_FEATURE_LOANS | TMSG_FEATURE_PASSES | TMSG_FEATURE_CARRIERS |
        TMSG_FEATURE_SUBFLOWS | TMSG_FEATURE_DEVICE_IPC;
    if (scope->pipes) { /* nothing is read out of the peer's memory */
        hello.features &= ~(TMSG_FEATURE_LEASE | TMSG_FEATURE_READS |
                            TMSG_FEATURE_DEVICE_IPC);
    }
    if (worker->flags & TMSG_WORKER_BORROW) {
        hello.features |= TMSG_FEATURE_BORROWS;
    }
    tmsg_device_ids_tell(worker->context->devices, hello.devices,
                         sizeof(hello.devices));
    if (!(worker->flags &
          TMSG_WORKER_CAPTURE)) { /* a capture wants all headers */
        hello.schema_slots = TMSG_SCHEMA_SLOTS;
        hello.schema_bytes = TMSG_SCHEMA_BYTES;
    }
    status = scope->pipes
                 ? tmsg_ucx_open_pipes(&owner, dialling, &hello,
                                       tmsg_engine.arrived, &ucx)
                 : tmsg_ucx_open(&owner, scope, dialling, &hello,
                                 scope->family == 0
                                     ? tmsg_engine.arrived
                                     : tmsg_schemes[TMSG_URL_UCX]->arrived,
                                 &ucx);
    if (status != TMSG_OK) {
        return status;
    }
    ucx->source.ready = NULL; /* a step looks at UCX anyway */
    status = tmsg_loop_add(&worker->loop, &ucx->source, ucx->fd, EPOLLIN);
    if (status != TMSG_OK) {
        tmsg_ucx_close(ucx);
        return status;
    }
    ucx->next = worker->ucx;
    worker->ucx = ucx;
    *ucx_p = ucx;
    return TMSG_OK;
}

/* Tries to replace a UCX worker without shared memory by one with it. A failure
 * is no error for the caller: the one without works. */
static tmsg_ucx_t *try_to_share(tmsg_worker_t *worker, tmsg_ucx_t *without,
                                const tmsg_ucx_scope_t *scope)
{
    tmsg_ucx_scope_t sharing = *scope;
    tmsg_ucx_t *ucx;

    sharing.or_not = true;
    if (open_ucx(worker, &sharing, without->dialling, &ucx) != TMSG_OK) {
        tmsg_ucx_stays_apart(without);
        return without;
    }
    tmsg_ucx_events.supersede(without);
    return ucx;
}

tmsg_status_t tmsg_worker_ucx(tmsg_worker_t *worker,
                              const tmsg_ucx_scope_t *scope, bool dialling,
                              tmsg_ucx_t **ucx_p)
{
    tmsg_ucx_t *ucx = find_ucx(worker, scope, dialling);
    tmsg_status_t status = TMSG_OK;

    if (ucx == NULL) {
        status = open_ucx(worker, scope, dialling, &ucx);
    } else if (ucx->scope.net_only && tmsg_ucx_may_share(ucx)) {
        ucx = try_to_share(worker, ucx, scope);
    }
    if (status == TMSG_OK) {
        ucx->users++;
        *ucx_p = ucx;
    }
    return status;
}
