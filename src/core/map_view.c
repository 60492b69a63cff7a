/* SPDX-License-Identifier: BSD-3-Clause */
/* This file handles tensors that travel as their span. Everything between the
 * two ends of a map's way takes such a tensor for what its memory is: one row
 * of elements. */
#include <string.h>

#include "core/map_struct.h"
#include "core/tensor.h"

const int64_t tmsg_map_span_strides[1] = {1};

bool tmsg_map_has_spans(const tmsg_map_t *map) { return map->spans; }

bool tmsg_map_make_span(tmsg_map_t *map, tmsg_map_entry_t *entry,
                        uint64_t packed_bytes)
{
    tmsg_tensor_t *tensor = &entry->tensor;
    uint64_t element = tmsg_dtype_bytes(tensor->dtype);
    tmsg_map_view_t *view = tmsg_arena_alloc(&map->arena, sizeof(*view));

    if (view == NULL) {
        return false;
    }
    *view = (tmsg_map_view_t){.ndim = tensor->ndim,
                              .shape = tensor->shape,
                              .strides = tensor->strides,
                              .bytes = packed_bytes};
    tmsg_tensor_span(tensor, &view->elements, &view->before);
    tensor->ndim = 1;
    tensor->shape = &view->elements;
    tensor->strides = tmsg_map_span_strides;
    if (tensor->data != NULL) {
        tensor->data =
            (uint8_t *)tensor->data - (uint64_t)view->before * element;
    }
    entry->bytes = (uint64_t)view->elements * element;
    map->spans = true;
    return true;
}

bool tmsg_map_adopt_view(tmsg_map_t *map, tmsg_map_entry_t *entry)
{
    const tmsg_map_view_t *from = tmsg_map_view(entry);
    size_t dims = (size_t)from->ndim * sizeof(int64_t);
    tmsg_map_view_t *view =
        tmsg_arena_alloc(&map->arena, sizeof(*view) + 2 * dims);
    int64_t *extents;
    char *name = tmsg_map_copy(map, entry->name, entry->name_bytes);

    if (view == NULL || name == NULL) {
        return false;
    }
    *view = *from;
    extents = (int64_t *)(view + 1);
    memcpy(extents, from->shape, dims);
    memcpy(extents + view->ndim, from->strides, dims);
    view->shape = extents;
    view->strides = extents + view->ndim;
    entry->tensor.shape = &view->elements;
    entry->name = name;
    return true;
}

tmsg_map_entry_t tmsg_map_shown(const tmsg_map_entry_t *entry)
{
    const tmsg_map_view_t *view = tmsg_map_view(entry);
    tmsg_map_entry_t shown = *entry;

    if (view == NULL) {
        return shown;
    }
    shown.tensor.ndim = view->ndim;
    shown.tensor.shape = view->shape;
    shown.tensor.strides = view->strides;
    if (entry->tensor.data != NULL) {
        shown.tensor.data =
            (uint8_t *)entry->tensor.data +
            (uint64_t)view->before * tmsg_dtype_bytes(entry->tensor.dtype);
    }
    shown.bytes = tmsg_tensor_bytes_once(&shown.tensor, view->bytes);
    return shown;
}

void tmsg_map_show(tmsg_map_t *map)
{
    tmsg_map_entry_t *entries =
        map->spans ? tmsg_map_own_entries(map) : map->entries;

    for (size_t i = 0; map->spans && i < map->size; i++) {
        if (tmsg_map_view(&entries[i]) != NULL) {
            entries[i] = tmsg_map_shown(&entries[i]);
            map->laid = false;
            map->bare = false;
            tmsg_map_restamp(map);
        }
    }
    map->spans = false;
}

uint64_t tmsg_map_bytes_out(const tmsg_map_entry_t *entry)
{
    const tmsg_map_view_t *view = tmsg_map_view(entry);

    if (view == NULL) {
        return tmsg_tensor_bytes_out(&entry->tensor, entry->bytes);
    }
    return view->bytes > entry->bytes ? view->bytes : entry->bytes;
}
