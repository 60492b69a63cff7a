/* SPDX-License-Identifier: BSD-3-Clause */
/* am/connect/ucx_for.h - the UCX worker that a connection needs. */
#ifndef TMSG_AM_CONNECT_UCX_FOR_H
#define TMSG_AM_CONNECT_UCX_FOR_H

#include "am/worker/worker.h"

/* Returns the UCX worker for a scope and role, and opens it when it is first
 * asked for. The caller counts as one of its users (ucx->users) until it gives
 * it back. Lock held. */
tmsg_status_t tmsg_worker_ucx(tmsg_worker_t *worker,
                              const tmsg_ucx_scope_t *scope, bool dialling,
                              tmsg_ucx_t **ucx_p);

#endif
