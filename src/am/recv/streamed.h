/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/streamed.h - what becomes of a stream's messages that came. */
#ifndef TMSG_AM_RECV_STREAMED_H
#define TMSG_AM_RECV_STREAMED_H

#include <tensormsg/endpoint.h>
#include <tensormsg/message.h>

/* A message of a stream's has been read, or will not be:
 * its sender may send another. */
void tmsg_stream_take(tmsg_message_t *message);

/* Nobody can be told what he has to know: the endpoint ends. */
void tmsg_stream_break(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                       const char *why);

#endif
