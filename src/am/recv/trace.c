/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/trace.h"

void tmsg_trace_tell_received(const tmsg_message_t *message,
                              tmsg_trace_step_t step, tmsg_status_t status)
{
    tmsg_trace_event_t event = {
        .step = step,
        .status = status,
        .time_ns = tmsg_now_ns(),
        .bytes = tmsg_message_bytes(message),
        .message_id = message->head.message_id,
        .sequence = message->head.sequence,
        .channel = message->head.channel,
    };

    tmsg_trace_tell(message->endpoint, &event);
}
