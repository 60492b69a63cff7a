/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/fetch.h - memory for a payload, and the payload into it. */
#ifndef TMSG_AM_RECV_FETCH_H
#define TMSG_AM_RECV_FETCH_H

#include "am/recv/message.h"

/* Lock held: takes all messages that wait for memory as far as they go. Lets
 * the lock go while it calls the application's allocator. */
unsigned tmsg_messages_fetch(tmsg_worker_t *worker);

/* Gives up what it has of held_bytes for memory that it may ask for later. */
void tmsg_fetch_take_back(tmsg_message_t *message);

/* Copies an eager payload into the message's own record, if it may be and fits:
 * there is nothing to wait for then. */
bool tmsg_message_take_small(tmsg_message_t *message, const void *data,
                             size_t bytes);

/* Copies an eager payload into the map that is posted, if all of it goes there.
 */
bool tmsg_message_take_posted(tmsg_message_t *message, const void *data);

/* One of message->pending has ended: goes on with what that was waited for. */
void tmsg_message_fetched(tmsg_message_t *message, tmsg_ucx_status_t ucs);

/* UCX's descriptor goes back; of a rendezvous that was not fetched this would
 * tell the sender Success, so the refusal goes out first. */
void tmsg_message_drop_data(tmsg_message_t *message);

/* Holds what has arrived until there is memory for it; what is fleeting cannot
 * stay where it lies. IN_PROGRESS: UCX is to keep its own. Inside UCX. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_message_keep_data(tmsg_message_t *message, void *data,
                                     size_t bytes, bool fleeting);

#endif
