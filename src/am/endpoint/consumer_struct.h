/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/consumer_struct.h - the inside of the consumer of a worker's
 * calls. */
#ifndef TMSG_AM_ENDPOINT_CONSUMER_STRUCT_H
#define TMSG_AM_ENDPOINT_CONSUMER_STRUCT_H

#include <stdbool.h>

#include "am/endpoint/consumer.h"
#include "am/net/loop.h"
#include "am/worker/worker.h"

/* Exists once for each worker. Only calls.c changes it. */
struct tmsg_calls {
    const tmsg_calls_ops_t *ops;
    tmsg_worker_t *worker;
    void *start;
    tmsg_due_t due;
    bool queued; /* `due` is among the worker's due callbacks */
    tmsg_timer_t alarm;
};

#endif
