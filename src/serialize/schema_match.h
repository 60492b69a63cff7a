/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/schema_match.h - compares the layout of a map with a schema. */
#ifndef TMSG_SERIALIZE_SCHEMA_MATCH_H
#define TMSG_SERIALIZE_SCHEMA_MATCH_H

#include "serialize/schema.h"

/* Extents that vary, each by its index in the concatenated shapes of all
 * tensors. */
typedef struct {
    uint32_t count;
    uint32_t at[TMSG_SCHEMA_VARYING_MAX];
} tmsg_varying_t;

typedef enum {
    TMSG_MATCH_NONE,
    TMSG_MATCH_VARIES, /* would match if the extents in *varying varied, too */
    TMSG_MATCH_SAME
} tmsg_match_t;

/* Compares the layout of the map, as a body would describe it, with a schema.
 * *varying gets the extents of the schema that vary and those that would have
 * to. If the result is NONE, *varying is meaningless. */
tmsg_match_t tmsg_schema_match(const tmsg_schema_t *schema,
                               const tmsg_map_t *map, tmsg_varying_t *varying);

#endif
