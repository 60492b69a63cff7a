/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/limits.h - checks a message against the peer's limits before it is
 * sent. */
#ifndef TMSG_AM_SEND_LIMITS_H
#define TMSG_AM_SEND_LIMITS_H

#include "am/endpoint/measures.h"
#include "am/send/plan.h"
#include "am/send/send.h"

/* Both functions need the lock. Errors: LIMIT_EXCEEDED; the error names the
 * peer, what there is too much of, and how much the peer allows. */

/* Checks the number of tensors, their names and their dimensions. */
tmsg_status_t tmsg_send_limits_layout(const tmsg_send_t *send);

/* Checks the bytes of the payload, once it is measured, and the metadata. */
tmsg_status_t tmsg_send_limits_payload(const tmsg_send_t *send,
                                       const tmsg_payload_t *payload);

#endif
