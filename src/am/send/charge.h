/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/charge.h - charges messages against the bytes that may be sent
 * ahead. */
#ifndef TMSG_AM_SEND_CHARGE_H
#define TMSG_AM_SEND_CHARGE_H

#include "am/send/send.h"

/* Charges a message that is about to be sent and flags that in its header. If
 * the peer has no room for it, the message travels by rendezvous instead. Call
 * this before the header is encoded. */
void tmsg_credit_charge(tmsg_send_t *send, tmsg_preamble_t *head,
                        uint64_t payload_bytes);

#endif
