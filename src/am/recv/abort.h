/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/abort.h - messages that their sender gives up when they have a
 * number. */
#ifndef TMSG_AM_RECV_ABORT_H
#define TMSG_AM_RECV_ABORT_H

#include "am/endpoint/kinds.h"
#include "am/recv/message.h"

/* A message that has just been filed: whether it was given up before it came.
 */
void tmsg_abort_recall(tmsg_message_t *message);

/* Forgets those that never came. */
void tmsg_aborts_free(tmsg_endpoint_t *endpoint);

#endif
