/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/send/plan.h"

#include <stdio.h>
#include <string.h>

#include "am/endpoint/measures.h"
#include "am/send/gather.h"
#include "am/send/pack.h"
#include "am/staging/sum.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/map.h"
#include "core/probe.h"
#include "core/tensor.h"
#include "memory/domain.h"
#include "serialize/split.h"

static const uint8_t zeros[TMSG_PAYLOAD_ALIGNMENT];

/* Walks a payload in the order of its bytes. */
typedef struct {
    uint64_t offset; /* of the tensors, behind a spilled body */
    uint64_t gap;    /* zeros before the current tensor */
} cursor_t;

void tmsg_plan_note_checksum(const tmsg_payload_t *payload, size_t index,
                             const void *data, uint64_t bytes)
{
    const tmsg_checksum_t *checksum =
        payload->extra == NULL ? NULL : payload->extra->checksum;

    if (checksum != NULL &&
        !tmsg_sums_has(&tmsg_map_entries(payload->map)[index])) {
        tmsg_put_le(payload->checksums + index * checksum->bytes,
                    checksum->compute(data, bytes), checksum->bytes);
    }
}

static bool is_summed(const tmsg_payload_t *payload)
{
    return payload->extra != NULL && payload->extra->checksum != NULL;
}

static bool goes_in_fragments(const tmsg_payload_t *payload, size_t index)
{
    return payload->way.fragments &&
           tmsg_split_has(&payload->extra->split, index,
                          tmsg_map_entries(payload->map)[index].bytes);
}

static void advance_cursor(cursor_t *at, const tmsg_map_entry_t *entry)
{
    uint64_t begin =
        tmsg_layout_next(at->offset, entry->tensor.dtype, entry->bytes);

    at->gap = begin - at->offset;
    at->offset = begin + entry->bytes;
}

static tmsg_status_t write_body(const tmsg_payload_t *payload, uint8_t *to)
{
    size_t spill = payload->spill, needed;

    memset(to + spill, 0, tmsg_layout_spill(spill) - spill);
    return tmsg_body_encode(payload->map, payload->extra, to, spill, &needed);
}

tmsg_status_t tmsg_plan_pack(const tmsg_map_entry_t *entry, void *to)
{
    tmsg_status_t status = tmsg_tensor_check_pack(&entry->tensor);

    if (status != TMSG_OK) {
        return tmsg_error_set(
            status, "tensor '%s': %s",
            tmsg_error_name(entry->name, entry->name_bytes).text,
            tmsg_error_message());
    }
    tmsg_pack_part(entry, 0, entry->bytes, to);
    return TMSG_OK;
}

void tmsg_plan_say_unreadable(const tmsg_map_t *map, const void *at, char *why,
                              size_t why_bytes)
{
    const tmsg_map_entry_t *entry = tmsg_map_find_at(map, at);

    if (entry == NULL) {
        snprintf(why, why_bytes, "memory of its tensors cannot be read");
        return;
    }
    snprintf(why, why_bytes, "tensor '%s': its memory cannot be read",
             tmsg_error_name(entry->name, entry->name_bytes).text);
}

/* A loop over the tensors of a map is compiled twice: for maps that lie in the
 * host's memory it asks nothing about devices. */
#define FOR_BOTH static inline __attribute__((always_inline))

/* Returns where the bytes of the next tensor were gathered from its device, or
 * NULL. */
FOR_BOTH const void *step_gathered(const tmsg_payload_t *payload,
                                   const tmsg_map_entry_t *entry,
                                   tmsg_gather_walk_t *walk)
{
    return tmsg_gather_next(walk, entry) ? payload->gathered + walk->at : NULL;
}

FOR_BOTH tmsg_status_t copy_tensors(const tmsg_payload_t *payload, uint8_t *to,
                                    bool gathers)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(payload->map);
    size_t count = tmsg_map_size(payload->map);
    bool summed = is_summed(payload);
    cursor_t at = {0, 0};
    tmsg_gather_walk_t walk = {.small = payload->measures->small};
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < count && status == TMSG_OK; i++) {
        const tmsg_tensor_t *tensor = &entries[i].tensor;
        const void *gathered =
            gathers ? step_gathered(payload, &entries[i], &walk) : NULL;

        if (goes_in_fragments(payload, i)) {
            continue;
        }
        advance_cursor(&at, &entries[i]);
        if (at.gap > 0) {
            memset(to, 0, at.gap);
            to += at.gap;
        }
        if (gathered == NULL && tensor->strides != NULL &&
            !tmsg_tensor_is_dense(tensor)) {
            status = tmsg_plan_pack(&entries[i], to);
        } else if (entries[i].bytes > 0) {
            tmsg_copy_small(to, gathered != NULL ? gathered : tensor->data,
                            entries[i].bytes);
        }
        if (summed) {
            tmsg_plan_note_checksum(payload, i, to, entries[i].bytes);
        }
        to += entries[i].bytes;
    }
    return status;
}

/* Copies all tensors into one buffer, for small tensors. */
static tmsg_status_t gather_tensors(const tmsg_payload_t *payload,
                                    tmsg_pool_t *pool, tmsg_plan_t *plan)
{
    uint8_t *begin = payload->spare;
    uint8_t *to;
    tmsg_status_t status = TMSG_OK;

    if (plan->bytes > payload->spare_bytes) {
        status = tmsg_pool_take(pool, plan->bytes, &plan->staging);
        begin = plan->staging.data;
    }
    if (status != TMSG_OK) {
        return status;
    }
    plan->contiguous = begin;
    to = begin + tmsg_layout_spill(payload->spill);
    status = payload->gathered == NULL ? copy_tensors(payload, to, false)
                                       : copy_tensors(payload, to, true);
    if (status == TMSG_OK && payload->spill > 0) {
        status = write_body(payload, begin);
    }
    return status;
}

/* Adds bytes to the list. Tensors of one file lie next to each other; joined
 * they make fewer entries, and mostly one, which UCX moves without copying. */
static void append_piece(tmsg_plan_t *plan, const void *data, uint64_t bytes)
{
    struct iovec *last =
        plan->iov_count == 0 ? NULL : &plan->iov[plan->iov_count - 1];

    if (bytes == 0) {
        return;
    }
    if (last != NULL &&
        (const uint8_t *)last->iov_base + last->iov_len == data) {
        last->iov_len += bytes;
        return;
    }
    plan->iov[plan->iov_count].iov_base = (void *)(uintptr_t)data;
    plan->iov[plan->iov_count].iov_len = bytes;
    plan->iov_count++;
}

/* Lists the tensors; what has to be packed, or was gathered, goes to `staging`.
 */
FOR_BOTH tmsg_status_t list_tensors(const tmsg_payload_t *payload,
                                    uint8_t *staging, tmsg_plan_t *plan,
                                    bool gathers)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(payload->map);
    size_t count = tmsg_map_size(payload->map);
    bool dense = payload->measures->packed == 0;
    bool summed = is_summed(payload);
    tmsg_gather_walk_t walk = {.small = payload->measures->small};
    cursor_t at = {0, 0};
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < count && status == TMSG_OK; i++) {
        const tmsg_tensor_t *tensor = &entries[i].tensor;
        const void *gathered =
            gathers ? step_gathered(payload, &entries[i], &walk) : NULL;
        const void *data = tensor->data;

        if (goes_in_fragments(payload, i)) {
            continue;
        }
        advance_cursor(&at, &entries[i]);
        append_piece(plan, zeros, at.gap);
        if (gathered != NULL) {
            memcpy(staging, gathered, entries[i].bytes);
            data = staging;
            staging += entries[i].bytes;
        } else if (!dense && !tmsg_tensor_is_dense(tensor)) {
            status = tmsg_plan_pack(&entries[i], staging);
            data = staging;
            staging += entries[i].bytes;
        }
        append_piece(plan, data, entries[i].bytes);
        if (summed) {
            tmsg_plan_note_checksum(payload, i, data, entries[i].bytes);
        }
    }
    return status;
}

/* Makes a scatter list. Tensors go from where they lie; the body and the
 * tensors that have to be packed go from a staging buffer. */
static tmsg_status_t scatter_tensors(const tmsg_payload_t *payload,
                                     tmsg_pool_t *pool, tmsg_plan_t *plan)
{
    uint64_t head = tmsg_layout_spill(payload->spill);
    const tmsg_measures_t *measures = payload->measures;
    uint64_t staged = head + measures->gathered_bytes + measures->packed -
                      (payload->way.fragments ? measures->fragments_packed : 0);
    uint8_t *staging;
    tmsg_status_t status;

    status = tmsg_pool_take(
        pool, (2 * tmsg_map_size(payload->map) + 1) * sizeof(*plan->iov),
        &plan->list);
    plan->iov = plan->list.data;
    if (status == TMSG_OK && staged > 0) {
        status = tmsg_pool_take(pool, staged, &plan->staging);
    }
    if (status != TMSG_OK) {
        return status;
    }
    staging = plan->staging.data;
    append_piece(plan, staging, head);
    if (head > 0) {
        staging += head;
    }
    status = payload->gathered == NULL
                 ? list_tensors(payload, staging, plan, false)
                 : list_tensors(payload, staging, plan, true);
    if (status == TMSG_OK && head > 0) {
        status = write_body(payload, plan->staging.data);
    }
    /* UCX moves a single piece faster than a list of one. */
    if (plan->iov_count == 1) {
        plan->contiguous = plan->iov[0].iov_base;
        plan->iov_count = 0;
    }
    return status;
}

const void *tmsg_plan_copy(const void *data, size_t count, uint64_t bytes,
                           void *to)
{
    const struct iovec one = {(void *)(uintptr_t)data, bytes};
    const struct iovec *iov = count > 1 ? data : &one;
    uint8_t *at = to;

    for (; bytes > 0; iov++) {
        size_t done = tmsg_probe_copy(at, iov->iov_base, iov->iov_len);

        if (done < iov->iov_len) {
            return (const uint8_t *)iov->iov_base + done;
        }
        at += done;
        bytes -= done;
    }
    return NULL;
}

/* Makes the plan one of a copy of its bytes. `block` is where the copy is, if
 * the pool's. */
static void become_copy(tmsg_plan_t *plan, tmsg_pool_t *pool, const void *copy,
                        tmsg_pool_block_t block)
{
    tmsg_pool_give(pool, plan->list);
    tmsg_pool_give(pool, plan->staging);
    *plan = (tmsg_plan_t){
        .bytes = plan->bytes, .contiguous = copy, .staging = block};
}

/* Copies a small plan without asking first whether it can be read. As with
 * every small message the sender's process ends if its memory is gone. */
static void own_small(tmsg_plan_t *plan, tmsg_pool_t *pool, uint8_t *to)
{
    const struct iovec one = {(void *)(uintptr_t)plan->contiguous, plan->bytes};
    const struct iovec *iov = plan->iov_count > 0 ? plan->iov : &one;
    size_t count = plan->iov_count > 0 ? plan->iov_count : 1, bytes = 0;

    for (size_t i = 0; i < count; i++) {
        memcpy(to + bytes, iov[i].iov_base, iov[i].iov_len);
        bytes += iov[i].iov_len;
    }
    become_copy(plan, pool, to, (tmsg_pool_block_t){0});
}

tmsg_status_t tmsg_plan_own(tmsg_plan_t *plan, const tmsg_payload_t *payload,
                            tmsg_pool_t *pool)
{
    tmsg_pool_block_t own;
    const void *unreadable;
    char why[TMSG_ERROR_BYTES];
    tmsg_status_t status;

    if (plan->bytes == 0 || plan->bytes > TMSG_PLAN_OWN_MOST) {
        return TMSG_OK;
    }
    if (plan->bytes <= payload->spare_bytes) {
        own_small(plan, pool, payload->spare);
        return TMSG_OK;
    }
    status = tmsg_pool_take(pool, plan->bytes, &own);
    if (status != TMSG_OK) {
        return status;
    }
    unreadable = tmsg_plan_copy(plan->iov_count > 0 ? (const void *)plan->iov
                                                    : plan->contiguous,
                                plan->iov_count, plan->bytes, own.data);
    if (unreadable != NULL) {
        tmsg_plan_say_unreadable(payload->map, unreadable, why, sizeof(why));
        tmsg_pool_give(pool, own);
        return tmsg_error_set(TMSG_ERR_IO, "%s", why);
    }
    become_copy(plan, pool, own.data, own);
    return TMSG_OK;
}

const tmsg_strategy_t *tmsg_strategy_of(tmsg_way_t way)
{
    static const tmsg_strategy_t gathers = {"gather", gather_tensors};
    static const tmsg_strategy_t scatters = {"scatter", scatter_tensors};

    return way.gather ? &gathers : &scatters;
}

/* Returns whether the tensor cannot travel in the message itself, whose payload
 * is host memory. */
static bool needs_fragments(const tmsg_map_entry_t *entry)
{
    return entry->bytes > 0 &&
           tmsg_domain_of(entry->tensor.device) != &tmsg_domain_host;
}

/* Returns whether a tensor of a device travels in fragments. Kept out of the
 * loop of maps that lie in the host's memory. */
__attribute__((noinline)) static bool
measure_foreign(const tmsg_map_entry_t *entry, tmsg_gather_walk_t *walk,
                tmsg_measures_t *measures)
{
    bool gathered = tmsg_gather_next(walk, entry);

    measures->foreign++;
    measures->gathered += gathered;
    measures->gathered_bytes += gathered ? entry->bytes : 0;
    return !gathered;
}

static void measure_tensor(const tmsg_map_entry_t *entry,
                           tmsg_gather_walk_t *walk, tmsg_measures_t *measures)
{
    uint64_t packed = tmsg_tensor_is_dense(&entry->tensor) ? 0 : entry->bytes;
    bool named =
        needs_fragments(entry) && measure_foreign(entry, walk, measures);

    measures->tensors += entry->bytes > 0;
    measures->packed += packed;
    measures->broadcast += tmsg_tensor_is_broadcast(&entry->tensor);
    if (entry->bytes > 0 && (named || entry->bytes >= measures->large)) {
        measures->fragments++;
        measures->fragments_bytes += entry->bytes;
        measures->fragments_packed += packed;
        return;
    }
    measures->head_bytes = tmsg_layout_next(measures->head_bytes,
                                            entry->tensor.dtype, entry->bytes) +
                           entry->bytes;
}

tmsg_status_t tmsg_plan_measure(const tmsg_map_t *map, uint64_t large,
                                uint64_t small, tmsg_measures_t *measures_p)
{
    const tmsg_limits_t limits = {.message_bytes = INT64_MAX};
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_measures_t measures = {
        .stamp = tmsg_map_stamp(map), .large = large, .small = small};
    tmsg_gather_walk_t walk = {.small = small};
    tmsg_status_t status =
        tmsg_layout_measure(map, &limits, &measures.bytes, &measures.out_bytes);

    if (status != TMSG_OK) {
        return status;
    }
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        measure_tensor(&entries[i], &walk, &measures);
    }
    *measures_p = measures;
    return TMSG_OK;
}

void tmsg_plan_name_foreign(const tmsg_map_t *map, uint64_t small,
                            uint8_t *bits)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    tmsg_gather_walk_t walk = {.small = small};

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        if (needs_fragments(&entries[i]) &&
            !tmsg_gather_next(&walk, &entries[i])) {
            bits[i / 8] |= (uint8_t)(1u << i % 8);
        }
    }
}

/* Plans a payload whose slices are made when they are handed over: the body
 * that heads it is all there is now. */
static tmsg_status_t plan_head(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                               tmsg_plan_t *plan)
{
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(payload->map) && status == TMSG_OK;
         i++) {
        if (!goes_in_fragments(payload, i)) {
            status = tmsg_pack_check(payload, i, pool);
        }
    }
    plan->bytes = tmsg_layout_spill(payload->spill);
    if (status == TMSG_OK && plan->bytes > 0) {
        status = tmsg_pool_take(pool, plan->bytes, &plan->staging);
        plan->contiguous = plan->staging.data;
    }
    return status == TMSG_OK && plan->bytes > 0
               ? write_body(payload, plan->staging.data)
               : status;
}

tmsg_status_t tmsg_plan_make(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                             tmsg_plan_t *plan)
{
    tmsg_status_t status;

    if (payload->way.packs) {
        return plan_head(payload, pool, plan);
    }
    plan->bytes = (payload->way.fragments ? payload->measures->head_bytes
                                          : payload->measures->bytes) +
                  tmsg_layout_spill(payload->spill);
    if (plan->bytes == 0) {
        for (size_t i = 0; i < tmsg_map_size(payload->map); i++) {
            if (!goes_in_fragments(payload, i)) {
                tmsg_plan_note_checksum(payload, i, NULL, 0);
            }
        }
        return TMSG_OK;
    }
    status = tmsg_strategy_of(payload->way)->make(payload, pool, plan);
    if (status == TMSG_OK && payload->owned && !payload->way.slices &&
        !payload->way.gather) {
        status = tmsg_plan_own(plan, payload, pool);
    }
    return status;
}

tmsg_status_t tmsg_plan_body(const tmsg_payload_t *payload, tmsg_pool_t *pool,
                             tmsg_plan_t *plan)
{
    tmsg_status_t status;

    plan->bytes = tmsg_layout_spill(payload->spill);
    if (plan->bytes == 0) {
        return TMSG_OK;
    }
    status = tmsg_pool_take(pool, plan->bytes, &plan->staging);
    if (status != TMSG_OK) {
        return status;
    }
    plan->contiguous = plan->staging.data;
    return write_body(payload, plan->staging.data);
}

void tmsg_plan_free(tmsg_plan_t *plan, tmsg_pool_t *pool)
{
    if (!plan->shared) {
        tmsg_pool_give(pool, plan->list);
        tmsg_pool_give(pool, plan->staging);
    }
    *plan = (tmsg_plan_t){0};
}
