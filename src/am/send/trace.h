/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/trace.h - tells the application what happens to a message. */
#ifndef TMSG_AM_SEND_TRACE_H
#define TMSG_AM_SEND_TRACE_H

#include <tensormsg/trace.h>

#include "am/recv/message.h"
#include "am/send/send.h"

/* Whether somebody is told. */
static inline bool tmsg_trace_is_on(const tmsg_endpoint_t *endpoint)
{
    return endpoint->worker->context->on_trace != NULL;
}

/* Lock held, all of these. They take the times of the histograms as well. */
void tmsg_trace_begun(tmsg_send_t *send);
void tmsg_trace_posted(const tmsg_send_t *send);
void tmsg_trace_done(tmsg_send_t *send);
void tmsg_trace_acked(tmsg_send_t *send, tmsg_status_t status);
void tmsg_trace_failed(const tmsg_send_t *send, tmsg_status_t status);
void tmsg_trace_tell_received(const tmsg_message_t *message,
                              tmsg_trace_step_t step, tmsg_status_t status);

static inline void tmsg_trace_received(const tmsg_message_t *message,
                                       tmsg_trace_step_t step,
                                       tmsg_status_t status)
{
    if (tmsg_trace_is_on(message->endpoint)) {
        tmsg_trace_tell_received(message, step, status);
    }
}

#endif
