/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/cancel.h - sends that are given up, by the application or by the
 * clock. */
#ifndef TMSG_AM_SEND_CANCEL_H
#define TMSG_AM_SEND_CANCEL_H

#include "am/send/send.h"

/* Of a request that is a send: the application gives it up. Lock held. */
void tmsg_send_cancel(tmsg_request_t *request);

/* Gives it up for another reason, of which the peer is told as of the others.
 * Lock held, outside UCX and in the midst of nothing. */
void tmsg_send_fail(tmsg_send_t *send, tmsg_status_t status, const char *why);

/* Has a send that has begun given up at its deadline, if it has one and still
 * goes on. */
void tmsg_send_set_timer(tmsg_send_t *send);

/* What is left of its time, rounded up; -1: it has no end. */
int32_t tmsg_send_ms_left(const tmsg_send_t *send);

#endif
