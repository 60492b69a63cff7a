/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts on their way in. One may come before its message's head, or before that
 * has memory: it is kept as UCX brought it, which holds none of its bytes. */
#include "am/recv/parts_in.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/path/cma.h"
#include "am/path/lane.h"
#include "am/recv/fetch.h"
#include "am/recv/parts_layout.h"
#include "am/recv/receive.h"
#include "am/recv/stage_in.h"
#include "am/ucx/segments.h"
#include "am/worker/staging.h"
#include "core/bytes.h"
#include "core/map.h"

#define NUMBER_BYTES 4

/* Pieces of an endpoint that are fetched at a time: a small message waits
 * behind these. With two one is under way while the next is asked for; shared
 * memory is read at once. */
#define FETCHED_MOST 2
#define READ_MOST 1

/* One that came, until it is in its place. */
typedef struct {
    tmsg_op_t op;
    tmsg_node_t node; /* endpoint's kept_parts */
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message; /* NULL: its head is yet to be read */
    bool refused;
    bool in_segment; /* see segments.h */
    tmsg_preamble_t head;
    uint32_t number;
    tmsg_part_range_t range; /* known once `message` is */
    void *data;              /* UCX's descriptor, unless it is to be read */
    bool is_read;
    tmsg_cma_in_t to_read;
    struct iovec *iov;   /* where it goes, if that is several places */
    tmsg_chunk_t *chunk; /* where it is copied on from; NULL: it is not */
    tmsg_copy_t copy;
} part_t;

/* Gives a part to the message that it is of. What is wrong with it, or NULL. */
static const char *claim(tmsg_message_t *message, part_t *part)
{
    const char *wrong;

    if (part->head.message_id != message->head.message_id) {
        return "a part of another message than its number says";
    }
    wrong = tmsg_parts_layout_claim(message, part->number,
                                    part->head.payload_bytes, &part->range);
    if (wrong == NULL) {
        part->message = message;
    }
    return wrong;
}

/* Takes those that came before. */
static tmsg_status_t claim_kept(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_node_t *node = endpoint->rx.kept_parts.head;
    const char *wrong = NULL;

    for (; node != NULL && wrong == NULL; node = node->next) {
        part_t *part = TMSG_CONTAINER_OF(node, part_t, node);

        if (part->message == NULL && !part->refused &&
            part->head.channel == message->head.channel &&
            part->head.sequence == message->head.sequence) {
            wrong = claim(message, part);
        }
    }
    if (wrong == NULL) {
        return TMSG_OK;
    }
    tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, wrong);
    return tmsg_error_set(TMSG_ERR_MALFORMED, "%s", wrong);
}

tmsg_status_t tmsg_parts_expect(tmsg_message_t *message)
{
    tmsg_status_t status = tmsg_parts_layout_make(message);

    return status == TMSG_OK ? claim_kept(message) : status;
}

static void give_segment(part_t *part)
{
    if (part->in_segment) {
        part->in_segment = false;
        tmsg_segment_give(part->endpoint->ucx);
    }
}

/* Where there is no socket nobody tells who waits for the next part that its
 * sender has given the connection up. */
static bool is_forsaken(const tmsg_endpoint_t *endpoint)
{
    return endpoint->link.fd < 0 && !tmsg_endpoint_is_down(endpoint) &&
           !tmsg_lease_stands(endpoint);
}

static void end(part_t *part, tmsg_ucx_status_t ucs)
{
    tmsg_endpoint_t *endpoint = part->endpoint;
    tmsg_message_t *message = part->message;

    if (ucs == TMSG_UCX_OK && is_forsaken(endpoint)) {
        ucs = TMSG_UCX_CANCELED;
    }
    if (part->chunk != NULL) {
        tmsg_chunk_give(endpoint->worker, &endpoint->worker->stage.in,
                        part->chunk);
    }
    free(part->iov);
    free(part);
    if (ucs == TMSG_UCX_OK) {
        tmsg_parts_layout_landed(message);
    }
    tmsg_message_fetched(message, ucs);
    tmsg_endpoint_reported(endpoint);
}

static void copied(tmsg_copy_t *copy, tmsg_status_t status)
{
    part_t *part = TMSG_CONTAINER_OF(copy, part_t, copy);

    if (status != TMSG_OK) {
        tmsg_stage_in_failed(part->message, status);
    }
    end(part, TMSG_UCX_OK);
}

static void over(part_t *part, tmsg_ucx_status_t ucs)
{
    const tmsg_part_range_t *range = &part->range;
    tmsg_endpoint_t *endpoint = part->endpoint;
    tmsg_message_t *message = part->message;
    tmsg_status_t status;

    give_segment(part);
    tmsg_op_over(endpoint, &part->op);
    endpoint->rx.parts_came++;
    if (endpoint->rx.kept_parts.count > 0) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    if (part->chunk == NULL || ucs != TMSG_UCX_OK ||
        !tmsg_stage_in_is_wanted(message)) {
        end(part, ucs);
        return;
    }
    part->copy = (tmsg_copy_t){.over = copied};
    status = tmsg_stage_in_copy(message, range->index, range->offset,
                                part->chunk, range->bytes, &part->copy);
    if (status != TMSG_OK) {
        tmsg_stage_in_failed(message, status);
        end(part, TMSG_UCX_OK);
    }
}

/* Its UCX worker is gone. */
static void forsaken(tmsg_op_t *op)
{
    part_t *part = TMSG_CONTAINER_OF(op, part_t, op);

    part->in_segment = false;
    over(part, TMSG_UCX_CANCELED);
}

static void part_reported(void *request, tmsg_ucx_status_t ucs, size_t length,
                          void *arg)
{
    (void)length;
    tmsg_ucx_request_free(request);
    over(arg, ucs);
}

/* Where a part goes: a slice perhaps as a list of *count_p; and as what
 * memory. */
static void *place_part(part_t *part, size_t *count_p, int *memory_type_p)
{
    const tmsg_part_range_t *range = &part->range;

    return range->is_slice ? tmsg_parts_layout_slice(part->message, range,
                                                     &part->iov, count_p)
                           : tmsg_stage_in_target(part->message, range->index,
                                                  range->offset, part->is_read,
                                                  memory_type_p, &part->chunk);
}

static tmsg_ucx_status_t start_ucx(part_t *part, void *data, size_t count,
                                   int memory_type)
{
    const tmsg_ucx_place_t place = {
        .data = data,
        .bytes = part->range.bytes,
        .pieces = count > 1 ? count : 0,
        .memory_type = memory_type,
    };

    return tmsg_ucx_am_receive(part->message->ucx, part->data, &place,
                               part_reported, part);
}

/* By way of a chunk or straight into its place. */
static const void *place_of(const part_t *part, const struct iovec *pieces,
                            size_t read)
{
    const tmsg_part_range_t *range = &part->range;

    return range->is_slice ? tmsg_cma_place(pieces, read)
                           : (const uint8_t *)tmsg_map_entries(
                                 part->message->map)[range->index]
                                     .tensor.data +
                                 range->offset + read;
}

static tmsg_ucx_status_t read_now(part_t *part, void *place, size_t count)
{
    const struct iovec one = {place, part->range.bytes};
    const struct iovec *pieces = count > 1 ? place : &one;
    size_t read;
    tmsg_ucx_status_t ucs = tmsg_cma_read(part->endpoint, &part->to_read,
                                          pieces, count > 1 ? count : 1, &read);

    if (ucs == TMSG_UCX_INVALID_ADDR) {
        tmsg_message_refuse_at(
            part->message, place_of(part, pieces, read),
            tmsg_cma_blame(part->endpoint, &part->to_read, read));
    }
    return ucs;
}

/* The next fetch of it has begun: it is kept no more. */
static void fetch(part_t *part)
{
    tmsg_message_t *message = part->message;
    int memory_type = TMSG_UCX_MEMORY_HOST;
    size_t count = 0;
    void *place = place_part(part, &count, &memory_type);
    tmsg_ucx_status_t ucs;

    if (place == NULL) {
        message->pending++;
        tmsg_message_refuse(message, TMSG_ERR_NO_MEMORY,
                            "no memory for a list of a message's tensors");
        tmsg_message_fetched(message, TMSG_UCX_OK);
        return;
    }
    tmsg_list_remove(&part->endpoint->rx.kept_parts, &part->node);
    message->pending++;
    part->endpoint->rx.parts_asked++;
    tmsg_op_begin(part->endpoint, &part->op, forsaken);
    ucs = part->is_read ? read_now(part, place, count)
                        : start_ucx(part, place, count, memory_type);
    if (ucs != TMSG_UCX_IN_PROGRESS) {
        over(part, ucs);
    }
}

/* UCX's descriptor goes back, which tells the sender Success: its refusal must
 * have gone out before. */
static void drop(part_t *part)
{
    tmsg_list_remove(&part->endpoint->rx.kept_parts, &part->node);
    give_segment(part);
    if (part->is_read) {
        tmsg_cma_drop(part->endpoint, &part->to_read, false);
    } else {
        tmsg_ucx_am_release(part->endpoint->ucx, part->data);
    }
    free(part);
}

static bool may_be_fetched(const part_t *part)
{
    return !part->refused && part->message != NULL && part->message->placed &&
           part->message->state == TMSG_RX_FETCHING && !part->message->aborted;
}

/* Where it is copied on there has to be a chunk for it. */
static bool has_room(const part_t *part)
{
    return part->message->stage == NULL || part->range.is_slice ||
           tmsg_stage_in_has_room(part->message, part->range.index,
                                  part->range.bytes, part->is_read);
}

/* Whether another piece may be asked for. Where UCX reads the sender's memory
 * that takes its time, at the end of the turn in which it looks for messages:
 * between two pieces there is a turn that only looks. */
static bool is_time(tmsg_endpoint_t *endpoint)
{
    bool reads = endpoint->carrier == TMSG_CARRIER_SHM;
    bool came = endpoint->rx.parts_came != endpoint->rx.parts_seen;

    endpoint->rx.parts_seen = endpoint->rx.parts_came;
    if (endpoint->rx.parts_asked - endpoint->rx.parts_came >=
        (reads ? READ_MOST : FETCHED_MOST)) {
        return false; /* until one of them has come */
    }
    if (reads && came) {
        tmsg_worker_chore(endpoint->worker, endpoint);
        return false;
    }
    return true;
}

/* Fetches the next that may be. */
static void fetch_next(tmsg_endpoint_t *endpoint)
{
    part_t *next = NULL;

    if (endpoint->rx.kept_parts.count == 0 || !is_time(endpoint)) {
        return;
    }
    for (tmsg_node_t *node = endpoint->rx.kept_parts.head; node != NULL;
         node = node->next) {
        part_t *part = TMSG_CONTAINER_OF(node, part_t, node);

        if (!may_be_fetched(part)) {
            continue;
        }
        if (next != NULL) {
            tmsg_worker_chore(endpoint->worker, endpoint);
            break;
        }
        if (has_room(part)) {
            next = part;
        }
    }
    if (next != NULL) {
        fetch(next);
    }
}

/* What is copied on to a device comes by UCX, as there is memory for it. */
static void pull(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    if (tmsg_endpoint_is_down(endpoint)) {
        return; /* it comes again, or never */
    }
    message->by_lane = message->stage == NULL && tmsg_lane_receives(endpoint);
    tmsg_control_pull(message->channel, message->head.message_id,
                      message->by_lane ? TMSG_PULL_BY_LANE : TMSG_PULL_BY_UCX);
    if (message->by_lane) {
        tmsg_lane_stir(endpoint);
    }
}

tmsg_status_t tmsg_parts_fetch(tmsg_message_t *message)
{
    tmsg_status_t status = tmsg_parts_layout_place(message);

    if (status != TMSG_OK) {
        return status;
    }
    message->placed = true;
    if (message->parts == NULL) {
        return TMSG_OK;
    }
    if (message->head.flags & TMSG_HEADER_PULLED) {
        pull(message);
    }
    tmsg_worker_chore(message->endpoint->worker, message->endpoint);
    return TMSG_OK;
}

void tmsg_parts_refuse(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    for (tmsg_node_t *node = endpoint->rx.kept_parts.head; node != NULL;
         node = node->next) {
        part_t *part = TMSG_CONTAINER_OF(node, part_t, node);

        if (part->message == message ||
            (part->message == NULL &&
             part->head.channel == message->head.channel &&
             part->head.sequence == message->head.sequence)) {
            part->message = NULL;
            part->refused = true;
            tmsg_worker_chore(endpoint->worker, endpoint);
        }
    }
}

void tmsg_parts_chores(tmsg_endpoint_t *endpoint)
{
    tmsg_node_t *node = endpoint->rx.kept_parts.head;

    while (node != NULL) {
        part_t *part = TMSG_CONTAINER_OF(node, part_t, node);

        node = node->next;
        if (part->refused) {
            drop(part);
        }
    }
    fetch_next(endpoint);
}

void tmsg_parts_abandon(tmsg_endpoint_t *endpoint)
{
    while (endpoint->rx.kept_parts.count > 0) {
        drop(TMSG_CONTAINER_OF(endpoint->rx.kept_parts.head, part_t, node));
    }
}

/* What no part may be, whatever its message is; NULL: nothing is wrong. */
static const char *judge(const tmsg_endpoint_t *endpoint,
                         const tmsg_channel_t *channel,
                         const tmsg_arrival_t *arrival)
{
    const tmsg_preamble_t *head = &arrival->head;

    if (endpoint->ucx->hello.parts == 0) {
        return "a part, of which none are taken here";
    }
    if (!arrival->rendezvous || head->flags & TMSG_HEADER_SPILLED ||
        head->body_bytes < NUMBER_BYTES ||
        head->payload_bytes != arrival->data_bytes) {
        return "a part that is none";
    }
    if (head->sequence - channel->rx_credited >=
            endpoint->worker->queue_depth &&
        (int32_t)(head->sequence - channel->rx_sequence) >= 0) {
        return "a part of a message beyond the window";
    }
    if (endpoint->rx.kept_parts.count >= endpoint->ucx->hello.parts) {
        return "more parts than were asked for";
    }
    return NULL;
}

/* What is to be read is kept without anything of UCX's. */
static bool takes_segment(const tmsg_endpoint_t *endpoint,
                          const tmsg_arrival_t *arrival)
{
    return arrival->to_read == NULL && endpoint->carrier == TMSG_CARRIER_SHM;
}

static tmsg_status_t keep(tmsg_endpoint_t *endpoint, tmsg_message_t *message,
                          const tmsg_arrival_t *arrival)
{
    part_t *part = malloc(sizeof(*part));
    const char *wrong = NULL;

    if (part == NULL) {
        tmsg_error_memory("a part");
        tmsg_endpoint_break(endpoint, TMSG_ERR_NO_MEMORY,
                            "no memory for a "
                            "part");
        return TMSG_ERR_NO_MEMORY;
    }
    if (takes_segment(endpoint, arrival)) {
        tmsg_segment_keep(endpoint->ucx);
    }
    *part = (part_t){
        .endpoint = endpoint,
        .in_segment = takes_segment(endpoint, arrival),
        .head = arrival->head,
        .number = (uint32_t)tmsg_get_le(arrival->body, NUMBER_BYTES),
        .data = arrival->data,
    };
    if (arrival->to_read != NULL) {
        part->to_read = *arrival->to_read;
        part->is_read = true;
    }
    if (message != NULL && message->decoded) {
        wrong = claim(message, part);
    }
    if (wrong != NULL) {
        give_segment(part);
        free(part);
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, wrong);
        return TMSG_ERR_MALFORMED;
    }
    tmsg_list_push(&endpoint->rx.kept_parts, &part->node);
    if (may_be_fetched(part)) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    return TMSG_OK;
}

tmsg_ucx_status_t tmsg_part_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    tmsg_ucx_status_t ignored =
        arrival->rendezvous ? TMSG_UCX_REJECTED : TMSG_UCX_OK;
    tmsg_channel_t *channel;
    tmsg_message_t *message;
    const char *wrong;

    if (endpoint == NULL) {
        return ignored;
    }
    channel = tmsg_channel_of(endpoint, arrival->head.channel);
    if (channel == NULL) {
        return ignored;
    }
    wrong = judge(endpoint, channel, arrival);
    if (wrong != NULL) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, wrong);
        return ignored;
    }
    if ((int32_t)(arrival->head.sequence - channel->rx_sequence) < 0 ||
        tmsg_channel_overtook(channel, arrival->head.sequence)) {
        return ignored; /* that message was refused before, or is out */
    }
    message = tmsg_message_find(channel, arrival->head.sequence);
    if (message != NULL && message->state == TMSG_RX_FAILED) {
        return ignored;
    }
    if (takes_segment(endpoint, arrival) &&
        !tmsg_segments_suffice(endpoint->ucx)) {
        tmsg_status_t status = tmsg_segments_missing(endpoint->ucx);

        tmsg_endpoint_break(endpoint, status, tmsg_error_message());
        return ignored;
    }
    return keep(endpoint, message, arrival) == TMSG_OK ? TMSG_UCX_IN_PROGRESS
                                                       : ignored;
}
