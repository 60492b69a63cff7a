/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/consumer.h - tells the calls and streams of messages that do not
 * reach their receiver. */
#ifndef TMSG_AM_SEND_CONSUMER_H
#define TMSG_AM_SEND_CONSUMER_H

#include "am/endpoint/kinds.h"
#include "am/recv/message.h"
#include "am/send/send.h"
#include "serialize/call.h"

/* Tells a stream of this side that a message of it ended unsent. The sends of
 * the stream that wait behind it on the channel fail, too. Only an END still
 * goes, and tells the reader `status` and `error`. Nothing is told of an OPEN,
 * nor of a message that was canceled or timed out. */
void tmsg_stream_unsent(tmsg_channel_t *channel, const tmsg_call_head_t *head,
                        tmsg_status_t status, const char *error);

/* Fails, with CLOSED, the messages of streams that wait for a reader's credit,
 * so that they do not hold up an endpoint that is to end in order. */
void tmsg_calls_closing(tmsg_endpoint_t *endpoint);

/* Returns whether the server of the endpoint's worker shuts down. Lock held. */
bool tmsg_server_leaves(const tmsg_endpoint_t *endpoint);

/* Tells the room above that a message of this side did not reach its receiver
 * on that endpoint. `head` and `sent` are those of tmsg_calls_ops_t.bounced.
 * Returns false if the message is no call's. Lock held. */
bool tmsg_call_bounced(tmsg_endpoint_t *endpoint, const tmsg_call_head_t *head,
                       uint32_t message_id, bool sent, tmsg_status_t status,
                       const char *error);

/* Returns the first send of stream `id` that waits on the channel, or NULL; id
 * 0: of any stream. An END counts only with `or_end`. Lock held. */
tmsg_send_t *tmsg_stream_waits(const tmsg_channel_t *channel, uint64_t id,
                               bool or_end);

/* Tells a call the number of the message that it is sent in. Lock held. */
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
