/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/kin_tend.h - what becomes of connections between workers of one
 * process when one of these leaves. */
#ifndef TMSG_AM_ENGINE_KIN_TEND_H
#define TMSG_AM_ENGINE_KIN_TEND_H

#include "am/worker/worker.h"

/* Lock held, outside UCX, where one of the worker's is to be tended: lets go of
 * those that have left and that it has nothing to do with any more, and breaks
 * its connections by blob to those. 0: there was nothing to do. */
unsigned tmsg_kin_tend(tmsg_worker_t *worker);

#endif
