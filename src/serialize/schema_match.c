/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/schema_match.h"

#include <string.h>

#include "core/device.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/schema_struct.h"

static bool same_strides(const tmsg_tensor_t *kept, const tmsg_tensor_t *tensor)
{
    int64_t room[2][TMSG_NDIM_MAX];
    const int64_t *a = tmsg_body_strides(kept, room[0]);
    const int64_t *b = tmsg_body_strides(tensor, room[1]);

    if (a == NULL || b == NULL) {
        return a == b;
    }
    return memcmp(a, b, (size_t)kept->ndim * sizeof(*a)) == 0;
}

static bool has_body_strides(const tmsg_tensor_t *tensor)
{
    int64_t room[TMSG_NDIM_MAX];

    return tmsg_body_strides(tensor, room) != NULL;
}

static bool same_but_shape(const tmsg_map_entry_t *kept,
                           const tmsg_map_entry_t *entry)
{
    const tmsg_tensor_t *a = &kept->tensor, *b = &entry->tensor;

    return kept->name_bytes == entry->name_bytes && a->ndim == b->ndim &&
           tmsg_dtype_is(a->dtype, b->dtype) &&
           tmsg_device_is(a->device, b->device) &&
           memcmp(kept->name, entry->name, kept->name_bytes) == 0 &&
           same_strides(a, b) &&
           tmsg_map_same_view(tmsg_map_view(kept), tmsg_map_view(entry));
}

/* Holds the state of a walk through the extents of a map, in order. */
typedef struct {
    const tmsg_schema_t *schema;
    uint32_t next; /* index of the next varying extent in schema->places */
    uint32_t flat;
    bool differs; /* an extent differs that does not vary in the schema */
    tmsg_varying_t *varying;
} walk_t;

static bool note_varying(walk_t *walk, uint32_t flat)
{
    if (walk->varying->count == TMSG_SCHEMA_VARYING_MAX) {
        return false;
    }
    walk->varying->at[walk->varying->count++] = flat;
    return true;
}

static bool extent_varies(walk_t *walk, uint32_t tensor, uint32_t axis)
{
    const tmsg_schema_t *schema = walk->schema;
    const tmsg_schema_place_t *place = &schema->places[walk->next];

    if (walk->next == schema->count || place->tensor != tensor ||
        place->axis != axis) {
        return false;
    }
    walk->next++;
    return true;
}

/* Compares the shape of one tensor with the schema's. Returns false if the
 * schema could not describe it even if more extents varied. */
static bool walk_shape(walk_t *walk, uint32_t index, const tmsg_tensor_t *kept,
                       const tmsg_tensor_t *tensor)
{
    for (uint32_t axis = 0; axis < (uint32_t)kept->ndim; axis++) {
        bool known = extent_varies(walk, index, axis);
        bool differs = kept->shape[axis] != tensor->shape[axis];

        if (!known && !differs) {
            continue;
        }
        if (!known && has_body_strides(kept)) {
            return false;
        }
        if (!note_varying(walk, walk->flat + axis)) {
            return false;
        }
        walk->differs = walk->differs || !known;
    }
    walk->flat += (uint32_t)kept->ndim;
    return true;
}

tmsg_match_t tmsg_schema_match(const tmsg_schema_t *schema,
                               const tmsg_map_t *map, tmsg_varying_t *varying)
{
    const tmsg_map_entry_t *kept = tmsg_map_entries(schema->layout);
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t size = tmsg_map_size(map);
    walk_t walk = {.schema = schema, .varying = varying};

    varying->count = 0;
    if (size != tmsg_map_size(schema->layout)) {
        return TMSG_MATCH_NONE;
    }
    for (size_t i = 0; i < size; i++) {
        if (!same_but_shape(&kept[i], &entries[i])) {
            return TMSG_MATCH_NONE;
        }
        if (tmsg_map_view(&kept[i]) != NULL) { /* the views are equal */
            walk.flat += (uint32_t)tmsg_map_view(&kept[i])->ndim;
            continue;
        }
        if (!walk_shape(&walk, (uint32_t)i, &kept[i].tensor,
                        &entries[i].tensor)) {
            return TMSG_MATCH_NONE;
        }
    }
    return walk.differs ? TMSG_MATCH_VARIES : TMSG_MATCH_SAME;
}
