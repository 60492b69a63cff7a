/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/call.h - calls.h from below: where a worker's messages and endpoints
 * meet what was started on it. Lock held, all of these, but where it says else.
 */
#ifndef TMSG_AM_RECV_CALL_H
#define TMSG_AM_RECV_CALL_H

#include "am/calls/calls.h"
#include "am/endpoint/kinds.h"
#include "am/recv/message.h"

/* The head of a CALL has arrived. Errors: those of `begins`, UNSUPPORTED
 * (nothing was started here), MALFORMED. */
tmsg_status_t tmsg_call_begin(tmsg_message_t *message,
                              const tmsg_arrival_t *arrival);

/* The same of one whose tensors are in their places already. IN_PROGRESS: they
 * are to be received elsewhere, and nothing has happened. */
tmsg_status_t tmsg_call_begin_here(tmsg_message_t *message,
                                   const tmsg_call_head_t *call);

/* Runs a message of that kind whose turn it is; of one that was refused, tells
 * that. No lock. */
void tmsg_call_arrived(tmsg_message_t *message);
void tmsg_call_failed(tmsg_message_t *message, const char *why);

/* Keeps what a message of a stream's is, until its turn. Errors: NO_MEMORY. */
tmsg_status_t tmsg_stream_keep(tmsg_message_t *message,
                               const tmsg_call_head_t *head);

/* The same of one of a stream's. No lock. */
void tmsg_stream_arrived(tmsg_message_t *message);
void tmsg_stream_failed(tmsg_message_t *message, const char *why);

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

/* A message's record goes: nobody else will hear of it. Any thread. */
void tmsg_call_dropped(tmsg_message_t *message);

/* A message of ours on that endpoint did not reach its receiver; `head` as of
 * `bounced`. False: it is no call's. */
bool tmsg_call_bounced(tmsg_endpoint_t *endpoint, const tmsg_call_head_t *head,
                       uint32_t message_id, bool sent, tmsg_status_t status,
                       const char *error);

/* A message of a stream of ours has ended unsent; so does what waits behind it
 * there, but for the END, which then says that. */
void tmsg_stream_unsent(tmsg_channel_t *channel, const tmsg_call_head_t *head,
                        tmsg_status_t status, const char *error);

/* The endpoint is to end in order: what waits for a reader does not hold that
 * up. */
void tmsg_calls_closing(tmsg_endpoint_t *endpoint);

/* The endpoint has ended; its memory goes (any thread). */
void tmsg_call_ended(tmsg_endpoint_t *endpoint);
void tmsg_call_forget(tmsg_endpoint_t *endpoint);

/* What calls have put off is done. */
void tmsg_call_catch_up(tmsg_worker_t *worker);

/* The worker goes, and nothing of it runs any more. No lock. */
void tmsg_call_over(tmsg_worker_t *worker);

ucs_status_t tmsg_uncall_arrived(const tmsg_arrival_t *arrival);

#endif
