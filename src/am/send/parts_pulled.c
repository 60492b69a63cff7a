/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends parts that wait until the peer has memory for all of them and says how
 * they are to come: by the bulk stream, or by UCX. */
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fragments.h"
#include "am/path/bulk.h"
#include "am/send/cancel.h"
#include "am/send/parts_out_struct.h"

static void go_by_bulk(tmsg_parts_out_t *parts)
{
    tmsg_endpoint_t *endpoint = parts->send->endpoint;

    tmsg_parts_out_unlist(parts);
    tmsg_parts_out_enlist(parts, &endpoint->pulled);
    tmsg_bulk_stir(endpoint);
}

static void go_by_ucx(tmsg_parts_out_t *parts)
{
    tmsg_send_count_bulk(parts->send, false);
    tmsg_parts_out_grant(parts);
}

tmsg_ucx_status_t tmsg_pull_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    tmsg_send_t *send =
        endpoint == NULL ? NULL
                         : tmsg_send_find(endpoint, arrival->head.message_id);
    tmsg_parts_out_t *parts = send == NULL ? NULL : send->parts;

    if (arrival->head.body_bytes < 1 || parts == NULL || !parts->awaited) {
        /* The message was given up meanwhile. */
        return TMSG_UCX_OK;
    }
    tmsg_endpoint_hold(endpoint);
    if (arrival->body[0] == TMSG_PULL_BY_BULK && tmsg_bulk_sends(endpoint)) {
        go_by_bulk(parts);
    } else {
        go_by_ucx(parts);
    }
    if (endpoint->tx.parting.count > 0) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_endpoint_drop(endpoint);
    return TMSG_UCX_OK;
}

/* Chooses the message whose piece goes next by the bulk stream, or NULL.
 * Channels take turns, as in parts_out.c; the peer has memory for all of these
 * messages. */
static tmsg_parts_out_t *choose_pulled(tmsg_endpoint_t *endpoint)
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
    tmsg_parts_out_t *parts = choose_pulled(endpoint);
    tmsg_parts_slot_t *slot;
    int memory_type;

    if (parts == NULL) {
        return false;
    }
    parts->send->channel->parted = ++endpoint->tx.parts_handed;
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
    endpoint->in_ucx++;
    return true;
}

void tmsg_parts_unreadable(const tmsg_parts_piece_t *piece, const void *at)
{
    const tmsg_parts_slot_t *slot = piece->slot;
    tmsg_send_t *send = slot->send;
    char why[TMSG_ERROR_BYTES];

    tmsg_plan_say_unreadable(send->parts->map, at, why, sizeof(why));
    tmsg_send_fail(send, TMSG_ERR_IO, why);
    tmsg_parts_handed(piece, TMSG_UCX_OK);
}

void tmsg_parts_handed(const tmsg_parts_piece_t *piece, tmsg_ucx_status_t ucs)
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
