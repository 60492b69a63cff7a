/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/lend.h - sends with TMSG_SEND_LEND: the peer reads the tensors where
 * they lie, or in one copy of them. path/loans.h has what is lent. Lock held,
 * for all functions here. */
#ifndef TMSG_AM_SEND_LEND_H
#define TMSG_AM_SEND_LEND_H

#include "am/send/send.h"

/* What such a send has of loans. It stays until its memory was given back. */
typedef struct tmsg_lend tmsg_lend_t;

/* Notes what the sender of a call says of its loan. Without memory it is no
 * loan. */
void tmsg_lend_call(tmsg_send_t *send, const tmsg_call_send_t *call);

/* Finds out whether the message is to be a loan. If so, payload->extra->lent is
 * set, and checksums are written. If not, the message goes as others do.
 * Errors: IN_PROGRESS (the peer has yet to take a segment, or there is more to
 * be copied: a call copies a part). */
tmsg_status_t tmsg_lend_prepare(tmsg_send_t *send, tmsg_payload_t *payload);

/* Has a message that was to be a loan go by the usual ways. */
void tmsg_lend_decline(tmsg_send_t *send, tmsg_payload_t *payload,
                       const char *why);

/* Begins the loan of a prepared message. Errors: NO_MEMORY. */
tmsg_status_t tmsg_lend_begin(tmsg_send_t *send);

/* Returns whether the send waits for a copy that is being made. */
bool tmsg_lend_is_copying(const tmsg_send_t *send);

/* Returns the bytes of the tensors that are lent; 0: the message is no loan. */
uint64_t tmsg_lend_bytes(const tmsg_send_t *send);

/* Leave on_release, and the second one the map as well, to the last loan to be
 * given back, if one is out. The second is the end of send->lend. */
void tmsg_lend_released(tmsg_send_t *send);
void tmsg_lend_give_back(tmsg_send_t *send);

#endif
