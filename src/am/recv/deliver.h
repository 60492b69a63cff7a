/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/deliver.h - hands whole messages to the application, in their order.
 * Lock held, for all functions here: callbacks are queued, not called. */
#ifndef TMSG_AM_RECV_DELIVER_H
#define TMSG_AM_RECV_DELIVER_H

#include "am/recv/message.h"

/* Delivers every message of a channel whose turn has come. */
void tmsg_messages_deliver(tmsg_channel_t *channel);

/* Delivers a message that has left its channel's order. Counts it, and gives it
 * to the handler, to a call or stream, or to the queue for pulling. */
void tmsg_message_hand_over(tmsg_message_t *message);

/* Returns whether the message need not wait for earlier ones of its channel. */
bool tmsg_message_may_overtake(const tmsg_message_t *message);

/* Delivers a message before its turn, if it is unordered and may overtake. */
void tmsg_message_overtake(tmsg_message_t *message);

/* Notes that the application has the message, and returns the peer's credit. */
void tmsg_message_taken(tmsg_message_t *message);

/* Answers a message with `answered_later`, which was taken before it was
 * copied: the copy has come to `status`, of which tmsg_error_message() tells
 * where it is an error. */
void tmsg_message_answer(const tmsg_message_t *message, tmsg_status_t status);

/* Has a handle take no more messages: those that are queued to be pulled, and
 * those that still come, are dropped, and their senders are told. */
void tmsg_messages_refuse(tmsg_endpoint_t *face);

/* Gives up a message that was just taken out of the queue for pulling: undoes
 * what tmsg_message_hand_over() counted. */
void tmsg_message_take_back(tmsg_message_t *message);

/* Moves a channel's order past the next number, if that message was delivered
 * before its turn. Returns whether it was. */
bool tmsg_channel_pass(tmsg_channel_t *channel);

#endif
