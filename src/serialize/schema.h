/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/schema.h - layouts that are sent once and then by number. The rules
 * are docs/connection.md, "Schemas"; the bytes docs/wire-format.md.
 *
 * A layout is what a body says of a map's tensors: names, dtypes, shapes,
 * strides and devices, without data and metadata. Nothing here is
 * thread-safe, but maps that were filled live on their own. */
#ifndef TMSG_SERIALIZE_SCHEMA_H
#define TMSG_SERIALIZE_SCHEMA_H

#include <stdatomic.h>

#include "serialize/header.h"

/* The same of many budgets, for stores: what their schemas are, pending or
 * not. From any thread; outlives them. */
typedef struct {
    uint64_t limit;
    _Atomic uint64_t used;
} tmsg_schema_total_t;

/* Bytes of defining bodies that one end may keep, in all channels that share
 * this. It outlives tables, stores and schemas. */
typedef struct {
    uint64_t limit;
    uint64_t used; /* by what is in slots */
    uint64_t
        pending; /* by definitions whose turn is to come: up to limit, too */
    tmsg_schema_total_t *total; /* that this is part of; NULL: none */
} tmsg_schema_budget_t;

/* A layout that is kept, and which of its extents vary. */
typedef struct tmsg_schema tmsg_schema_t;

/* NULL is allowed. Those in a table or store are destroyed with it. */
void tmsg_schema_destroy(tmsg_schema_t *schema);

/* Has it share *newest, if that is of the same layout; else its own is *newest
 * from then on, if that takes no more than `most` bytes of memory. The caller
 * destroys *newest (NULL: none) in the end. */
void tmsg_schema_share(tmsg_schema_t *schema, uint64_t most,
                       tmsg_map_t **newest);

/* Gives a map without tensors those of a schema, with the extents that a
 * decoded reference brings; its metadata stays. The map shares names and shapes
 * with the schema, which may end before it. It may then be placed, given other
 * devices and metadata, read, sent and cleared, but not added to. On error the
 * map is left empty. Errors: MALFORMED (count, a negative extent),
 * LIMIT_EXCEEDED (a product), NO_MEMORY. */
tmsg_status_t tmsg_schema_fill(const tmsg_schema_t *schema,
                               const tmsg_schema_use_t *use, tmsg_map_t *map);

/* The sender's side of a channel: which layouts the peer keeps. */
typedef struct tmsg_schema_table tmsg_schema_table_t;

/* For a peer that offered so many slots, 1 to TMSG_SCHEMA_SLOTS_MAX. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_schema_table_create(uint32_t slots,
                                       tmsg_schema_budget_t *budget,
                                       tmsg_schema_table_t **table_p);

/* NULL is allowed. */
void tmsg_schema_table_destroy(tmsg_schema_table_t *table);

/* Chooses how a map goes next, into extra->schema, and measures its body with
 * all of *extra as tmsg_body_encode() does. Without a table (NULL) in full. Of
 * *extra the rest must be set. What is chosen is valid until the next call with
 * this table. No memory: it goes in full. Errors: tmsg_body_encode()'s. */
tmsg_status_t tmsg_schema_table_choose(tmsg_schema_table_t *table,
                                       const tmsg_map_t *map,
                                       tmsg_body_extra_t *extra,
                                       size_t *needed_p);

/* What was chosen last is sent: now it counts, if it is a definition. One that
 * is not sent is forgotten by not calling this. */
void tmsg_schema_table_sent(tmsg_schema_table_t *table,
                            const tmsg_schema_use_t *use);

/* A map goes by the reference to a slot that was chosen for one of the same
 * layout before, and no definition was sent since: notes the slot's use. */
void tmsg_schema_table_used(tmsg_schema_table_t *table, uint8_t slot);

/* The layout in such a slot. */
const tmsg_map_t *tmsg_schema_table_layout(const tmsg_schema_table_t *table,
                                           uint8_t slot);

/* The peer has answered a definition. Errors: MALFORMED (none of that slot and
 * generation waits for an answer). */
tmsg_status_t tmsg_schema_table_answered(tmsg_schema_table_t *table,
                                         uint8_t slot, uint8_t generation,
                                         bool kept);

/* The receiver's side of a channel. */
typedef struct tmsg_schema_store tmsg_schema_store_t;

/* As tmsg_schema_table_create(). */
tmsg_status_t tmsg_schema_store_create(uint32_t slots,
                                       tmsg_schema_budget_t *budget,
                                       tmsg_schema_store_t **store_p);
void tmsg_schema_store_destroy(tmsg_schema_store_t *store);

/* On arrival of a decoded definition, before its map is changed: the layout
 * that is to be kept when the message's turn comes; NULL where it cannot be.
 * Who does not take() it destroys it. */
tmsg_schema_t *tmsg_schema_store_prepare(tmsg_schema_store_t *store,
                                         const tmsg_map_t *map,
                                         const tmsg_schema_use_t *use,
                                         uint64_t body_bytes);

/* In the message's turn: makes `schema` (NULL: nothing) the content of the slot
 * and takes it over. Says whether it is kept, for the answer; in a slot that
 * was not offered nothing is. */
bool tmsg_schema_store_take(tmsg_schema_store_t *store, uint8_t slot,
                            uint8_t generation, tmsg_schema_t *schema);

/* On arrival of a reference: what it means, valid until the next take().
 * Errors: MALFORMED (nothing of that slot and generation), which ends the
 * connection. */
tmsg_status_t tmsg_schema_store_find(const tmsg_schema_store_t *store,
                                     const tmsg_schema_use_t *use,
                                     const tmsg_schema_t **schema_p);

#endif
