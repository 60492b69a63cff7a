/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/lend_fill.h"

#include <string.h>

#include "am/send/pack.h"
#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"

#define PART_BYTES (1ULL << 20)
/* Tensors of fewer bytes, and those that are packed, are written together. */
#define SMALL_BYTES (64ULL << 10)

static bool is_packed(const tmsg_map_entry_t *entry)
{
    return tmsg_map_view(entry) == NULL &&
           !tmsg_tensor_is_dense(&entry->tensor);
}

static tmsg_status_t name_tensor(const tmsg_map_entry_t *entry,
                                 tmsg_status_t status)
{
    return tmsg_error_set(status, "tensor '%s': %s",
                          tmsg_error_name(entry->name, entry->name_bytes).text,
                          tmsg_error_message());
}

/* Skips tensors without bytes. Returns the next one, or NULL. */
static const tmsg_map_entry_t *next_entry(const tmsg_map_t *map,
                                          tmsg_lending_fill_t *fill)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    while (fill->tensor < tmsg_map_size(map) &&
           fill->done == entries[fill->tensor].bytes) {
        fill->tensor++;
        fill->done = 0;
    }
    return fill->tensor < tmsg_map_size(map) ? &entries[fill->tensor] : NULL;
}

/* Checks a tensor of which nothing was copied. */
static tmsg_status_t check_entry(const tmsg_map_entry_t *entry,
                                 const tmsg_lending_fill_t *fill)
{
    tmsg_status_t status = fill->done == 0 && is_packed(entry)
                               ? tmsg_tensor_check_pack(&entry->tensor)
                               : TMSG_OK;

    return status == TMSG_OK ? TMSG_OK : name_tensor(entry, status);
}

static void copy_piece(const tmsg_map_entry_t *entry, uint64_t done,
                       uint64_t bytes, uint8_t *to)
{
    if (is_packed(entry)) {
        tmsg_pack_part(entry, done, bytes, to);
    } else {
        memcpy(to, (const uint8_t *)entry->tensor.data + done, bytes);
    }
}

static uint64_t least_of(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* Gathers tensors in the block, with the gaps between them, and writes that. */
static tmsg_status_t write_small(const tmsg_payload_t *payload,
                                 tmsg_lending_t *lending,
                                 tmsg_pool_block_t block, uint64_t *left_p)
{
    tmsg_lending_fill_t *fill = tmsg_lending_fill(lending);
    const tmsg_map_entry_t *entry = next_entry(payload->map, fill);
    const tmsg_lending_fill_t first = *fill;
    uint64_t from = tmsg_lending_offset(lending, first.tensor) + first.done;
    uint64_t most = least_of(SMALL_BYTES, *left_p), at = 0, some;
    uint8_t *bytes = block.data;
    tmsg_status_t status = TMSG_OK;

    while (entry != NULL && status == TMSG_OK) {
        uint64_t next =
            tmsg_lending_offset(lending, fill->tensor) + fill->done - from;

        if (next >= most) {
            break;
        }
        status = check_entry(entry, fill);
        if (status == TMSG_OK) {
            memset(bytes + at, 0, next - at);
            some = least_of(entry->bytes - fill->done, most - next);
            copy_piece(entry, fill->done, some, bytes + next);
            fill->done += some;
            at = next + some;
            entry = next_entry(payload->map, fill);
        }
    }
    *left_p -= at;
    return status == TMSG_OK ? tmsg_lending_write(lending, first.tensor,
                                                  first.done, bytes, (size_t)at)
                             : status;
}

static tmsg_status_t write_large(const tmsg_map_entry_t *entry,
                                 tmsg_lending_t *lending, uint64_t *left_p)
{
    tmsg_lending_fill_t *fill = tmsg_lending_fill(lending);
    uint64_t some = least_of(entry->bytes - fill->done, *left_p);
    tmsg_status_t status = tmsg_lending_write(
        lending, fill->tensor, fill->done,
        (const uint8_t *)entry->tensor.data + fill->done, (size_t)some);

    if (status == TMSG_ERR_IO) {
        return name_tensor(entry, status);
    }
    fill->done += some;
    *left_p -= some;
    return status;
}

/* Copies some bytes into memory that was filled before. */
static tmsg_status_t copy_some(const tmsg_map_entry_t *entry,
                               tmsg_lending_t *lending, uint64_t *left_p)
{
    tmsg_lending_fill_t *fill = tmsg_lending_fill(lending);
    uint64_t some = least_of(entry->bytes - fill->done, *left_p);
    tmsg_status_t status = check_entry(entry, fill);

    if (status == TMSG_OK) {
        copy_piece(entry, fill->done, some,
                   tmsg_lending_into(lending, fill->tensor, fill->done));
        fill->done += some;
        *left_p -= some;
    }
    return status;
}

static tmsg_status_t fill_some(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                               tmsg_lending_t *lending,
                               const tmsg_map_entry_t *entry, uint64_t *left_p)
{
    const tmsg_lending_fill_t *fill = tmsg_lending_fill(lending);
    tmsg_pool_block_t block = {0};
    tmsg_status_t status;

    if (tmsg_lending_into(lending, fill->tensor, fill->done) != NULL) {
        return copy_some(entry, lending, left_p);
    }
    if (!is_packed(entry) && entry->bytes - fill->done >= SMALL_BYTES) {
        return write_large(entry, lending, left_p);
    }
    status = tmsg_pool_take(pool, SMALL_BYTES, &block);
    if (status == TMSG_OK) {
        status = write_small(payload, lending, block, left_p);
        tmsg_pool_give(pool, block);
    }
    return status;
}

tmsg_status_t tmsg_lend_fill(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                             tmsg_lending_t *lending)
{
    tmsg_lending_fill_t *fill = tmsg_lending_fill(lending);
    uint64_t left = tmsg_pack_chunk(payload->map, PART_BYTES);
    const tmsg_map_entry_t *entry;
    tmsg_status_t status = TMSG_OK;

    while (status == TMSG_OK &&
           (entry = next_entry(payload->map, fill)) != NULL) {
        if (left == 0) {
            return TMSG_IN_PROGRESS;
        }
        status = fill_some(payload, pool, lending, entry, &left);
    }
    return status == TMSG_OK ? tmsg_lending_finish(lending, PART_BYTES)
                             : status;
}
