/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/staging/sum.h"

#include "am/worker/staging.h"
#include "core/device.h"
#include "core/error.h"
#include "memory/domain.h"

#define ALIGNMENT 64 /* alignment of the pieces in one chunk */

static const tmsg_stream_t none;

bool tmsg_sums_has(const tmsg_map_entry_t *entry)
{
    const tmsg_domain_t *domain =
        entry->bytes == 0 ? NULL : tmsg_domain_of(entry->tensor.device);

    return domain != NULL && !tmsg_domain_is_plain(domain);
}

/* Returns the next tensor from that place on, or NULL if there is none. */
static const tmsg_map_entry_t *next_tensor(const tmsg_map_t *map,
                                           tmsg_sum_place_t *place)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    for (; place->tensor < tmsg_map_size(map); place->tensor++) {
        if (tmsg_sums_has(&entries[place->tensor])) {
            return &entries[place->tensor];
        }
    }
    return NULL;
}

static void advance_place(const tmsg_map_entry_t *entry, uint64_t bytes,
                          tmsg_sum_place_t *place)
{
    place->offset += bytes;
    if (place->offset == entry->bytes) {
        place->tensor++;
        place->offset = 0;
    }
}

/* Returns how many bytes of a tensor lie in a chunk from `at` on. */
static uint64_t piece_in_chunk(const tmsg_sums_t *sums,
                               const tmsg_map_entry_t *entry,
                               const tmsg_sum_place_t *place, uint64_t at)
{
    uint64_t left = entry->bytes - place->offset;
    uint64_t room = at < sums->chunk->capacity ? sums->chunk->capacity - at : 0;

    return left < room ? left : room;
}

static uint64_t align_behind(uint64_t at)
{
    return (at + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

static tmsg_status_t add_piece(tmsg_sums_t *sums, const tmsg_map_entry_t *entry,
                               const uint8_t *data, uint64_t bytes)
{
    if (bytes == entry->bytes) {
        sums->found(sums, sums->summed.tensor,
                    sums->checksum->compute(data, bytes));
        return TMSG_OK;
    }
    if (sums->state == NULL) {
        sums->state = sums->checksum->begin();
    }
    if (sums->state == NULL) {
        return tmsg_error_memory("a checksum");
    }
    sums->checksum->add(sums->state, data, bytes);
    if (sums->summed.offset + bytes == entry->bytes) {
        sums->found(sums, sums->summed.tensor,
                    sums->checksum->end(sums->state));
        sums->state = NULL;
    }
    return TMSG_OK;
}

/* Adds what the chunk holds to the checksums, in the order in which it was
 * copied. */
static tmsg_status_t add_all(tmsg_sums_t *sums)
{
    const tmsg_map_entry_t *entry;
    tmsg_status_t status = TMSG_OK;
    uint64_t at = 0;

    while (status == TMSG_OK &&
           (entry = next_tensor(sums->map, &sums->summed)) != NULL &&
           (sums->summed.tensor != sums->copied.tensor ||
            sums->summed.offset != sums->copied.offset)) {
        uint64_t bytes = piece_in_chunk(sums, entry, &sums->summed, at);

        status = add_piece(sums, entry, sums->chunk->data + at, bytes);
        at = align_behind(at + bytes);
        advance_place(entry, bytes, &sums->summed);
    }
    return status;
}

static void drop_sums(tmsg_sums_t *sums)
{
    if (sums->chunk != NULL) {
        tmsg_chunk_give(sums->worker, sums->chunks, sums->chunk);
        sums->chunk = NULL;
    }
    if (sums->state != NULL) {
        (void)sums->checksum->end(sums->state);
        sums->state = NULL;
    }
}

static void finish_sums(tmsg_sums_t *sums, tmsg_status_t status)
{
    drop_sums(sums);
    sums->over(sums, status);
}

static tmsg_status_t copy_next(tmsg_sums_t *sums);

/* Continues when a chunk is free or was used up, or ends the work if nobody
 * wants the checksums. */
static void run_sums(tmsg_soon_t *call)
{
    tmsg_sums_t *sums = TMSG_CONTAINER_OF(call, tmsg_sums_t, call);
    tmsg_status_t status = sums->stopped ? TMSG_ERR_CANCELED : copy_next(sums);

    if (status != TMSG_IN_PROGRESS) {
        finish_sums(sums, status);
    }
}

static void chunk_copied(tmsg_copy_t *copy, tmsg_status_t status)
{
    tmsg_sums_t *sums = TMSG_CONTAINER_OF(copy, tmsg_sums_t, copy);

    sums->copying = false;
    if (status == TMSG_OK && !sums->stopped) {
        status = add_all(sums);
    }
    if (status == TMSG_OK) {
        run_sums(&sums->call);
    } else {
        finish_sums(sums, status);
    }
}

/* Fills the chunk with tensors of one device, as many as fit, by one stream. */
static tmsg_status_t fill_chunk(tmsg_sums_t *sums, const tmsg_domain_t *domain,
                                tmsg_device_t device, tmsg_stream_t stream)
{
    const tmsg_map_entry_t *entry;
    tmsg_status_t status = TMSG_OK;
    uint64_t at = 0, bytes;

    while (status == TMSG_OK &&
           (entry = next_tensor(sums->map, &sums->copied)) != NULL &&
           tmsg_device_is(entry->tensor.device, device) &&
           (bytes = piece_in_chunk(sums, entry, &sums->copied, at)) > 0) {
        const uint8_t *from = entry->tensor.data;

        status = domain->copy_out(domain->arg, device, sums->chunk->data + at,
                                  from + sums->copied.offset, bytes, stream);
        at = align_behind(at + bytes);
        advance_place(entry, bytes, &sums->copied);
    }
    return status;
}

/* Waits for copies whose end nothing reports: a copy without a stream ends
 * after them. */
static void await_copies(const tmsg_sums_t *sums)
{
    const tmsg_domain_t *domain = sums->chunk->domain;

    (void)domain->copy_out(domain->arg, sums->device, sums->chunk->data,
                           sums->first, 1, none);
}

/* Copies the next bytes to a chunk. Returns IN_PROGRESS if chunk_copied() or
 * run_sums() is to be called. */
static tmsg_status_t copy_next(tmsg_sums_t *sums)
{
    const tmsg_map_entry_t *entry = next_tensor(sums->map, &sums->copied);
    const tmsg_domain_t *domain;
    tmsg_stream_t stream;
    tmsg_status_t status;

    if (entry == NULL) {
        return TMSG_OK;
    }
    domain = tmsg_domain_of(entry->tensor.device);
    if (sums->chunk != NULL && sums->chunk->domain != domain) {
        tmsg_chunk_give(sums->worker, sums->chunks, sums->chunk);
        sums->chunk = NULL;
    }
    if (sums->chunk == NULL) {
        status = tmsg_chunk_take(sums->worker, sums->chunks, domain,
                                 TMSG_CHUNK_BYTES, &sums->call, &sums->chunk);
        if (status != TMSG_OK) {
            return status;
        }
    }
    status = tmsg_copy_stream(domain, entry->tensor.device, &stream);
    if (status != TMSG_OK) {
        return status;
    }
    sums->device = entry->tensor.device;
    sums->first = entry->tensor.data;
    status = fill_chunk(sums, domain, sums->device, stream);
    if (status == TMSG_OK) {
        status = tmsg_copy_watch(sums->worker, &sums->copy, domain,
                                 sums->device, stream);
    }
    if (status != TMSG_OK) {
        await_copies(sums);
        return status;
    }
    sums->copying = true;
    return TMSG_IN_PROGRESS;
}

void tmsg_sums_begin(tmsg_sums_t *sums)
{
    sums->copy.over = chunk_copied;
    sums->call.run = run_sums;
    tmsg_soon(sums->worker, &sums->call);
}

void tmsg_sums_stop(tmsg_sums_t *sums)
{
    if (!sums->stopped && sums->call.list != NULL) {
        /* The call may wait for a chunk. */
        tmsg_soon(sums->worker, &sums->call);
    }
    sums->stopped = true;
}

void tmsg_sums_end(tmsg_sums_t *sums)
{
    sums->stopped = true;
    tmsg_soon_forget(&sums->call);
    if (sums->copying) {
        await_copies(sums);
        tmsg_copy_forget(sums->worker, &sums->copy);
        sums->copying = false;
    }
    drop_sums(sums);
}
