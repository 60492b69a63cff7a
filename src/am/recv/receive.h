/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/receive.h - from a map's arrival to a whole message. Lock held, for
 * all functions here; most are called inside UCX, too. */
#ifndef TMSG_AM_RECV_RECEIVE_H
#define TMSG_AM_RECV_RECEIVE_H

#include "am/endpoint/kinds.h"
#include "am/recv/message.h"

/* Checks `data_bytes` against the preamble, the limits and the memory budget,
 * whatever the payload contains. Errors: MALFORMED, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_message_check(const tmsg_message_t *message,
                                 size_t data_bytes);

/* Files a message by its sequence number. Returns false if that number came
 * before. */
bool tmsg_message_file(tmsg_message_t *message);

/* Returns the pointer that points to a filed message. */
tmsg_message_t **tmsg_message_place(const tmsg_message_t *message);

/* Returns the filed message with that number, whose turn has not come, or NULL.
 */
tmsg_message_t *tmsg_message_find(const tmsg_channel_t *channel,
                                  uint32_t sequence);

/* Gets memory for a checked and decoded message, or lists it for that. Returns
 * what UCX's callback has to return. `fleeting`: the data cannot stay where it
 * is, and is copied. Inside UCX. */
tmsg_ucx_status_t tmsg_message_keep(tmsg_message_t *message, void *data,
                                    size_t data_bytes, bool rendezvous,
                                    bool fleeting);

/* Gives a message up and tells the sender why. The order skips its turn. */
void tmsg_message_refuse(tmsg_message_t *message, tmsg_status_t status,
                         const char *why);

/* Refuses a message because of its memory. `blame` says what is wrong with the
 * memory of the tensor that has this place, or was to have it. */
void tmsg_message_refuse_at(tmsg_message_t *message, const void *place,
                            const char *blame);

/* Refuses a message with tmsg_error_message() and delivers what it held up. If
 * the connection is broken, the message ends with it, and nobody is told. */
void tmsg_message_reject(tmsg_message_t *message, tmsg_status_t status);

/* Gives up a message that its sender gave up. */
void tmsg_message_abort(tmsg_message_t *message, tmsg_status_t status,
                        const char *why);

/* Decodes a spilled body that has come with its payload, in the block, and goes
 * on with the message. */
void tmsg_message_landed(tmsg_message_t *message);

/* Verifies and delivers a message whose payload is here, each tensor in its
 * place. */
void tmsg_message_whole(tmsg_message_t *message);

/* Notes that a message with that number will never come, so that its turn is
 * skipped. Errors: NO_MEMORY. */
tmsg_status_t tmsg_message_lost(tmsg_channel_t *channel, uint32_t sequence);

/* Returns whether a message of an endpoint that is away was refused for good.
 * The peer is told, and does not send it again. */
bool tmsg_message_stays(const tmsg_message_t *message);

/* Gives back the loans among the messages that were not delivered and never
 * will be, while that can be said to the peer. */
void tmsg_messages_return(tmsg_endpoint_t *endpoint);

/* Drops the messages that were not delivered, when an endpoint has ended or
 * lost its connection. Messages that UCX still writes into stay. If the
 * endpoint is to come back, the turns of refused messages stay, too. */
void tmsg_messages_abandon(tmsg_endpoint_t *endpoint);

#endif
