/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives fragments that come by UCX. A fragment may come before its message's
 * head, or before the message has memory. It is then kept as UCX brought it:
 * a rendezvous that has not begun, without the bytes. */
#include "am/recv/fragments_in.h"

#include <stdlib.h>
#include <string.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/path/bulk.h"
#include "am/path/cma.h"
#include "am/recv/fetch.h"
#include "am/recv/fragments_layout.h"
#include "am/recv/receive.h"
#include "am/recv/stage_in.h"
#include "am/ucx/segments.h"
#include "am/worker/staging.h"
#include "core/bytes.h"
#include "core/map.h"
#include "serialize/split.h"

#define NUMBER_BYTES 4

/* An endpoint fetches so many fragments at a time, and a small message waits
 * behind these. With two, one is under way while the next is asked for. Shared
 * memory is read at once, so one suffices. A device copies by itself, and
 * nothing waits for it: the next copies are begun meanwhile. */
#define FETCHED_MOST 2
#define READ_MOST 1
#define COPIED_BY_DEVICE_MOST 4

/* Describes a fragment from its arrival until its bytes are in their place. */
typedef struct {
    tmsg_op_t op;
    tmsg_node_t node; /* in the endpoint's kept_fragments */
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message; /* NULL: the message's head has not been read */
    bool refused;
    bool in_segment; /* it occupies one of UCX's segments; see segments.h */
    tmsg_preamble_t head;
    uint32_t number;
    tmsg_fragment_range_t range; /* known once `message` is */
    void *data; /* UCX's descriptor, unless the fragment is to be read */
    bool is_read;
    tmsg_cma_in_t to_read;
    struct iovec *iov;   /* list of the places that it goes to, if several */
    tmsg_chunk_t *chunk; /* chunk that it is copied on from; NULL: none */
    uint64_t bounced;    /* its bytes, if UCX takes device memory for it */
    tmsg_copy_t copy;
} fragment_t;

/* Gives a fragment to its message. Returns what is wrong with the fragment, or
 * NULL. */
static const char *claim_fragment(tmsg_message_t *message, fragment_t *fragment)
{
    const char *wrong;

    if (fragment->head.message_id != message->head.message_id) {
        return "a fragment of another message than its number says";
    }
    wrong = tmsg_fragments_layout_claim(message, fragment->number,
                                        fragment->head.payload_bytes,
                                        &fragment->range);
    if (wrong == NULL && fragment->to_read.view != NULL &&
        fragment->range.is_slice) {
        wrong = "a slice in memory of a device";
    }
    if (wrong == NULL) {
        fragment->message = message;
    }
    return wrong;
}

/* Claims the fragments that came before their message was decoded. */
static tmsg_status_t claim_kept(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_node_t *node = endpoint->rx.kept_fragments.head;
    const char *wrong = NULL;

    for (; node != NULL && wrong == NULL; node = node->next) {
        fragment_t *fragment = TMSG_CONTAINER_OF(node, fragment_t, node);

        if (fragment->message == NULL && !fragment->refused &&
            fragment->head.channel == message->head.channel &&
            fragment->head.sequence == message->head.sequence) {
            wrong = claim_fragment(message, fragment);
        }
    }
    if (wrong == NULL) {
        return TMSG_OK;
    }
    tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, wrong);
    return tmsg_error_set(TMSG_ERR_MALFORMED, "%s", wrong);
}

bool tmsg_fragments_precede(const tmsg_channel_t *channel, uint32_t sequence)
{
    tmsg_node_t *node = channel->endpoint->rx.kept_fragments.head;

    for (; node != NULL; node = node->next) {
        const fragment_t *fragment = TMSG_CONTAINER_OF(node, fragment_t, node);

        if (fragment->message == NULL && !fragment->refused &&
            fragment->head.channel == channel->number &&
            fragment->head.sequence == sequence) {
            return true;
        }
    }
    return false;
}

tmsg_status_t tmsg_fragments_expect(tmsg_message_t *message)
{
    tmsg_status_t status = tmsg_fragments_layout_make(message);

    return status == TMSG_OK ? claim_kept(message) : status;
}

static void give_fragment_segment(fragment_t *fragment)
{
    if (fragment->in_segment) {
        fragment->in_segment = false;
        tmsg_segment_give(fragment->endpoint->ucx);
    }
}

/* Returns whether the sender gave the connection up while this side waits for
 * its fragments. An endpoint without a bootstrap socket learns it only from
 * the lease. */
static bool is_abandoned(const tmsg_endpoint_t *endpoint)
{
    return endpoint->link.fd < 0 && !tmsg_endpoint_is_down(endpoint) &&
           !tmsg_lease_stands(endpoint);
}

static void end_kept_fragment(fragment_t *fragment, tmsg_ucx_status_t ucs)
{
    tmsg_endpoint_t *endpoint = fragment->endpoint;
    tmsg_message_t *message = fragment->message;

    if (ucs == TMSG_UCX_OK && is_abandoned(endpoint)) {
        ucs = TMSG_UCX_CANCELED;
    }
    if (fragment->chunk != NULL) {
        tmsg_chunk_give(endpoint->worker, &endpoint->worker->stage.in,
                        fragment->chunk);
    }
    free(fragment->iov);
    free(fragment);
    if (ucs == TMSG_UCX_OK) {
        tmsg_fragments_layout_landed(message);
    }
    tmsg_message_fetched(message, ucs);
    tmsg_endpoint_reported(endpoint);
}

/* Returns whether UCX takes memory of a device to fetch the fragment, which
 * comes from a device of this machine to the host. It keeps that memory. */
static bool is_bounced(const fragment_t *fragment)
{
    const tmsg_message_t *message = fragment->message;
    const tmsg_fragment_range_t *range = &fragment->range;

    return !range->is_slice && !fragment->is_read &&
           fragment->endpoint->transport == TMSG_TRANSPORT_SHM &&
           message->ucx->memory_types & ~(1ULL << TMSG_UCX_MEMORY_HOST) &&
           tmsg_split_names(&message->extra.split, range->index) &&
           tmsg_map_entry_is_on_host(
               &tmsg_map_entries(message->map)[range->index]);
}

/* Returns whether UCX may take device memory for the fragment, in addition. If
 * not, the endpoint gets a chore when another such fragment has come. */
static bool may_bounce(const fragment_t *fragment)
{
    tmsg_staging_t *stage = &fragment->endpoint->worker->stage;
    bool may = !is_bounced(fragment) || stage->bounced == 0 ||
               stage->bounced + fragment->range.bytes <= TMSG_BOUNCED_BYTES;

    stage->bounce_missed |= !may;
    return may;
}

static void begin_bounce(fragment_t *fragment)
{
    fragment->bounced = is_bounced(fragment) ? fragment->range.bytes : 0;
    fragment->endpoint->worker->stage.bounced += fragment->bounced;
}

static void end_bounce(const fragment_t *fragment)
{
    tmsg_worker_t *worker = fragment->endpoint->worker;
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    worker->stage.bounced -= fragment->bounced;
    if (fragment->bounced == 0 || !worker->stage.bounce_missed) {
        return;
    }
    worker->stage.bounce_missed = false;
    while ((endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
        if (endpoint->rx.kept_fragments.count > 0) {
            tmsg_worker_chore(worker, endpoint);
        }
    }
}

static void fragment_copied(tmsg_copy_t *copy, tmsg_status_t status)
{
    fragment_t *fragment = TMSG_CONTAINER_OF(copy, fragment_t, copy);

    if (status != TMSG_OK) {
        tmsg_stage_in_failed(fragment->message, status);
    }
    end_kept_fragment(fragment, TMSG_UCX_OK);
}

static void fragment_over(fragment_t *fragment, tmsg_ucx_status_t ucs)
{
    const tmsg_fragment_range_t *range = &fragment->range;
    tmsg_endpoint_t *endpoint = fragment->endpoint;
    tmsg_message_t *message = fragment->message;
    tmsg_status_t status;

    give_fragment_segment(fragment);
    tmsg_op_over(endpoint, &fragment->op);
    end_bounce(fragment);
    endpoint->rx.fragments_came++;
    if (fragment->chunk == NULL && !range->is_slice) {
        tmsg_stage_in_returned(message, range->index, ucs);
    }
    if (endpoint->rx.kept_fragments.count > 0) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    if (fragment->chunk == NULL || ucs != TMSG_UCX_OK ||
        !tmsg_stage_in_is_wanted(message)) {
        end_kept_fragment(fragment, ucs);
        return;
    }
    fragment->copy = (tmsg_copy_t){.over = fragment_copied};
    status = tmsg_stage_in_copy(message, range->index, range->offset,
                                fragment->chunk, range->bytes, &fragment->copy);
    if (status != TMSG_OK) {
        tmsg_stage_in_failed(message, status);
        end_kept_fragment(fragment, TMSG_UCX_OK);
    }
}

/* Ends the fetch of a fragment, because its UCX worker is gone. */
static void fragment_abandoned(tmsg_op_t *op)
{
    fragment_t *fragment = TMSG_CONTAINER_OF(op, fragment_t, op);

    fragment->in_segment = false;
    fragment_over(fragment, TMSG_UCX_CANCELED);
}

static void fragment_receive_reported(void *request, tmsg_ucx_status_t ucs,
                                      size_t length, void *arg)
{
    (void)length;
    tmsg_ucx_request_free(request);
    fragment_over(arg, ucs);
}

/* Returns where a fragment goes, and as which memory type. A slice may go to a
 * list of *count_p places. */
static void *place_fragment(fragment_t *fragment, size_t *count_p,
                            int *memory_type_p)
{
    const tmsg_fragment_range_t *range = &fragment->range;

    return range->is_slice
               ? tmsg_fragments_layout_slice(fragment->message, range,
                                             &fragment->iov, count_p)
               : tmsg_stage_in_target(fragment->message, range->index,
                                      range->offset, fragment->is_read,
                                      memory_type_p, &fragment->chunk);
}

static tmsg_ucx_status_t start_fragment_receive(fragment_t *fragment,
                                                void *data, size_t count,
                                                int memory_type)
{
    const tmsg_ucx_place_t place = {
        .data = data,
        .bytes = fragment->range.bytes,
        .pieces = count > 1 ? count : 0,
        .memory_type = memory_type,
    };

    return tmsg_ucx_am_receive(fragment->message->ucx, fragment->data, &place,
                               fragment_receive_reported, fragment);
}

/* Returns the tensor memory that a failed read was to fill, even if the
 * fragment goes through a chunk. */
static const void *blamed_place(const fragment_t *fragment,
                                const struct iovec *pieces, size_t read)
{
    const tmsg_fragment_range_t *range = &fragment->range;

    return range->is_slice ? tmsg_cma_place(pieces, read)
                           : (const uint8_t *)tmsg_map_entries(
                                 fragment->message->map)[range->index]
                                     .tensor.data +
                                 range->offset + read;
}

static tmsg_ucx_status_t read_fragment_now(fragment_t *fragment, void *place,
                                           size_t count)
{
    const struct iovec one = {place, fragment->range.bytes};
    const struct iovec *pieces = count > 1 ? place : &one;
    size_t read;
    tmsg_ucx_status_t ucs =
        tmsg_cma_read(fragment->endpoint, &fragment->to_read, pieces,
                      count > 1 ? count : 1, &read);

    if (ucs == TMSG_UCX_INVALID_ADDR) {
        tmsg_message_refuse_at(
            fragment->message, blamed_place(fragment, pieces, read),
            tmsg_cma_blame(fragment->endpoint, &fragment->to_read, read));
    }
    return ucs;
}

/* Ends a fragment that lay in device memory of the sender's. If the sender has
 * taken its lease back meanwhile, other bytes may have been copied. */
static void ipc_copied(tmsg_copy_t *copy, tmsg_status_t status)
{
    fragment_t *fragment = TMSG_CONTAINER_OF(copy, fragment_t, copy);
    tmsg_endpoint_t *endpoint = fragment->endpoint;
    tmsg_ucx_status_t ucs = TMSG_UCX_OK;

    if (status != TMSG_OK) {
        tmsg_stage_in_failed(fragment->message, status);
    } else if (tmsg_lease_look(endpoint) != TMSG_LEASE_READ) {
        ucs = TMSG_UCX_CANCELED;
    }
    tmsg_cma_drop(endpoint, &fragment->to_read,
                  status != TMSG_OK || ucs != TMSG_UCX_OK);
    end_kept_fragment(fragment, ucs);
}

/* Begins to copy a fragment out of device memory of the sender's. */
static void copy_from_sender(fragment_t *fragment)
{
    tmsg_message_t *message = fragment->message;
    const tmsg_fragment_range_t *range = &fragment->range;
    tmsg_status_t status;

    tmsg_list_remove(&fragment->endpoint->rx.kept_fragments, &fragment->node);
    message->pending++;
    fragment->endpoint->in_ucx++; /* the endpoint stays until it is copied */
    fragment->copy = (tmsg_copy_t){.over = ipc_copied};
    status = tmsg_stage_in_copy_from(message, range->index, range->offset,
                                     &fragment->to_read, range->bytes,
                                     &fragment->copy);
    if (status != TMSG_OK) {
        ipc_copied(&fragment->copy, status);
    }
}

/* Begins to fetch a fragment. The fragment is not kept any more from then on.
 */
static void fetch_fragment(fragment_t *fragment)
{
    tmsg_message_t *message = fragment->message;
    int memory_type = TMSG_UCX_MEMORY_HOST;
    size_t count = 0;
    void *place = place_fragment(fragment, &count, &memory_type);
    tmsg_ucx_status_t ucs;

    if (place == NULL) {
        message->pending++;
        tmsg_message_refuse(message, TMSG_ERR_NO_MEMORY,
                            "no memory for a list of a message's tensors");
        tmsg_message_fetched(message, TMSG_UCX_OK);
        return;
    }
    tmsg_list_remove(&fragment->endpoint->rx.kept_fragments, &fragment->node);
    message->pending++;
    fragment->endpoint->rx.fragments_asked++;
    begin_bounce(fragment);
    tmsg_op_begin(fragment->endpoint, &fragment->op, fragment_abandoned);
    ucs = fragment->is_read
              ? read_fragment_now(fragment, place, count)
              : start_fragment_receive(fragment, place, count, memory_type);
    if (ucs != TMSG_UCX_IN_PROGRESS) {
        fragment_over(fragment, ucs);
    }
}

/* Drops a fragment. This returns UCX's descriptor, which tells the sender
 * Success, so its refusal must have been sent before. */
static void drop_fragment(fragment_t *fragment)
{
    tmsg_list_remove(&fragment->endpoint->rx.kept_fragments, &fragment->node);
    give_fragment_segment(fragment);
    if (fragment->is_read) {
        tmsg_cma_drop(fragment->endpoint, &fragment->to_read, false);
    } else {
        tmsg_ucx_am_release(fragment->endpoint->ucx, fragment->data);
    }
    free(fragment);
}

static bool may_be_fetched(const fragment_t *fragment)
{
    return !fragment->refused && fragment->message != NULL &&
           fragment->message->placed &&
           fragment->message->state == TMSG_RX_FETCHING &&
           !fragment->message->aborted;
}

/* Returns whether a fragment can be fetched: if it is copied on to a device, it
 * needs a chunk; if UCX takes device memory for it, that is bounded. */
static bool has_fragment_room(const fragment_t *fragment)
{
    if (!may_bounce(fragment)) {
        return false;
    }
    return fragment->message->stage == NULL || fragment->range.is_slice ||
           tmsg_stage_in_has_room(fragment->message, fragment->range.index,
                                  fragment->range.bytes, fragment->is_read);
}

/* Returns whether UCX has a device write the fragment to the device's memory.
 */
static bool is_copied_by_device(const fragment_t *fragment)
{
    return fragment->message->stage != NULL && !fragment->range.is_slice &&
           !fragment->is_read &&
           tmsg_stage_in_is_direct(fragment->message, fragment->range.index);
}

/* Returns whether the fragment may be fetched now beside those under way. Over
 * shared memory UCX reads the whole fragment at the end of a turn of progress,
 * which takes time. So a turn that only looks for messages comes between two
 * fragments. */
static bool is_time(tmsg_endpoint_t *endpoint, const fragment_t *fragment)
{
    bool by_device = is_copied_by_device(fragment);
    bool reads = endpoint->transport == TMSG_TRANSPORT_SHM && !by_device;
    bool came = endpoint->rx.fragments_came != endpoint->rx.fragments_seen;

    endpoint->rx.fragments_seen = endpoint->rx.fragments_came;
    if (endpoint->rx.fragments_asked - endpoint->rx.fragments_came >=
        (by_device ? COPIED_BY_DEVICE_MOST
         : reads   ? READ_MOST
                   : FETCHED_MOST)) {
        return false; /* until one of them has come */
    }
    if (reads && came) {
        tmsg_worker_chore(endpoint->worker, endpoint);
        return false;
    }
    return true;
}

/* Fetches the next fragment that may be fetched. */
static void fetch_next(tmsg_endpoint_t *endpoint)
{
    fragment_t *next = NULL;
    bool more = false;

    for (tmsg_node_t *node = endpoint->rx.kept_fragments.head; node != NULL;
         node = node->next) {
        fragment_t *fragment = TMSG_CONTAINER_OF(node, fragment_t, node);

        if (!may_be_fetched(fragment)) {
            continue;
        }
        if (next != NULL) {
            more = true;
            break;
        }
        if (has_fragment_room(fragment)) {
            next = fragment;
        }
    }
    if (next == NULL || !is_time(endpoint, next)) {
        return;
    }
    if (more) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    fetch_fragment(next);
}

/* Asks the sender for the fragments, with a PULL. Fragments that are copied on
 * to a device come by UCX. */
static void pull_fragments(tmsg_message_t *message)
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

tmsg_status_t tmsg_fragments_fetch(tmsg_message_t *message)
{
    tmsg_status_t status = tmsg_fragments_layout_place(message);

    if (status != TMSG_OK) {
        return status;
    }
    message->placed = true;
    if (message->fragments == NULL) {
        return TMSG_OK;
    }
    if (message->head.flags & TMSG_HEADER_PULLED) {
        pull_fragments(message);
    }
    tmsg_worker_chore(message->endpoint->worker, message->endpoint);
    return TMSG_OK;
}

void tmsg_fragments_refuse(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    for (tmsg_node_t *node = endpoint->rx.kept_fragments.head; node != NULL;
         node = node->next) {
        fragment_t *fragment = TMSG_CONTAINER_OF(node, fragment_t, node);

        if (fragment->message == message ||
            (fragment->message == NULL &&
             fragment->head.channel == message->head.channel &&
             fragment->head.sequence == message->head.sequence)) {
            fragment->message = NULL;
            fragment->refused = true;
            tmsg_worker_chore(endpoint->worker, endpoint);
        }
    }
}

void tmsg_fragments_chores(tmsg_endpoint_t *endpoint)
{
    tmsg_node_t *node = endpoint->rx.kept_fragments.head;

    while (node != NULL) {
        fragment_t *fragment = TMSG_CONTAINER_OF(node, fragment_t, node);

        node = node->next;
        if (fragment->refused) {
            drop_fragment(fragment);
        } else if (fragment->to_read.view != NULL && may_be_fetched(fragment)) {
            copy_from_sender(fragment);
        }
    }
    fetch_next(endpoint);
}

void tmsg_fragments_abandon(tmsg_endpoint_t *endpoint)
{
    while (endpoint->rx.kept_fragments.count > 0) {
        drop_fragment(TMSG_CONTAINER_OF(endpoint->rx.kept_fragments.head,
                                        fragment_t, node));
    }
}

/* Returns what is wrong with a fragment whatever its message is, or NULL. */
static const char *judge_fragment(const tmsg_endpoint_t *endpoint,
                                  const tmsg_channel_t *channel,
                                  const tmsg_arrival_t *arrival)
{
    const tmsg_preamble_t *head = &arrival->head;

    if (endpoint->ucx->hello.fragments == 0) {
        return "a fragment, of which none are taken here";
    }
    if (!arrival->rendezvous || head->flags & TMSG_HEADER_SPILLED ||
        head->body_bytes < NUMBER_BYTES ||
        head->payload_bytes != arrival->data_bytes) {
        return "a malformed fragment";
    }
    if (head->sequence - channel->rx_credited >=
            endpoint->worker->queue_depth &&
        (int32_t)(head->sequence - channel->rx_sequence) >= 0) {
        return "a fragment of a message beyond the window";
    }
    if (endpoint->rx.kept_fragments.count >= endpoint->ucx->hello.fragments) {
        return "more fragments than were asked for";
    }
    return NULL;
}

/* Returns whether a kept fragment occupies a segment. A fragment that is to be
 * read is kept without anything of UCX's. */
static bool takes_segment(const tmsg_endpoint_t *endpoint,
                          const tmsg_arrival_t *arrival)
{
    return arrival->to_read == NULL && endpoint->ucx->pipes == NULL &&
           endpoint->transport == TMSG_TRANSPORT_SHM;
}

static tmsg_status_t keep_fragment(tmsg_endpoint_t *endpoint,
                                   tmsg_message_t *message,
                                   const tmsg_arrival_t *arrival)
{
    fragment_t *fragment = malloc(sizeof(*fragment));
    const char *wrong = NULL;

    if (fragment == NULL) {
        tmsg_error_memory("a fragment");
        tmsg_endpoint_break(endpoint, TMSG_ERR_NO_MEMORY,
                            "no memory for a "
                            "fragment");
        return TMSG_ERR_NO_MEMORY;
    }
    if (takes_segment(endpoint, arrival)) {
        tmsg_segment_keep(endpoint->ucx);
    }
    *fragment = (fragment_t){
        .endpoint = endpoint,
        .in_segment = takes_segment(endpoint, arrival),
        .head = arrival->head,
        .number = (uint32_t)tmsg_get_le(arrival->body, NUMBER_BYTES),
        .data = arrival->data,
    };
    if (arrival->to_read != NULL) {
        fragment->to_read = *arrival->to_read;
        fragment->is_read = true;
    }
    if (message != NULL && message->decoded) {
        wrong = claim_fragment(message, fragment);
    }
    if (wrong != NULL) {
        give_fragment_segment(fragment);
        free(fragment);
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, wrong);
        return TMSG_ERR_MALFORMED;
    }
    tmsg_list_push(&endpoint->rx.kept_fragments, &fragment->node);
    if (may_be_fetched(fragment)) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    return TMSG_OK;
}

tmsg_ucx_status_t tmsg_fragment_arrived(const tmsg_arrival_t *arrival)
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
    wrong = judge_fragment(endpoint, channel, arrival);
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
    return keep_fragment(endpoint, message, arrival) == TMSG_OK
               ? TMSG_UCX_IN_PROGRESS
               : ignored;
}
