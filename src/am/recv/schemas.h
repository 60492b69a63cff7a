/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/schemas.h - layouts that the peer has defined, known by number. */
#ifndef TMSG_AM_RECV_SCHEMAS_H
#define TMSG_AM_RECV_SCHEMAS_H

#include "am/endpoint/endpoint.h"
#include "am/recv/message.h"

/* What a side offers each of its peers to keep, of which there are 10,000
 * tensors in 400 KB; and what a worker keeps of all of them. A map that is
 * filled from a schema takes some 12 bytes for each of these. */
#define TMSG_SCHEMA_SLOTS 32
#define TMSG_SCHEMA_BYTES (2048u * 1024u)
#define TMSG_SCHEMA_WORKER_BYTES (16u * 1024u * 1024u)

/* A body has been decoded: notes the layout that it defines, or gives the map
 * the one that it refers to. Errors: MALFORMED (a reference to nothing ends the
 * connection, too), LIMIT_EXCEEDED, NO_MEMORY. */
tmsg_status_t tmsg_schemas_decoded(tmsg_message_t *message);

/* It is the message's turn: what it defines counts, and the sender is told. */
void tmsg_schemas_in_turn(tmsg_message_t *message);

/* A message that defines one is delivered before its turn: what it defines is
 * kept for then. False: there is no memory for that. */
bool tmsg_schemas_keep(tmsg_message_t *message);

/* The turn has come of a message that was delivered before. */
void tmsg_schemas_passed(tmsg_channel_t *channel, uint32_t sequence);

/* Forgets those whose turn will not come. */
void tmsg_schemas_forget(tmsg_channel_t *channel);

/* A message that is to be skipped does not define anything any more. */
void tmsg_schemas_drop(tmsg_message_t *message);

#endif
