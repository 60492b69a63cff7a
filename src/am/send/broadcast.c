/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/broadcast.h"

#include "core/tensor.h"
#include "serialize/header.h"

/* Packs the tensors of `map` that have no data in `written`. With `to` NULL it
 * only says how many bytes that takes. */
static tmsg_status_t pack_broadcast(const tmsg_map_t *map, tmsg_map_t *written,
                                    uint8_t *to, uint64_t *bytes_p)
{
    const tmsg_map_entry_t *from = tmsg_map_entries(map);
    const tmsg_map_entry_t *entries = tmsg_map_entries(written);
    tmsg_status_t status = TMSG_OK;
    uint64_t end = 0;

    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        if (!tmsg_tensor_is_broadcast(&from[i].tensor)) {
            continue;
        }
        end = tmsg_layout_next(end, entries[i].tensor.dtype, entries[i].bytes);
        if (to != NULL) {
            status = tmsg_tensor_pack(&from[i].tensor, to + end);
            tmsg_map_place(written, i, to + end);
        }
        end += entries[i].bytes;
    }
    *bytes_p = end;
    return status;
}

tmsg_status_t tmsg_broadcast_write(const tmsg_map_t *map, tmsg_pool_t *pool,
                                   tmsg_written_t *written)
{
    tmsg_written_t made = {.map = NULL};
    tmsg_status_t status = tmsg_map_copy_out(map, &made.map);
    uint64_t bytes;

    if (status != TMSG_OK) {
        return status;
    }
    (void)pack_broadcast(map, made.map, NULL, &bytes);
    status = tmsg_pool_take(pool, bytes, &made.block);
    if (status == TMSG_OK) {
        status = pack_broadcast(map, made.map, made.block.data, &bytes);
    }
    if (status != TMSG_OK) {
        tmsg_written_free(&made, pool);
        return status;
    }
    *written = made;
    return TMSG_OK;
}

void tmsg_written_free(tmsg_written_t *written, tmsg_pool_t *pool)
{
    if (written->map != NULL) {
        tmsg_map_destroy(written->map);
        tmsg_pool_give(pool, written->block);
        *written = (tmsg_written_t){.map = NULL};
    }
}
