/* SPDX-License-Identifier: BSD-3-Clause */
/* am/endpoint/trace.h - tells the application what happens to a message. */
#ifndef TMSG_AM_ENDPOINT_TRACE_H
#define TMSG_AM_ENDPOINT_TRACE_H

#include <stdbool.h>

#include <tensormsg/trace.h>

#include "am/endpoint/endpoint.h"
#include "am/worker/context.h"

/* Returns whether the application traces. */
static inline bool tmsg_trace_is_on(const tmsg_endpoint_t *endpoint)
{
    return endpoint->worker->context->on_trace != NULL;
}

/* Tells the application an event. Fills in the connection, the endpoint and the
 * peer. Lock held. */
void tmsg_trace_tell(const tmsg_endpoint_t *endpoint,
                     tmsg_trace_event_t *event);

#endif
