/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves parts out by UCX. Some parts are with UCX, and as it reports one the
 * next goes, so that a small message is never behind more than a few. */
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/transport.h"
#include "am/send/cancel.h"
#include "am/send/parts_out_struct.h"
#include "am/staging/stage.h"
#include "am/worker/staging.h"
#include "core/bytes.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/split.h"

#define HEADER_BYTES (TMSG_PREAMBLE_BYTES + TMSG_PART_NUMBER_BYTES)

static unsigned parts_window(const tmsg_endpoint_t *endpoint)
{
    uint32_t theirs = endpoint->peer_hello.parts;

    return theirs < TMSG_PARTS_SENT ? theirs : TMSG_PARTS_SENT;
}

bool tmsg_parts_may_be_asked(const tmsg_endpoint_t *endpoint)
{
    return parts_window(endpoint) > 2;
}

/* Goes on to the next tensor that is a part, from parts->next.tensor on. */
static void find_next_part(tmsg_parts_out_t *parts)
{
    parts->next.tensor =
        tmsg_split_next(&parts->split, parts->map, parts->next.tensor);
}

static bool is_slicing(const tmsg_parts_out_t *parts)
{
    return parts->next.tensor == tmsg_map_size(parts->map);
}

bool tmsg_parts_out_is_over(const tmsg_parts_out_t *parts)
{
    return is_slicing(parts) && parts->next.left_bytes == 0;
}

/* Packs the tensors that do not lie as they travel, one behind the other. */
static tmsg_status_t pack_parts(tmsg_parts_out_t *parts,
                                const tmsg_payload_t *payload)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(payload->map);
    size_t size = tmsg_map_size(payload->map);
    uint8_t *to = NULL;
    tmsg_status_t status = TMSG_OK;

    if (payload->measures->parts_packed > 0) {
        status = tmsg_pool_take(
            tmsg_budget_pool(parts->send->endpoint->worker->budget),
            payload->measures->parts_packed, &parts->staging);
        to = parts->staging.data;
        parts->next.packed = to;
    }
    for (size_t i = tmsg_split_next(&parts->split, payload->map, 0);
         i < size && status == TMSG_OK;
         i = tmsg_split_next(&parts->split, payload->map, i + 1)) {
        const void *data = entries[i].tensor.data;

        if (!tmsg_tensor_is_dense(&entries[i].tensor)) {
            status = tmsg_plan_pack(&entries[i], to);
            data = to;
            to += entries[i].bytes;
        }
        if (status == TMSG_OK) {
            tmsg_plan_note_checksum(payload, i, data, entries[i].bytes);
        }
    }
    return status;
}

/* Returns a record that is all zero, or NULL without memory. */
static tmsg_parts_out_t *get_parts_out_record(tmsg_send_t *send,
                                              size_t others_bytes)
{
    tmsg_parts_out_t *parts = send->parts_kept;

    if (parts == NULL || others_bytes > 0) {
        return calloc(1, sizeof(*parts) + others_bytes);
    }
    send->parts_kept = NULL;
    memset(parts, 0, sizeof(*parts));
    return parts;
}

tmsg_status_t tmsg_parts_make(tmsg_send_t *send, const tmsg_payload_t *payload)
{
    tmsg_parts_out_t *parts =
        get_parts_out_record(send, payload->extra->split.others_bytes);
    tmsg_status_t status = TMSG_OK;

    if (parts == NULL) {
        return tmsg_error_memory("a message's parts");
    }
    parts->send = send;
    parts->map = payload->map;
    send->parts = parts;
    parts->split = payload->extra->split;
    if (parts->split.others_bytes > 0) {
        memcpy(parts->others, parts->split.others, parts->split.others_bytes);
    }
    parts->split.others = parts->others;
    if (payload->way.parts) {
        parts->bytes = payload->measures->bytes - payload->measures->head_bytes;
        status = pack_parts(parts, payload);
    }
    find_next_part(parts);
    if (send->stage != NULL) {
        tmsg_stage_out_begin(send, &parts->split);
    }
    return status;
}

/* Copies a list from `skip` bytes on to `to`, and ends a piece wherever a slice
 * ends. */
static void cut_slices(const tmsg_plan_t *plan, uint64_t skip, uint64_t slice,
                       struct iovec *to)
{
    uint64_t room = slice;

    for (size_t i = 0; i < plan->iov_count; i++) {
        uint8_t *data = plan->iov[i].iov_base;
        uint64_t bytes = plan->iov[i].iov_len;
        uint64_t skipped = skip < bytes ? skip : bytes;

        skip -= skipped;
        data += skipped;
        bytes -= skipped;
        while (bytes > 0) {
            uint64_t piece = bytes < room ? bytes : room;

            *to++ = (struct iovec){data, piece};
            data += piece;
            bytes -= piece;
            room = room == piece ? slice : room - piece;
        }
    }
}

tmsg_status_t tmsg_parts_slice(tmsg_send_t *send, const tmsg_payload_t *payload)
{
    tmsg_parts_out_t *parts = send->parts;
    tmsg_plan_t *plan = &send->plan;
    uint64_t spill = tmsg_layout_spill(payload->spill);
    uint64_t left = plan->bytes - spill;
    const uint8_t *begin =
        plan->iov_count > 0 ? plan->iov[0].iov_base : plan->contiguous;
    tmsg_status_t status = TMSG_OK;

    if (plan->iov_count > 0 && spill == 0 && left <= parts->split.slice) {
        parts->next.iov = plan->iov;
    } else if (plan->iov_count > 0) {
        size_t most = plan->iov_count + tmsg_split_slices(&parts->split, left);

        status =
            tmsg_pool_take(tmsg_budget_pool(send->endpoint->worker->budget),
                           most * sizeof(*plan->iov), &parts->list);
        if (status != TMSG_OK) {
            return status;
        }
        cut_slices(plan, spill, parts->split.slice, parts->list.data);
        parts->next.iov = parts->list.data;
    }
    parts->next.at = begin + spill;
    parts->next.left_bytes = left;
    parts->bytes += left;
    parts->left = *plan;
    *plan = (tmsg_plan_t){
        .bytes = spill, .contiguous = spill > 0 ? begin : NULL, .shared = true};
    return TMSG_OK;
}

void tmsg_parts_free(tmsg_send_t *send)
{
    if (send->parts != NULL) {
        tmsg_pool_t *pool = tmsg_budget_pool(send->endpoint->worker->budget);

        tmsg_parts_stop(send);
        tmsg_soon_forget(&send->parts->call);
        tmsg_pool_give(pool, send->parts->staging);
        tmsg_pool_give(pool, send->parts->list);
        tmsg_plan_free(&send->parts->left, pool);
        if (send->parts->split.others_bytes > 0) {
            free(send->parts);
        } else {
            free(send->parts_kept);
            send->parts_kept = send->parts;
        }
        send->parts = NULL;
    }
}

size_t tmsg_parts_spare(const tmsg_send_t *send)
{
    return send->parts_kept == NULL ? 0 : sizeof(*send->parts_kept);
}

bool tmsg_parts_pending(const tmsg_send_t *send)
{
    return send->parts != NULL &&
           (send->parts->in_ucx > 0 || send->parts->queue != NULL ||
            tmsg_stage_out_copies(send));
}

void tmsg_parts_out_enlist(tmsg_parts_out_t *parts, tmsg_list_t *queue)
{
    tmsg_list_push(queue, &parts->node);
    parts->queue = queue;
}

void tmsg_parts_out_await(tmsg_parts_out_t *parts, bool awaited)
{
    tmsg_endpoint_t *endpoint = parts->send->endpoint;

    endpoint->tx.parts_awaited += (unsigned)awaited - (unsigned)parts->awaited;
    parts->awaited = awaited;
}

void tmsg_parts_out_grant(tmsg_parts_out_t *parts)
{
    tmsg_parts_out_await(parts, false);
    parts->granted = true;
}

void tmsg_parts_out_unlist(tmsg_parts_out_t *parts)
{
    tmsg_parts_out_await(parts, false);
    tmsg_list_remove(parts->queue, &parts->node);
    parts->queue = NULL;
}

void tmsg_parts_stop(tmsg_send_t *send)
{
    tmsg_parts_out_t *parts = send->parts;
    tmsg_endpoint_t *endpoint = send->endpoint;

    if (parts != NULL && parts->queue != NULL) {
        tmsg_parts_out_unlist(parts);
        if (endpoint->tx.parting.count > 0 && endpoint->state == TMSG_EP_OPEN) {
            tmsg_worker_chore(endpoint->worker, endpoint);
        }
        if (send->ucx_status == TMSG_UCX_OK) {
            /* The rest of the message was not sent. */
            send->ucx_status = TMSG_UCX_CANCELED;
        }
    }
    tmsg_stage_out_stop(send);
}

void tmsg_parts_out_give_slot(tmsg_parts_slot_t *slot)
{
    tmsg_budget_t *budget = slot->send->endpoint->worker->budget;

    tmsg_pool_give(tmsg_budget_pool(budget), slot->own);
    slot->own = (tmsg_pool_block_t){0};
    slot->busy = false;
    slot->send->parts->in_ucx--;
}

static void end_slot(tmsg_parts_slot_t *slot, tmsg_ucx_status_t ucs)
{
    tmsg_send_t *send = slot->send;
    tmsg_endpoint_t *endpoint = send->endpoint;
    bool granted = send->parts->granted;

    tmsg_endpoint_hold(endpoint);
    tmsg_op_over(endpoint, &slot->op);
    tmsg_parts_out_give_slot(slot);
    if (slot->fill != NULL) {
        /* The chunk of the part is free from now on. */
        tmsg_lease_reported(endpoint, ucs);
        tmsg_stage_out_reported(send, slot->fill);
    }
    endpoint->tx.parts_in_ucx--;
    endpoint->tx.granted_in_ucx -= granted;
    if (endpoint->tx.parting.count > 0) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_send_part_reported(send, ucs);
    tmsg_endpoint_reported(endpoint);
    tmsg_endpoint_drop(endpoint);
}

static void forsake_part(tmsg_op_t *op)
{
    tmsg_parts_slot_t *slot = TMSG_CONTAINER_OF(op, tmsg_parts_slot_t, op);

    tmsg_cma_forsake(&slot->read);
    end_slot(slot, TMSG_UCX_CANCELED);
}

static void read_over(tmsg_cma_out_t *read, tmsg_ucx_status_t ucs)
{
    end_slot(TMSG_CONTAINER_OF(read, tmsg_parts_slot_t, read), ucs);
}

static void ucx_reported_part(void *request, tmsg_ucx_status_t ucs, void *arg)
{
    tmsg_ucx_request_free(request);
    end_slot(arg, ucs);
}

tmsg_parts_slot_t *tmsg_parts_out_take_slot(tmsg_parts_out_t *parts)
{
    tmsg_parts_slot_t *slot = parts->slots;

    while (slot->busy) {
        slot++;
    }
    slot->busy = true;
    slot->send = parts->send;
    parts->in_ucx++;
    return slot;
}

static void write_part_header(const tmsg_parts_out_t *parts, uint32_t number,
                              uint64_t bytes, uint8_t flags, uint8_t *header)
{
    const tmsg_send_t *send = parts->send;
    const tmsg_preamble_t head = {
        .kind = TMSG_KIND_PART,
        .flags = flags,
        .channel = send->channel->number,
        .message_id = send->message_id,
        .endpoint_id = send->endpoint->peer_id,
        .sequence = send->sequence,
        .body_bytes = TMSG_PART_NUMBER_BYTES,
        .payload_bytes = bytes,
        .policy = (uint8_t)send->policy,
    };

    tmsg_preamble_encode(&head, header);
    tmsg_put_le(header + TMSG_PREAMBLE_BYTES, number, TMSG_PART_NUMBER_BYTES);
}

/* Returns the bytes of the next part of a tensor, and goes on to the part
 * behind it. */
static const uint8_t *step_tensor(tmsg_parts_out_t *parts, uint64_t bytes,
                                  tmsg_fill_t **fill_p, int *memory_type_p)
{
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(parts->map)[parts->next.tensor];
    bool dense = tmsg_tensor_is_dense(&entry->tensor);
    const uint8_t *data = dense ? entry->tensor.data : parts->next.packed;

    data += parts->next.offset;
    if (dense && parts->send->stage != NULL) {
        data = tmsg_stage_out_take(parts->send, parts->next.tensor,
                                   parts->next.offset, bytes, memory_type_p,
                                   fill_p);
    }
    parts->next.number++;
    parts->next.offset += bytes;
    if (parts->next.offset == entry->bytes) {
        if (!dense) {
            parts->next.packed += entry->bytes;
        }
        parts->next.offset = 0;
        parts->next.tensor++;
        find_next_part(parts);
    }
    return data;
}

/* Returns the bytes of the next slice, or a list of them, and goes on to the
 * slice behind it. */
static const void *step_slice(tmsg_parts_out_t *parts, uint64_t bytes,
                              size_t *count_p)
{
    const struct iovec *iov = parts->next.iov;
    const uint8_t *at = parts->next.at;

    parts->next.number++;
    parts->next.left_bytes -= bytes;
    if (iov == NULL) {
        parts->next.at += bytes;
        return at;
    }
    for (; bytes > 0; parts->next.iov++) {
        bytes -= parts->next.iov->iov_len;
    }
    *count_p = (size_t)(parts->next.iov - iov);
    return *count_p > 1 ? (const void *)iov : iov->iov_base;
}

const void *tmsg_parts_out_step(tmsg_parts_out_t *parts, uint64_t bytes,
                                tmsg_fill_t **fill_p, int *memory_type_p,
                                size_t *count_p)
{
    *fill_p = NULL;
    return is_slicing(parts) ? step_slice(parts, bytes, count_p)
                             : step_tensor(parts, bytes, fill_p, memory_type_p);
}

uint64_t tmsg_parts_out_next_bytes(const tmsg_parts_out_t *parts)
{
    uint64_t left, most = parts->split.chunk;

    if (is_slicing(parts)) {
        left = parts->next.left_bytes;
        most = parts->split.slice;
    } else {
        left = tmsg_map_entries(parts->map)[parts->next.tensor].bytes -
               parts->next.offset;
    }
    return left < most ? left : most;
}

/* Describes a part. With count > 1 `data` is a list. */
typedef struct {
    const void *data;
    uint64_t bytes;
    size_t count;
    int memory_type;
} piece_t;

static void run_not_copied(tmsg_soon_t *call)
{
    tmsg_parts_out_t *parts = TMSG_CONTAINER_OF(call, tmsg_parts_out_t, call);
    tmsg_parts_slot_t *slot = parts->uncopied;
    char why[TMSG_ERROR_BYTES] = "no memory for the copy of a part";

    if (!slot->busy) {
        /* The connection of the part has ended meanwhile. */
        return;
    }
    if (parts->unreadable != NULL) {
        tmsg_plan_say_unreadable(parts->map, parts->unreadable, why,
                                 sizeof(why));
    }
    tmsg_send_fail(parts->send,
                   parts->unreadable != NULL ? TMSG_ERR_IO : TMSG_ERR_NO_MEMORY,
                   why);
    end_slot(slot, TMSG_UCX_OK);
}

/* Fails the part's message, when nobody is in the middle of other work on the
 * endpoint. Until then the part counts as one that UCX has, and no other part
 * of the message goes. */
static void fail_soon(tmsg_parts_slot_t *slot)
{
    tmsg_parts_out_t *parts = slot->send->parts;

    parts->uncopied = slot;
    parts->call.run = run_not_copied;
    tmsg_soon(slot->send->endpoint->worker, &parts->call);
}

/* Copies a part as tmsg_plan_own() does. Returns false if the part cannot be
 * read, or there is no memory. */
static bool copy_part_for_ucx(tmsg_parts_slot_t *slot, piece_t *piece)
{
    tmsg_parts_out_t *parts = slot->send->parts;
    tmsg_budget_t *budget = slot->send->endpoint->worker->budget;

    if (tmsg_pool_take(tmsg_budget_pool(budget), piece->bytes, &slot->own) !=
        TMSG_OK) {
        return false;
    }
    parts->unreadable =
        tmsg_plan_copy(piece->data, piece->count, piece->bytes, slot->own.data);
    piece->data = slot->own.data;
    piece->count = 0;
    return parts->unreadable == NULL;
}

static tmsg_ucx_status_t hand_part_to_ucx(tmsg_parts_slot_t *slot,
                                          const piece_t *piece)
{
    const tmsg_ucx_send_t message = {
        .header = slot->header,
        .header_bytes = HEADER_BYTES,
        .data = piece->data,
        .bytes = piece->bytes,
        .pieces = piece->count > 1 ? piece->count : 0,
        .flags = TMSG_UCX_SEND_RENDEZVOUS,
        .memory_type = piece->memory_type,
    };
    tmsg_ucx_status_t ucs = tmsg_endpoint_send_am(
        slot->send->endpoint, &message, ucx_reported_part, slot);

    if (ucs == TMSG_UCX_IN_PROGRESS) {
        return TMSG_UCX_OK;
    }
    end_slot(slot, ucs);
    return ucs;
}

static void post_next(tmsg_parts_out_t *parts)
{
    tmsg_endpoint_t *endpoint = parts->send->endpoint;
    tmsg_parts_slot_t *slot = tmsg_parts_out_take_slot(parts);
    piece_t piece = {.bytes = tmsg_parts_out_next_bytes(parts),
                     .memory_type = TMSG_UCX_MEMORY_HOST};
    uint32_t number = parts->next.number;
    bool is_read, is_there;
    tmsg_ucx_status_t ucs;

    piece.data = tmsg_parts_out_step(parts, piece.bytes, &slot->fill,
                                     &piece.memory_type, &piece.count);
    is_read = tmsg_cma_sends(endpoint) && piece.count <= 1 &&
              piece.memory_type == TMSG_UCX_MEMORY_HOST;
    is_there = !tmsg_transport_wants_own(endpoint) || slot->fill != NULL ||
               piece.memory_type != TMSG_UCX_MEMORY_HOST ||
               copy_part_for_ucx(slot, &piece);
    write_part_header(parts, number, piece.bytes,
                      is_read ? TMSG_HEADER_READ : 0, slot->header);
    if (!is_there || tmsg_parts_out_is_over(parts)) {
        tmsg_parts_out_unlist(parts);
    }
    tmsg_op_begin(endpoint, &slot->op, forsake_part);
    endpoint->tx.parts_in_ucx++;
    endpoint->tx.granted_in_ucx += parts->granted;
    slot->read = (tmsg_cma_out_t){.over = read_over};
    if (!is_there) {
        fail_soon(slot);
        return;
    }
    ucs = is_read ? tmsg_cma_post(endpoint, slot->header, HEADER_BYTES,
                                  piece.data, 0, &slot->read)
                  : hand_part_to_ucx(slot, &piece);
    if (ucs != TMSG_UCX_OK) {
        tmsg_endpoint_unsent(endpoint, ucs);
    }
}

uint64_t tmsg_parts_begin(tmsg_send_t *send)
{
    tmsg_parts_out_t *parts = send->parts;

    if (parts == NULL || tmsg_parts_out_is_over(parts)) {
        return 0;
    }
    tmsg_parts_out_enlist(parts, &send->endpoint->tx.parting);
    tmsg_parts_out_await(parts, send->pulled);
    return parts->bytes;
}

/* Returns whether the next part can go. Device memory that is copied first may
 * not be there yet. */
static bool next_part_is_ready(tmsg_parts_out_t *parts,
                               const tmsg_parts_out_t *first)
{
    if (parts->send->stage == NULL) {
        return true;
    }
    tmsg_stage_out_pump(parts->send, parts == first || parts->granted);
    return is_slicing(parts) ||
           tmsg_stage_out_ready(parts->send, parts->next.tensor);
}

/* Returns whether a part of the message may go where there is a place in the
 * window. Messages that the receiver has no memory for may wait there for
 * memory that others hold, so the others must not lack a place. One place is
 * left to the messages that the receiver asked for, or may come to ask for. Of
 * the rest one place is left to the message that began first, which gets memory
 * before the others. */
static bool may_use_place(const tmsg_endpoint_t *endpoint,
                          const tmsg_parts_out_t *parts,
                          const tmsg_parts_out_t *first)
{
    unsigned window =
        parts_window(endpoint) > 1 ? parts_window(endpoint) - 1 : 1;
    unsigned unknown = endpoint->tx.parts_in_ucx - endpoint->tx.granted_in_ucx;

    if (parts->granted) {
        return true;
    }
    return unknown < window &&
           (parts == first || unknown - first->in_ucx + 1 < window);
}

/* Chooses the message whose part goes next, or NULL. Within a channel one
 * message follows the other; channels take turns, and the channel whose last
 * part is the longest ago comes first. Where the first message of a channel
 * cannot go, those behind it do not go either: they might wait at the receiver
 * for memory that it holds, and leave it no room. */
static tmsg_parts_out_t *choose_parts(tmsg_endpoint_t *endpoint)
{
    tmsg_node_t *node = endpoint->tx.parting.head;
    tmsg_parts_out_t *first = NULL, *chosen = NULL;

    for (; node != NULL; node = node->next) {
        TMSG_CONTAINER_OF(node, tmsg_parts_out_t, node)
            ->send->channel->stalled = false;
    }
    for (node = endpoint->tx.parting.head; node != NULL; node = node->next) {
        tmsg_parts_out_t *parts =
            TMSG_CONTAINER_OF(node, tmsg_parts_out_t, node);
        tmsg_channel_t *channel = parts->send->channel;

        if (first == NULL && !parts->awaited && !parts->granted) {
            first = parts;
        }
        if (channel->stalled) {
            continue;
        }
        channel->stalled = parts->awaited || !next_part_is_ready(parts, first);
        if (!channel->stalled && may_use_place(endpoint, parts, first) &&
            (chosen == NULL ||
             channel->parted < chosen->send->channel->parted)) {
            chosen = parts;
        }
    }
    if (chosen != NULL) {
        chosen->send->channel->parted = ++endpoint->tx.parts_handed;
    }
    return chosen;
}

void tmsg_parts_flush(tmsg_endpoint_t *endpoint)
{
    while (endpoint->tx.parting.count > 0 && endpoint->ep != NULL &&
           endpoint->tx.parts_in_ucx < parts_window(endpoint)) {
        tmsg_parts_out_t *parts = choose_parts(endpoint);

        if (parts == NULL) {
            return;
        }
        post_next(parts);
    }
}
