/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/schema_wire.h - encodes and decodes the definitions of schemas and
 * the references to them in a body. */
#ifndef TMSG_SERIALIZE_SCHEMA_WIRE_H
#define TMSG_SERIALIZE_SCHEMA_WIRE_H

#include "serialize/cursor.h"
#include "serialize/header.h"

#define TMSG_SCHEMA_HEAD_BYTES 9 /* most bytes before the numbers */

/* Writes the key of a definition or reference, and the part of its value that
 * precedes the numbers. Returns the bytes written. */
size_t tmsg_schema_head(const tmsg_schema_use_t *use,
                        uint8_t head[TMSG_SCHEMA_HEAD_BYTES]);

/* Reads the value of such a key into *use, which the caller has zeroed. *use
 * stays zero unless the value has a slot and a generation. Errors of the cursor
 * stay in the cursor and return OK; all other errors are MALFORMED. */
tmsg_status_t tmsg_schema_read(tmsg_cursor_t *cursor, tmsg_schema_form_t form,
                               tmsg_schema_use_t *use);

/* Returns a cursor over the numbers of a decoded *use. */
tmsg_cursor_t tmsg_schema_numbers(const tmsg_schema_use_t *use);

/* The position of a varying extent. */
typedef struct {
    uint32_t tensor;
    uint32_t axis;
} tmsg_schema_place_t;

/* Finds the extents that *use names in the map to which *use belongs. `places`
 * has room for use->count. Errors: MALFORMED (out of order or range). */
tmsg_status_t tmsg_schema_locate(const tmsg_schema_use_t *use,
                                 const tmsg_map_t *map,
                                 tmsg_schema_place_t *places);

/* Checks that a definition fits the map that was decoded with it. Errors:
 * MALFORMED (an extent is out of order or range, or belongs to a tensor with
 * strides). */
tmsg_status_t tmsg_schema_check(const tmsg_schema_use_t *use,
                                const tmsg_map_t *map);

#endif
