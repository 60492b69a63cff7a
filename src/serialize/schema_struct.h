/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/schema_struct.h - declares the fields of a schema, for schema*.c
 * only. */
#ifndef TMSG_SERIALIZE_SCHEMA_STRUCT_H
#define TMSG_SERIALIZE_SCHEMA_STRUCT_H

#include "serialize/schema.h"
#include "serialize/schema_wire.h"

struct tmsg_schema {
    tmsg_map_t *layout;
    uint64_t body_bytes;
    uint64_t *charged;          /* counter that includes body_bytes */
    tmsg_schema_total_t *total; /* total that includes body_bytes, or NULL */
    uint32_t count;             /* varying extents in `places`, in order */
    tmsg_schema_place_t places[];
};

/* Creates a schema: copies the layout of a map and the places of the extents
 * that vary in a definition. Adds body_bytes to *charged; tmsg_schema_destroy()
 * subtracts it. Errors: NO_MEMORY, MALFORMED (the definition does not fit the
 * map). */
tmsg_status_t tmsg_schema_create(const tmsg_map_t *map,
                                 const tmsg_schema_use_t *use,
                                 uint64_t body_bytes, uint64_t *charged,
                                 tmsg_schema_t **schema_p);

/* Moves the schema's body_bytes from the counter that it is charged to, to
 * *charged. */
void tmsg_schema_charge(tmsg_schema_t *schema, uint64_t *charged);

#endif
