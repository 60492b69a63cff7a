/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/fragments_in.h - the fragments of a message that arrives. Lock held,
 * unless a function says otherwise. */
#ifndef TMSG_AM_RECV_FRAGMENTS_IN_H
#define TMSG_AM_RECV_FRAGMENTS_IN_H

#include "am/endpoint/endpoint.h"
#include "am/endpoint/kinds.h"
#include "am/recv/message.h"

/* Makes the message's record of fragments, after its body was decoded, and
 * checks the fragments that came before it. Errors: NO_MEMORY, LIMIT_EXCEEDED;
 * MALFORMED, which ends the connection. */
tmsg_status_t tmsg_fragments_expect(tmsg_message_t *message);

/* Returns whether fragments are kept for a message that has not come: its
 * number is `sequence`. */
bool tmsg_fragments_precede(const tmsg_channel_t *channel, uint32_t sequence);

/* Returns whether the message waits for fragments that are not in their place.
 */
bool tmsg_fragments_missing(const tmsg_message_t *message);

/* Lets chores fetch the fragments that have come, now that each tensor has its
 * place, and asks for those that wait for a PULL. Errors: NO_MEMORY. */
tmsg_status_t tmsg_fragments_fetch(tmsg_message_t *message);

/* Marks the kept fragments of a refused message: the next chores reject them.
 */
void tmsg_fragments_refuse(tmsg_message_t *message);

/* Fetches and rejects fragments that came inside UCX. Called in chores. */
void tmsg_fragments_chores(tmsg_endpoint_t *endpoint);

/* Drops the fragments that are not being fetched. The endpoint has ended. */
void tmsg_fragments_abandon(tmsg_endpoint_t *endpoint);

/* tmsg_fragments_forget() gives the message's record of fragments up, and keeps
 * a small one for the next message that uses this message's record.
 * tmsg_fragments_kept() returns the bytes of the kept one. Any thread. */
void tmsg_fragments_forget(tmsg_message_t *message);
size_t tmsg_fragments_kept(const tmsg_message_t *message);

#endif
