/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/streamed.h - how a stream's messages that came are taken. */
#ifndef TMSG_AM_RECV_STREAMED_H
#define TMSG_AM_RECV_STREAMED_H

#include <tensormsg/endpoint.h>
#include <tensormsg/message.h>

/* Notes that a message of a stream was read, or will not be: its sender may
 * send another. Takes the lock. */
void tmsg_stream_take(tmsg_message_t *message);

/* Ends the endpoint, because a stream cannot be told what it has to know. Takes
 * the lock. */
void tmsg_stream_break(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                       const char *why);

#endif
