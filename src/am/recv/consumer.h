/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/consumer.h - calls and streams that arrive. */
#ifndef TMSG_AM_RECV_CONSUMER_H
#define TMSG_AM_RECV_CONSUMER_H

#include "am/endpoint/consumer.h"
#include "am/endpoint/kinds.h"
#include "am/recv/message.h"
#include "am/recv/streamed.h"
#include "serialize/call.h"

#define TMSG_UNCALL_BYTES 8 /* bytes of an UNCALL: the u64 id of the call */

/* Keeps a copy of a stream message's call head until its turn. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_stream_keep(tmsg_message_t *message,
                               const tmsg_call_head_t *head);

/* tmsg_stream_arrived() hands a stream's message to the room above, in its
 * turn. tmsg_stream_failed() tells that room that the message was refused, or
 * that its sender gave it up. No lock held. */
void tmsg_stream_arrived(tmsg_message_t *message);
void tmsg_stream_failed(tmsg_message_t *message, const char *why);

/* Begins a CALL whose head has arrived, or keeps the head of a stream's
 * message. Errors: those of `begins`, MALFORMED, NO_MEMORY. */
tmsg_status_t tmsg_call_begin(tmsg_message_t *message,
                              const tmsg_arrival_t *arrival);

/* Begins a CALL whose tensors are in their places already. Returns IN_PROGRESS
 * if the tensors are to be received elsewhere; nothing has happened then. */
tmsg_status_t tmsg_call_begin_here(tmsg_message_t *message,
                                   const tmsg_call_head_t *call);

/* tmsg_call_arrived() hands a CALL to the room above, in its turn.
 * tmsg_call_failed() tells that room that the CALL was refused, or that its
 * sender gave it up. No lock held. */
void tmsg_call_arrived(tmsg_message_t *message);
void tmsg_call_failed(tmsg_message_t *message, const char *why);

/* Tells the call of a message that its record is freed, unless the call has
 * been told its end already. Any thread. */
void tmsg_call_dropped(tmsg_message_t *message);

/* Tells the room above, by a callback without the lock, that the endpoint has
 * ended. */
void tmsg_call_ended(tmsg_endpoint_t *endpoint);

/* Prepares an endpoint for the calls that it takes over from `old`, which has
 * ended. Lock held. Errors: NO_MEMORY (it takes over none). */
tmsg_status_t tmsg_call_inherit(tmsg_endpoint_t *heir,
                                const tmsg_endpoint_t *old);

/* Tells the room above, once it has taken them over, and before it hears of the
 * end. Returns how many calls end. Lock held. */
size_t tmsg_call_left(tmsg_endpoint_t *heir, tmsg_endpoint_t *old);

/* Frees what the room above keeps of the endpoint. Any thread. */
void tmsg_call_forget(tmsg_endpoint_t *endpoint);

/* Lock held: makes worker->calls, with `ops`, if there is none. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_calls_begin(tmsg_worker_t *worker,
                               const tmsg_calls_ops_t *ops);

/* Lock held: makes calls_peer, which the room above keeps of the endpoint, if
 * there is none. Errors: NO_MEMORY. */
tmsg_status_t tmsg_calls_meet(tmsg_endpoint_t *endpoint);

/* Returns which stream a channel carries on that endpoint. */
tmsg_stream_key_t tmsg_stream_key(const tmsg_endpoint_t *endpoint,
                                  uint16_t channel);

#endif
