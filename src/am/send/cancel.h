/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/cancel.h - gives sends up, for the application or at a deadline. */
#ifndef TMSG_AM_SEND_CANCEL_H
#define TMSG_AM_SEND_CANCEL_H

#include "am/send/send.h"

/* Cancels a request that is a send: the application gives it up. Lock held. */
void tmsg_send_cancel(tmsg_request_t *request);

/* Gives a send up for another reason, or ends one that was given up before, if
 * what it lends has come free otherwise than by UCX's report. The peer is told
 * of it as of a canceled send; a posted send to a peer that knows no ABORT ends
 * the endpoint. Lock held, outside UCX, and never called in the middle of other
 * work on the endpoint. */
void tmsg_send_fail(tmsg_send_t *send, tmsg_status_t status, const char *why);

/* Gives a send its time from now on, in milliseconds. */
void tmsg_send_limit(tmsg_send_t *send, int32_t timeout_ms);

/* Sets the timer that gives a send up at its deadline. Does nothing for a send
 * that has no deadline or has ended. */
void tmsg_send_set_timer(tmsg_send_t *send);

/* Returns the milliseconds until the send's deadline, rounded up, and 0 once it
 * has passed; -1 if the send has none. */
int32_t tmsg_send_ms_left(const tmsg_send_t *send);

#endif
