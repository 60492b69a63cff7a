/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/lent_places.h"

#include "core/error.h"
#include "core/map.h"

tmsg_status_t tmsg_lent_places_read(tmsg_cursor_t *cursor,
                                    tmsg_body_extra_t *extra)
{
    uint32_t count = tmsg_cursor_array(cursor);
    const uint8_t *begin = cursor->at;
    bool negative = false, beyond = false;

    for (uint32_t i = 0; i < count && cursor->error == NULL; i++) {
        int64_t number = tmsg_cursor_integer(cursor);

        negative |= number < 0;
        beyond |= i % 2 == 0 && number > UINT32_MAX;
    }
    if (cursor->error != NULL) {
        return TMSG_OK; /* the caller reports cursor->error */
    }
    if (count == 0 || count % 2 != 0 || negative || beyond) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: the places of a loan are not a segment "
                              "and an offset for each tensor");
    }
    extra->lent.count = count / 2;
    extra->lent.numbers = begin;
    extra->lent.numbers_bytes = (size_t)(cursor->at - begin);
    return TMSG_OK;
}

tmsg_cursor_t tmsg_lent_places_begin(const tmsg_lent_places_t *lent)
{
    return lent->count == 0
               ? (tmsg_cursor_t){.at = NULL}
               : (tmsg_cursor_t){.at = lent->numbers,
                                 .end = lent->numbers + lent->numbers_bytes};
}

tmsg_lent_place_t tmsg_lent_places_next(tmsg_cursor_t *cursor)
{
    tmsg_lent_place_t place;

    place.segment = (uint32_t)tmsg_cursor_integer(cursor);
    place.offset = (uint64_t)tmsg_cursor_integer(cursor);
    return place;
}

tmsg_status_t tmsg_lent_places_check(const tmsg_lent_places_t *lent,
                                     const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_cursor_t cursor = tmsg_lent_places_begin(lent);

    if (lent->count != tmsg_map_size(map)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: a loan of %zu places for %zu tensors",
                              lent->count, tmsg_map_size(map));
    }
    for (size_t i = 0; i < lent->count; i++) {
        tmsg_lent_place_t place = tmsg_lent_places_next(&cursor);

        if (entries[i].bytes == 0 &&
            (place.segment != 0 || place.offset != 0)) {
            return tmsg_error_set(
                TMSG_ERR_MALFORMED,
                "body: a loan with a place for tensor '%s', which has no bytes",
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text);
        }
    }
    return TMSG_OK;
}
