/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/parts_in.h - the parts of a message that comes. */
#ifndef TMSG_AM_RECV_PARTS_IN_H
#define TMSG_AM_RECV_PARTS_IN_H

#include "am/endpoint/endpoint.h"
#include "am/endpoint/kinds.h"
#include "am/recv/message.h"

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
