/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/again.h - sends once more what a session's peer has not received. */
#ifndef TMSG_AM_SEND_AGAIN_H
#define TMSG_AM_SEND_AGAIN_H

#include "am/send/send.h"

/* Sends the posted messages that the peer of a session has not received, in
 * order, when its connection stands once more. Stops at a message that cannot
 * go yet. Lock held, outside UCX. */
void tmsg_resume_send_again(tmsg_endpoint_t *endpoint);

/* Notes that a posted send, which UCX does not have, is given up. If the peer
 * was told that the message comes again, this breaks the connection
 * (PEER_LOST): the next handshake tells the peer otherwise. */
void tmsg_resume_dropped(const tmsg_send_t *send);

#endif
