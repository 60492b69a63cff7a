/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/template_in.h - messages that arrive and repeat the last one's
 * layout.
 */
#ifndef TMSG_AM_RECV_TEMPLATE_IN_H
#define TMSG_AM_RECV_TEMPLATE_IN_H

#include <stdbool.h>
#include <stddef.h>

#include "am/endpoint/template.h"
#include "am/recv/message.h"

/* Decides whether a message can be repeated, once it was decoded and its
 * payload is here. If it can, its record keeps its map. */
void tmsg_template_note_in(tmsg_message_t *message,
                           const tmsg_arrival_t *arrival);

/* Takes an eager message that repeats the last one. Returns false if it is no
 * repeat; nothing has happened then. Called inside UCX. */
bool tmsg_template_arrived(tmsg_ucx_t *ucx, const void *header,
                           size_t header_bytes, const void *data,
                           size_t data_bytes);

/* Forgets the template of a channel, because one of its schemas changes or the
 * connection is gone. */
void tmsg_template_forget_in(tmsg_channel_t *channel);

#endif
