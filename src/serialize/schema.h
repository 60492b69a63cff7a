/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/schema.h - keeps the layouts that are sent once and then referred
 * to by number. docs/wire/connection.md, "Schemas", has the rules.
 * docs/wire/wire-format.md, "Schemas", has the bytes.
 *
 * A layout is what a body says of a map's tensors: names, dtypes, shapes,
 * strides and devices, without data and metadata. These functions are not
 * thread-safe. A map that tmsg_schema_fill() has filled is independent of the
 * schema. */
#ifndef TMSG_SERIALIZE_SCHEMA_H
#define TMSG_SERIALIZE_SCHEMA_H

#include <stdatomic.h>

#include "serialize/header.h"

/* Bounds the bytes of schemas in all stores whose budgets share this, with
 * those that are pending. Any thread may use it. It must outlive the budgets,
 * stores and schemas. */
typedef struct {
    uint64_t limit;
    _Atomic uint64_t used;
} tmsg_schema_total_t;

/* Bounds the bytes of defining bodies that one end keeps for all channels that
 * share this. `used` and `pending` are each at most `limit`. It must outlive
 * tables, stores and schemas. */
typedef struct {
    uint64_t limit;
    uint64_t used;              /* bytes of the schemas in slots */
    uint64_t pending;           /* bytes of definitions before their turn */
    tmsg_schema_total_t *total; /* total that stores also count in, or NULL */
} tmsg_schema_budget_t;

/* Holds a layout that is kept, with the set of its extents that vary. */
typedef struct tmsg_schema tmsg_schema_t;

/* Destroys a schema that is in no table or store. NULL is allowed. A table or
 * store destroys the schemas in it. */
void tmsg_schema_destroy(tmsg_schema_t *schema);

/* Makes a schema share its layout with *newest, if both layouts are equal.
 * Otherwise *newest becomes the schema's layout if that takes at most `most`
 * bytes of memory. Otherwise nothing changes. *newest may be NULL. The caller
 * has a reference to *newest, and drops it with tmsg_map_destroy(). */
void tmsg_schema_share(tmsg_schema_t *schema, uint64_t most,
                       tmsg_map_t **newest);

/* Gives a map without tensors those of a schema, with the extents that a
 * decoded reference brings. The map's metadata stays. The map shares names and
 * shapes with the schema's layout, and may outlive the schema. The map may then
 * be placed, given other devices and metadata, read, sent and cleared, but
 * takes no more tensors. On error the map is left empty. Errors: MALFORMED
 * (number of extents, a negative extent), LIMIT_EXCEEDED (a product),
 * NO_MEMORY. */
tmsg_status_t tmsg_schema_fill(const tmsg_schema_t *schema,
                               const tmsg_schema_use_t *use, tmsg_map_t *map);

/* Knows the layouts that the peer keeps, at the sender's side of a channel. */
typedef struct tmsg_schema_table tmsg_schema_table_t;

/* Creates a table for a peer that offered that number of slots, 1 to
 * TMSG_SCHEMA_SLOTS_MAX. Errors: NO_MEMORY. */
tmsg_status_t tmsg_schema_table_create(uint32_t slots,
                                       tmsg_schema_budget_t *budget,
                                       tmsg_schema_table_t **table_p);

/* Destroys a table with its schemas. NULL is allowed. */
void tmsg_schema_table_destroy(tmsg_schema_table_t *table);

/* Chooses how a map is sent next: in full, with a definition, or by reference.
 * Stores the choice in extra->schema, and measures the body as
 * tmsg_body_encode() does. The caller fills in the rest of *extra before. If
 * `table` is NULL or memory is lacking, the map is sent in full. The choice is
 * valid until the next call with this table. Errors: those of
 * tmsg_body_encode(). */
tmsg_status_t tmsg_schema_table_choose(tmsg_schema_table_t *table,
                                       const tmsg_map_t *map,
                                       tmsg_body_extra_t *extra,
                                       size_t *needed_p);

/* Notes that the latest choice is sent. A definition then occupies its slot and
 * waits for the peer's answer. A definition that is not sent takes no effect;
 * the next choice discards it. */
void tmsg_schema_table_sent(tmsg_schema_table_t *table,
                            const tmsg_schema_use_t *use);

/* Notes that a map is sent by reference to a slot without a new choice. That
 * slot must have been chosen for a map of the same layout before, and no
 * definition was sent since. */
void tmsg_schema_table_used(tmsg_schema_table_t *table, uint8_t slot);

/* Returns the layout in a slot that was chosen. The table owns the layout. */
const tmsg_map_t *tmsg_schema_table_layout(const tmsg_schema_table_t *table,
                                           uint8_t slot);

/* Notes the peer's answer to a definition. If `kept` is false, the slot becomes
 * free. Errors: MALFORMED (no definition of that slot and generation waits for
 * an answer). */
tmsg_status_t tmsg_schema_table_answered(tmsg_schema_table_t *table,
                                         uint8_t slot, uint8_t generation,
                                         bool kept);

/* Keeps the layouts of the peer, at the receiver's side of a channel. */
typedef struct tmsg_schema_store tmsg_schema_store_t;

/* Creates or destroys a store, as tmsg_schema_table_create() and
 * tmsg_schema_table_destroy() do for a table. */
tmsg_status_t tmsg_schema_store_create(uint32_t slots,
                                       tmsg_schema_budget_t *budget,
                                       tmsg_schema_store_t **store_p);
void tmsg_schema_store_destroy(tmsg_schema_store_t *store);

/* Creates the schema that a decoded definition asks for. A receiver calls
 * this on arrival of the message, before the map changes. The schema is for
 * tmsg_schema_store_take() in the message's turn. A caller that does not pass
 * it on destroys it. Returns NULL if the schema cannot be kept: the slot was
 * not offered, a budget is used up, or memory is lacking. `store` may be
 * NULL. */
tmsg_schema_t *tmsg_schema_store_prepare(tmsg_schema_store_t *store,
                                         const tmsg_map_t *map,
                                         const tmsg_schema_use_t *use,
                                         uint64_t body_bytes);

/* Makes `schema` the content of a slot, in the turn of the defining message,
 * and takes ownership of it. NULL empties the slot. Returns whether the schema
 * is kept, which the answer to the peer says. If it is not kept, an offered
 * slot is empty. `store` may be NULL. */
bool tmsg_schema_store_take(tmsg_schema_store_t *store, uint8_t slot,
                            uint8_t generation, tmsg_schema_t *schema);

/* Finds the schema that a reference names, on arrival of the reference.
 * *schema_p is valid until the next tmsg_schema_store_take(). `store` may be
 * NULL. Errors: MALFORMED (the slot has no schema of that generation), which
 * ends the connection. */
tmsg_status_t tmsg_schema_store_find(const tmsg_schema_store_t *store,
                                     const tmsg_schema_use_t *use,
                                     const tmsg_schema_t **schema_p);

#endif
