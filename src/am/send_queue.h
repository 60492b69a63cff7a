/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send_queue.h - sends that wait for the connection or for credit. */
#ifndef TMSG_AM_SEND_QUEUE_H
#define TMSG_AM_SEND_QUEUE_H

#include "am/send.h"

/* Takes off the one that has waited longest. */
tmsg_send_t *tmsg_queue_pop(tmsg_channel_t *channel);

/* Hands over what can go now. */
void tmsg_sends_flush(tmsg_endpoint_t *endpoint);

#endif
