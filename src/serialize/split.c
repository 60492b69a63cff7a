/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/split.h"

#include <inttypes.h>

#include "core/error.h"
#include "core/map.h"

tmsg_status_t tmsg_split_read(tmsg_cursor_t *cursor, tmsg_split_t *split)
{
    uint32_t count = tmsg_cursor_array(cursor);
    int64_t large = tmsg_cursor_integer(cursor);
    int64_t chunk = tmsg_cursor_integer(cursor);
    tmsg_value_t others = {.type = TMSG_VALUE_BINARY, .count = 0};
    int64_t slice = TMSG_SPLIT_CHUNK_LEAST;
    int64_t others_chunk = TMSG_SPLIT_CHUNK_LEAST;

    if (count >= 3 && count <= 5) {
        others = tmsg_cursor_value(cursor);
    }
    if (count == 4 || count == 5) {
        slice = tmsg_cursor_integer(cursor);
    }
    if (count == 5) {
        others_chunk = tmsg_cursor_integer(cursor);
    }
    if (cursor->error != NULL) {
        return TMSG_OK; /* the caller reports cursor->error */
    }
    if (count < 2 || count > 5 || others.type != TMSG_VALUE_BINARY) {
        return tmsg_error_set(
            TMSG_ERR_MALFORMED,
            "body: parts are not two sizes, a bin and two sizes");
    }
    if (slice < TMSG_SPLIT_CHUNK_LEAST && !(count == 5 && slice == 0)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: slices of %" PRId64 " bytes", slice);
    }
    if (others_chunk < TMSG_SPLIT_CHUNK_LEAST) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: parts of %" PRId64
                              " bytes of tensors that are named",
                              others_chunk);
    }
    if (large < 1 || chunk < TMSG_SPLIT_CHUNK_LEAST) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: parts of %" PRId64
                              " bytes of tensors from %" PRId64 " on",
                              chunk, large);
    }
    split->large = (uint64_t)large;
    split->chunk = (uint64_t)chunk;
    split->others = (const uint8_t *)others.data;
    split->others_bytes = others.count;
    split->slice = count >= 4 ? (uint64_t)slice : 0;
    split->others_chunk = count == 5 ? (uint64_t)others_chunk : 0;
    return TMSG_OK;
}

bool tmsg_split_names(const tmsg_split_t *split, size_t index)
{
    return index / 8 < split->others_bytes &&
           split->others[index / 8] >> index % 8 & 1;
}

/* No tensor has INT64_MAX bytes, because a decoder reads shapes as int64. */
bool tmsg_split_has_none(const tmsg_split_t *split)
{
    return split->others_bytes == 0 &&
           (split->large == 0 || split->large >= INT64_MAX);
}

bool tmsg_split_has(const tmsg_split_t *split, size_t index, uint64_t bytes)
{
    return bytes > 0 && split->large > 0 &&
           (bytes >= split->large || tmsg_split_names(split, index));
}

size_t tmsg_split_next(const tmsg_split_t *split, const tmsg_map_t *map,
                       size_t from)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t size = tmsg_map_size(map);

    if (tmsg_split_has_none(split)) {
        return size;
    }
    while (from < size && !tmsg_split_has(split, from, entries[from].bytes)) {
        from++;
    }
    return from;
}

uint64_t tmsg_split_chunk(const tmsg_split_t *split, size_t index)
{
    return split->others_chunk > 0 && tmsg_split_names(split, index)
               ? split->others_chunk
               : split->chunk;
}

uint64_t tmsg_split_parts(const tmsg_split_t *split, size_t index,
                          uint64_t bytes)
{
    uint64_t chunk = tmsg_split_chunk(split, index);

    return bytes / chunk + (bytes % chunk > 0);
}

uint64_t tmsg_split_slices(const tmsg_split_t *split, uint64_t left)
{
    return split->slice == 0 ? 0
                             : left / split->slice + (left % split->slice > 0);
}

tmsg_status_t tmsg_split_check(const tmsg_split_t *split, const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t size = tmsg_map_size(map);
    uint64_t parts = 0;

    for (size_t i = size; i < 8 * split->others_bytes; i++) {
        if (i % 8 == 0 && split->others[i / 8] == 0) {
            i += 7; /* a peer may send many zero bytes */
        } else if (tmsg_split_names(split, i)) {
            return tmsg_error_set(TMSG_ERR_MALFORMED,
                                  "body: tensor %zu of %zu travels as parts", i,
                                  size);
        }
    }
    for (size_t i = tmsg_split_next(split, map, 0);
         i < size && parts <= UINT32_MAX;
         i = tmsg_split_next(split, map, i + 1)) {
        parts += tmsg_split_parts(split, i, entries[i].bytes);
    }
    if (parts <= UINT32_MAX) {
        parts += tmsg_split_slices(split, tmsg_split_left_bytes(split, map));
    }
    return parts <= UINT32_MAX
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                "body: more than %" PRIu32 " parts",
                                UINT32_MAX);
}

uint64_t tmsg_split_left_bytes(const tmsg_split_t *split, const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t size = tmsg_map_size(map);
    uint64_t end = 0, out;

    if (tmsg_split_has_none(split) && tmsg_map_measured(map, &end, &out)) {
        return end;
    }
    for (size_t i = 0; i < size; i++) {
        if (!tmsg_split_has(split, i, entries[i].bytes)) {
            end = tmsg_layout_next(end, entries[i].tensor.dtype,
                                   entries[i].bytes) +
                  entries[i].bytes;
        }
    }
    return end;
}

uint64_t tmsg_split_head_bytes(const tmsg_split_t *split, const tmsg_map_t *map)
{
    return split->slice > 0 ? 0 : tmsg_split_left_bytes(split, map);
}

uint64_t tmsg_split_place(const tmsg_split_t *split, tmsg_map_t *map,
                          void *base)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uint64_t head = 0;
    uint64_t end = tmsg_split_left_bytes(split, map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        bool part = tmsg_split_has(split, i, entries[i].bytes);
        uint64_t *at = part ? &end : &head;

        *at = part ? tmsg_layout_spill(*at)
                   : tmsg_layout_next(*at, entries[i].tensor.dtype,
                                      entries[i].bytes);
        if (base != NULL) {
            tmsg_map_place(map, i, (uint8_t *)base + *at);
        }
        *at += entries[i].bytes;
    }
    return end;
}
