/* SPDX-License-Identifier: BSD-3-Clause */
/* am/parts.h - large tensors as messages of their own. The rules are
 * docs/connection.md, "Parts". */
#ifndef TMSG_AM_PARTS_H
#define TMSG_AM_PARTS_H

#include "am/message.h"
#include "am/send.h"
#include "am/way.h"

/* Parts that a side keeps for an endpoint before it fetches them. What it sends
 * is bounded by what the peer keeps, too. */
#define TMSG_PARTS_KEPT 16

/* The sender's side. */

/* Makes the parts of a payload whose way says so: packs what has to be, and
 * writes its checksums. payload->extra->split says which they are. Errors:
 * NO_MEMORY, UNSUPPORTED. */
tmsg_status_t tmsg_parts_make(tmsg_send_t *send, const tmsg_payload_t *payload);

/* Makes slices of the send's plan, behind the bytes of a body that heads it:
 * what is left in send->plan is that. Errors: NO_MEMORY. */
tmsg_status_t tmsg_parts_slice(tmsg_send_t *send,
                               const tmsg_payload_t *payload);

/* The head goes to UCX: the parts, if there are any, are to follow. Says how
 * many bytes of the payload they are. */
uint64_t tmsg_parts_begin(tmsg_send_t *send);

/* Hands over as many as may be. Outside UCX. */
void tmsg_parts_flush(tmsg_endpoint_t *endpoint);

/* Whether some are with UCX, or are to be. */
bool tmsg_parts_pending(const tmsg_send_t *send);

/* No more of them are sent. */
void tmsg_parts_stop(tmsg_send_t *send);

void tmsg_parts_free(tmsg_send_t *send);

/* The receiver's side. */

ucs_status_t tmsg_part_arrived(const tmsg_arrival_t *arrival);

/* A body that has parts was decoded: makes the message's record of them, which
 * those that came before it are held against. Errors: NO_MEMORY,
 * LIMIT_EXCEEDED; MALFORMED, which ends the connection. */
tmsg_status_t tmsg_parts_expect(tmsg_message_t *message);

/* Whether the message waits for parts that have not come. */
bool tmsg_parts_missing(const tmsg_message_t *message);

/* Each tensor has its place: chores fetch what has come. Errors: NO_MEMORY. */
tmsg_status_t tmsg_parts_fetch(tmsg_message_t *message);

/* A message was refused: what was kept of it is rejected by the next chores. */
void tmsg_parts_refuse(tmsg_message_t *message);

/* Lock held, in chores: fetches and rejects what has come inside UCX. */
void tmsg_parts_chores(tmsg_endpoint_t *endpoint);

/* The endpoint has ended: drops what is not being fetched. */
void tmsg_parts_abandon(tmsg_endpoint_t *endpoint);

/* Frees the record; any thread. */
void tmsg_parts_forget(tmsg_message_t *message);

#endif
