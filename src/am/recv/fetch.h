/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/fetch.h - finds memory for payloads, and brings the payloads there.
 * Lock held, for all functions here except tmsg_fetch_take_back(). */
#ifndef TMSG_AM_RECV_FETCH_H
#define TMSG_AM_RECV_FETCH_H

#include "am/recv/message.h"

/* Takes each message that waits for memory as far as it goes. Releases the lock
 * while it calls on_header or an allocator. Returns how many messages went on.
 */
unsigned tmsg_messages_fetch(tmsg_worker_t *worker);

/* Gives back the bytes of held_bytes that the message reserved for memory that
 * it might ask for later. Any thread. */
void tmsg_fetch_take_back(tmsg_message_t *message);

/* Copies an eager payload into the message's own record, if that is allowed and
 * it fits. The message need not wait for memory then. Returns whether it did.
 */
bool tmsg_message_take_small(tmsg_message_t *message, const void *data,
                             size_t bytes);

/* Copies an eager payload into the posted map, if all of it belongs there.
 * Returns whether it did. */
bool tmsg_message_take_posted(tmsg_message_t *message, const void *data);

/* Reports that one of message->pending has ended, and takes the next step of
 * the message if none is left. */
void tmsg_message_fetched(tmsg_message_t *message, tmsg_ucx_status_t ucs);

/* Returns UCX's descriptor. For a rendezvous that was not fetched this tells
 * the sender Success, so send the refusal first. */
void tmsg_message_drop_data(tmsg_message_t *message);

/* Keeps what has arrived until there is memory for it. `fleeting`: the data
 * cannot stay where it is, and is copied. Returns IN_PROGRESS if UCX is to keep
 * its data. Called inside UCX. Errors: NO_MEMORY. */
tmsg_status_t tmsg_message_keep_data(tmsg_message_t *message, void *data,
                                     size_t bytes, bool fleeting);

#endif
