/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "core/error.h"
#include "core/map.h"
#include "serialize/header.h"
#include "serialize/split.h"

uint64_t tmsg_payload_spill(const tmsg_preamble_t *head)
{
    return head->flags & TMSG_HEADER_SPILLED
               ? tmsg_layout_spill(head->body_bytes)
               : 0;
}

tmsg_status_t tmsg_payload_check(const tmsg_preamble_t *head,
                                 uint64_t payload_bytes,
                                 const tmsg_limits_t *limits)
{
    if (head->payload_bytes != payload_bytes ||
        tmsg_payload_spill(head) > payload_bytes) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "payload of %" PRIu64
                              " bytes, the header says %" PRIu64,
                              payload_bytes, head->payload_bytes);
    }
    if (payload_bytes > limits->message_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "payload of %" PRIu64 " bytes, at most %" PRIu64
                              " (limit message_bytes)",
                              payload_bytes, limits->message_bytes);
    }
    if (head->body_bytes > limits->header_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "header of %" PRIu32 " bytes, at most %" PRIu64
                              " (limit header_bytes)",
                              head->body_bytes, limits->header_bytes);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_payload_check_map(const tmsg_preamble_t *head,
                                     const tmsg_map_t *map,
                                     const tmsg_split_t *split,
                                     const tmsg_limits_t *limits)
{
    uint64_t bytes;
    tmsg_status_t status = tmsg_layout_bytes(map, limits, &bytes);

    if (status == TMSG_OK && split != NULL && split->large > 0) {
        bytes = tmsg_split_head_bytes(split, map);
    }
    if (status == TMSG_OK &&
        bytes != head->payload_bytes - tmsg_payload_spill(head)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "the tensors take %" PRIu64
                              " bytes, the payload %" PRIu64,
                              bytes, head->payload_bytes);
    }
    return status;
}

tmsg_status_t tmsg_payload_check_lent(const tmsg_preamble_t *head,
                                      const tmsg_map_t *map,
                                      const tmsg_limits_t *limits)
{
    uint64_t bytes;
    tmsg_status_t status = tmsg_layout_bytes(map, limits, &bytes);

    if (status == TMSG_OK && head->payload_bytes != tmsg_payload_spill(head)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a loan with a payload of %" PRIu64 " bytes",
                              head->payload_bytes);
    }
    return status;
}

/* Places all tensors of a map in which no tensor has data. */
static void place_all(tmsg_map_t *map, uint8_t *base)
{
    const tmsg_map_entry_t *from;
    tmsg_map_entry_t *entries = tmsg_map_placing_from(map, &from);
    size_t size = tmsg_map_size(map);
    uint64_t offset = 0;

    for (size_t i = 0; i < size; i++) {
        uint64_t bytes = from[i].bytes;

        offset = tmsg_layout_next(offset, from[i].tensor.dtype, bytes);
        if (from != entries) { /* a copy to itself could race with readers */
            entries[i] = from[i];
        }
        entries[i].tensor.data = base + offset;
        offset += bytes;
    }
    if (from != entries) {
        tmsg_map_note_placed(map, base);
    }
}

void tmsg_payload_place(tmsg_map_t *map, void *base)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t size = base == NULL ? 0 : tmsg_map_size(map);
    uint64_t offset = 0;

    if (base != NULL && tmsg_map_is_bare(map)) {
        if (!tmsg_map_place_again(map, base)) {
            place_all(map, base);
        }
        return;
    }
    for (size_t i = 0; i < size; i++) {
        if (entries[i].tensor.data != NULL) {
            continue;
        }
        offset =
            tmsg_layout_next(offset, entries[i].tensor.dtype, entries[i].bytes);
        tmsg_map_place(map, i, (uint8_t *)base + offset);
        offset += entries[i].bytes;
    }
}
