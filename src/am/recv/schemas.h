/* SPDX-License-Identifier: BSD-3-Clause */
/* am/recv/schemas.h - layouts that the peer has defined, known by number. */
#ifndef TMSG_AM_RECV_SCHEMAS_H
#define TMSG_AM_RECV_SCHEMAS_H

#include "am/endpoint/endpoint.h"
#include "am/recv/message.h"

/* A side offers to keep 32 schemas for each channel of a peer, and 2 MiB for
 * all schemas of the peer; 10,000 tensors take some 400 KB of that. A worker
 * keeps at most 16 MiB for all its peers. A map that is filled from a schema
 * takes some 12 bytes for each tensor. */
#define TMSG_SCHEMA_SLOTS 32
#define TMSG_SCHEMA_BYTES (2048u * 1024u)
#define TMSG_SCHEMA_WORKER_BYTES (16u * 1024u * 1024u)

/* Notes the layout that a decoded body defines, or fills the map from the
 * layout that it refers to. Errors: MALFORMED (a reference to nothing also ends
 * the connection), LIMIT_EXCEEDED, NO_MEMORY. */
tmsg_status_t tmsg_schemas_decoded(tmsg_message_t *message);

/* Takes the message's definition into use when its turn has come, and tells the
 * sender. */
void tmsg_schemas_in_turn(tmsg_message_t *message);

/* Keeps the definition of a message that is delivered before its turn, until
 * that turn. Returns false if there is no memory. */
bool tmsg_schemas_keep(tmsg_message_t *message);

/* Takes the kept definition of a message that was delivered before its turn
 * into use, now that the turn has come. */
void tmsg_schemas_passed(tmsg_channel_t *channel, uint32_t sequence);

/* Forgets kept definitions whose turn will not come. */
void tmsg_schemas_forget(tmsg_channel_t *channel);

/* Drops the definition of a message that is to be skipped. */
void tmsg_schemas_drop(tmsg_message_t *message);

#endif
