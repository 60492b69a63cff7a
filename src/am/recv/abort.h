/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/abort.h - messages that their sender gives up after they got a
 * number. */
#ifndef TMSG_AM_RECV_ABORT_H
#define TMSG_AM_RECV_ABORT_H

#include "am/endpoint/kinds.h"
#include "am/recv/message.h"

/* Gives up a message that has just been filed, if its ABORT came before it. */
void tmsg_abort_recall(tmsg_message_t *message);

/* Forgets the aborts whose messages never came. */
void tmsg_aborts_free(tmsg_endpoint_t *endpoint);

#endif
