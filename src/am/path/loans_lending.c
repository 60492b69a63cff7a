/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tensors of a map lie in, to be lent: segments of the application, or
 * a copy. */
#include <stdlib.h>
#include <string.h>

#include "am/path/loans_struct.h"
#include "core/map.h"
#include "core/tensor.h"

/* So many bytes may lie before a tensor, or behind the last one of a segment.
 */
#define GAP_MOST 64

/* A part of a segment. */
typedef struct {
    uint32_t segment;
    uint64_t begin, end;
} stretch_t;

static int compare_stretches(const void *one, const void *other)
{
    const stretch_t *a = one, *b = other;

    if (a->segment != b->segment) {
        return a->segment < b->segment ? -1 : 1;
    }
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Returns whether the segments have nothing but these stretches and gaps that
 * align the next. A descriptor lends its whole segment. */
static bool are_covered(const tmsg_lending_t *lending, stretch_t *stretches,
                        size_t count)
{
    uint64_t end = 0;

    qsort(stretches, count, sizeof(*stretches), compare_stretches);
    for (size_t i = 0; i < count; i++) {
        const stretch_t *at = &stretches[i];

        if (at->begin > end + GAP_MOST) {
            return false;
        }
        end = at->end > end ? at->end : end;
        if (i + 1 == count || at->segment != stretches[i + 1].segment) {
            if (tmsg_shareable_bytes(lending->segments[at->segment]) >
                end + GAP_MOST) {
                return false;
            }
            end = 0;
        }
    }
    return true;
}

/* Returns whether the tensors have no more bytes than the segments. They have
 * more if several lie in the same memory: peers refuse such loans. */
static bool are_apart(const tmsg_lending_t *lending, const stretch_t *stretches,
                      size_t count)
{
    uint64_t bytes = 0, room = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += stretches[i].end - stretches[i].begin;
    }
    for (unsigned i = 0; i < lending->count; i++) {
        room += tmsg_shareable_bytes(lending->segments[i]);
    }
    return bytes <= room;
}

/* Returns the index of the segment in which the tensor lies, which the lending
 * holds. TMSG_NO_SEGMENT: it lies in none, or there are too many. */
static uint32_t find_segment(tmsg_lending_t *lending,
                             const tmsg_map_entry_t *entry)
{
    const uint8_t *data = entry->tensor.data;
    tmsg_shareable_t *segment;

    for (uint32_t i = 0; i < lending->count; i++) {
        const uint8_t *memory = tmsg_shareable_memory(lending->segments[i]);
        uint64_t room = tmsg_shareable_bytes(lending->segments[i]);

        if (data >= memory && (uint64_t)(data - memory) <= room &&
            entry->bytes <= room - (uint64_t)(data - memory)) {
            return i;
        }
    }
    if (lending->count == TMSG_LENDING_SEGMENTS) {
        return TMSG_NO_SEGMENT;
    }
    segment = tmsg_shareable_find(data, entry->bytes);
    if (segment == NULL) {
        return TMSG_NO_SEGMENT;
    }
    lending->segments[lending->count] = segment;
    return lending->count++;
}

/* Finds where the tensors lie. False: they cannot be lent where they are, and
 * *why_p tells why. */
static bool find_places(tmsg_lending_t *lending, const tmsg_map_t *map,
                        stretch_t *stretches, const char **why_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t count = 0;

    *why_p = "one of its tensors lies in other memory, or not densely in its "
             "block";
    for (size_t i = 0; i < lending->tensors; i++) {
        const tmsg_map_entry_t *entry = &entries[i];
        tmsg_lent_place_t *place = &lending->places[i];

        *place = (tmsg_lent_place_t){.segment = TMSG_NO_SEGMENT};
        if (entry->bytes == 0) {
            continue;
        }
        if (!tmsg_map_entry_is_on_host(entry) ||
            (tmsg_map_view(entry) == NULL &&
             !tmsg_tensor_is_dense(&entry->tensor))) {
            return false;
        }
        place->segment = find_segment(lending, entry);
        if (place->segment == TMSG_NO_SEGMENT) {
            return false;
        }
        place->offset = (uint64_t)((const uint8_t *)entry->tensor.data -
                                   tmsg_shareable_memory(
                                       lending->segments[place->segment]));
        if (place->offset % tmsg_layout_alignment(entry->tensor.dtype) != 0) {
            return false;
        }
        stretches[count++] = (stretch_t){place->segment, place->offset,
                                         place->offset + entry->bytes};
    }
    *why_p = "its tensors do not fill their block";
    if (count == 0 || !are_covered(lending, stretches, count)) {
        return false;
    }
    *why_p = "two of its tensors share bytes";
    return are_apart(lending, stretches, count);
}

static tmsg_lending_t *create_lending(const tmsg_map_t *map)
{
    size_t tensors = tmsg_map_size(map);
    tmsg_lending_t *lending =
        malloc(sizeof(*lending) + tensors * sizeof(*lending->places));

    if (lending != NULL) {
        *lending = (tmsg_lending_t){
            .refs = 1, .stamp = tmsg_map_stamp(map), .tensors = tensors};
    }
    return lending;
}

/* Returns whether the first tensor with bytes lies in a segment: the maps of
 * most applications lie in none. */
static bool may_be_lent(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_shareable_t *segment = NULL;

    for (size_t i = 0; i < tmsg_map_size(map) && segment == NULL; i++) {
        if (entries[i].bytes > 0) {
            segment = tmsg_map_entry_is_on_host(&entries[i])
                          ? tmsg_shareable_find(entries[i].tensor.data,
                                                entries[i].bytes)
                          : NULL;
            if (segment == NULL) {
                return false;
            }
        }
    }
    tmsg_shareable_drop(segment);
    return segment != NULL;
}

tmsg_lending_t *tmsg_lending_of(const tmsg_map_t *map, const char **why_p)
{
    tmsg_lending_t *lending;
    stretch_t *stretches;

    *why_p = NULL;
    if (!may_be_lent(map)) {
        return NULL;
    }
    lending = create_lending(map);
    stretches = malloc(tmsg_map_size(map) * sizeof(*stretches));
    if (lending != NULL &&
        (stretches == NULL || !find_places(lending, map, stretches, why_p))) {
        tmsg_lending_drop(lending);
        lending = NULL;
    }
    free(stretches);
    return lending;
}

void tmsg_lending_explain(tmsg_lending_t *lending, const char *why)
{
    lending->why = why;
}

/* Clears what an earlier message has left of `from` to `to`. */
static void clear_copy(tmsg_copy_segment_t *copy, uint64_t from, uint64_t to)
{
    if (to > copy->filled) {
        to = copy->filled;
    }
    if (from < to) {
        memset(tmsg_shareable_memory(copy->segment) + from, 0,
               (size_t)(to - from));
    }
}

/* Lays the tensors out in the copy of a lending. Without a copy the lending is
 * freed, and NULL returned. */
static tmsg_lending_t *lay_out_copy(tmsg_lending_t *lending,
                                    const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    uint64_t offset = 0;

    if (lending->copy == NULL) {
        free(lending);
        return NULL;
    }
    lending->segments[0] = lending->copy->segment;
    lending->count = 1;
    for (size_t i = 0; i < lending->tensors; i++) {
        lending->places[i] = (tmsg_lent_place_t){.segment = TMSG_NO_SEGMENT};
        if (entries[i].bytes > 0) {
            uint64_t end = offset;

            offset = tmsg_layout_next(offset, entries[i].tensor.dtype,
                                      entries[i].bytes);
            clear_copy(lending->copy, end, offset);
            lending->places[i] = (tmsg_lent_place_t){.offset = offset};
            offset += entries[i].bytes;
        }
    }
    lending->end = offset;
    lending->dirty_end = lending->copy->filled;
    if (lending->copy->filled < offset) {
        lending->copy->filled = offset;
    }
    return lending;
}

/* Begins a lending of a copy, which has none yet. */
static tmsg_lending_t *begin_copy(tmsg_endpoint_t *endpoint,
                                  const tmsg_map_t *map, const char **why_p)
{
    tmsg_lending_t *lending = create_lending(map);

    *why_p = "there is no memory for a copy to lend";
    if (lending != NULL) {
        lending->worker = endpoint->worker;
    }
    return lending;
}

tmsg_lending_t *tmsg_lending_copy(tmsg_endpoint_t *endpoint,
                                  const tmsg_map_t *map, uint64_t bytes,
                                  uint64_t group, const char **why_p)
{
    tmsg_lending_t *lending = begin_copy(endpoint, map, why_p);

    if (lending == NULL) {
        return NULL;
    }
    lending->copy = tmsg_copies_take(endpoint, bytes, group, why_p);
    return lay_out_copy(lending, map);
}

tmsg_lending_t *tmsg_lending_draft(tmsg_endpoint_t *endpoint,
                                   const tmsg_map_t *map, uint64_t bytes,
                                   const char **why_p)
{
    tmsg_lending_t *lending = begin_copy(endpoint, map, why_p);

    if (lending == NULL) {
        return NULL;
    }
    lending->copy = tmsg_copies_draft(endpoint->worker, bytes, why_p);
    return lay_out_copy(lending, map);
}

tmsg_lending_fill_t *tmsg_lending_fill(tmsg_lending_t *lending)
{
    return &lending->fill;
}

uint64_t tmsg_lending_offset(const tmsg_lending_t *lending, size_t index)
{
    return lending->places[index].offset;
}

uint8_t *tmsg_lending_into(const tmsg_lending_t *lending, size_t index,
                           uint64_t done)
{
    return lending->copy->sealed ? tmsg_lending_at(lending, index) + done
                                 : NULL;
}

tmsg_status_t tmsg_lending_write(tmsg_lending_t *lending, size_t index,
                                 uint64_t done, const void *data, size_t bytes)
{
    return tmsg_shareable_write(lending->copy->segment,
                                lending->places[index].offset + done, data,
                                bytes);
}

tmsg_status_t tmsg_lending_finish(tmsg_lending_t *lending, uint64_t most)
{
    tmsg_status_t status;

    if (lending->dirty_end > lending->end) {
        uint64_t dirty = lending->dirty_end - lending->end;
        uint64_t from = lending->dirty_end - (dirty < most ? dirty : most);

        clear_copy(lending->copy, from, lending->dirty_end);
        lending->dirty_end = from;
        if (from > lending->end) {
            return TMSG_IN_PROGRESS;
        }
    }
    status = tmsg_copies_seal(lending->worker, lending->copy);
    if (status == TMSG_OK) {
        lending->copy->filled = lending->end;
        lending->fill.full = true;
    }
    return status;
}

void tmsg_lending_leave(tmsg_lending_t *lending)
{
    if (lending != NULL && lending->refs > 1 && lending->copy != NULL) {
        tmsg_copies_leave(lending->worker, lending->copy);
    }
    tmsg_lending_drop(lending);
}

void tmsg_lending_hold(tmsg_lending_t *lending) { lending->refs++; }

void tmsg_lending_drop(tmsg_lending_t *lending)
{
    if (lending == NULL || --lending->refs > 0) {
        return;
    }
    if (lending->copy != NULL) {
        tmsg_copies_give(lending->worker, lending->copy);
    }
    for (unsigned i = 0; lending->copy == NULL && i < lending->count; i++) {
        tmsg_shareable_drop(lending->segments[i]);
    }
    free(lending);
}

bool tmsg_lending_is_copy(const tmsg_lending_t *lending)
{
    return lending->copy != NULL;
}

bool tmsg_lending_is_of(const tmsg_lending_t *lending, const tmsg_map_t *map)
{
    return lending->stamp == tmsg_map_stamp(map);
}

uint8_t *tmsg_lending_at(const tmsg_lending_t *lending, size_t index)
{
    const tmsg_lent_place_t *place = &lending->places[index];

    return place->segment == TMSG_NO_SEGMENT
               ? NULL
               : tmsg_shareable_memory(lending->segments[place->segment]) +
                     place->offset;
}
