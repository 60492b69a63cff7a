/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/parts.h - large tensors as messages of their own. The rules are
 * docs/connection.md, "Parts". */
#ifndef TMSG_AM_SEND_PARTS_H
#define TMSG_AM_SEND_PARTS_H

#include "am/endpoint/fragments.h"
#include "am/endpoint/measures.h"
#include "am/recv/message.h"
#include "am/send/send.h"
#include "am/worker/way.h"

/* Makes the parts of a payload whose way says so: packs what has to be, and
 * writes its checksums. payload->extra->split says which they are. Errors:
 * NO_MEMORY, UNSUPPORTED. */
tmsg_status_t tmsg_parts_make(tmsg_send_t *send, const tmsg_payload_t *payload);

/* Makes slices of the send's plan, behind the bytes of a body that heads it:
 * what is left in send->plan is that. Errors: NO_MEMORY. */
tmsg_status_t tmsg_parts_slice(tmsg_send_t *send,
                               const tmsg_payload_t *payload);

/* Whether the peer keeps so many parts that one of a message which it asks for
 * has a place among those that it has no memory for. */
bool tmsg_parts_may_be_asked(const tmsg_endpoint_t *endpoint);

/* The head goes to UCX: the parts, if there are any, are to follow. Says how
 * many bytes of the payload they are. */
uint64_t tmsg_parts_begin(tmsg_send_t *send);

/* Hands over as many as may be. Outside UCX. */
void tmsg_parts_flush(tmsg_endpoint_t *endpoint);

/* The next piece of those that the peer wants by the lane, which stays as it is
 * until it is handed over. False: there is none. */
bool tmsg_parts_next(tmsg_endpoint_t *endpoint, tmsg_parts_piece_t *piece);
void tmsg_parts_handed(const tmsg_parts_piece_t *piece, tmsg_ucx_status_t ucs);

/* Its memory at `at` cannot be read: its message fails, with the name of the
 * tensor, and the piece is handed over. In the midst of nothing. */
void tmsg_parts_unreadable(const tmsg_parts_piece_t *piece, const void *at);

/* Whether some are with UCX, or are to be. */
bool tmsg_parts_pending(const tmsg_send_t *send);

/* No more of them are sent. */
void tmsg_parts_stop(tmsg_send_t *send);

void tmsg_parts_free(tmsg_send_t *send);

/* Bytes of the record that is kept for the send's next parts. */
size_t tmsg_parts_spare(const tmsg_send_t *send);

#endif
