/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/allowed.h - a peer's limits: what it would refuse is not sent. */
#ifndef TMSG_AM_SEND_ALLOWED_H
#define TMSG_AM_SEND_ALLOWED_H

#include "am/endpoint/measures.h"
#include "am/send/plan.h"
#include "am/send/send.h"

/* Lock held, both. Errors: LIMIT_EXCEEDED, which names the peer, what there is
 * too much of, and how much the peer allows. */

/* How many tensors there are, their names and dimensions. */
tmsg_status_t tmsg_allowed_layout(const tmsg_send_t *send);

/* The payload's bytes, when it is measured, and the metadata. */
tmsg_status_t tmsg_allowed_payload(const tmsg_send_t *send,
                                   const tmsg_payload_t *payload);

#endif
