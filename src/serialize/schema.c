/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/schema_struct.h"

tmsg_status_t tmsg_schema_create(const tmsg_map_t *map,
                                 const tmsg_schema_use_t *use,
                                 uint64_t body_bytes, uint64_t *charged,
                                 tmsg_schema_t **schema_p)
{
    tmsg_schema_t *schema =
        malloc(sizeof(*schema) + use->count * sizeof(schema->places[0]));
    tmsg_status_t status;

    if (schema == NULL) {
        return tmsg_error_memory("a schema");
    }
    status = tmsg_schema_locate(use, map, schema->places);
    if (status == TMSG_OK) {
        status = tmsg_map_copy_layout(map, &schema->layout);
    }
    if (status != TMSG_OK) {
        free(schema);
        return status;
    }
    schema->count = use->count;
    schema->body_bytes = body_bytes;
    schema->charged = charged;
    schema->total = NULL;
    *charged += body_bytes;
    *schema_p = schema;
    return TMSG_OK;
}

void tmsg_schema_charge(tmsg_schema_t *schema, uint64_t *charged)
{
    *schema->charged -= schema->body_bytes;
    schema->charged = charged;
    *schema->charged += schema->body_bytes;
}

void tmsg_schema_share(tmsg_schema_t *schema, uint64_t most,
                       tmsg_map_t **newest)
{
    tmsg_map_t *gone = NULL;

    if (*newest != NULL && tmsg_map_has_layout(schema->layout, *newest)) {
        gone = schema->layout;
        schema->layout = *newest;
    } else if (tmsg_map_memory(schema->layout) <= most) {
        gone = *newest;
        *newest = schema->layout;
    } else {
        return;
    }
    tmsg_map_hold(*newest);
    tmsg_map_destroy(gone);
}

void tmsg_schema_destroy(tmsg_schema_t *schema)
{
    if (schema == NULL) {
        return;
    }
    *schema->charged -= schema->body_bytes;
    if (schema->total != NULL) {
        atomic_fetch_sub(&schema->total->used, schema->body_bytes);
    }
    tmsg_map_destroy(schema->layout);
    free(schema);
}

/* Sets the varying extents of one tensor, which begin at place *i_p. Moves *i_p
 * behind them. */
static tmsg_status_t reshape(const tmsg_schema_t *schema, tmsg_map_t *map,
                             tmsg_cursor_t *cursor, uint32_t *i_p)
{
    uint32_t index = schema->places[*i_p].tensor;
    const tmsg_map_entry_t *entry = &tmsg_map_entries(map)[index];
    int64_t shape[TMSG_NDIM_MAX];
    tmsg_status_t status;

    memcpy(shape, entry->tensor.shape,
           (size_t)entry->tensor.ndim * sizeof(shape[0]));
    for (; *i_p < schema->count && schema->places[*i_p].tensor == index;
         ++*i_p) {
        shape[schema->places[*i_p].axis] = tmsg_cursor_integer(cursor);
    }
    status = tmsg_map_reshape(map, index, shape);
    if (status == TMSG_OK || status == TMSG_ERR_NO_MEMORY) {
        return status;
    }
    return tmsg_error_set(status == TMSG_ERR_INVALID_PARAM ? TMSG_ERR_MALFORMED
                                                           : status,
                          "tensor %" PRIu32 " '%s': %s", index,
                          tmsg_error_name(entry->name, entry->name_bytes).text,
                          tmsg_error_message());
}

tmsg_status_t tmsg_schema_fill(const tmsg_schema_t *schema,
                               const tmsg_schema_use_t *use, tmsg_map_t *map)
{
    tmsg_cursor_t cursor = tmsg_schema_numbers(use);
    tmsg_status_t status;

    if (use->count != schema->count) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                "body: %" PRIu32 " extents for a schema with "
                                "%" PRIu32 " that vary",
                                use->count, schema->count);
    } else {
        status = tmsg_map_share(map, schema->layout);
    }
    for (uint32_t i = 0; i < schema->count && status == TMSG_OK;) {
        status = reshape(schema, map, &cursor, &i);
    }
    if (status != TMSG_OK) {
        tmsg_map_clear(map);
    }
    return status;
}
