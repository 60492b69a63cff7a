/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts on their way in. One may come before its message's head, or before that
 * has memory: it is kept as UCX brought it, which holds none of its bytes. */
#include <stdlib.h>
#include <string.h>

#include "am/control.h"
#include "am/fetch.h"
#include "am/incoming.h"
#include "am/parts.h"
#include "am/place.h"
#include "am/receive.h"
#include "am/stage_in.h"
#include "core/bytes.h"
#include "core/map.h"
#include "serialize/split.h"

#define NUMBER_BYTES 4

/* A tensor that travels as parts. */
typedef struct {
    uint32_t first; /* number of its first part */
    uint32_t index; /* in the map */
} run_t;

struct tmsg_parts_in {
    uint64_t chunk;
    uint32_t count;
    uint32_t left; /* that are not in their place yet */
    size_t runs;
    run_t *run;          /* by `first` */
    uint8_t *arrived;    /* a bit for each part */
    uint32_t sliced;     /* number of the first slice, `count` without any */
    uint64_t left_bytes; /* that travel so */
    const ucp_dt_iov_t *place; /* of these, once there is one */
    size_t places;
    uint64_t *ends; /* of each of several places, among these bytes */
};

/* One that came, until it is in its place. */
typedef struct {
    tmsg_op_t op;
    tmsg_node_t node; /* endpoint's kept_parts */
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message; /* NULL: its head is yet to be read */
    bool refused;
    tmsg_preamble_t head;
    uint32_t number;
    void *data;          /* UCX's descriptor */
    ucp_dt_iov_t *iov;   /* where it goes, if that is several places */
    tmsg_chunk_t *chunk; /* where it is copied on from; NULL: it is not */
    tmsg_copy_t copy;
} part_t;

static uint64_t slice_bytes(const tmsg_message_t *message, uint32_t number)
{
    const tmsg_parts_in_t *parts = message->parts;
    uint64_t slice = message->extra.split.slice;
    uint64_t left =
        parts->left_bytes - (uint64_t)(number - parts->sliced) * slice;

    return left < slice ? left : slice;
}

static uint64_t bytes_of(const tmsg_message_t *message, uint32_t number,
                         uint32_t *index_p, uint64_t *offset_p)
{
    const tmsg_parts_in_t *parts = message->parts;
    size_t low = 0, high = parts->runs;
    uint64_t bytes;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (parts->run[middle].first <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *index_p = parts->run[low].index;
    *offset_p = (number - parts->run[low].first) * parts->chunk;
    bytes = tmsg_map_entries(message->map)[*index_p].bytes - *offset_p;
    return bytes < parts->chunk ? bytes : parts->chunk;
}

/* Gives a part to the message that it is of. What is wrong with it, or NULL. */
static const char *claim(tmsg_message_t *message, part_t *part)
{
    tmsg_parts_in_t *parts = message->parts;
    uint32_t number = part->number, index;
    uint64_t offset;

    if (part->head.message_id != message->head.message_id) {
        return "a part of another message than its number says";
    }
    if (parts == NULL || number >= parts->count) {
        return "a part that its message does not have";
    }
    if (part->head.payload_bytes !=
        (number >= parts->sliced
             ? slice_bytes(message, number)
             : bytes_of(message, number, &index, &offset))) {
        return "a part of another length than its message says";
    }
    if (parts->arrived[number / 8] >> number % 8 & 1) {
        return "a part that came twice";
    }
    parts->arrived[number / 8] |= (uint8_t)(1u << number % 8);
    part->message = message;
    return NULL;
}

/* Takes those that came before. */
static tmsg_status_t claim_kept(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_node_t *node = endpoint->kept_parts.head;
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

static void count(const tmsg_message_t *message, tmsg_parts_in_t *parts)
{
    const tmsg_split_t *split = &message->extra.split;
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);

    parts->runs = 0;
    parts->count = 0;
    for (size_t i = 0; i < tmsg_map_size(message->map); i++) {
        if (!tmsg_split_has(split, i, entries[i].bytes)) {
            continue;
        }
        if (parts->run != NULL) {
            parts->run[parts->runs] = (run_t){parts->count, (uint32_t)i};
        }
        parts->runs++;
        parts->count += (uint32_t)tmsg_split_parts(split, entries[i].bytes);
    }
    parts->sliced = parts->count;
    parts->left_bytes =
        split->slice == 0 ? 0 : tmsg_split_left_bytes(split, message->map);
    parts->count += (uint32_t)tmsg_split_slices(split, parts->left_bytes);
}

/* What they add to the memory that the payload takes, where all tensors lie as
 * if there were no parts. */
static uint64_t parts_bytes(const tmsg_message_t *message)
{
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;
    uint64_t whole = 0;

    (void)tmsg_layout_bytes(message->map, limits, &whole); /* it was checked */
    return whole - tmsg_split_head_bytes(&message->extra.split, message->map);
}

/* The memory for all of it, and not for the head alone, must be to be had. */
static tmsg_status_t check_total(const tmsg_message_t *message)
{
    const tmsg_limits_t *limits = &message->endpoint->worker->context->limits;
    uint64_t spill = tmsg_payload_spill(&message->head);
    uint64_t bytes = message->head.payload_bytes + parts_bytes(message);

    if (bytes > limits->message_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "payload of %llu bytes, at most %llu",
                              (unsigned long long)bytes,
                              (unsigned long long)limits->message_bytes);
    }
    if (!tmsg_incoming_may_be_placed(message) &&
        !tmsg_store_fits(message->store, bytes, spill)) {
        return tmsg_store_too_small(message->store, bytes);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_parts_expect(tmsg_message_t *message)
{
    tmsg_split_t *split = &message->extra.split;
    tmsg_parts_in_t counted = {.run = NULL};
    tmsg_parts_in_t *parts;
    uint8_t *others;
    size_t runs_bytes, bytes;
    tmsg_status_t status;

    if (split->large > 0) {
        count(message, &counted);
    }
    if (counted.count == 0) {
        message->extra.split = (tmsg_split_t){0};
        return claim_kept(message);
    }
    status = check_total(message);
    if (status != TMSG_OK) {
        return status;
    }
    runs_bytes = counted.runs * sizeof(*counted.run);
    bytes = sizeof(*parts) + runs_bytes + split->others_bytes +
            counted.count / 8 + 1;
    status = tmsg_message_note(message, bytes);
    if (status != TMSG_OK) {
        return status;
    }
    parts = calloc(1, bytes);
    if (parts == NULL) {
        return tmsg_error_memory("a message's parts");
    }
    parts->run = (run_t *)(parts + 1);
    others = (uint8_t *)(parts + 1) + runs_bytes;
    parts->arrived = others + split->others_bytes;
    parts->chunk = split->chunk;
    if (split->others_bytes > 0) { /* the body does not stay */
        memcpy(others, split->others, split->others_bytes);
        split->others = others;
    }
    count(message, parts);
    parts->left = parts->count;
    message->parts = parts;
    message->parts_bytes = parts_bytes(message);
    return claim_kept(message);
}

bool tmsg_parts_missing(const tmsg_message_t *message)
{
    return message->parts != NULL && message->parts->left > 0;
}

void tmsg_parts_forget(tmsg_message_t *message)
{
    if (message->parts != NULL) {
        free(message->parts->ends);
    }
    free(message->parts);
    message->parts = NULL;
}

static void end(part_t *part, ucs_status_t ucs)
{
    tmsg_endpoint_t *endpoint = part->endpoint;
    tmsg_message_t *message = part->message;

    if (part->chunk != NULL) {
        tmsg_chunk_give(endpoint->worker, &endpoint->worker->stage.in,
                        part->chunk);
    }
    free(part->iov);
    free(part);
    message->parts->left -= ucs == UCS_OK;
    tmsg_message_fetched(message, ucs);
    tmsg_endpoint_reported(endpoint);
}

static void copied(tmsg_copy_t *copy, tmsg_status_t status)
{
    part_t *part = TMSG_CONTAINER_OF(copy, part_t, copy);

    if (status != TMSG_OK) {
        tmsg_stage_in_failed(part->message, status);
    }
    end(part, UCS_OK);
}

static void over(part_t *part, ucs_status_t ucs)
{
    tmsg_message_t *message = part->message;
    uint32_t index;
    uint64_t offset, bytes;
    tmsg_status_t status;

    tmsg_op_over(part->endpoint, &part->op);
    if (part->chunk == NULL || ucs != UCS_OK ||
        !tmsg_stage_in_is_wanted(message)) {
        end(part, ucs);
        return;
    }
    bytes = bytes_of(message, part->number, &index, &offset);
    part->copy = (tmsg_copy_t){.over = copied};
    status = tmsg_stage_in_copy(message, index, offset, part->chunk, bytes,
                                &part->copy);
    if (status != TMSG_OK) {
        tmsg_stage_in_failed(message, status);
        end(part, UCS_OK);
    }
}

static void forsaken(tmsg_op_t *op)
{
    over(TMSG_CONTAINER_OF(op, part_t, op), UCS_ERR_CANCELED);
}

static void part_reported(void *request, ucs_status_t ucs, size_t length,
                          void *arg)
{
    (void)length;
    ucp_request_free(request);
    over(arg, ucs);
}

/* The first place that ends behind a byte of what travels in slices. */
static size_t find_place(const tmsg_parts_in_t *parts, uint64_t offset)
{
    size_t low = 0, high = parts->places - 1;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (parts->ends[middle] <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Where a slice goes: in one piece, or as a list in part->iov, the length of
 * which is then *count_p. NULL: no memory. */
static void *place_slice(part_t *part, uint64_t bytes, size_t *count_p)
{
    const tmsg_parts_in_t *parts = part->message->parts;
    uint64_t offset = (uint64_t)(part->number - parts->sliced) *
                      part->message->extra.split.slice;
    size_t first, last;

    if (parts->places == 1) {
        return (uint8_t *)parts->place[0].buffer + offset;
    }
    first = find_place(parts, offset);
    last = find_place(parts, offset + bytes - 1);
    part->iov = malloc((last - first + 1) * sizeof(*part->iov));
    if (part->iov == NULL) {
        return NULL;
    }
    for (size_t i = first; i <= last; i++) {
        uint64_t skip =
            i > first ? 0 : offset - (parts->ends[i] - parts->place[i].length);
        uint64_t room = parts->place[i].length - skip;

        part->iov[i - first] =
            (ucp_dt_iov_t){(uint8_t *)parts->place[i].buffer + skip,
                           room < bytes ? room : bytes};
        bytes -= part->iov[i - first].length;
    }
    *count_p = last - first + 1;
    return *count_p > 1 ? (void *)part->iov : part->iov[0].buffer;
}

/* Where a part goes, of which place_slice() says more, and as what memory. */
static void *place_part(part_t *part, uint64_t *bytes_p, size_t *count_p,
                        int *memory_type_p)
{
    tmsg_message_t *message = part->message;
    uint32_t index;
    uint64_t offset;

    if (part->number >= message->parts->sliced) {
        *bytes_p = slice_bytes(message, part->number);
        return place_slice(part, *bytes_p, count_p);
    }
    *bytes_p = bytes_of(message, part->number, &index, &offset);
    return tmsg_stage_in_target(message, index, offset, memory_type_p,
                                &part->chunk);
}

/* The next fetch of it has begun: it is kept no more. */
static void fetch(part_t *part)
{
    tmsg_message_t *message = part->message;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
            UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .datatype = ucp_dt_make_contig(1),
        .cb.recv_am = part_reported,
        .user_data = part,
    };
    int memory_type = (int)UCS_MEMORY_TYPE_HOST;
    uint64_t bytes;
    size_t count = 0;
    void *place = place_part(part, &bytes, &count, &memory_type);
    ucs_status_ptr_t request;

    if (place == NULL) {
        message->pending++;
        tmsg_message_refuse(message, TMSG_ERR_NO_MEMORY,
                            "no memory for a list of a message's tensors");
        tmsg_message_fetched(message, UCS_OK);
        return;
    }
    if (count > 1) {
        param.datatype = ucp_dt_make_iov();
    }
    param.memory_type = (ucs_memory_type_t)memory_type;
    tmsg_list_remove(&part->endpoint->kept_parts, &part->node);
    message->pending++;
    tmsg_op_begin(part->endpoint, &part->op, forsaken);
    request = ucp_am_recv_data_nbx(message->ucx->ucp, part->data, place,
                                   count > 1 ? count : bytes, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        over(part, UCS_PTR_STATUS(request));
    }
}

/* UCX's descriptor goes back, which tells the sender Success: its refusal must
 * have gone out before. */
static void drop(part_t *part)
{
    tmsg_list_remove(&part->endpoint->kept_parts, &part->node);
    ucp_am_data_release(part->endpoint->ucx->ucp, part->data);
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
    uint32_t index;
    uint64_t offset, bytes;

    if (part->message->stage == NULL ||
        part->number >= part->message->parts->sliced) {
        return true;
    }
    bytes = bytes_of(part->message, part->number, &index, &offset);
    return tmsg_stage_in_has_room(part->message, index, bytes);
}

/* Fetches the next that may be. Where UCX reads the sender's memory that takes
 * its time: what else has come is looked at before the one behind it. */
static void fetch_next(tmsg_endpoint_t *endpoint)
{
    part_t *next = NULL;

    for (tmsg_node_t *node = endpoint->kept_parts.head; node != NULL;
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

/* Notes where what travels in slices is to lie. */
static tmsg_status_t find_places(tmsg_message_t *message)
{
    tmsg_parts_in_t *parts = message->parts;
    tmsg_status_t status =
        tmsg_place_slices(message, &parts->place, &parts->places);
    uint64_t end = 0;

    if (status != TMSG_OK || parts->places == 1) {
        return status;
    }
    parts->ends = malloc(parts->places * sizeof(*parts->ends));
    if (parts->ends == NULL) {
        return tmsg_error_memory("a list of a message's tensors");
    }
    for (size_t i = 0; i < parts->places; i++) {
        end += parts->place[i].length;
        parts->ends[i] = end;
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_parts_fetch(tmsg_message_t *message)
{
    tmsg_status_t status = TMSG_OK;

    if (message->parts != NULL && message->parts->left_bytes > 0) {
        status = find_places(message);
    }
    if (status != TMSG_OK) {
        return status;
    }
    message->placed = true;
    if (message->parts != NULL) {
        tmsg_worker_chore(message->endpoint->worker, message->endpoint);
    }
    return TMSG_OK;
}

void tmsg_parts_refuse(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    for (tmsg_node_t *node = endpoint->kept_parts.head; node != NULL;
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
    tmsg_node_t *node = endpoint->kept_parts.head;

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
    while (endpoint->kept_parts.count > 0) {
        drop(TMSG_CONTAINER_OF(endpoint->kept_parts.head, part_t, node));
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
    if (endpoint->kept_parts.count >= endpoint->ucx->hello.parts) {
        return "more parts than were asked for";
    }
    return NULL;
}

static tmsg_message_t *find(const tmsg_channel_t *channel, uint32_t sequence)
{
    tmsg_message_t *message = channel->rx;

    while (message != NULL && message->head.sequence != sequence) {
        message = message->next_in_order;
    }
    return message;
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
    *part = (part_t){
        .endpoint = endpoint,
        .head = arrival->head,
        .number = (uint32_t)tmsg_get_le(arrival->body, NUMBER_BYTES),
        .data = arrival->data,
    };
    if (message != NULL && message->decoded) {
        wrong = claim(message, part);
    }
    if (wrong != NULL) {
        free(part);
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, wrong);
        return TMSG_ERR_MALFORMED;
    }
    tmsg_list_push(&endpoint->kept_parts, &part->node);
    if (may_be_fetched(part)) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    return TMSG_OK;
}

ucs_status_t tmsg_part_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);
    ucs_status_t ignored = arrival->rendezvous ? UCS_ERR_REJECTED : UCS_OK;
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
    message = find(channel, arrival->head.sequence);
    if (message != NULL && message->state == TMSG_RX_FAILED) {
        return ignored;
    }
    return keep(endpoint, message, arrival) == TMSG_OK ? UCS_INPROGRESS
                                                       : ignored;
}
