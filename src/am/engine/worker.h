/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/worker.h - a worker from its first moment to its last. */
#ifndef TMSG_AM_ENGINE_WORKER_H
#define TMSG_AM_ENGINE_WORKER_H

#include "am/worker/worker.h"

/* Ends everything and frees the worker. No call may be in it any more. No lock
 * held. */
void tmsg_worker_finish(tmsg_worker_t *worker);

#endif
