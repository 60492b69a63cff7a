/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/consumer.h - calls and streams whose messages do not get there. */
#ifndef TMSG_AM_SEND_CONSUMER_H
#define TMSG_AM_SEND_CONSUMER_H

#include "am/endpoint/kinds.h"
#include "am/recv/message.h"
#include "am/send/send.h"
#include "serialize/call.h"

/* A message of a stream of ours has ended unsent; so does what waits behind it
 * there, but for the END, which then says that. */
void tmsg_stream_unsent(tmsg_channel_t *channel, const tmsg_call_head_t *head,
                        tmsg_status_t status, const char *error);

/* The endpoint is to end in order: what waits for a reader does not hold that
 * up. */
void tmsg_calls_closing(tmsg_endpoint_t *endpoint);

/* A message of ours on that endpoint did not reach its receiver; `head` as of
 * `bounced`. False: it is no call's. */
bool tmsg_call_bounced(tmsg_endpoint_t *endpoint, const tmsg_call_head_t *head,
                       uint32_t message_id, bool sent, tmsg_status_t status,
                       const char *error);

/* Lock held: the first send that waits there of that stream; 0: of any. */
tmsg_send_t *tmsg_stream_waits(const tmsg_channel_t *channel, uint64_t id,
                               bool or_end);

/* Lock held: a message that is sent so gets that number. */
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

#endif
