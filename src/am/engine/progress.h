/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/progress.h - one round of progress, and what is checked before a
 * sleep. */
#ifndef TMSG_AM_ENGINE_PROGRESS_H
#define TMSG_AM_ENGINE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "am/worker/worker.h"

/* Makes one round of progress, without callbacks of the application. Lock held.
 * Returns how many things were done. */
unsigned tmsg_worker_step(tmsg_worker_t *worker);

/* Reads what UCX has received but not yet told. False: UCX had not fallen
 * silent within a bound. Lock held, outside UCX. */
bool tmsg_worker_drain(tmsg_ucx_t *ucx);

/* Has the worker's descriptor signalled when there is something to do. Lock
 * held. Errors: BUSY (there is something to do now), INTERNAL. */
tmsg_status_t tmsg_progress_arm(tmsg_worker_t *worker);

/* Returns whether nothing is to be done, and only fast boxes can bring
 * something. Lock held. */
bool tmsg_progress_is_idle(tmsg_worker_t *worker);

#endif
