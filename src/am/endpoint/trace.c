/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/endpoint/trace.h"

void tmsg_trace_tell(const tmsg_endpoint_t *endpoint, tmsg_trace_event_t *event)
{
    const tmsg_context_t *context = endpoint->worker->context;

    event->connection = endpoint->id;
    event->endpoint = endpoint;
    event->peer = endpoint->peer;
    context->on_trace(context->on_trace_arg, event);
}
