/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/trace.h - tells the application what happens to a message of the
 * peer's. */
#ifndef TMSG_AM_RECV_TRACE_H
#define TMSG_AM_RECV_TRACE_H

#include "am/endpoint/trace.h"
#include "am/recv/message.h"

void tmsg_trace_tell_received(const tmsg_message_t *message,
                              tmsg_trace_step_t step, tmsg_status_t status);

/* Lock held: tells the application, if it traces the endpoint. */
static inline void tmsg_trace_received(const tmsg_message_t *message,
                                       tmsg_trace_step_t step,
                                       tmsg_status_t status)
{
    if (tmsg_trace_is_on(message->endpoint)) {
        tmsg_trace_tell_received(message, step, status);
    }
}

#endif
