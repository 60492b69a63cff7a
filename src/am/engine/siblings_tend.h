/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/siblings_tend.h - what becomes of connections between workers of
 * one process when one of these workers leaves. */
#ifndef TMSG_AM_ENGINE_SIBLINGS_TEND_H
#define TMSG_AM_ENGINE_SIBLINGS_TEND_H

#include "am/worker/worker.h"

/* Releases the siblings that have left and that the worker has nothing to do
 * with any more, and breaks its connections by blob to siblings that have left.
 * Called if a UCX worker of this worker is to be tended. Lock held, outside
 * UCX. Returns 0 if there was nothing to do. */
unsigned tmsg_siblings_tend(tmsg_worker_t *worker);

#endif
