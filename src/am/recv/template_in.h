/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/template_in.h - receives messages by a template. */
#ifndef TMSG_AM_RECV_TEMPLATE_IN_H
#define TMSG_AM_RECV_TEMPLATE_IN_H

#include <stdbool.h>
#include <stddef.h>

#include "am/endpoint/template.h"
#include "am/recv/message.h"

/* Makes the channel's template from a message that was decoded and whose
 * payload is here, if the next ones may repeat it. Its record then keeps the
 * map for the next message. */
void tmsg_template_note_in(tmsg_message_t *message,
                           const tmsg_arrival_t *arrival);

/* Takes an eager message that repeats its channel's template. Returns false if
 * it does not; nothing has happened then. Lock held, inside UCX. */
bool tmsg_template_arrived(tmsg_ucx_t *ucx, const void *header,
                           size_t header_bytes, const void *data,
                           size_t data_bytes);

/* Forgets the template of a channel, because one of its schemas changes or the
 * connection is gone. */
void tmsg_template_forget_in(tmsg_channel_t *channel);

#endif
