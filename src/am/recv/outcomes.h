/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/outcomes.h - what a session remembers of messages that this side
 * took. */
#ifndef TMSG_AM_RECV_OUTCOMES_H
#define TMSG_AM_RECV_OUTCOMES_H

#include "am/endpoint/channel.h"
#include "am/endpoint/endpoint.h"

/* Notes a message of the peer's that was refused, when its turn has come. */
void tmsg_resume_note(tmsg_channel_t *channel, uint32_t sequence,
                      tmsg_status_t status);

/* Handles a fetch that failed; `alive` says whether the connection stands all
 * the same. Returns true if it broke the connection for that, so that the
 * message comes again. Returns false if that was tried often enough, or cannot
 * be. */
bool tmsg_resume_fetch_failed(tmsg_endpoint_t *endpoint, bool alive,
                              const char *why);

/* Resets the count of fetches that failed in a row, after one that went well.
 */
void tmsg_resume_fetched(tmsg_endpoint_t *endpoint);

#endif
