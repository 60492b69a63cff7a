/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/incoming.h - asking the application about a message that arrives. */
#ifndef TMSG_AM_RECV_INCOMING_H
#define TMSG_AM_RECV_INCOMING_H

#include <tensormsg/incoming.h>

#include "am/recv/message.h"

/* Whether somebody may say where a message's tensors go: then it is not taken
 * inside UCX, and whether it fits into the library's memory is seen later. */
bool tmsg_incoming_may_be_placed(const tmsg_message_t *message);

/* Lock held, which it lets go: calls on_header, if there is one and it was not
 * called yet. Errors: the application's refusal, in tmsg_error_message(). */
tmsg_status_t tmsg_incoming_ask(tmsg_message_t *message);

#endif
