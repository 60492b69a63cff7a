/* SPDX-License-Identifier: BSD-3-Clause */
/* am/fetch.h - memory for a payload, and the payload into it. */
#ifndef TMSG_AM_FETCH_H
#define TMSG_AM_FETCH_H

#include "am/message.h"

/* Lock held: takes all messages that wait for memory as far as they go. Lets
 * the lock go while it calls the application's allocator. */
unsigned tmsg_messages_fetch(tmsg_worker_t *worker);

/* UCX's descriptor goes back; of a rendezvous that was not fetched this would
 * tell the sender Success, so the refusal goes out first. */
void tmsg_message_drop_data(tmsg_message_t *message);

#endif
