/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts that wait until the peer has memory for all of them and says how they
 * are to come: by the lane, by its reading them where they lie, or by UCX. */
#include "am/control.h"
#include "am/lane.h"
#include "am/loan.h"
#include "am/parts_out_struct.h"
#include "core/bytes.h"
#include "core/map.h"
#include "serialize/split.h"

static void go_by_lane(tmsg_parts_out_t *parts)
{
    tmsg_endpoint_t *endpoint = parts->send->endpoint;

    tmsg_parts_out_unlist(parts);
    tmsg_parts_out_enlist(parts, &endpoint->pulled);
    tmsg_lane_stir(endpoint);
}

/* As any other's, that nobody asked for. */
static void go_by_ucx(tmsg_parts_out_t *parts)
{
    tmsg_send_count_lane(parts->send, false);
    tmsg_parts_out_await(parts, false);
}

/* All that the peer is to read, what lies together in one. False: no memory. */
static bool list_places(tmsg_parts_out_t *parts, size_t *count_p)
{
    tmsg_pool_t *pool = tmsg_store_pool(parts->send->endpoint->worker->store);
    size_t room = tmsg_map_size(parts->map) + parts->left.iov_count + 1 +
                  tmsg_split_slices(&parts->split, parts->next.left_bytes);
    const tmsg_parts_next_t next = parts->next;
    tmsg_loan_list_t list = {.count = 0};

    if (tmsg_pool_take(pool, room * TMSG_LOAN_PLACE_BYTES, &parts->places) !=
        TMSG_OK) {
        return false;
    }
    list.at = parts->places.data;
    while (!tmsg_parts_out_is_over(parts)) {
        uint64_t bytes = tmsg_parts_out_next_bytes(parts);
        tmsg_fill_t *fill;
        int memory_type;
        size_t count = 0;
        const void *data =
            tmsg_parts_out_step(parts, bytes, &fill, &memory_type, &count);
        const ucp_dt_iov_t one = {(void *)(uintptr_t)data, bytes};

        tmsg_loan_add(&list, count > 1 ? data : &one, count > 1 ? count : 1);
    }
    parts->next = next; /* the peer may find that it cannot read them */
    *count_p = list.count;
    return true;
}

static void lend(tmsg_parts_out_t *parts)
{
    size_t count;

    if (!list_places(parts, &count)) {
        go_by_ucx(parts);
        return;
    }
    tmsg_parts_out_unlist(parts);
    parts->lent = true;
    tmsg_control_lend(parts->send->channel, parts->send->message_id,
                      parts->send->sequence, parts->places.data, count);
}

/* The peer reads no more of them: it has all, or cannot. */
static void answer_loan(tmsg_parts_out_t *parts, uint8_t how)
{
    tmsg_send_t *send = parts->send;

    tmsg_parts_out_take_back(parts);
    if (how == TMSG_PULL_DONE || send->ucx_status != UCS_OK) {
        tmsg_send_part_reported(send, UCS_OK);
        return;
    }
    /* It has memory there, for which those behind it may wait. */
    tmsg_list_insert(&send->endpoint->parting, NULL, &parts->node);
    parts->queue = &send->endpoint->parting;
    go_by_ucx(parts);
}

ucs_status_t tmsg_pull_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    tmsg_send_t *send =
        endpoint == NULL ? NULL
                         : tmsg_send_find(endpoint, arrival->head.message_id);
    tmsg_parts_out_t *parts = send == NULL ? NULL : send->parts;

    if (arrival->head.body_bytes < 1 || parts == NULL ||
        !(parts->awaited || parts->lent)) {
        return UCS_OK; /* it was given up meanwhile */
    }
    tmsg_endpoint_hold(endpoint);
    if (parts->lent) {
        answer_loan(parts, arrival->body[0]);
    } else if (arrival->body[0] == TMSG_PULL_BY_LANE &&
               tmsg_lane_stands(endpoint)) {
        go_by_lane(parts);
    } else if (arrival->body[0] == TMSG_PULL_BY_LANE &&
               tmsg_loans_are_made(endpoint)) {
        lend(parts);
    } else {
        go_by_ucx(parts);
    }
    if (endpoint->parting.count > 0) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_endpoint_drop(endpoint);
    return UCS_OK;
}

/* Channels take turns, as in parts_out.c; all of these have memory. */
static tmsg_parts_out_t *choose(tmsg_endpoint_t *endpoint)
{
    tmsg_parts_out_t *chosen = NULL;

    for (tmsg_node_t *node = endpoint->pulled.head; node != NULL;
         node = node->next) {
        tmsg_parts_out_t *parts =
            TMSG_CONTAINER_OF(node, tmsg_parts_out_t, node);

        if (chosen == NULL ||
            parts->send->channel->parted < chosen->send->channel->parted) {
            chosen = parts;
        }
    }
    return chosen;
}

bool tmsg_parts_next(tmsg_endpoint_t *endpoint, tmsg_parts_piece_t *piece)
{
    tmsg_parts_out_t *parts = choose(endpoint);
    tmsg_parts_slot_t *slot;
    int memory_type;

    if (parts == NULL) {
        return false;
    }
    parts->send->channel->parted = ++endpoint->parts_handed;
    slot = tmsg_parts_out_take_slot(parts);
    *piece = (tmsg_parts_piece_t){.channel = parts->send->channel->number,
                                  .sequence = parts->send->sequence,
                                  .number = parts->next.number,
                                  .bytes = tmsg_parts_out_next_bytes(parts),
                                  .slot = slot};
    piece->data = tmsg_parts_out_step(parts, piece->bytes, &slot->fill,
                                      &memory_type, &piece->count);
    if (tmsg_parts_out_is_over(parts)) {
        tmsg_parts_out_unlist(parts);
    }
    parts->in_ucx++;
    endpoint->in_ucx++;
    return true;
}

void tmsg_parts_handed(const tmsg_parts_piece_t *piece, ucs_status_t ucs)
{
    tmsg_parts_slot_t *slot = piece->slot;
    tmsg_send_t *send = slot->send;
    tmsg_endpoint_t *endpoint = send->endpoint;

    tmsg_endpoint_hold(endpoint);
    tmsg_parts_out_give_slot(slot);
    tmsg_send_part_reported(send, ucs);
    tmsg_endpoint_reported(endpoint);
    tmsg_endpoint_drop(endpoint);
}
