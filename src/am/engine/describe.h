/* SPDX-License-Identifier: BSD-3-Clause */
/* am/engine/describe.h - what a worker tells of itself. */
#ifndef TMSG_AM_ENGINE_DESCRIBE_H
#define TMSG_AM_ENGINE_DESCRIBE_H

#include <stdbool.h>

#include <cjson/cJSON.h>

#include "am/worker/worker.h"

/* Adds what tmsg_worker_describe() tells to a JSON object. Takes the lock.
 * False: no memory. */
bool tmsg_describe_worker(cJSON *object, tmsg_worker_t *worker);

#endif
