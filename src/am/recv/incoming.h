/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/incoming.h - asks the application about a message that arrives. */
#ifndef TMSG_AM_RECV_INCOMING_H
#define TMSG_AM_RECV_INCOMING_H

#include <tensormsg/incoming.h>

#include "am/recv/message.h"

/* Returns whether on_header or a posted map may say where the message's tensors
 * go. Such a message is not taken inside UCX, and whether it fits into the
 * library's memory is checked later. */
bool tmsg_incoming_may_be_placed(const tmsg_message_t *message);

/* Called with the lock held, and releases it meanwhile: calls on_header, if
 * there is one and it was not called yet. Errors: the application's refusal,
 * with its text in tmsg_error_message(). */
tmsg_status_t tmsg_incoming_ask(tmsg_message_t *message);

#endif
