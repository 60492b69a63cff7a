/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/outcomes.h - what a session knows of messages that this side took. */
#ifndef TMSG_AM_RECV_OUTCOMES_H
#define TMSG_AM_RECV_OUTCOMES_H

#include "am/endpoint/channel.h"
#include "am/endpoint/endpoint.h"

/* Notes a message of the peer's whose turn came and that was refused. */
void tmsg_resume_note(tmsg_channel_t *channel, uint32_t sequence,
                      tmsg_status_t status);

/* A fetch failed, and whether the connection stands all the same. True: it is
 * broken for that, and the message comes again; false: that was tried often
 * enough, or cannot be. */
bool tmsg_resume_fetch_failed(tmsg_endpoint_t *endpoint, bool alive,
                              const char *why);

/* A fetch went well: those that failed in a row count no more. */
void tmsg_resume_fetched(tmsg_endpoint_t *endpoint);

#endif
