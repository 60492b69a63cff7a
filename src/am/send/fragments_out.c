/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends fragments by UCX. UCX has a few fragments at a time; when it reports
 * one, the next goes. So a small message never waits behind more than a few. */
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/endpoint/measures.h"
#include "am/endpoint/transport.h"
#include "am/path/ipc.h"
#include "am/send/cancel.h"
#include "am/send/fragments_out_struct.h"
#include "am/staging/copy.h"
#include "am/worker/staging.h"
#include "core/bytes.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/split.h"

#define HEADER_BYTES (TMSG_PREAMBLE_BYTES + TMSG_FRAGMENT_NUMBER_BYTES)

/* Returns how many fragments UCX may have at a time. */
static unsigned fragments_window(const tmsg_endpoint_t *endpoint)
{
    uint32_t theirs = endpoint->peer_hello.fragments;

    return theirs < TMSG_FRAGMENTS_SENT ? theirs : TMSG_FRAGMENTS_SENT;
}

bool tmsg_fragments_may_be_asked(const tmsg_endpoint_t *endpoint)
{
    return fragments_window(endpoint) > 2;
}

/* Goes on to the next tensor that travels in fragments, from
 * fragments->next.tensor on. */
static void find_next_fragment(tmsg_fragments_out_t *fragments)
{
    fragments->next.tensor = tmsg_split_next(&fragments->split, fragments->map,
                                             fragments->next.tensor);
}

static bool is_slicing(const tmsg_fragments_out_t *fragments)
{
    return fragments->next.tensor == tmsg_map_size(fragments->map);
}

bool tmsg_fragments_out_is_over(const tmsg_fragments_out_t *fragments)
{
    return is_slicing(fragments) && fragments->next.left_bytes == 0;
}

/* Checks that the tensors in fragments can be packed, those that have to be,
 * and writes checksums. */
static tmsg_status_t check_fragments(const tmsg_fragments_out_t *fragments,
                                     const tmsg_payload_t *payload)
{
    tmsg_pool_t *pool =
        tmsg_budget_pool(fragments->send->endpoint->worker->budget);
    size_t size = tmsg_map_size(payload->map);
    tmsg_status_t status = TMSG_OK;

    if (payload->measures->fragments_packed == 0 &&
        payload->extra->checksum == NULL) {
        return TMSG_OK;
    }
    for (size_t i = tmsg_split_next(&fragments->split, payload->map, 0);
         i < size && status == TMSG_OK;
         i = tmsg_split_next(&fragments->split, payload->map, i + 1)) {
        status = tmsg_pack_check(payload, i, pool);
    }
    return status;
}

/* Returns a record that is all zero, or NULL without memory. */
static tmsg_fragments_out_t *get_fragments_out_record(tmsg_send_t *send,
                                                      size_t others_bytes)
{
    tmsg_fragments_out_t *fragments = send->fragments_kept;

    if (fragments == NULL || others_bytes > 0) {
        return calloc(1, sizeof(*fragments) + others_bytes);
    }
    send->fragments_kept = NULL;
    memset(fragments, 0, sizeof(*fragments));
    return fragments;
}

tmsg_status_t tmsg_fragments_make(tmsg_send_t *send,
                                  const tmsg_payload_t *payload)
{
    tmsg_fragments_out_t *fragments =
        get_fragments_out_record(send, payload->extra->split.others_bytes);
    tmsg_status_t status = TMSG_OK;

    if (fragments == NULL) {
        return tmsg_error_memory("a message's fragments");
    }
    fragments->send = send;
    fragments->map = payload->map;
    send->fragments = fragments;
    fragments->split = payload->extra->split;
    if (fragments->split.others_bytes > 0) {
        memcpy(fragments->others, fragments->split.others,
               fragments->split.others_bytes);
    }
    fragments->split.others = fragments->others;
    if (payload->way.fragments) {
        fragments->bytes =
            payload->measures->bytes - payload->measures->head_bytes;
        status = check_fragments(fragments, payload);
    }
    find_next_fragment(fragments);
    if (send->stage != NULL) {
        tmsg_stage_out_begin(send, &fragments->split);
    }
    return status;
}

/* Copies a list from `skip` bytes on to `to`, and ends a piece wherever a
 * slice ends. */
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

tmsg_status_t tmsg_fragments_slice(tmsg_send_t *send,
                                   const tmsg_payload_t *payload)
{
    tmsg_fragments_out_t *fragments = send->fragments;
    tmsg_plan_t *plan = &send->plan;
    const tmsg_measures_t *measures = payload->measures;
    uint64_t spill = tmsg_layout_spill(payload->spill);
    uint64_t left = plan->bytes - spill;
    const uint8_t *begin =
        plan->iov_count > 0 ? plan->iov[0].iov_base : plan->contiguous;
    tmsg_status_t status = TMSG_OK;

    fragments->packs = payload->way.packs;
    if (fragments->packs) {
        left = payload->way.fragments ? measures->head_bytes : measures->bytes;
        fragments->next.left_bytes = left;
        fragments->bytes += left;
        return TMSG_OK;
    }
    if (plan->iov_count > 0 && spill == 0 && left <= fragments->split.slice) {
        fragments->next.iov = plan->iov;
    } else if (plan->iov_count > 0) {
        size_t most =
            plan->iov_count + tmsg_split_slices(&fragments->split, left);

        status =
            tmsg_pool_take(tmsg_budget_pool(send->endpoint->worker->budget),
                           most * sizeof(*plan->iov), &fragments->list);
        if (status != TMSG_OK) {
            return status;
        }
        cut_slices(plan, spill, fragments->split.slice, fragments->list.data);
        fragments->next.iov = fragments->list.data;
    }
    fragments->next.at = begin + spill;
    fragments->next.left_bytes = left;
    fragments->bytes += left;
    fragments->left = *plan;
    *plan = (tmsg_plan_t){
        .bytes = spill, .contiguous = spill > 0 ? begin : NULL, .shared = true};
    return TMSG_OK;
}

void tmsg_fragments_free(tmsg_send_t *send)
{
    if (send->fragments != NULL) {
        tmsg_pool_t *pool = tmsg_budget_pool(send->endpoint->worker->budget);

        tmsg_fragments_stop(send);
        tmsg_soon_forget(&send->fragments->call);
        tmsg_pool_give(pool, send->fragments->list);
        tmsg_plan_free(&send->fragments->left, pool);
        if (send->fragments->split.others_bytes > 0) {
            free(send->fragments);
        } else {
            free(send->fragments_kept);
            send->fragments_kept = send->fragments;
        }
        send->fragments = NULL;
    }
}

size_t tmsg_fragments_spare(const tmsg_send_t *send)
{
    return send->fragments_kept == NULL ? 0 : sizeof(*send->fragments_kept);
}

bool tmsg_fragments_pending(const tmsg_send_t *send)
{
    return send->fragments != NULL &&
           (send->fragments->in_ucx > 0 || send->fragments->queue != NULL ||
            tmsg_stage_out_copies(send));
}

unsigned tmsg_fragments_in_ucx(const tmsg_send_t *send)
{
    return send->fragments == NULL ? 0 : send->fragments->in_ucx;
}

void tmsg_fragments_out_enlist(tmsg_fragments_out_t *fragments,
                               tmsg_list_t *queue)
{
    tmsg_list_push(queue, &fragments->node);
    fragments->queue = queue;
}

void tmsg_fragments_out_await(tmsg_fragments_out_t *fragments, bool awaited)
{
    tmsg_endpoint_t *endpoint = fragments->send->endpoint;

    endpoint->tx.fragments_awaited +=
        (unsigned)awaited - (unsigned)fragments->awaited;
    fragments->awaited = awaited;
}

void tmsg_fragments_out_grant(tmsg_fragments_out_t *fragments)
{
    tmsg_fragments_out_await(fragments, false);
    fragments->granted = true;
}

void tmsg_fragments_out_unlist(tmsg_fragments_out_t *fragments)
{
    tmsg_fragments_out_await(fragments, false);
    tmsg_list_remove(fragments->queue, &fragments->node);
    fragments->queue = NULL;
}

void tmsg_fragments_stop(tmsg_send_t *send)
{
    tmsg_fragments_out_t *fragments = send->fragments;
    tmsg_endpoint_t *endpoint = send->endpoint;

    if (fragments != NULL && fragments->queue != NULL) {
        tmsg_fragments_out_unlist(fragments);
        if (endpoint->tx.fragments_queued.count > 0 &&
            endpoint->state == TMSG_EP_OPEN) {
            tmsg_worker_chore(endpoint->worker, endpoint);
        }
        if (send->ucx_status == TMSG_UCX_OK) {
            /* The rest of the message was not sent. */
            send->ucx_status = TMSG_UCX_CANCELED;
        }
    }
    tmsg_stage_out_stop(send);
}

void tmsg_fragments_out_give_slot(tmsg_fragments_slot_t *slot)
{
    tmsg_budget_t *budget = slot->send->endpoint->worker->budget;

    tmsg_pool_give(tmsg_budget_pool(budget), slot->own);
    slot->own = (tmsg_pool_block_t){0};
    if (slot->direct) {
        tmsg_stage_out_returned(slot->send);
    }
    slot->busy = false;
    slot->send->fragments->in_ucx--;
}

static void end_slot(tmsg_fragments_slot_t *slot, tmsg_ucx_status_t ucs)
{
    tmsg_send_t *send = slot->send;
    tmsg_endpoint_t *endpoint = send->endpoint;
    bool granted = send->fragments->granted;

    tmsg_endpoint_hold(endpoint);
    tmsg_op_over(endpoint, &slot->op);
    tmsg_fragments_out_give_slot(slot);
    if (slot->direct && ucs != TMSG_UCX_OK) {
        tmsg_stage_out_unread(send, ucs);
    }
    if (slot->fill != NULL) {
        /* The chunk of the fragment is free from now on. */
        tmsg_lease_reported(endpoint, ucs);
        tmsg_stage_out_reported(send, slot->fill);
    }
    endpoint->tx.fragments_in_ucx--;
    endpoint->tx.granted_in_ucx -= granted;
    if (endpoint->tx.fragments_queued.count > 0) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_send_fragment_reported(send, ucs);
    tmsg_endpoint_reported(endpoint);
    tmsg_endpoint_drop(endpoint);
}

static void abandon_fragment(tmsg_op_t *op)
{
    tmsg_fragments_slot_t *slot =
        TMSG_CONTAINER_OF(op, tmsg_fragments_slot_t, op);

    tmsg_cma_abandon(&slot->read);
    end_slot(slot, TMSG_UCX_CANCELED);
}

static void read_over(tmsg_cma_out_t *read, tmsg_ucx_status_t ucs)
{
    end_slot(TMSG_CONTAINER_OF(read, tmsg_fragments_slot_t, read), ucs);
}

static void ucx_reported_fragment(void *request, tmsg_ucx_status_t ucs,
                                  void *arg)
{
    tmsg_ucx_request_free(request);
    end_slot(arg, ucs);
}

tmsg_fragments_slot_t *
tmsg_fragments_out_take_slot(tmsg_fragments_out_t *fragments)
{
    tmsg_fragments_slot_t *slot = fragments->slots;

    while (slot->busy) {
        slot++;
    }
    slot->busy = true;
    slot->send = fragments->send;
    fragments->in_ucx++;
    return slot;
}

static void write_fragment_header(const tmsg_fragments_out_t *fragments,
                                  uint32_t number, uint64_t bytes,
                                  uint8_t flags, uint8_t *header)
{
    const tmsg_send_t *send = fragments->send;
    const tmsg_preamble_t head = {
        .kind = TMSG_KIND_FRAGMENT,
        .flags = flags,
        .channel = send->channel->number,
        .message_id = send->message_id,
        .endpoint_id = send->endpoint->peer_id,
        .sequence = send->sequence,
        .body_bytes = TMSG_FRAGMENT_NUMBER_BYTES,
        .payload_bytes = bytes,
        .policy = (uint8_t)send->policy,
    };

    tmsg_preamble_encode(&head, header);
    tmsg_put_le(header + TMSG_PREAMBLE_BYTES, number,
                TMSG_FRAGMENT_NUMBER_BYTES);
}

/* Gets memory of the slot's own for a fragment. Returns NULL if there is
 * none. */
static uint8_t *take_own(tmsg_fragments_slot_t *slot, uint64_t bytes)
{
    tmsg_budget_t *budget = slot->send->endpoint->worker->budget;

    return tmsg_pool_take(tmsg_budget_pool(budget), bytes, &slot->own) ==
                   TMSG_OK
               ? slot->own.data
               : NULL;
}

/* Returns the bytes of the next fragment of a tensor, or NULL if they could not
 * be packed, and goes on to the fragment behind it. */
static const uint8_t *step_tensor(tmsg_fragments_out_t *fragments,
                                  uint64_t bytes, tmsg_fragments_slot_t *slot,
                                  int *memory_type_p)
{
    tmsg_fragments_next_t *next = &fragments->next;
    const tmsg_map_entry_t *entry =
        &tmsg_map_entries(fragments->map)[next->tensor];
    const uint8_t *data = entry->tensor.data;

    if (!tmsg_tensor_is_dense(&entry->tensor)) {
        uint8_t *own = take_own(slot, bytes);

        if (own != NULL) {
            tmsg_pack_part(entry, next->offset, bytes, own);
        }
        data = own;
    } else if (fragments->send->stage != NULL) {
        data = tmsg_stage_out_take(fragments->send, next->tensor, next->offset,
                                   bytes, memory_type_p, &slot->fill);
        slot->direct = tmsg_stage_out_hands_over(fragments->send, next->tensor,
                                                 slot->fill);
        slot->memory =
            tmsg_stage_out_memory(fragments->send, next->tensor, slot->fill);
    } else {
        data += next->offset;
    }
    next->number++;
    next->offset += bytes;
    if (next->offset == entry->bytes) {
        next->offset = 0;
        next->tensor++;
        find_next_fragment(fragments);
    }
    return data;
}

/* Does what step_tensor() does, for a slice that is made now. */
static const uint8_t *make_slice(tmsg_fragments_out_t *fragments,
                                 uint64_t bytes, tmsg_fragments_slot_t *slot)
{
    uint8_t *own = take_own(slot, bytes);

    if (own != NULL) {
        fragments->unreadable =
            tmsg_pack_walk(fragments->map, &fragments->split,
                           &fragments->next.walk, bytes, own);
    }
    return fragments->unreadable == NULL ? own : NULL;
}

/* Returns the bytes of the next slice, or a list of them, and goes on to the
 * slice behind it. */
static const void *step_slice(tmsg_fragments_out_t *fragments, uint64_t bytes,
                              tmsg_fragments_slot_t *slot, size_t *count_p)
{
    const struct iovec *iov = fragments->next.iov;
    const uint8_t *at = fragments->next.at;

    fragments->next.number++;
    fragments->next.left_bytes -= bytes;
    if (fragments->packs) {
        return make_slice(fragments, bytes, slot);
    }
    if (iov == NULL) {
        fragments->next.at += bytes;
        return at;
    }
    for (; bytes > 0; fragments->next.iov++) {
        bytes -= fragments->next.iov->iov_len;
    }
    *count_p = (size_t)(fragments->next.iov - iov);
    return *count_p > 1 ? (const void *)iov : iov->iov_base;
}

const void *tmsg_fragments_out_step(tmsg_fragments_out_t *fragments,
                                    uint64_t bytes, tmsg_fragments_slot_t *slot,
                                    int *memory_type_p, size_t *count_p)
{
    slot->fill = NULL;
    slot->direct = false;
    slot->memory = NULL;
    fragments->send->endpoint->stats.sent_fragment_bytes += bytes;
    return is_slicing(fragments)
               ? step_slice(fragments, bytes, slot, count_p)
               : step_tensor(fragments, bytes, slot, memory_type_p);
}

void tmsg_fragments_out_fail(tmsg_fragments_out_t *fragments)
{
    char why[TMSG_ERROR_BYTES] = "no memory for the copy of a fragment";
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;

    if (fragments->send->given_up != TMSG_GIVE_UP_NONE) {
        return;
    }
    if (fragments->unreadable != NULL) {
        tmsg_plan_say_unreadable(fragments->map, fragments->unreadable, why,
                                 sizeof(why));
        status = TMSG_ERR_IO;
    }
    tmsg_send_fail(fragments->send, status, why);
}

uint64_t tmsg_fragments_out_next_bytes(const tmsg_fragments_out_t *fragments)
{
    uint64_t left, most;

    if (is_slicing(fragments)) {
        left = fragments->next.left_bytes;
        most = fragments->split.slice;
    } else {
        most = tmsg_split_chunk(&fragments->split, fragments->next.tensor);
        left = tmsg_map_entries(fragments->map)[fragments->next.tensor].bytes -
               fragments->next.offset;
    }
    return left < most ? left : most;
}

/* Describes the bytes of a fragment. With count > 1 `data` is a list. */
typedef struct {
    const void *data;
    uint64_t bytes;
    size_t count;
    int memory_type;
} source_t;

static void run_not_copied(tmsg_soon_t *call)
{
    tmsg_fragments_out_t *fragments =
        TMSG_CONTAINER_OF(call, tmsg_fragments_out_t, call);
    tmsg_fragments_slot_t *slot = fragments->uncopied;

    if (!slot->busy) {
        /* The connection of the fragment has ended meanwhile. */
        return;
    }
    tmsg_fragments_out_fail(fragments);
    end_slot(slot, TMSG_UCX_OK);
}

/* Fails the fragment's message, when nobody is in the middle of other work on
 * the endpoint. Until then the fragment counts as one that UCX has, and no
 * other fragment of the message goes. */
static void fail_soon(tmsg_fragments_slot_t *slot)
{
    tmsg_fragments_out_t *fragments = slot->send->fragments;

    fragments->uncopied = slot;
    fragments->call.run = run_not_copied;
    tmsg_soon(slot->send->endpoint->worker, &fragments->call);
}

/* Copies a fragment as tmsg_plan_own() does. Returns false if the fragment
 * cannot be read, or there is no memory. */
static bool copy_fragment_for_ucx(tmsg_fragments_slot_t *slot, source_t *source)
{
    tmsg_fragments_out_t *fragments = slot->send->fragments;

    if (take_own(slot, source->bytes) == NULL) {
        return false;
    }
    fragments->unreadable = tmsg_plan_copy(source->data, source->count,
                                           source->bytes, slot->own.data);
    source->data = slot->own.data;
    source->count = 0;
    return fragments->unreadable == NULL;
}

static tmsg_ucx_status_t hand_fragment_to_ucx(tmsg_fragments_slot_t *slot,
                                              const source_t *source)
{
    const tmsg_ucx_send_t message = {
        .header = slot->header,
        .header_bytes = HEADER_BYTES,
        .data = source->data,
        .bytes = source->bytes,
        .pieces = source->count > 1 ? source->count : 0,
        .flags = TMSG_UCX_SEND_RENDEZVOUS | TMSG_UCX_SEND_REPLY,
        .memory_type = source->memory_type,
    };
    tmsg_ucx_status_t ucs = tmsg_endpoint_send_am(
        slot->send->endpoint, &message, ucx_reported_fragment, slot);

    if (ucs == TMSG_UCX_IN_PROGRESS) {
        return TMSG_UCX_OK;
    }
    if (ucs == TMSG_UCX_NO_MEMORY && slot->send->endpoint->ucx->pipes != NULL) {
        /* A stream has nothing of it then, and the peer reads nothing. */
        if (slot->send->fragments->queue != NULL) {
            tmsg_fragments_out_unlist(slot->send->fragments);
        }
        fail_soon(slot);
        return TMSG_UCX_OK;
    }
    end_slot(slot, ucs);
    return ucs;
}

static void post_next(tmsg_fragments_out_t *fragments)
{
    tmsg_endpoint_t *endpoint = fragments->send->endpoint;
    tmsg_fragments_slot_t *slot = tmsg_fragments_out_take_slot(fragments);
    source_t source = {.bytes = tmsg_fragments_out_next_bytes(fragments),
                       .memory_type = TMSG_UCX_MEMORY_HOST};
    uint32_t number = fragments->next.number;
    bool is_read, is_there;
    tmsg_ucx_status_t ucs;

    source.data = tmsg_fragments_out_step(fragments, source.bytes, slot,
                                          &source.memory_type, &source.count);
    is_read = slot->memory != NULL ||
              (tmsg_cma_sends(endpoint) && source.count <= 1 &&
               source.memory_type == TMSG_UCX_MEMORY_HOST);
    is_there =
        source.data != NULL &&
        (!tmsg_transport_wants_own(endpoint) || slot->fill != NULL ||
         slot->own.data != NULL || source.memory_type != TMSG_UCX_MEMORY_HOST ||
         copy_fragment_for_ucx(slot, &source));
    write_fragment_header(fragments, number, source.bytes,
                          is_read ? TMSG_HEADER_READ : 0, slot->header);
    if (!is_there || tmsg_fragments_out_is_over(fragments)) {
        tmsg_fragments_out_unlist(fragments);
    }
    tmsg_op_begin(endpoint, &slot->op, abandon_fragment);
    endpoint->tx.fragments_in_ucx++;
    endpoint->tx.granted_in_ucx += fragments->granted;
    slot->read = (tmsg_cma_out_t){.over = read_over};
    if (!is_there) {
        fail_soon(slot);
        return;
    }
    ucs = slot->memory != NULL
              ? tmsg_ipc_post(endpoint, slot->header, HEADER_BYTES,
                              slot->memory, source.data, &slot->read)
          : is_read ? tmsg_cma_post(endpoint, slot->header, HEADER_BYTES,
                                    source.data, &slot->read)
                    : hand_fragment_to_ucx(slot, &source);
    if (ucs != TMSG_UCX_OK) {
        tmsg_endpoint_unsent(endpoint, ucs);
    }
}

uint64_t tmsg_fragments_begin(tmsg_send_t *send)
{
    tmsg_fragments_out_t *fragments = send->fragments;

    if (fragments == NULL || tmsg_fragments_out_is_over(fragments)) {
        return 0;
    }
    tmsg_fragments_out_enlist(fragments, &send->endpoint->tx.fragments_queued);
    tmsg_fragments_out_await(fragments, send->pulled);
    return fragments->bytes;
}

/* Returns whether the next fragment can go. Device memory that is copied first
 * may not be there yet. */
static bool next_fragment_is_ready(tmsg_fragments_out_t *fragments,
                                   const tmsg_fragments_out_t *first)
{
    if (fragments->send->stage == NULL) {
        return true;
    }
    tmsg_stage_out_pump(fragments->send,
                        fragments == first || fragments->granted);
    return is_slicing(fragments) ||
           tmsg_stage_out_ready(fragments->send, fragments->next.tensor);
}

/* Returns whether a fragment of the message may go, given that the window has a
 * free place. At the receiver, fragments of a message without memory occupy
 * places until other messages give memory back, so those must not lack a place.
 * One place is left to the messages that the receiver asked for, or may come to
 * ask for (`granted`). Of the rest one place is left to the message that began
 * first, which gets memory before the others. */
static bool may_use_place(const tmsg_endpoint_t *endpoint,
                          const tmsg_fragments_out_t *fragments,
                          const tmsg_fragments_out_t *first)
{
    unsigned window =
        fragments_window(endpoint) > 1 ? fragments_window(endpoint) - 1 : 1;
    unsigned unknown =
        endpoint->tx.fragments_in_ucx - endpoint->tx.granted_in_ucx;

    if (fragments->granted) {
        return true;
    }
    return unknown < window &&
           (fragments == first || unknown - first->in_ucx + 1 < window);
}

/* Chooses the message whose fragment goes next, or NULL. Within a channel one
 * message follows the other; channels take turns, and the channel whose last
 * fragment is the longest ago comes first. Where the first message of a channel
 * cannot go, those behind it do not go either: they might wait at the receiver
 * for memory that it holds, and leave it no room. */
static tmsg_fragments_out_t *choose_fragments(tmsg_endpoint_t *endpoint)
{
    tmsg_node_t *node = endpoint->tx.fragments_queued.head;
    tmsg_fragments_out_t *first = NULL, *chosen = NULL;

    for (; node != NULL; node = node->next) {
        TMSG_CONTAINER_OF(node, tmsg_fragments_out_t, node)
            ->send->channel->stalled = false;
    }
    for (node = endpoint->tx.fragments_queued.head; node != NULL;
         node = node->next) {
        tmsg_fragments_out_t *fragments =
            TMSG_CONTAINER_OF(node, tmsg_fragments_out_t, node);
        tmsg_channel_t *channel = fragments->send->channel;

        if (first == NULL && !fragments->awaited && !fragments->granted) {
            first = fragments;
        }
        if (channel->stalled) {
            continue;
        }
        channel->stalled =
            fragments->awaited || !next_fragment_is_ready(fragments, first);
        if (!channel->stalled && may_use_place(endpoint, fragments, first) &&
            (chosen == NULL ||
             channel->last_fragment < chosen->send->channel->last_fragment)) {
            chosen = fragments;
        }
    }
    if (chosen != NULL) {
        chosen->send->channel->last_fragment = ++endpoint->tx.fragments_handed;
    }
    return chosen;
}

void tmsg_fragments_flush(tmsg_endpoint_t *endpoint)
{
    while (endpoint->tx.fragments_queued.count > 0 && endpoint->ep != NULL &&
           endpoint->tx.fragments_in_ucx < fragments_window(endpoint)) {
        tmsg_fragments_out_t *fragments = choose_fragments(endpoint);

        if (fragments == NULL) {
            return;
        }
        post_next(fragments);
    }
}
