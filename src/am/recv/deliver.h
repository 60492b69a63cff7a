/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/deliver.h - from a whole message to the application, each in its
 * turn. */
#ifndef TMSG_AM_RECV_DELIVER_H
#define TMSG_AM_RECV_DELIVER_H

#include "am/recv/message.h"

/* Delivers every message of a channel whose turn has come. */
void tmsg_messages_deliver(tmsg_channel_t *channel);

/* Delivers one that is in its channel's order no more: it is counted, and the
 * handler or whoever pulls gets it. */
void tmsg_message_hand_over(tmsg_message_t *message);

/* Whether it waits for none of those before it on its channel. */
bool tmsg_message_may_overtake(const tmsg_message_t *message);

/* Delivers a message before its turn, if it is unordered and may be. */
void tmsg_message_overtake(tmsg_message_t *message);

/* The application has it: the peer gets its credit back. */
void tmsg_message_taken(tmsg_message_t *message);

/* Gives up one that was queued to be pulled, and is not any more. */
void tmsg_message_take_back(tmsg_message_t *message);

/* Goes past the next message in order, if it was delivered before. */
bool tmsg_channel_pass(tmsg_channel_t *channel);

#endif
