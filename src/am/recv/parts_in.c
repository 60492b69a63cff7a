/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts that arrive. A part may come before its message's head, or before the
 * message has memory. It is kept as UCX brought it, without its bytes. */
#include "am/recv/parts_in.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/path/bulk.h"
#include "am/path/cma.h"
#include "am/recv/fetch.h"
#include "am/recv/parts_layout.h"
#include "am/recv/receive.h"
#include "am/recv/stage_in.h"
#include "am/ucx/segments.h"
#include "am/worker/staging.h"
#include "core/bytes.h"
#include "core/map.h"

#define NUMBER_BYTES 4

/* An endpoint fetches so many parts at a time, and a small message waits behind
 * these. With two, one is under way while the next is asked for. Shared memory
 * is read at once, so one suffices. */
#define FETCHED_MOST 2
#define READ_MOST 1

/* This record is a part from its arrival until it is in its place. */
typedef struct {
    tmsg_op_t op;
    tmsg_node_t node; /* in the endpoint's kept_parts */
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message; /* NULL: the message's head has not been read */
    bool refused;
    bool in_segment; /* it occupies one of UCX's segments; see segments.h */
    tmsg_preamble_t head;
    uint32_t number;
    tmsg_part_range_t range; /* known once `message` is */
    void *data; /* UCX's descriptor, unless the part is to be read */
    bool is_read;
    tmsg_cma_in_t to_read;
    struct iovec *iov;   /* list of the places that it goes to, if several */
    tmsg_chunk_t *chunk; /* chunk that it is copied on from; NULL: none */
    tmsg_copy_t copy;
} part_t;

/* Gives a part to its message. Returns what is wrong with the part, or NULL. */
static const char *claim_part(tmsg_message_t *message, part_t *part)
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

/* Claims the parts that came before their message was decoded. */
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
            wrong = claim_part(message, part);
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

static void give_part_segment(part_t *part)
{
    if (part->in_segment) {
        part->in_segment = false;
        tmsg_segment_give(part->endpoint->ucx);
    }
}

/* Returns whether the sender gave the connection up while this side waits for
 * its parts. Without a socket nobody tells this side so. */
static bool is_forsaken(const tmsg_endpoint_t *endpoint)
{
    return endpoint->link.fd < 0 && !tmsg_endpoint_is_down(endpoint) &&
           !tmsg_lease_stands(endpoint);
}

static void end_kept_part(part_t *part, tmsg_ucx_status_t ucs)
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

static void part_copied(tmsg_copy_t *copy, tmsg_status_t status)
{
    part_t *part = TMSG_CONTAINER_OF(copy, part_t, copy);

    if (status != TMSG_OK) {
        tmsg_stage_in_failed(part->message, status);
    }
    end_kept_part(part, TMSG_UCX_OK);
}

static void part_over(part_t *part, tmsg_ucx_status_t ucs)
{
    const tmsg_part_range_t *range = &part->range;
    tmsg_endpoint_t *endpoint = part->endpoint;
    tmsg_message_t *message = part->message;
    tmsg_status_t status;

    give_part_segment(part);
    tmsg_op_over(endpoint, &part->op);
    endpoint->rx.parts_came++;
    if (endpoint->rx.kept_parts.count > 0) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    if (part->chunk == NULL || ucs != TMSG_UCX_OK ||
        !tmsg_stage_in_is_wanted(message)) {
        end_kept_part(part, ucs);
        return;
    }
    part->copy = (tmsg_copy_t){.over = part_copied};
    status = tmsg_stage_in_copy(message, range->index, range->offset,
                                part->chunk, range->bytes, &part->copy);
    if (status != TMSG_OK) {
        tmsg_stage_in_failed(message, status);
        end_kept_part(part, TMSG_UCX_OK);
    }
}

/* Ends the fetch of a part, because its UCX worker is gone. */
static void part_forsaken(tmsg_op_t *op)
{
    part_t *part = TMSG_CONTAINER_OF(op, part_t, op);

    part->in_segment = false;
    part_over(part, TMSG_UCX_CANCELED);
}

static void part_receive_reported(void *request, tmsg_ucx_status_t ucs,
                                  size_t length, void *arg)
{
    (void)length;
    tmsg_ucx_request_free(request);
    part_over(arg, ucs);
}

/* Returns where a part goes, and as which memory type. A slice may go to a list
 * of *count_p places. */
static void *place_part(part_t *part, size_t *count_p, int *memory_type_p)
{
    const tmsg_part_range_t *range = &part->range;

    return range->is_slice ? tmsg_parts_layout_slice(part->message, range,
                                                     &part->iov, count_p)
                           : tmsg_stage_in_target(part->message, range->index,
                                                  range->offset, part->is_read,
                                                  memory_type_p, &part->chunk);
}

static tmsg_ucx_status_t start_part_receive(part_t *part, void *data,
                                            size_t count, int memory_type)
{
    const tmsg_ucx_place_t place = {
        .data = data,
        .bytes = part->range.bytes,
        .pieces = count > 1 ? count : 0,
        .memory_type = memory_type,
    };

    return tmsg_ucx_am_receive(part->message->ucx, part->data, &place,
                               part_receive_reported, part);
}

/* Returns the tensor memory that a failed read was to fill, even if the part
 * goes through a chunk. */
static const void *blamed_place(const part_t *part, const struct iovec *pieces,
                                size_t read)
{
    const tmsg_part_range_t *range = &part->range;

    return range->is_slice ? tmsg_cma_place(pieces, read)
                           : (const uint8_t *)tmsg_map_entries(
                                 part->message->map)[range->index]
                                     .tensor.data +
                                 range->offset + read;
}

static tmsg_ucx_status_t read_part_now(part_t *part, void *place, size_t count)
{
    const struct iovec one = {place, part->range.bytes};
    const struct iovec *pieces = count > 1 ? place : &one;
    size_t read;
    tmsg_ucx_status_t ucs = tmsg_cma_read(part->endpoint, &part->to_read,
                                          pieces, count > 1 ? count : 1, &read);

    if (ucs == TMSG_UCX_INVALID_ADDR) {
        tmsg_message_refuse_at(
            part->message, blamed_place(part, pieces, read),
            tmsg_cma_blame(part->endpoint, &part->to_read, read));
    }
    return ucs;
}

/* Begins to fetch a part. The part is not kept any more from then on. */
static void fetch_part(part_t *part)
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
    tmsg_op_begin(part->endpoint, &part->op, part_forsaken);
    ucs = part->is_read ? read_part_now(part, place, count)
                        : start_part_receive(part, place, count, memory_type);
    if (ucs != TMSG_UCX_IN_PROGRESS) {
        part_over(part, ucs);
    }
}

/* Drops a part. This returns UCX's descriptor, which tells the sender Success,
 * so its refusal must have been sent before. */
static void drop_part(part_t *part)
{
    tmsg_list_remove(&part->endpoint->rx.kept_parts, &part->node);
    give_part_segment(part);
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

/* Returns whether a part can be fetched: if it is copied on to a device, it
 * needs a chunk. */
static bool has_part_room(const part_t *part)
{
    return part->message->stage == NULL || part->range.is_slice ||
           tmsg_stage_in_has_room(part->message, part->range.index,
                                  part->range.bytes, part->is_read);
}

/* Returns whether another part may be asked for. If UCX reads the sender's
 * memory, that takes its time at the end of a turn of progress. So a turn that
 * only looks for messages comes between two parts. */
static bool is_time(tmsg_endpoint_t *endpoint)
{
    bool reads = endpoint->transport == TMSG_TRANSPORT_SHM;
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

/* Fetches the next part that may be fetched. */
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
        if (has_part_room(part)) {
            next = part;
        }
    }
    if (next != NULL) {
        fetch_part(next);
    }
}

/* Asks the sender for the parts. Parts that are copied on to a device come by
 * UCX, as there is memory for them. */
static void pull_parts(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    if (tmsg_endpoint_is_down(endpoint)) {
        return; /* the message comes again, or never */
    }
    message->by_bulk = message->stage == NULL && tmsg_bulk_receives(endpoint);
    tmsg_control_pull(message->channel, message->head.message_id,
                      message->by_bulk ? TMSG_PULL_BY_BULK : TMSG_PULL_BY_UCX);
    if (message->by_bulk) {
        tmsg_bulk_stir(endpoint);
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
        pull_parts(message);
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
            drop_part(part);
        }
    }
    fetch_next(endpoint);
}

void tmsg_parts_abandon(tmsg_endpoint_t *endpoint)
{
    while (endpoint->rx.kept_parts.count > 0) {
        drop_part(
            TMSG_CONTAINER_OF(endpoint->rx.kept_parts.head, part_t, node));
    }
}

/* Returns what is wrong with a part whatever its message is, or NULL. */
static const char *judge_part(const tmsg_endpoint_t *endpoint,
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

/* Returns whether a kept part occupies a segment. A part that is to be read is
 * kept without anything of UCX's. */
static bool takes_segment(const tmsg_endpoint_t *endpoint,
                          const tmsg_arrival_t *arrival)
{
    return arrival->to_read == NULL &&
           endpoint->transport == TMSG_TRANSPORT_SHM;
}

static tmsg_status_t keep_part(tmsg_endpoint_t *endpoint,
                               tmsg_message_t *message,
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
        wrong = claim_part(message, part);
    }
    if (wrong != NULL) {
        give_part_segment(part);
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
    wrong = judge_part(endpoint, channel, arrival);
    if (wrong != NULL) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, wrong);
        return ignored;
    }
    if ((int32_t)(arrival->head.sequence - channel->rx_sequence) < 0 ||
        tmsg_channel_overtook(channel, arrival->head.sequence)) {
        return ignored; /* the message was refused before, or was delivered */
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
    return keep_part(endpoint, message, arrival) == TMSG_OK
               ? TMSG_UCX_IN_PROGRESS
               : ignored;
}
