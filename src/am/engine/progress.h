/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/progress.h - one round of progress, and the end of them before a
 * sleep. */
#ifndef TMSG_AM_ENGINE_PROGRESS_H
#define TMSG_AM_ENGINE_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "am/worker/worker.h"

/* Lock held: one round of progress, without callbacks of the application. Gives
 * how much was done. */
unsigned tmsg_worker_step(tmsg_worker_t *worker);

/* Lock held, outside UCX: hears what UCX has received but not yet told. False:
 * it had not fallen silent within a bound. */
bool tmsg_worker_drain(tmsg_ucx_t *ucx);

/* Lock held: has the worker's descriptor signalled when there is something to
 * do. Errors: BUSY (there is now), INTERNAL. */
tmsg_status_t tmsg_progress_arm(tmsg_worker_t *worker);

/* Lock held: whether nothing is to be done, or to be expected, that does not
 * come by a box. */
bool tmsg_progress_is_idle(tmsg_worker_t *worker);

#endif
