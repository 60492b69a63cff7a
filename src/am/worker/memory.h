/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/memory.h - whether a worker lacks memory for what has come. */
#ifndef TMSG_AM_WORKER_MEMORY_H
#define TMSG_AM_WORKER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "am/worker/worker.h"

/* Lock held: whether a message waits for memory that others hold; the words of
 * it, empty otherwise, go into `why`, if there is room. */
bool tmsg_worker_is_starving(const tmsg_worker_t *worker, char *why,
                             size_t room);

/* Whether one asks for memory, or would next. */
static inline bool tmsg_fetch_asks(const tmsg_worker_t *worker)
{
    return worker->fetch.asking.count + worker->fetch.arrived.count > 0;
}

#endif
