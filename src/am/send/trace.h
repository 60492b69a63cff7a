/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/trace.h - tells the application what happens to a message that it
 * sends. */
#ifndef TMSG_AM_SEND_TRACE_H
#define TMSG_AM_SEND_TRACE_H

#include "am/endpoint/trace.h"
#include "am/send/send.h"

/* The lock is held in all of these functions. They also take the times for the
 * histograms. */
void tmsg_trace_begun(tmsg_send_t *send);
void tmsg_trace_posted(const tmsg_send_t *send);
void tmsg_trace_done(tmsg_send_t *send);
void tmsg_trace_acked(tmsg_send_t *send, tmsg_status_t status);
void tmsg_trace_failed(const tmsg_send_t *send, tmsg_status_t status);
#endif
