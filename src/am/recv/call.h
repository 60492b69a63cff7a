/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/call.h - calls.h from below: where a worker's messages and endpoints
 * meet what was started on it. Lock held, all of these, but where it says else.
 */
#ifndef TMSG_AM_RECV_CALL_H
#define TMSG_AM_RECV_CALL_H

#include "am/endpoint/consumer.h"
#include "am/endpoint/kinds.h"
#include "am/recv/message.h"

/* A message that is sent so has that number. Lock held. */
static inline void tmsg_call_number(const tmsg_call_send_t *call,
                                    uint32_t message_id)
{
    if (call->number_p != NULL) {
        atomic_store_explicit(call->number_p, message_id, memory_order_relaxed);
    }
    if (call->began != NULL) {
        call->began(call->began_arg);
    }
}

/* What calls have put off is done. */
void tmsg_call_catch_up(tmsg_worker_t *worker);

/* The worker goes, and nothing of it runs any more. No lock. */
void tmsg_call_over(tmsg_worker_t *worker);

#endif
