/* SPDX-License-Identifier: BSD-3-Clause */
/* am/send/parts.h - large tensors as messages of their own. The rules are
 * docs/connection.md, "Parts". */
#ifndef TMSG_AM_SEND_PARTS_H
#define TMSG_AM_SEND_PARTS_H

#include "am/recv/message.h"
#include "am/send/send.h"
#include "am/worker/way.h"

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

/* Whether the peer keeps so many parts that one of a message which it asks for
 * has a place among those that it has no memory for. */
bool tmsg_parts_may_be_asked(const tmsg_endpoint_t *endpoint);

/* The head goes to UCX: the parts, if there are any, are to follow. Says how
 * many bytes of the payload they are. */
uint64_t tmsg_parts_begin(tmsg_send_t *send);

/* Hands over as many as may be. Outside UCX. */
void tmsg_parts_flush(tmsg_endpoint_t *endpoint);

/* A piece that goes by the lane. */
typedef struct {
    uint16_t channel;
    uint32_t sequence;
    uint32_t number;
    uint64_t bytes;
    const void *data; /* with count > 1 a list of ucp_dt_iov_t */
    size_t count;
    void *slot;
} tmsg_parts_piece_t;

/* The peer asks for the parts of a message: inside UCX. */
ucs_status_t tmsg_pull_arrived(const tmsg_arrival_t *arrival);

/* The next piece of those that the peer wants by the lane, which stays as it is
 * until it is handed over. False: there is none. */
bool tmsg_parts_next(tmsg_endpoint_t *endpoint, tmsg_parts_piece_t *piece);
void tmsg_parts_handed(const tmsg_parts_piece_t *piece, ucs_status_t ucs);

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

/* The record is not needed any more, and kept for the message's next one if it
 * is small; the bytes of that. Any thread. */
void tmsg_parts_forget(tmsg_message_t *message);
size_t tmsg_parts_kept(const tmsg_message_t *message);

#endif
