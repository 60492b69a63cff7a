/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/schema_match.h - whether a map's layout is one that is kept. */
#ifndef TMSG_SERIALIZE_SCHEMA_MATCH_H
#define TMSG_SERIALIZE_SCHEMA_MATCH_H

#include "serialize/schema.h"

/* Extents that vary, counted through the shapes of all tensors. */
typedef struct {
    uint32_t count;
    uint32_t at[TMSG_SCHEMA_VARYING_MAX];
} tmsg_varying_t;

typedef enum {
    TMSG_MATCH_NONE,
    TMSG_MATCH_VARIES, /* it would be if *varying varied, too */
    TMSG_MATCH_SAME
} tmsg_match_t;

/* Compares what a body would say of the map with a schema. *varying gets the
 * extents of the schema that vary and those that would have to; of NONE it
 * says nothing. */
tmsg_match_t tmsg_schema_match(const tmsg_schema_t *schema,
                               const tmsg_map_t *map, tmsg_varying_t *varying);

#endif
