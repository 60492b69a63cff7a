/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/consumer.h - calls and streams that come. */
#ifndef TMSG_AM_RECV_CONSUMER_H
#define TMSG_AM_RECV_CONSUMER_H

#include "am/endpoint/consumer.h"
#include "am/endpoint/kinds.h"
#include "am/recv/message.h"
#include "am/recv/streamed.h"
#include "serialize/call.h"

#define TMSG_UNCALL_BYTES 8 /* u64 id of the call */

/* Keeps what a message of a stream's is, until its turn. Errors: NO_MEMORY. */
tmsg_status_t tmsg_stream_keep(tmsg_message_t *message,
                               const tmsg_call_head_t *head);

/* A message of a stream's is here, in its turn; or it was refused, or given up
 * by its sender. No lock. */
void tmsg_stream_arrived(tmsg_message_t *message);

void tmsg_stream_failed(tmsg_message_t *message, const char *why);

/* The head of a CALL has arrived. Errors: those of `begins`, UNSUPPORTED
 * (nothing was started here), MALFORMED. */
tmsg_status_t tmsg_call_begin(tmsg_message_t *message,
                              const tmsg_arrival_t *arrival);

/* The head of a CALL whose tensors are in their places already. IN_PROGRESS:
 * they are to be received elsewhere, and nothing has happened. */
tmsg_status_t tmsg_call_begin_here(tmsg_message_t *message,
                                   const tmsg_call_head_t *call);

/* A CALL is here, in its turn; or it was refused, or given up by its sender. No
 * lock. */
void tmsg_call_arrived(tmsg_message_t *message);

void tmsg_call_failed(tmsg_message_t *message, const char *why);

/* A message's record goes: nobody else will hear of it. Any thread. */
void tmsg_call_dropped(tmsg_message_t *message);

/* The endpoint has ended. */
void tmsg_call_ended(tmsg_endpoint_t *endpoint);

/* Its memory goes. Any thread. */
void tmsg_call_forget(tmsg_endpoint_t *endpoint);

/* Lock held: what the endpoint is to the room above is there now. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_calls_meet(tmsg_endpoint_t *endpoint);

/* What a stream's channel is on that endpoint. */
tmsg_stream_key_t tmsg_stream_key(const tmsg_endpoint_t *endpoint,
                                  uint16_t channel);

#endif
