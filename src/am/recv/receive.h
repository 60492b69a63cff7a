/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/receive.h - from a map's arrival to a whole message. */
#ifndef TMSG_AM_RECV_RECEIVE_H
#define TMSG_AM_RECV_RECEIVE_H

#include "am/endpoint/kinds.h"
#include "am/recv/message.h"

/* What holds of a message's payload of `data_bytes` whatever is in it. Errors:
 * MALFORMED, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_message_check(const tmsg_message_t *message,
                                 size_t data_bytes);

/* Files a message by its sequence. False: that number was seen before. */
bool tmsg_message_file(tmsg_message_t *message);

/* What points to a message that is filed. */
tmsg_message_t **tmsg_message_place(const tmsg_message_t *message);

/* The message of a number that has come and whose turn has not; or NULL. */
tmsg_message_t *tmsg_message_find(const tmsg_channel_t *channel,
                                  uint32_t sequence);

/* A message that was checked and decoded gets memory next: what UCX's callback
 * is to return. Data that are fleeting cannot be kept where they lie. */
tmsg_ucx_status_t tmsg_message_keep(tmsg_message_t *message, void *data,
                                    size_t data_bytes, bool rendezvous,
                                    bool fleeting);

/* Gives a message up and tells the sender why; its turn will be skipped. */
void tmsg_message_refuse(tmsg_message_t *message, tmsg_status_t status,
                         const char *why);

/* The same for memory: `blame` is what is wrong with that of the tensor which
 * has, or was to have, this place. */
void tmsg_message_refuse_at(tmsg_message_t *message, const void *place,
                            const char *blame);

/* The same with tmsg_error_message(), unless what is wrong with it ends the
 * connection, and the message with that. */
void tmsg_message_reject(tmsg_message_t *message, tmsg_status_t status);

/* Gives a message up that its sender gave up. */
void tmsg_message_abort(tmsg_message_t *message, tmsg_status_t status,
                        const char *why);

/* A payload with its body is here, in the block: the map can be read. */
void tmsg_message_landed(tmsg_message_t *message);

/* The payload is here, and each tensor in its place. */
void tmsg_message_whole(tmsg_message_t *message);

/* A message of that number will never come: its turn is skipped. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_message_lost(tmsg_channel_t *channel, uint32_t sequence);

/* Whether a message of an endpoint that is away was refused for good: the peer
 * is told, and does not send it again. */
bool tmsg_message_stays(const tmsg_message_t *message);

/* Lock held: an endpoint has ended, or lost its connection. What was not
 * delivered is dropped, but for what UCX still writes into and, where it is to
 * come back, for the turns of what it refused. */
void tmsg_messages_abandon(tmsg_endpoint_t *endpoint);

#endif
