/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/consumer_struct.h - the inside of what takes the calls of a
 * worker.
 */
#ifndef TMSG_AM_ENDPOINT_CONSUMER_STRUCT_H
#define TMSG_AM_ENDPOINT_CONSUMER_STRUCT_H

#include <stdbool.h>

#include "am/endpoint/consumer.h"
#include "am/net/loop.h"
#include "am/worker/worker.h"

/* Of one worker; calls.c alone changes it. */
struct tmsg_calls {
    const tmsg_calls_ops_t *ops;
    tmsg_worker_t *worker;
    void *start;
    tmsg_due_t due;
    bool queued; /* it is among those that are due */
    tmsg_timer_t alarm;
};

#endif
