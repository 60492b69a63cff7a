/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/again.h - what a session sends once more. */
#ifndef TMSG_AM_SEND_AGAIN_H
#define TMSG_AM_SEND_AGAIN_H

#include "am/send/send.h"

/* The connection stands once more: sends what the peer has not received. */
void tmsg_resume_send_again(tmsg_endpoint_t *endpoint);

/* A posted send that UCX does not have is given up: if the peer was told that
 * it comes again, it has to be told otherwise. */
void tmsg_resume_dropped(const tmsg_send_t *send);

#endif
