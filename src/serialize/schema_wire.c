/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/schema_wire.h"

#include <inttypes.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "serialize/wire.h"
#include "serialize/writer.h"

#define SLOT_FIELDS 2

size_t tmsg_schema_head(const tmsg_schema_use_t *use,
                        uint8_t head[TMSG_SCHEMA_HEAD_BYTES])
{
    uint8_t *to = head;

    tmsg_put_int8(&to, use->form == TMSG_SCHEMA_DEFINES ? TMSG_BODY_DEFINITION
                                                        : TMSG_BODY_REFERENCE);
    tmsg_put_array(&to, use->count == 0 ? 2 : 3);
    tmsg_put_uint8(&to, use->slot);
    tmsg_put_uint8(&to, use->generation);
    if (use->count > 0) {
        tmsg_put_array(&to, use->count);
    }
    return (size_t)(to - head);
}

static tmsg_status_t malformed_schema(tmsg_schema_form_t form, const char *why)
{
    return tmsg_error_set(
        TMSG_ERR_MALFORMED, "body: %s of a schema: %s",
        form == TMSG_SCHEMA_DEFINES ? "definition" : "reference", why);
}

/* Skips the numbers. Checks that they are integers, so that later readers can
 * rely on that. */
static tmsg_status_t read_numbers(tmsg_cursor_t *cursor, tmsg_schema_use_t *use)
{
    uint32_t count = tmsg_cursor_array(cursor);

    if (count > TMSG_SCHEMA_VARYING_MAX) {
        return malformed_schema(use->form, "more than 256 extents");
    }
    use->count = count;
    use->numbers = cursor->at;
    for (uint32_t i = 0; i < count; i++) {
        tmsg_cursor_integer(cursor);
    }
    use->numbers_bytes = (size_t)(cursor->at - use->numbers);
    return TMSG_OK;
}

tmsg_status_t tmsg_schema_read(tmsg_cursor_t *cursor, tmsg_schema_form_t form,
                               tmsg_schema_use_t *use)
{
    uint32_t fields = tmsg_cursor_array(cursor);
    int64_t slot, generation;
    tmsg_status_t status = TMSG_OK;

    if (fields < SLOT_FIELDS && cursor->error == NULL) {
        return malformed_schema(form, "not a slot and a generation");
    }
    slot = tmsg_cursor_integer(cursor);
    generation = tmsg_cursor_integer(cursor);
    if (cursor->error != NULL) {
        return TMSG_OK; /* the caller reports cursor->error */
    }
    if (slot < 0 || slot >= TMSG_SCHEMA_SLOTS_MAX) {
        return malformed_schema(form, "the slot is out of range");
    }
    if (generation < 0 || generation > UINT8_MAX) {
        return malformed_schema(form, "the generation is out of range");
    }
    use->form = form;
    use->slot = (uint8_t)slot;
    use->generation = (uint8_t)generation;
    if (fields > SLOT_FIELDS) {
        status = read_numbers(cursor, use);
    }
    for (uint32_t i = SLOT_FIELDS + 1; i < fields; i++) {
        tmsg_cursor_skip(cursor);
    }
    return status;
}

tmsg_cursor_t tmsg_schema_numbers(const tmsg_schema_use_t *use)
{
    const uint8_t *at = use->count == 0 ? (const uint8_t *)"" : use->numbers;

    return (tmsg_cursor_t){.at = at, .end = at + use->numbers_bytes};
}

static int32_t ndim_of(const tmsg_map_entry_t *entry)
{
    const tmsg_map_view_t *view = tmsg_map_view(entry);

    return view == NULL ? entry->tensor.ndim : view->ndim;
}

tmsg_status_t tmsg_schema_locate(const tmsg_schema_use_t *use,
                                 const tmsg_map_t *map,
                                 tmsg_schema_place_t *places)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_cursor_t cursor = tmsg_schema_numbers(use);
    size_t size = tmsg_map_size(map);
    size_t tensor = 0;
    int64_t begin = 0; /* index of the first extent of `tensor` */
    int64_t last = -1;

    for (uint32_t i = 0; i < use->count; i++) {
        int64_t at = tmsg_cursor_integer(&cursor);

        if (at <= last) {
            return malformed_schema(use->form,
                                    "varying extents are out of order");
        }
        last = at;
        while (tensor < size && at - begin >= ndim_of(&entries[tensor])) {
            begin += ndim_of(&entries[tensor++]);
        }
        if (tensor == size) {
            return malformed_schema(use->form,
                                    "there are fewer extents than it says");
        }
        places[i] =
            (tmsg_schema_place_t){(uint32_t)tensor, (uint32_t)(at - begin)};
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_schema_check(const tmsg_schema_use_t *use,
                                const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_schema_place_t places[TMSG_SCHEMA_VARYING_MAX];
    tmsg_status_t status = tmsg_schema_locate(use, map, places);

    for (uint32_t i = 0; i < use->count && status == TMSG_OK; i++) {
        if (entries[places[i].tensor].tensor.strides != NULL) {
            status = malformed_schema(use->form,
                                      "an extent of a tensor with strides "
                                      "varies");
        }
    }
    return status;
}
