/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/pack.h"

#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/send/plan.h"
#include "am/staging/sum.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/probe.h"
#include "core/tensor.h"
#include "serialize/checksum.h"
#include "serialize/split.h"

#define PART_USUAL (1ULL << 20)
#define SUM_BYTES (256ULL << 10) /* are packed at a time for a checksum */

uint64_t tmsg_pack_left(const tmsg_measures_t *measures, bool fragments)
{
    return measures->packed - (fragments ? measures->fragments_packed : 0);
}

/* Returns the tensor with each of its elements once. Uses `shape`. */
static inline tmsg_tensor_t once_of(const tmsg_tensor_t *tensor, int64_t *shape)
{
    return tmsg_tensor_is_broadcast(tensor) ? tmsg_tensor_once(tensor, shape)
                                            : *tensor;
}

uint64_t tmsg_pack_chunk(const tmsg_map_t *map, uint64_t chunk)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    int64_t shape[TMSG_NDIM_MAX];

    chunk = chunk < PART_USUAL ? chunk : PART_USUAL;
    for (size_t i = 0; i < tmsg_map_size(map) && chunk < TMSG_PACK_PART_MOST;
         i++) {
        uint64_t well = 0;

        if (!tmsg_tensor_is_dense(&entries[i].tensor)) {
            const tmsg_tensor_t once = once_of(&entries[i].tensor, shape);

            well = tmsg_tensor_pack_well(&once);
            well = well < entries[i].bytes ? well : entries[i].bytes;
        }
        chunk = chunk > well ? chunk : well;
    }
    return chunk < TMSG_PACK_PART_MOST ? chunk : TMSG_PACK_PART_MOST;
}

void tmsg_pack_part(const tmsg_map_entry_t *entry, uint64_t offset,
                    uint64_t bytes, void *to)
{
    int64_t shape[TMSG_NDIM_MAX];
    const tmsg_tensor_t once = once_of(&entry->tensor, shape);

    tmsg_tensor_pack_part(&once, offset, bytes, to);
}

uint64_t tmsg_pack_whole(const tmsg_send_t *send, const tmsg_payload_t *payload)
{
    const tmsg_measures_t *measures = payload->measures;
    tmsg_way_t way = payload->way;
    uint64_t bytes = way.fragments ? measures->head_bytes : measures->bytes;
    bool copied = way.gather || (payload->owned && !way.slices &&
                                 bytes <= TMSG_PLAN_OWN_MOST);

    if (way.packs) {
        return 0;
    }
    return send->reclaims && copied && bytes > TMSG_PACK_SMALL_MOST
               ? bytes
               : tmsg_pack_left(measures, way.fragments);
}

tmsg_status_t tmsg_pack_count(tmsg_send_t *send, uint64_t bytes)
{
    tmsg_endpoint_t *endpoint = send->endpoint;
    uint64_t others = endpoint->tx.packed_bytes;

    if (bytes == 0 || send->packed_bytes > 0 || send->shared_plan != NULL) {
        return TMSG_OK;
    }
    if (bytes > TMSG_PACK_WHOLE_MOST && send->reclaims) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "%s: %llu bytes of tensors with gaps would have "
                              "to be copied at once, because the peer takes "
                              "them in one piece: at most %llu are possible",
                              endpoint->peer, (unsigned long long)bytes,
                              (unsigned long long)TMSG_PACK_WHOLE_MOST);
    }
    if (others > 0 && (others > TMSG_PACK_WHOLE_MOST ||
                       bytes > TMSG_PACK_WHOLE_MOST - others)) {
        return TMSG_IN_PROGRESS;
    }
    send->packed_bytes = bytes;
    endpoint->tx.packed_bytes += bytes;
    return TMSG_OK;
}

void tmsg_pack_over(tmsg_send_t *send)
{
    tmsg_endpoint_t *endpoint = send->endpoint;

    endpoint->tx.packed_bytes -= send->packed_bytes;
    send->packed_bytes = 0;
    if (endpoint->channels.queued > 0 && endpoint->state != TMSG_EP_ENDED) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
}

static tmsg_status_t sum_parts(const tmsg_payload_t *payload, size_t index,
                               tmsg_pool_t *pool)
{
    const tmsg_checksum_t *checksum = payload->extra->checksum;
    const tmsg_map_entry_t *entry = &tmsg_map_entries(payload->map)[index];
    uint64_t part = entry->bytes < SUM_BYTES ? entry->bytes : SUM_BYTES;
    tmsg_pool_block_t block;
    tmsg_status_t status = tmsg_pool_take(pool, part, &block);
    void *state = status == TMSG_OK ? checksum->begin() : NULL;

    if (status == TMSG_OK && state == NULL) {
        status = tmsg_error_memory("a checksum");
    }
    for (uint64_t done = 0; status == TMSG_OK && done < entry->bytes;
         done += part) {
        part = entry->bytes - done < part ? entry->bytes - done : part;
        tmsg_pack_part(entry, done, part, block.data);
        checksum->add(state, block.data, part);
    }
    if (status == TMSG_OK) {
        tmsg_put_le(payload->checksums + index * checksum->bytes,
                    checksum->end(state), checksum->bytes);
    }
    tmsg_pool_give(pool, block);
    return status;
}

tmsg_status_t tmsg_pack_check(const tmsg_payload_t *payload, size_t index,
                              tmsg_pool_t *pool)
{
    const tmsg_map_entry_t *entry = &tmsg_map_entries(payload->map)[index];
    tmsg_status_t status;

    if (tmsg_tensor_is_dense(&entry->tensor)) {
        tmsg_plan_note_checksum(payload, index, entry->tensor.data,
                                entry->bytes);
        return TMSG_OK;
    }
    status = tmsg_tensor_check_pack(&entry->tensor);
    if (status != TMSG_OK) {
        return tmsg_error_set(
            status, "tensor '%s': %s",
            tmsg_error_name(entry->name, entry->name_bytes).text,
            tmsg_error_message());
    }
    return payload->extra->checksum == NULL || tmsg_sums_has(entry)
               ? TMSG_OK
               : sum_parts(payload, index, pool);
}

/* Writes bytes of one tensor. Returns as tmsg_pack_walk() does. */
static const void *write_part(const tmsg_map_entry_t *entry, uint64_t offset,
                              uint64_t bytes, void *to)
{
    const uint8_t *from = entry->tensor.data;
    size_t copied;

    if (!tmsg_tensor_is_dense(&entry->tensor)) {
        tmsg_pack_part(entry, offset, bytes, to);
        return NULL;
    }
    copied = tmsg_probe_copy(to, from + offset, bytes);
    return copied < bytes ? from + offset + copied : NULL;
}

const void *tmsg_pack_walk(const tmsg_map_t *map, const tmsg_split_t *split,
                           tmsg_pack_walk_t *walk, uint64_t bytes, void *to)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    const void *unreadable = NULL;
    uint8_t *into = to;

    while (bytes > 0 && unreadable == NULL) {
        const tmsg_map_entry_t *entry = &entries[walk->tensor];
        uint64_t gap, some;

        if (tmsg_split_has(split, walk->tensor, entry->bytes)) {
            walk->tensor++;
            continue;
        }
        /* Behind the gap, no gap is left. */
        gap = walk->done > 0 ? 0
                             : tmsg_layout_next(walk->at, entry->tensor.dtype,
                                                entry->bytes) -
                                   walk->at;
        some = gap > 0 ? gap : entry->bytes - walk->done;
        some = some < bytes ? some : bytes;
        if (gap > 0) {
            memset(into, 0, some);
        } else if (some > 0) {
            unreadable = write_part(entry, walk->done, some, into);
            walk->done += some;
        }
        if (gap == 0 && walk->done == entry->bytes) {
            walk->tensor++;
            walk->done = 0;
        }
        walk->at += some;
        into += some;
        bytes -= some;
    }
    return unreadable;
}
