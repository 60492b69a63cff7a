/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/charge.h - what a message takes of the bytes that may be sent ahead.
 */
#ifndef TMSG_AM_SEND_CHARGE_H
#define TMSG_AM_SEND_CHARGE_H

#include "am/send/send.h"

/* A message is about to be sent: charges it in its header, or makes it travel
 * by rendezvous where the peer has no room. Before the header is written. */
void tmsg_credit_charge(tmsg_send_t *send, tmsg_preamble_t *head,
                        uint64_t payload_bytes);

#endif
