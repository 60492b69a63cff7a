/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/endpoint/transport.h"
#include "am/path/cma.h"
#include "am/recv/deliver.h"
#include "am/recv/fetch_queue.h"
#include "am/recv/fragments_in.h"
#include "am/recv/in_place.h"
#include "am/recv/incoming.h"
#include "am/recv/outcomes.h"
#include "am/recv/posted.h"
#include "am/recv/receive.h"
#include "am/recv/scatter.h"
#include "am/recv/stage_in.h"
#include "am/ucx/segments.h"
#include "am/ucx/ucx.h"
#include "am/worker/lead.h"
#include "am/worker/memory.h"
#include "core/error.h"
#include "core/log.h"
#include "serialize/split.h"

/* UCX's data may occupy one of its segments, however short it is. Data of up to
 * this many bytes is copied if it has to wait for memory. Longer data is in
 * memory of its own. */
#define COPIED_MOST 65536

static void give_message_segment(tmsg_message_t *message)
{
    if (message->in_segment) {
        message->in_segment = false;
        tmsg_segment_give(message->ucx);
    }
}

void tmsg_message_drop_data(tmsg_message_t *message)
{
    if (message->data == NULL) {
        return;
    }
    give_message_segment(message);
    if (message->is_read) {
        tmsg_cma_drop(message->endpoint, &message->to_read, false);
    } else if (message->copied) {
        free(message->data);
    } else {
        tmsg_ucx_am_release(message->ucx, message->data);
    }
    message->data = NULL;
    tmsg_credit_free(message->endpoint, &message->charged);
}

tmsg_status_t tmsg_message_keep_data(tmsg_message_t *message, void *data,
                                     size_t bytes, bool fleeting)
{
    bool waits = tmsg_fetch_is_late(message);
    bool takes = !message->is_read &&
                 tmsg_transport_takes_segment(message->endpoint,
                                              message->rendezvous, bytes);
    void *copy = NULL;

    if (bytes == 0 && !message->rendezvous) {
        return TMSG_OK;
    }
    if (takes && !fleeting && !tmsg_segments_suffice(message->ucx)) {
        if (message->rendezvous) {
            return tmsg_segments_missing(message->ucx);
        }
        waits = true;
    }
    if (fleeting || (!message->rendezvous && waits && bytes <= COPIED_MOST)) {
        copy = malloc(bytes);
    }
    if (copy == NULL && fleeting) {
        return tmsg_error_memory("a message that waits for its own");
    }
    if (copy == NULL) {
        message->data = data;
        if (takes) {
            message->in_segment = true;
            tmsg_segment_keep(message->ucx);
        }
        return TMSG_IN_PROGRESS;
    }
    memcpy(copy, data, bytes);
    message->data = copy;
    message->copied = true;
    return TMSG_OK;
}

/* Returns whether the bytes that were read from the sender's memory until now
 * were the ones it sent: its socket stands, and so does its lease. */
static bool is_lent(const tmsg_endpoint_t *endpoint)
{
    return tmsg_link_alive(endpoint) && tmsg_lease_stands(endpoint);
}

/* Handles a fetch that failed. If the sender is gone, nothing behind this
 * message is delivered either, so the order has no gap. If a session makes the
 * connection again, the message comes again. */
static void lose_message(tmsg_message_t *message, tmsg_ucx_status_t ucs)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    bool alive = is_lent(endpoint);
    char why[240];

    if (alive && tmsg_ucx_is_loss(ucs)) {
        message->state = TMSG_RX_BROKEN;
        tmsg_endpoint_lose(endpoint, ucs);
        return;
    }

    if (alive) {
        snprintf(why, sizeof(why),
                 "the sender has ended, or its memory cannot be read (UCX: %s)",
                 tmsg_ucx_status_words(ucs));
    } else {
        const char *unread = tmsg_lease_why_unread(endpoint);

        snprintf(why, sizeof(why), "%s",
                 unread == NULL ? "the sender has ended" : unread);
    }
    if (tmsg_resume_fetch_failed(endpoint, alive, why)) {
        message->state = TMSG_RX_BROKEN;
    } else if (!alive) {
        message->state = TMSG_RX_BROKEN;
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, why);
    } else {
        tmsg_message_refuse(message, TMSG_ERR_PEER_LOST, why);
    }
}

/* Returns whether the payload counts. What UCX wrote counts only if the sender
 * had not given this side up by then, and changed its buffer. If the sender's
 * memory cannot be read, the sender is dying; its socket may not show that yet.
 */
static bool is_believed(const tmsg_message_t *message)
{
    if (message->is_read && message->fragments == NULL) {
        /* The read checked the sender's lease itself. */
        return tmsg_link_alive(message->endpoint);
    }
    return (!message->rendezvous && message->fragments == NULL) ||
           is_lent(message->endpoint);
}

/* Returns whether all tensors are on their devices. */
static bool is_staged(tmsg_message_t *message)
{
    if (tmsg_stage_in_copies(message)) {
        return false;
    }
    tmsg_message_copied_loan(message);
    return true;
}

static void finish_fetch(tmsg_message_t *message)
{
    if (!is_believed(message)) {
        lose_message(message, TMSG_UCX_OK);
        tmsg_messages_deliver(message->channel);
    } else if (message->body != NULL && !message->landed && !message->aborted) {
        tmsg_message_landed(message);
    } else if (message->stage == NULL || is_staged(message)) {
        tmsg_resume_fetched(message->endpoint);
        tmsg_message_whole(message);
    }
}

void tmsg_message_fetched(tmsg_message_t *message, tmsg_ucx_status_t ucs)
{
    bool over = tmsg_endpoint_is_down(message->endpoint);

    message->pending--;
    if (!over && ucs != TMSG_UCX_OK && message->state != TMSG_RX_FAILED) {
        lose_message(message, ucs);
    }
    if (message->pending > 0) {
        return;
    }
    if (over && !tmsg_message_stays(message)) {
        tmsg_message_discard(message);
    } else if (message->state == TMSG_RX_FAILED) {
        tmsg_posted_return(message);
        tmsg_messages_deliver(message->channel);
    } else if (message->aborted ||
               (message->head_here && !tmsg_fragments_missing(message))) {
        finish_fetch(message);
    }
}

static void head_fetched(tmsg_message_t *message, tmsg_ucx_status_t ucs)
{
    tmsg_endpoint_t *endpoint = message->endpoint;

    give_message_segment(message);
    tmsg_op_over(endpoint, &message->op);
    message->head_here = ucs == TMSG_UCX_OK;
    tmsg_message_fetched(message, ucs);
    tmsg_endpoint_reported(endpoint);
}

/* Ends the fetch, because its UCX worker is gone. */
static void fetch_abandoned(tmsg_op_t *op)
{
    tmsg_message_t *message = TMSG_CONTAINER_OF(op, tmsg_message_t, op);

    message->in_segment = false;
    head_fetched(message, TMSG_UCX_CANCELED);
}

static void fetch_reported(void *request, tmsg_ucx_status_t ucs, size_t length,
                           void *arg)
{
    (void)length;
    tmsg_ucx_request_free(request);
    head_fetched(arg, ucs);
}

/* UCX is slower with a list of one piece, so it gets the piece itself. */
static tmsg_ucx_status_t start_message_receive(tmsg_message_t *message,
                                               const struct iovec *pieces,
                                               size_t count)
{
    const tmsg_ucx_place_t place = {
        .data = count > 1 ? (void *)(uintptr_t)pieces : pieces->iov_base,
        .bytes = pieces->iov_len,
        .pieces = count > 1 ? count : 0,
    };
    void *data = message->data;

    message->data = NULL;
    return tmsg_ucx_am_receive(message->ucx, data, &place, fetch_reported,
                               message);
}

static tmsg_ucx_status_t read_message_now(tmsg_message_t *message,
                                          const struct iovec *pieces,
                                          size_t count)
{
    size_t read;
    tmsg_ucx_status_t ucs = tmsg_cma_read(message->endpoint, &message->to_read,
                                          pieces, count, &read);

    message->data = NULL;
    if (ucs == TMSG_UCX_INVALID_ADDR) {
        tmsg_message_refuse_at(
            message, tmsg_cma_place(pieces, read),
            tmsg_cma_blame(message->endpoint, &message->to_read, read));
    }
    return ucs;
}

static tmsg_status_t start_rendezvous(tmsg_message_t *message)
{
    const struct iovec *pieces;
    size_t count;
    tmsg_status_t status = tmsg_scatter_pieces(message, &pieces, &count);
    tmsg_ucx_status_t ucs;

    if (status != TMSG_OK) {
        return status;
    }
    if (count == 0) { /* UCX would lose its descriptor */
        tmsg_message_drop_data(message);
        message->head_here = true;
        return TMSG_OK;
    }
    message->pending++;
    tmsg_op_begin(message->endpoint, &message->op, fetch_abandoned);
    ucs = message->is_read ? read_message_now(message, pieces, count)
                           : start_message_receive(message, pieces, count);
    if (ucs != TMSG_UCX_IN_PROGRESS) {
        head_fetched(message, ucs);
    }
    return TMSG_OK;
}

static tmsg_status_t take_eager(tmsg_message_t *message)
{
    tmsg_status_t status = tmsg_scatter_copy(message, message->data);

    if (status == TMSG_OK) {
        tmsg_message_drop_data(message);
        message->head_here = true;
    }
    return status;
}

bool tmsg_message_take_small(tmsg_message_t *message, const void *data,
                             size_t bytes)
{
    uint8_t *begin = message->small;

    if (bytes > TMSG_MESSAGE_SMALL || tmsg_budget_asks(message->budget) ||
        message->head.flags & TMSG_HEADER_SPILLED ||
        message->fragments != NULL || message->stage != NULL ||
        tmsg_incoming_may_be_placed(message)) {
        return false;
    }
    if (bytes > 0) {
        begin += -(uintptr_t)begin % TMSG_PAYLOAD_ALIGNMENT;
        memcpy(begin, data, bytes);
        tmsg_payload_place(message->map, begin);
    }
    return true;
}

bool tmsg_message_take_posted(tmsg_message_t *message, const void *data)
{
    return tmsg_posted_is_simple(message) &&
           tmsg_posted_take(message) == TMSG_OK &&
           tmsg_scatter_missing(message->map) == 0 &&
           tmsg_scatter_copy(message, data) == TMSG_OK;
}

void tmsg_fetch_take_back(tmsg_message_t *message)
{
    if (message->kept_back > 0) {
        tmsg_budget_discharge(message->budget, message->kept_back);
        message->kept_back = 0;
    }
}

/* Reserves budget for devices. The application may choose a device for a tensor
 * of a landed message; the memory of that device is asked for when the others
 * have theirs. So this reserves as many bytes as a device could get at all. */
static tmsg_status_t keep_back(tmsg_message_t *message, uint64_t bytes,
                               uint64_t spill)
{
    uint64_t limit = tmsg_budget_limit(message->budget);
    uint64_t taken = tmsg_budget_asks(message->budget) ? spill : bytes + spill;
    uint64_t left = limit > taken ? limit - taken : 0;
    uint64_t most = bytes < left ? bytes : left;
    tmsg_status_t status = TMSG_OK;

    if (message->endpoint->worker->rx.chooses && message->kept_back == 0 &&
        most > 0) {
        status = tmsg_budget_reserve(message->budget, most);
        message->kept_back = status == TMSG_OK ? most : 0;
    }
    return status;
}

/* Gets memory for a spilled body. That memory is the library's, even if an
 * application's allocator gives the rest. */
static tmsg_status_t get_body(tmsg_message_t *message, uint64_t bytes,
                              uint64_t spill)
{
    tmsg_status_t status = keep_back(message, bytes, spill);

    if (status == TMSG_OK) {
        status = tmsg_budget_reserve(message->budget, spill);
    }
    if (status != TMSG_OK) {
        return status;
    }
    message->body = malloc(spill);
    if (message->body == NULL) {
        tmsg_budget_discharge(message->budget, spill);
        return tmsg_error_memory("a spilled header");
    }
    return TMSG_OK;
}

/* Returns whether a message's map is known before its payload is fetched. */
static bool is_map_known(const tmsg_message_t *message)
{
    return message->landed || !message->rendezvous ||
           !(message->head.flags & TMSG_HEADER_SPILLED);
}

/* Places tensors of so many bytes in the record, if they are few enough.
 * Returns whether it did. */
static bool fits_record(tmsg_message_t *message, uint64_t bytes)
{
    uint8_t *begin = message->small;

    if (bytes > TMSG_MESSAGE_SMALL || tmsg_budget_asks(message->budget) ||
        !is_map_known(message)) {
        return false;
    }
    begin += -(uintptr_t)begin % TMSG_PAYLOAD_ALIGNMENT;
    tmsg_payload_place(message->map, bytes > 0 ? begin : NULL);
    return true;
}

/* Finds memory for tensors that go to a device. Releases the lock meanwhile. */
static tmsg_status_t find_devices(tmsg_message_t *message)
{
    tmsg_worker_t *worker = message->endpoint->worker;
    tmsg_callback_t callback;
    tmsg_status_t status;

    if (message->landed) {
        tmsg_fetch_take_back(message);
    }
    if (message->stage == NULL) {
        return TMSG_OK;
    }
    tmsg_callback_enter(&callback, worker);
    tmsg_worker_unlock(worker);
    status = tmsg_stage_in_find(message);
    tmsg_worker_lock(worker);
    tmsg_callback_leave(&callback);
    return status;
}

/* Returns whether the block that the message gets will have its whole payload,
 * except a spilled body. */
static bool lies_in_block(const tmsg_message_t *message)
{
    return tmsg_map_is_bare(message->map) && message->stage == NULL &&
           tmsg_split_has_none(&message->extra.split);
}

/* Finds memory for the tensors that nobody has placed. Releases the lock
 * meanwhile. */
static tmsg_status_t find_message_memory(tmsg_message_t *message)
{
    tmsg_worker_t *worker = message->endpoint->worker;
    uint64_t spill = tmsg_payload_spill(&message->head);
    uint64_t bytes = is_map_known(message)
                         ? tmsg_scatter_missing(message->map)
                         : message->head.payload_bytes - spill;
    tmsg_status_t status = TMSG_OK;
    bool asks = tmsg_budget_asks(message->budget);
    tmsg_callback_t callback;

    if (fits_record(message, bytes)) {
        return TMSG_OK;
    }
    if (!tmsg_budget_fits(message->budget,
                          bytes + spill + tmsg_stage_in_held(message), spill)) {
        return tmsg_budget_too_small(
            message->budget, bytes + spill + tmsg_stage_in_held(message));
    }
    if (is_map_known(message) && tmsg_message_may_stay_in_place(message)) {
        return tmsg_message_use_in_place(message);
    }
    if (asks) {
        tmsg_callback_enter(&callback, worker);
    }
    tmsg_worker_unlock(worker);
    if (!is_map_known(message) && message->body == NULL) {
        status = get_body(message, bytes, spill);
    }
    if (status == TMSG_OK && bytes > 0) {
        status = tmsg_budget_alloc(message->budget,
                                   tmsg_map_liked(message->map, bytes), bytes,
                                   &message->block);
        message->in_block = status == TMSG_OK && lies_in_block(message);
    }
    if (status == TMSG_OK) {
        tmsg_payload_place(message->map, message->block.data);
    }
    tmsg_worker_lock(worker);
    if (asks) {
        tmsg_callback_leave(&callback);
    }
    return status;
}

/* Decides where the tensors go. Releases the lock meanwhile, so its status
 * counts only if the endpoint has not ended. */
static tmsg_status_t make_message_ready(tmsg_message_t *message)
{
    tmsg_status_t status = TMSG_OK;

    if (is_map_known(message)) {
        status = tmsg_incoming_ask(message);
    }
    if (status != TMSG_OK || message->endpoint->state == TMSG_EP_ENDED) {
        return status;
    }
    if (is_map_known(message)) {
        status = tmsg_posted_take(message);
    }
    if (status == TMSG_OK) {
        status = find_devices(message);
    }
    return status != TMSG_OK || message->landed || message->loan != NULL
               ? status
               : find_message_memory(message);
}

static tmsg_status_t take_payload(tmsg_message_t *message)
{
    if (message->landed) {
        tmsg_scatter_landed(message);
        return TMSG_OK;
    }
    if (message->loan != NULL) {
        tmsg_scatter_loan(message);
        message->head_here = true;
        return TMSG_OK;
    }
    if (message->in_place_bytes > 0) { /* it counts as held from now on */
        tmsg_credit_free(message->endpoint, &message->charged);
        message->head_here = true;
        return TMSG_OK;
    }
    return message->rendezvous ? start_rendezvous(message)
                               : take_eager(message);
}

/* Refuses a message that was kept. Nothing else fetches a rendezvous, so its
 * descriptor is released, after the sender was told. */
static void refuse_kept(tmsg_message_t *message, tmsg_status_t status)
{
    tmsg_message_refuse(message, status, tmsg_error_message());
    tmsg_message_drop_data(message);
}

/* Counts and logs a message that finds no memory. To the application this looks
 * like a peer that sends nothing. */
static void note_starving(tmsg_message_t *message)
{
    tmsg_worker_t *worker = message->endpoint->worker;
    char words[TMSG_STARVING_WORDS];

    if (message->starved || !tmsg_budget_is_missed(worker->budget)) {
        return;
    }
    message->starved = true;
    tmsg_fetch_starves(worker);
    message->endpoint->stats.starved_messages++;
    if (!worker->rx.starved) {
        worker->rx.starved = true;
        tmsg_worker_starving_words(worker, words, sizeof(words));
        tmsg_log(TMSG_LOG_WARN, "%s: %s; this is said once",
                 message->endpoint->peer, words);
    }
}

/* Fetches a message. Returns false if it found no memory, and asks again.
 * Releases the lock meanwhile. */
static bool fetch_message(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_status_t status;

    message->state = TMSG_RX_FETCHING;
    message->pending++; /* nobody abandons the message meanwhile */
    endpoint->in_ucx++; /* its UCX worker stays, whatever happens */
    status = message->aborted ? message->refusal : make_message_ready(message);
    if (tmsg_endpoint_is_down(endpoint)) {
        tmsg_message_drop_data(message);
        tmsg_endpoint_reported(endpoint);
        tmsg_message_fetched(message, TMSG_UCX_OK);
        return true;
    }
    endpoint->in_ucx--;
    if (message->aborted) {
        status = message->refusal;
    }
    if (status == TMSG_IN_PROGRESS) {
        note_starving(message);
        message->pending--;
        message->state = TMSG_RX_WAITING;
        tmsg_fetch_put_back(message);
        return false;
    }
    if (status == TMSG_OK && message->starved) {
        worker->rx.starving_ns = 0;
    }
    if (status == TMSG_OK) {
        status = take_payload(message);
    }
    if (status == TMSG_OK && message->state == TMSG_RX_FETCHING) {
        status = message->stage != NULL ? tmsg_stage_in_begin(message)
                                        : tmsg_fragments_fetch(message);
    } /* otherwise the message was refused, since it could not be read */
    if (status != TMSG_OK) {
        refuse_kept(message, status);
    }
    tmsg_message_fetched(message, TMSG_UCX_OK);
    return true;
}

unsigned tmsg_messages_fetch(tmsg_worker_t *worker)
{
    /* A message found no memory, and neither would those behind it. */
    bool starves = false;
    tmsg_message_t *message;
    unsigned count = 0;

    if (worker->fetching) {
        return 0;
    }
    worker->fetching = true;
    tmsg_fetch_look(worker);
    while (!worker->doomed &&
           (message = tmsg_fetch_next(worker, !starves)) != NULL) {
        if (fetch_message(message)) {
            count++;
        } else {
            starves = true;
        }
    }
    worker->fetching = false;
    return count;
}
