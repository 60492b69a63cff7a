/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/posted.h"

#include <string.h>

#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"
#include "am/path/loans.h"
#include "am/recv/deliver.h"
#include "am/recv/map_await.h"
#include "am/recv/map_match.h"
#include "am/recv/message.h"
#include "am/recv/stage_in.h"
#include "am/worker/lead.h"
#include "core/dlpack.h"
#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "memory/domain.h"
#include "serialize/checksum.h"

static bool has_foreign(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        if (!tmsg_map_entry_is_on_host(&entries[i])) {
            return true;
        }
    }
    return false;
}

/* Gives the tensors of a message that `ours` has too their places there. The
 * message has no data yet, except for tensors that were placed. */
static tmsg_status_t lend_places(tmsg_message_t *message,
                                 const tmsg_map_t *ours)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(message->map); i++) {
        const tmsg_map_entry_t *place =
            tmsg_map_match_find(ours, i, &entries[i]);

        if (place == NULL || entries[i].tensor.data != NULL) {
            continue;
        }
        if (!tmsg_map_entry_is_on_host(place) ||
            !tmsg_map_entry_is_on_host(&entries[i])) {
            status = tmsg_stage_in_choose(message, i, place->tensor.device,
                                          place->stream);
        }
        if (status != TMSG_OK) {
            return status;
        }
        tmsg_map_place(message->map, i, place->tensor.data);
    }
    return TMSG_OK;
}

/* Places a CALL's tensors in its map. If they cannot be received there
 * directly, they are copied there when the message is whole. */
static tmsg_status_t take_call_map(tmsg_message_t *message)
{
    tmsg_status_t status;

    if (message->posted == NULL || message->lent) {
        return TMSG_OK;
    }
    status = tmsg_map_match_check(message->map, message->posted);
    if (status != TMSG_OK ||
        !tmsg_map_match_fits(message->map, message->posted)) {
        return status;
    }
    message->lent = true;
    return lend_places(message, message->posted);
}

/* Checks what was copied of a loan: its sender may have written there since the
 * message came. Where the copy has other bytes, as on a device, the lent ones
 * are looked at once more. */
static tmsg_status_t check_copied(const void *arg, size_t index,
                                  const tmsg_map_entry_t *from,
                                  const void *place)
{
    const tmsg_message_t *message = arg;
    const void *lent = tmsg_loan_at(message->loan, index);
    uint64_t bytes = from->bytes;

    if (lent == NULL || !tmsg_map_entry_is_read_only(from)) {
        return TMSG_OK;
    }
    if (!tmsg_tensor_is_dense(&from->tensor)) { /* it came as its span */
        int64_t elements, before;

        tmsg_tensor_span(&from->tensor, &elements, &before);
        bytes = (uint64_t)elements * tmsg_dtype_bytes(from->tensor.dtype);
    }
    return tmsg_checksum_compare(
        &message->extra, index, from,
        message->extra.checksum->compute(place != NULL ? place : lent, bytes));
}

/* Gives a loan back if nothing is read in it any more: all was copied. */
static void end_copied_loan(tmsg_message_t *message)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);

    message->views = false;
    for (size_t i = 0; i < tmsg_map_size(message->map); i++) {
        message->views |= tmsg_map_entry_is_read_only(&entries[i]);
    }
    tmsg_message_copied_loan(message);
}

/* Returns whether a message has come by its channel's template, and its tensors
 * lie as those of `map`, each at the position of its namesake. */
static bool is_alike(const tmsg_message_t *message, const tmsg_map_t *map)
{
    const tmsg_map_t *layout = tmsg_map_layout(message->map);

    return message->by_template != 0 &&
           (tmsg_map_stamp_known(map) == tmsg_map_stamp(layout) ||
            tmsg_map_has_layout(map, layout));
}

/* Copies the few bytes of such a message. */
static void copy_alike(const tmsg_message_t *message, const tmsg_map_t *map)
{
    const tmsg_map_entry_t *from = tmsg_map_entries(message->map);
    const tmsg_map_entry_t *to = tmsg_map_entries(map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        if (from[i].bytes > 0) {
            memcpy(to[i].tensor.data, from[i].tensor.data, from[i].bytes);
        }
    }
}

/* Gives the tensors of such a message their places in `map`. */
static void place_alike(tmsg_message_t *message, const tmsg_map_t *map)
{
    const tmsg_map_entry_t *to = tmsg_map_entries(map);
    tmsg_map_entry_t *entries = tmsg_map_placing(message->map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        entries[i].tensor.data = to[i].tensor.data;
    }
}

static tmsg_status_t copy_into(tmsg_message_t *message, const tmsg_map_t *map)
{
    bool checked = message->loan != NULL && message->extra.checksum != NULL;
    tmsg_status_t status;

    if (is_alike(message, map)) {
        copy_alike(message, map);
        place_alike(message, map);
        return TMSG_OK;
    }
    status = tmsg_map_match_copy(message->map, map,
                                 checked ? check_copied : NULL, message);

    if (status == TMSG_OK && message->loan != NULL) {
        end_copied_loan(message);
    }
    return status;
}

tmsg_status_t tmsg_posted_finish(tmsg_message_t *message)
{
    return message->posted == NULL || message->lent
               ? TMSG_OK
               : copy_into(message, message->posted);
}

static void note_failure(tmsg_message_t *message, tmsg_status_t status)
{
    if (status != TMSG_OK) {
        message->refusal = status;
        message->why = strdup(tmsg_error_message());
    }
}

/* The message is due again, and is given to the call then. */
static void call_streams_done(void *arg)
{
    tmsg_message_t *message = arg;
    tmsg_status_t status = tmsg_map_await_end(message->await);

    message->await = NULL;
    tmsg_list_remove(&message->endpoint->face->awaiting, &message->own_queue);
    note_failure(message, status);
    tmsg_worker_due(message->endpoint->worker, &message->due);
}

bool tmsg_posted_awaits(tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = message->endpoint;
    bool awaits = false;

    if (message->posted == NULL || message->lent ||
        !has_foreign(message->posted)) {
        return false;
    }
    tmsg_worker_lock(endpoint->worker);
    if (endpoint->face->handle) {
        note_failure(message,
                     tmsg_map_await_begin(endpoint->worker, message->map,
                                          message->posted, call_streams_done,
                                          message, &message->await));
        awaits = message->await != NULL;
    }
    if (awaits) {
        tmsg_list_push(&endpoint->face->awaiting, &message->own_queue);
    }
    tmsg_worker_unlock(endpoint->worker);
    return awaits;
}

void tmsg_posted_end_awaits(tmsg_endpoint_t *endpoint)
{
    tmsg_node_t *node;

    while ((node = tmsg_list_pop(&endpoint->awaiting)) != NULL) {
        tmsg_message_t *message =
            TMSG_CONTAINER_OF(node, tmsg_message_t, own_queue);

        (void)tmsg_map_await_end(message->await);
        message->await = NULL;
        tmsg_worker_due(endpoint->worker, &message->due);
    }
}

tmsg_status_t tmsg_posted_take(tmsg_message_t *message)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;
    tmsg_posted_t *posted = &endpoint->face->rx.posted;

    if (message->head.kind == TMSG_KIND_CALL) {
        return take_call_map(message);
    }
    if (posted->map == NULL || posted->message != NULL || !posted->waiting ||
        message->head.kind != TMSG_KIND_MAP ||
        endpoint->face->ready.count > 0 ||
        message->head.sequence != message->channel->rx_sequence ||
        !tmsg_map_match_fits(message->map, posted->map)) {
        return TMSG_OK;
    }
    posted->message = message;
    return lend_places(message, posted->map);
}

void tmsg_posted_delivered(tmsg_message_t *message)
{
    tmsg_posted_t *posted = &message->endpoint->face->rx.posted;

    if (posted->message == message) {
        message->posted = posted->map;
        posted->map = NULL;
        posted->message = NULL;
    }
}

void tmsg_posted_let_go(const tmsg_map_t *map)
{
    if (map != NULL && tmsg_map_unhold(map)) {
        tmsg_map_free(map);
    }
}

static void run_leave(tmsg_due_t *due)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(due, tmsg_endpoint_t, rx.posted.due);
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_posted_t *posted = &endpoint->rx.posted;
    const tmsg_map_t *map = NULL;

    tmsg_worker_lock(worker);
    posted->leaving = false;
    if (!posted->waiting && posted->message == NULL) {
        map = posted->map;
        posted->map = NULL;
    }
    tmsg_worker_unlock(worker);
    tmsg_posted_let_go(map);
    tmsg_endpoint_drop(endpoint);
}

/* Has a callback release the posted map, because nobody may come back for it.
 */
static void leave_post(tmsg_endpoint_t *endpoint)
{
    tmsg_posted_t *posted = &endpoint->rx.posted;

    if (!posted->leaving) {
        posted->leaving = true;
        posted->due.run = run_leave;
        tmsg_endpoint_hold(endpoint);
        tmsg_worker_due(endpoint->worker, &posted->due);
    }
}

void tmsg_posted_return(tmsg_message_t *message)
{
    tmsg_posted_t *posted = &message->endpoint->face->rx.posted;

    if (posted->message != message ||
        (message->pending > 0 && !tmsg_stage_in_is_lost(message))) {
        /* Fragments of the message may still be on their way into the map. */
        return;
    }
    posted->message = NULL;
    if (!posted->waiting) {
        leave_post(message->endpoint->face);
    }
    tmsg_worker_arrived(message->endpoint->worker);
}

static tmsg_status_t check_postable(const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    /* Only this function has that checked, after all else. */
    if (tmsg_map_is_apart(map)) {
        return TMSG_OK;
    }
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const tmsg_tensor_t *tensor = &entries[i].tensor;

        if (tmsg_map_entry_is_read_only(&entries[i])) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED, "tensor '%s' is read-only",
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text);
        }
        if (tmsg_domain_of(tensor->device) == NULL ||
            (tensor->strides != NULL && (!tmsg_tensor_is_dense(tensor) ||
                                         tmsg_tensor_is_broadcast(tensor)))) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED,
                "tensor '%s': the memory to receive into must be without gaps, "
                "and of the CPU or of a device with a memory domain",
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text);
        }
    }
    return tmsg_map_check_apart(map);
}

bool tmsg_posted_is_simple(const tmsg_message_t *message)
{
    const tmsg_endpoint_t *endpoint = message->endpoint;

    if (message->head.kind == TMSG_KIND_CALL) {
        return message->posted != NULL && !has_foreign(message->posted);
    }
    return message->head.kind == TMSG_KIND_MAP &&
           endpoint->worker->on_header == NULL &&
           endpoint->face->rx.posted.map != NULL &&
           !endpoint->face->rx.posted.foreign;
}

tmsg_status_t tmsg_posted_check(const tmsg_map_t *map)
{
    if (!tmsg_map_is_idle(map)) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "the map is in use: it is being sent, or a "
                              "message or a call has it until it is destroyed");
    }
    return check_postable(map);
}

/* Returns the message that was received into `map` and waits to be pulled, or
 * NULL. */
static tmsg_message_t *find_ready(const tmsg_endpoint_t *endpoint,
                                  const tmsg_map_t *map)
{
    for (tmsg_node_t *node = endpoint->ready.head; node != NULL;
         node = node->next) {
        tmsg_message_t *message =
            TMSG_CONTAINER_OF(node, tmsg_message_t, own_queue);

        if (message->posted == map) {
            return message;
        }
    }
    return NULL;
}

tmsg_status_t tmsg_posted_post(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               const tmsg_map_t **stale_p)
{
    tmsg_posted_t *posted = &endpoint->rx.posted;
    tmsg_status_t status;

    if (map == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "map is NULL");
    }
    if (posted->map != map && !posted->waiting && posted->message == NULL) {
        *stale_p = posted->map;
        posted->map = NULL;
    }
    if (posted->waiting || (posted->map != NULL && posted->map != map)) {
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "%s: another receive waits with a map",
                              endpoint->peer);
    }
    if (posted->map == NULL && find_ready(endpoint, map) == NULL) {
        status = tmsg_posted_check(map);
        if (status != TMSG_OK) {
            return status;
        }
        tmsg_map_hold(map);
        posted->map = map;
        posted->foreign = has_foreign(map);
    }
    posted->waiting = true;
    return TMSG_OK;
}

bool tmsg_posted_is_settled(const tmsg_endpoint_t *endpoint)
{
    return endpoint->rx.posted.message == NULL &&
           (endpoint->ready.count > 0 ||
            tmsg_endpoint_now(endpoint)->state == TMSG_EP_ENDED);
}

static bool is_settled(void *arg) { return tmsg_posted_is_settled(arg); }

typedef struct {
    tmsg_endpoint_t *endpoint;
    const tmsg_map_await_t *await;
} settling_t;

static bool may_settle(void *arg)
{
    const settling_t *settling = arg;

    return is_settled(settling->endpoint) &&
           tmsg_map_await_is_over(settling->await);
}

/* Waits for the streams of the map, if a message was here before and will be
 * copied into it. */
static tmsg_status_t await_map(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               int timeout_ms)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_map_await_t *await = NULL;
    settling_t settling = {.endpoint = endpoint};
    tmsg_status_t status, streams;

    if (endpoint->ready.count == 0 || find_ready(endpoint, map) != NULL) {
        return TMSG_OK;
    }
    status = tmsg_map_await_begin(
        worker,
        TMSG_CONTAINER_OF(endpoint->ready.head, tmsg_message_t, own_queue)->map,
        map, NULL, NULL, &await);
    if (status != TMSG_OK || await == NULL) {
        return status;
    }
    settling.await = await;
    status = tmsg_worker_until(
        worker, may_settle, &settling, timeout_ms,
        "the streams of the map to receive into were not done, for a "
        "message from ",
        endpoint->peer);
    streams = tmsg_map_await_end(await);
    return status == TMSG_OK ? streams : status;
}

/* Returns what is left of a time that began then. */
static int time_left(int timeout_ms, uint64_t begun_ns)
{
    uint64_t past_ms;

    if (timeout_ms <= 0) {
        return timeout_ms;
    }
    past_ms = (tmsg_now_ns() - begun_ns) / 1000000;
    return past_ms < (uint64_t)timeout_ms ? timeout_ms - (int)past_ms : 0;
}

/* Waits for a message, and until it may be copied into the map if it has to
 * be. */
static tmsg_status_t await_message(tmsg_endpoint_t *endpoint,
                                   const tmsg_map_t *map, int timeout_ms)
{
    const tmsg_posted_t *posted = &endpoint->rx.posted;
    bool foreign = posted->map != NULL && posted->foreign;
    uint64_t begun_ns = foreign ? tmsg_now_ns() : 0;
    tmsg_status_t status =
        tmsg_worker_until(endpoint->worker, is_settled, endpoint, timeout_ms,
                          "no message from ", endpoint->peer);

    return status == TMSG_OK && foreign
               ? await_map(endpoint, map, time_left(timeout_ms, begun_ns))
               : status;
}

/* Returns whether a message may be copied into the map. Does so at once, and
 * keeps the message's places, if that is small and the message not `wanted`:
 * *copied_p. */
static tmsg_status_t check_ready(const tmsg_message_t *message,
                                 const tmsg_map_t *map, bool wanted,
                                 bool *copied_p)
{
    tmsg_status_t status;

    if (is_alike(message, map)) {
        if (!wanted) {
            copy_alike(message, map);
            *copied_p = true;
        }
        return TMSG_OK;
    }
    status = tmsg_map_match_check(message->map, map);
    return status == TMSG_OK ? tmsg_map_match_can_copy(message->map, map)
                             : status;
}

/* Decides what the wait has come to. The map is released, or goes to a message
 * that *copy_p says is still to be copied into it. *spent_p is a map to release
 * after that. */
static tmsg_status_t settle_post(tmsg_endpoint_t *endpoint,
                                 const tmsg_map_t *map, tmsg_status_t status,
                                 bool wanted, tmsg_message_t **message_p,
                                 bool *copy_p, const tmsg_map_t **spent_p)
{
    tmsg_posted_t *posted = &endpoint->rx.posted;
    tmsg_message_t *message = find_ready(endpoint, map);
    bool copied = false;

    posted->waiting = false;
    if (posted->message != NULL) {
        return TMSG_CANCEL_PENDING;
    }
    if (message == NULL && status == TMSG_OK && endpoint->ready.count > 0) {
        message =
            TMSG_CONTAINER_OF(endpoint->ready.head, tmsg_message_t, own_queue);
        status = check_ready(message, map, wanted, &copied);
        *copy_p = status == TMSG_OK && !copied;
    }
    if (status == TMSG_OK && message == NULL) {
        status = tmsg_error_set(endpoint->status, "%s", endpoint->error);
    }
    if (status == TMSG_OK) {
        message->answered_later = *copy_p;
        tmsg_message_take_out(message);
    }
    if (copied) { /* its map holds nothing of the application's */
        tmsg_message_destroy(message);
    } else if (status == TMSG_OK) {
        *message_p = message;
    }
    if (*copy_p && posted->map == NULL) {
        /* The message that had taken the map was given up. */
        tmsg_map_hold(map);
    }
    if (*copy_p) {
        *spent_p = message->posted; /* posted by an earlier call; NULL: none */
        message->posted = map;
    } else {
        *spent_p = posted->map;
    }
    posted->map = NULL;
    return status;
}

/* Copies a message into the map that it was taken for, without the lock, and
 * then tells its sender what came of that. */
static tmsg_status_t copy_taken(tmsg_message_t *message, const tmsg_map_t *map)
{
    tmsg_worker_t *worker = message->endpoint->worker;
    tmsg_status_t status;

    tmsg_worker_unlock(worker);
    status = copy_into(message, map);
    tmsg_worker_lock(worker);
    tmsg_message_answer(message, status);
    return status;
}

tmsg_status_t tmsg_posted_settle(tmsg_endpoint_t *endpoint,
                                 const tmsg_map_t *map, tmsg_status_t status,
                                 bool wanted, tmsg_message_t **message_p,
                                 const tmsg_map_t **spent_p)
{
    bool copy = false;

    status =
        settle_post(endpoint, map, status, wanted, message_p, &copy, spent_p);
    return copy ? copy_taken(*message_p, map) : status;
}

tmsg_status_t tmsg_endpoint_recv_into(tmsg_endpoint_t *endpoint,
                                      const tmsg_map_t *map, int timeout_ms,
                                      tmsg_message_t **message_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    const tmsg_map_t *spent = NULL, *stale = NULL;
    tmsg_message_t *message = NULL;
    tmsg_status_t status = tmsg_endpoint_check_pull(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_enter(worker);
    /* A callback may destroy the endpoint meanwhile. */
    tmsg_endpoint_hold(endpoint);
    status = tmsg_posted_post(endpoint, map, &stale);
    if (status == TMSG_OK) {
        status = await_message(endpoint, map, timeout_ms);
        status = tmsg_posted_settle(endpoint, map, status, message_p != NULL,
                                    &message, &spent);
    }
    tmsg_worker_leave(worker, message != NULL || status == TMSG_OK);
    tmsg_endpoint_drop(endpoint);
    if (message_p != NULL && status == TMSG_OK) {
        *message_p = message;
    } else { /* a message may have been taken all the same */
        tmsg_message_destroy(message);
    }
    tmsg_posted_let_go(spent);
    tmsg_posted_let_go(stale);
    return status;
}
