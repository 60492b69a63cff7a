/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/schema_wire.h - definitions of schemas, and references to them, as
 * the body has them. */
#ifndef TMSG_SERIALIZE_SCHEMA_WIRE_H
#define TMSG_SERIALIZE_SCHEMA_WIRE_H

#include "serialize/cursor.h"
#include "serialize/header.h"

#define TMSG_SCHEMA_HEAD_BYTES 9 /* what is before the numbers, at most */

/* Writes a key of the body with what comes before the numbers of its value, as
 * long as it is. */
size_t tmsg_schema_head(const tmsg_schema_use_t *use,
                        uint8_t head[TMSG_SCHEMA_HEAD_BYTES]);

/* Reads the value of such a key into *use, which is all zero and stays so
 * unless there are a slot and a generation. What the cursor does not find is
 * its own error; others are MALFORMED here. */
tmsg_status_t tmsg_schema_read(tmsg_cursor_t *cursor, tmsg_schema_form_t form,
                               tmsg_schema_use_t *use);

/* A cursor over the numbers of a decoded one. */
tmsg_cursor_t tmsg_schema_numbers(const tmsg_schema_use_t *use);

/* Where a varying extent is. */
typedef struct {
    uint32_t tensor;
    uint32_t axis;
} tmsg_schema_place_t;

/* Finds the extents that a definition names in the map that it is of; `places`
 * has room for use->count. Errors: MALFORMED (out of order or range). */
tmsg_status_t tmsg_schema_locate(const tmsg_schema_use_t *use,
                                 const tmsg_map_t *map,
                                 tmsg_schema_place_t *places);

/* Whether a definition fits the map that it was decoded with. Errors: MALFORMED
 * (out of order or range, of a tensor with strides). */
tmsg_status_t tmsg_schema_check(const tmsg_schema_use_t *use,
                                const tmsg_map_t *map);

#endif
