/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/repeat_in.h - messages that come and are like the last one. */
#ifndef TMSG_AM_RECV_REPEAT_IN_H
#define TMSG_AM_RECV_REPEAT_IN_H

#include <stdbool.h>
#include <stddef.h>

#include "am/endpoint/repeat.h"
#include "am/recv/message.h"

/* A message has been decoded, and its payload is here: may it be repeated? Its
 * record then keeps its map. */
void tmsg_repeat_note_in(tmsg_message_t *message,
                         const tmsg_arrival_t *arrival);

/* Takes an eager message that repeats one. False: it is none, and nothing has
 * happened. Inside UCX. */
bool tmsg_repeat_arrived(tmsg_ucx_t *ucx, const void *header,
                         size_t header_bytes, const void *data,
                         size_t data_bytes);

/* A schema of the channel is about to be another, or the connection is gone. */
void tmsg_repeat_forget_in(tmsg_channel_t *channel);

#endif
