/* SPDX-License-Identifier: BSD-3-Clause */
/* This file handles layouts without the data. A number tells them from each
 * other; they are copied, and shared by the maps that are received. */
#include <string.h>

#include "core/device.h"
#include "core/error.h"
#include "core/map_struct.h"
#include "core/tensor.h"

static atomic_uint_least64_t last_stamp;

uint64_t tmsg_map_stamp(const tmsg_map_t *map)
{
    /* The stamp is a cache that several senders of one map may fill. */
    atomic_uint_least64_t *stamp = &((tmsg_map_t *)(uintptr_t)map)->stamp;
    uint_least64_t known = atomic_load_explicit(stamp, memory_order_relaxed);
    uint64_t fresh;

    if (known != 0) {
        return known;
    }
    fresh = atomic_fetch_add_explicit(&last_stamp, 1, memory_order_relaxed) + 1;
    if (atomic_compare_exchange_strong_explicit(
            stamp, &known, fresh, memory_order_relaxed, memory_order_relaxed)) {
        return fresh;
    }
    return known;
}

uint64_t tmsg_map_stamp_known(const tmsg_map_t *map)
{
    return atomic_load_explicit(&map->stamp, memory_order_relaxed);
}

static bool same_extents(const int64_t *a, const int64_t *b, int32_t ndim)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    return memcmp(a, b, (size_t)ndim * sizeof(*a)) == 0;
}

bool tmsg_map_same_view(const tmsg_map_view_t *a, const tmsg_map_view_t *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    return a->ndim == b->ndim && same_extents(a->shape, b->shape, a->ndim) &&
           same_extents(a->strides, b->strides, a->ndim);
}

static bool is_like(const tmsg_map_entry_t *a, const tmsg_map_entry_t *b)
{
    const tmsg_tensor_t *s = &a->tensor, *t = &b->tensor;

    return a->name_bytes == b->name_bytes && s->ndim == t->ndim &&
           tmsg_dtype_is(s->dtype, t->dtype) &&
           tmsg_device_is(s->device, t->device) &&
           memcmp(a->name, b->name, a->name_bytes) == 0 &&
           same_extents(s->shape, t->shape, s->ndim) &&
           same_extents(s->strides, t->strides, s->ndim) &&
           tmsg_map_same_view(tmsg_map_view(a), tmsg_map_view(b));
}

bool tmsg_map_has_layout(const tmsg_map_t *map, const tmsg_map_t *layout)
{
    /* Another thread may see either stamp: both are of this layout. */
    atomic_uint_least64_t *stamp = &((tmsg_map_t *)(uintptr_t)map)->stamp;
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    const tmsg_map_entry_t *laid_out = tmsg_map_entries(layout);
    size_t i = 0;

    if (map->size != layout->size) {
        return false;
    }
    while (i < map->size && is_like(&entries[i], &laid_out[i])) {
        i++;
    }
    if (i < map->size) {
        return false;
    }
    atomic_store_explicit(stamp, tmsg_map_stamp(layout), memory_order_relaxed);
    return true;
}

void tmsg_map_restamp(tmsg_map_t *map)
{
    atomic_store_explicit(&map->stamp, 0, memory_order_relaxed);
    atomic_store_explicit(&map->apart, false, memory_order_relaxed);
}

void tmsg_map_drop_index(tmsg_map_t *map)
{
    const tmsg_map_t *layout = map->layout;

    if (layout == NULL) {
        tmsg_index_free(&map->index);
        return;
    }
    map->index = (tmsg_index_t){0};
    map->layout = NULL;
    if (tmsg_map_unhold(layout)) {
        tmsg_map_free(layout);
    }
}

/* Tells what the entries of a map point to, and where it was copied to. */
typedef struct {
    const uint8_t *from;
    size_t bytes;
    uint8_t *to; /* NULL: it was not copied */
} piece_t;

/* Copies everything that the entries point to at once, if nothing else is in
 * the arena. */
static piece_t copy_piece(const tmsg_map_t *map, tmsg_map_t *copy)
{
    piece_t piece = {tmsg_arena_piece(&map->arena), map->arena.used, NULL};

    if (piece.from != NULL && map->layout == NULL && map->meta_size == 0 &&
        map->wasted == 0 && !map->spans) {
        piece.to = tmsg_arena_alloc(&copy->arena, piece.bytes);
    }
    if (piece.to != NULL) {
        memcpy(piece.to, piece.from, piece.bytes);
    }
    return piece;
}

static bool is_in(const piece_t *piece, const void *data)
{
    return (uintptr_t)data - (uintptr_t)piece->from < piece->bytes;
}

static void *moved_to(const piece_t *piece, const void *data)
{
    return piece->to + ((const uint8_t *)data - piece->from);
}

/* Makes an entry point to what was copied. False: some of it was not. */
static bool move_entry(const piece_t *piece, tmsg_map_entry_t *entry)
{
    tmsg_tensor_t *tensor = &entry->tensor;

    if (piece->to == NULL || !is_in(piece, entry->name) ||
        !is_in(piece, tensor->shape) ||
        (tensor->strides != NULL && !is_in(piece, tensor->strides))) {
        return false;
    }
    entry->name = moved_to(piece, entry->name);
    tensor->shape = moved_to(piece, tensor->shape);
    if (tensor->strides != NULL) {
        tensor->strides = moved_to(piece, tensor->strides);
    }
    return true;
}

static tmsg_status_t copy_entries(const tmsg_map_t *map, tmsg_map_t *copy)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_status_t status = tmsg_map_reserve(copy, map->size);
    piece_t piece;

    if (status != TMSG_OK) {
        return status;
    }
    piece = copy_piece(map, copy);
    copy->host = true;
    for (size_t i = 0; i < map->size; i++) {
        tmsg_map_entry_t *entry = &copy->entries[i];

        *entry = entries[i];
        entry->tensor.data = NULL;
        entry->release = NULL;
        entry->release_arg = NULL;
        if (!move_entry(&piece, entry) && !tmsg_map_adopt(copy, entry)) {
            return tmsg_error_memory("the layout of a map");
        }
        copy->host &= tmsg_map_entry_is_on_host(entry);
        copy->size++;
    }
    copy->spans = map->spans;
    return tmsg_index_copy(&map->index, map->size, &copy->index);
}

tmsg_status_t tmsg_map_copy_layout(const tmsg_map_t *map, tmsg_map_t **copy_p)
{
    tmsg_map_t *copy;
    tmsg_status_t status = tmsg_map_create(&copy);

    if (status != TMSG_OK) {
        return status;
    }
    status = copy_entries(map, copy);
    if (status != TMSG_OK) {
        tmsg_map_destroy(copy);
        return status;
    }
    atomic_store_explicit(&copy->stamp, tmsg_map_stamp(map),
                          memory_order_relaxed);
    *copy_p = copy;
    return TMSG_OK;
}

/* Makes an entry of a copy without broadcast. If the tensor is not broadcast,
 * the entry gets its data instead. */
static tmsg_status_t put_out(tmsg_map_t *copy, const tmsg_map_entry_t *from,
                             tmsg_map_entry_t *entry)
{
    (void)copy;
    if (!tmsg_tensor_is_broadcast(&from->tensor)) {
        entry->tensor.data = from->tensor.data;
        return TMSG_OK;
    }
    entry->bytes = tmsg_tensor_bytes_out(&from->tensor, from->bytes);
    entry->tensor.strides = NULL;
    return TMSG_OK;
}

/* Makes an entry of a copy the span of its tensor, if the tensor would have to
 * be packed. */
static tmsg_status_t put_span(tmsg_map_t *copy, const tmsg_map_entry_t *from,
                              tmsg_map_entry_t *entry)
{
    uint64_t packed = tmsg_tensor_bytes_out(&from->tensor, from->bytes);

    entry->tensor.data = from->tensor.data;
    return tmsg_tensor_is_dense(&from->tensor) ||
                   tmsg_map_make_span(copy, entry, packed)
               ? TMSG_OK
               : tmsg_error_memory("the layout of a map");
}

static tmsg_status_t put_device_span(tmsg_map_t *copy,
                                     const tmsg_map_entry_t *from,
                                     tmsg_map_entry_t *entry)
{
    entry->tensor.data = from->tensor.data;
    return tmsg_map_entry_is_on_host(from) ? TMSG_OK
                                           : put_span(copy, from, entry);
}

static tmsg_status_t put_ready(tmsg_map_t *copy, const tmsg_map_entry_t *from,
                               tmsg_map_entry_t *entry)
{
    (void)copy;
    entry->tensor.data = from->tensor.data;
    entry->stream = (tmsg_stream_t){.kind = TMSG_STREAM_NONE};
    return TMSG_OK;
}

typedef tmsg_status_t (*put_fn)(tmsg_map_t *copy, const tmsg_map_entry_t *from,
                                tmsg_map_entry_t *entry);

static tmsg_status_t copy_map(const tmsg_map_t *map, put_fn put,
                              tmsg_map_t **copy_p)
{
    tmsg_map_t *copy;
    tmsg_status_t status = tmsg_map_copy_layout(map, &copy);

    if (status != TMSG_OK) {
        return status;
    }
    for (size_t i = 0; i < map->size && status == TMSG_OK; i++) {
        status = put(copy, &tmsg_map_entries(map)[i], &copy->entries[i]);
    }
    tmsg_map_restamp(copy);
    for (size_t i = 0; i < map->meta_size && status == TMSG_OK; i++) {
        const tmsg_map_meta_entry_t *entry = &map->meta[i];

        status = tmsg_map_append_meta(copy, entry->key, entry->key_bytes,
                                      &entry->value);
    }
    if (status != TMSG_OK) {
        tmsg_map_destroy(copy);
        return status;
    }
    *copy_p = copy;
    return TMSG_OK;
}

tmsg_status_t tmsg_map_copy_out(const tmsg_map_t *map, tmsg_map_t **copy_p)
{
    return copy_map(map, put_out, copy_p);
}

tmsg_status_t tmsg_map_copy_ready(const tmsg_map_t *map, tmsg_map_t **copy_p)
{
    return copy_map(map, put_ready, copy_p);
}

tmsg_status_t tmsg_map_copy_spans(const tmsg_map_t *map, tmsg_map_t **copy_p)
{
    return copy_map(map, put_span, copy_p);
}

tmsg_status_t tmsg_map_copy_device_spans(const tmsg_map_t *map,
                                         tmsg_map_t **copy_p)
{
    return copy_map(map, put_device_span, copy_p);
}

/* Name and extents may take this many bytes per tensor in a layout that a map
 * keeps. */
#define PLACED_BYTES_MOST (2 * sizeof(tmsg_map_entry_t))

tmsg_status_t tmsg_map_share(tmsg_map_t *map, const tmsg_map_t *layout)
{
    tmsg_status_t status = tmsg_map_reserve(map, layout->size);

    if (status != TMSG_OK) {
        return status;
    }
    map->size = layout->size;
    map->borrowed = true;
    map->spans = layout->spans;
    map->host = layout->host;
    map->bare = true;
    tmsg_map_drop_index(map);
    map->index = layout->index;
    map->layout = layout;
    tmsg_map_hold(layout);
    atomic_store_explicit(&map->stamp, tmsg_map_stamp(layout),
                          memory_order_relaxed);
    return TMSG_OK;
}

void tmsg_map_drop_placed(tmsg_map_t *map)
{
    const tmsg_map_t *layout = map->placed;

    map->placed = NULL;
    map->placed_at = NULL;
    if (layout != NULL && tmsg_map_unhold(layout)) {
        tmsg_map_free(layout);
    }
}

void tmsg_map_note_placed(tmsg_map_t *map, const void *base)
{
    const tmsg_map_t *layout = map->layout;

    /* The layout outlives its schema here. A layout with very long names is not
     * kept. */
    if (layout->arena.used > layout->size * PLACED_BYTES_MOST) {
        return;
    }
    if (map->placed != layout) {
        tmsg_map_drop_placed(map);
        tmsg_map_hold(layout);
        map->placed = layout;
    }
    map->placed_at = base;
}

bool tmsg_map_place_again(tmsg_map_t *map, void *base)
{
    const uint8_t *before = map->placed_at;
    tmsg_map_entry_t *entries = map->entries;

    if (!map->borrowed || before == NULL || map->placed != map->layout) {
        return false;
    }
    (void)tmsg_map_placing_from(map, &(const tmsg_map_entry_t *){NULL});
    for (size_t i = 0; base != before && i < map->size; i++) {
        const uint8_t *data = entries[i].tensor.data;

        entries[i].tensor.data = (uint8_t *)base + (data - before);
    }
    map->placed_at = base;
    return true;
}

const void *tmsg_map_liked(const tmsg_map_t *map, uint64_t bytes)
{
    return map->borrowed && map->placed == map->layout &&
                   bytes < map->size * sizeof(*map->entries)
               ? map->placed_at
               : NULL;
}

/* Returns the layout that a map shares, if the map is still like it, which
 * equal stamps tell. NULL: it is not. */
static tmsg_map_t *layout_of(const tmsg_map_t *map)
{
    return map->layout != NULL && tmsg_map_stamp_known(map) ==
                                      tmsg_map_stamp_known(map->layout)
               ? (tmsg_map_t *)(uintptr_t)map->layout
               : NULL;
}

bool tmsg_map_measured(const tmsg_map_t *map, uint64_t *bytes_p,
                       uint64_t *out_p)
{
    tmsg_map_t *layout = layout_of(map);
    uint64_t out = layout == NULL ? 0
                                  : atomic_load_explicit(&layout->measured_out,
                                                         memory_order_acquire);

    if (out == 0) {
        return false;
    }
    *bytes_p =
        atomic_load_explicit(&layout->measured_bytes, memory_order_relaxed);
    *out_p = out - 1;
    return true;
}

void tmsg_map_note_measured(const tmsg_map_t *map, uint64_t bytes, uint64_t out)
{
    tmsg_map_t *layout = layout_of(map);

    if (layout != NULL) {
        atomic_store_explicit(&layout->measured_bytes, bytes,
                              memory_order_relaxed);
        atomic_store_explicit(&layout->measured_out, out + 1,
                              memory_order_release);
    }
}

tmsg_status_t tmsg_map_reshape(tmsg_map_t *map, size_t index,
                               const int64_t *shape)
{
    tmsg_map_entry_t *entry = &tmsg_map_own_entries(map)[index];
    size_t extents_bytes = (size_t)entry->tensor.ndim * sizeof(*shape);
    tmsg_tensor_t tensor = entry->tensor;
    uint64_t bytes;
    int64_t *copy;
    tmsg_status_t status;

    tensor.shape = shape;
    status = tmsg_tensor_check_shape(&tensor, &bytes);
    if (status != TMSG_OK) {
        return status;
    }
    copy = tmsg_arena_alloc(&map->arena, extents_bytes);
    if (copy == NULL) {
        return tmsg_error_memory("a tensor's shape");
    }
    memcpy(copy, shape, extents_bytes);
    entry->tensor.shape = copy;
    entry->bytes = bytes;
    tmsg_map_restamp(map);
    return TMSG_OK;
}
