/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/header.h"

#define ALIGNMENT_MIN 16
#define ALIGNMENT_MAX 64

uint64_t tmsg_layout_spill(uint64_t body_bytes)
{
    return (body_bytes + TMSG_PAYLOAD_ALIGNMENT - 1) &
           ~(uint64_t)(TMSG_PAYLOAD_ALIGNMENT - 1);
}

uint64_t tmsg_layout_alignment(tmsg_dtype_t dtype)
{
    uint32_t bits = (uint32_t)dtype.bits * dtype.lanes; /* bits of an element */

    if (bits <= 8 * ALIGNMENT_MIN) {
        return ALIGNMENT_MIN;
    }
    return bits <= 8 * ALIGNMENT_MAX / 2 ? ALIGNMENT_MAX / 2 : ALIGNMENT_MAX;
}

uint64_t tmsg_layout_next(uint64_t offset, tmsg_dtype_t dtype,
                          uint64_t tensor_bytes)
{
    uint64_t alignment = tmsg_layout_alignment(dtype);

    if (tensor_bytes == 0) {
        return offset;
    }
    return (offset + alignment - 1) & ~(alignment - 1);
}

tmsg_status_t tmsg_layout_measure(const tmsg_map_t *map,
                                  const tmsg_limits_t *limits,
                                  uint64_t *bytes_p, uint64_t *out_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    size_t size = tmsg_map_size(map);
    uint64_t end = 0;
    uint64_t out = 0; /* size of the payload if nothing were broadcast */

    if (tmsg_map_measured(map, &end, &out) && out <= limits->message_bytes) {
        *bytes_p = end;
        *out_p = out;
        return TMSG_OK;
    }
    end = out = 0;
    for (size_t i = 0; i < size; i++) {
        const tmsg_map_entry_t *entry = &entries[i];
        tmsg_dtype_t dtype = entry->tensor.dtype;
        uint64_t bytes = tmsg_map_bytes_out(entry);
        uint64_t begin = tmsg_layout_next(out, dtype, bytes);

        /* If begin < out, rounding up has overflowed 64 bits. */
        if (begin < out || begin > limits->message_bytes ||
            bytes > limits->message_bytes - begin) {
            return tmsg_error_set(
                TMSG_ERR_LIMIT_EXCEEDED,
                "tensor %zu '%s': %" PRIu64 " bytes%s from offset %" PRIu64
                " exceed the limit message_bytes %" PRIu64 "%s",
                i, tmsg_error_name(entry->name, entry->name_bytes).text, bytes,
                bytes == entry->bytes
                    ? ""
                    : " with its broadcast dimensions written out",
                out, limits->message_bytes,
                bytes == entry->bytes
                    ? ""
                    : ": send it without them, or raise the limit");
        }
        out = begin + bytes;
        end = tmsg_layout_next(end, dtype, entry->bytes) + entry->bytes;
    }
    tmsg_map_note_measured(map, end, out);
    *bytes_p = end;
    *out_p = out;
    return TMSG_OK;
}

tmsg_status_t tmsg_layout_bytes(const tmsg_map_t *map,
                                const tmsg_limits_t *limits, uint64_t *bytes_p)
{
    uint64_t out;

    return tmsg_layout_measure(map, limits, bytes_p, &out);
}
