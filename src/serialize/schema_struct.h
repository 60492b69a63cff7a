/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/schema_struct.h - the inside of a schema, for schema*.c alone. */
#ifndef TMSG_SERIALIZE_SCHEMA_STRUCT_H
#define TMSG_SERIALIZE_SCHEMA_STRUCT_H

#include "serialize/schema.h"
#include "serialize/schema_wire.h"

struct tmsg_schema {
    tmsg_map_t *layout;
    uint64_t body_bytes;
    uint64_t *charged;          /* the counter that holds body_bytes */
    tmsg_schema_total_t *total; /* which has them, too, or NULL */
    uint32_t count;             /* of varying extents, in order */
    tmsg_schema_place_t places[];
};

/* Copies the layout of a map, with what a definition that fits it says, and
 * adds body_bytes to *charged until the schema's end. Errors: NO_MEMORY. */
tmsg_status_t tmsg_schema_create(const tmsg_map_t *map,
                                 const tmsg_schema_use_t *use,
                                 uint64_t body_bytes, uint64_t *charged,
                                 tmsg_schema_t **schema_p);

/* Has another counter hold its bytes. */
void tmsg_schema_charge(tmsg_schema_t *schema, uint64_t *charged);

#endif
