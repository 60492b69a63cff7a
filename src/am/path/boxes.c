/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/boxes.h"

#include <stdio.h>

#include "am/endpoint/carrier.h"
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/shm/box.h"
#include "am/worker/engine.h"
#include "am/worker/nap.h"
#include "core/bytes.h"
#include "core/log.h"
#include "serialize/header.h"

#define FEW 16 /* messages by UCX before a box is worth its memory */
#define BOXES TMSG_BOX_NAPS /* at most, that a worker makes or opens */

static tmsg_endpoint_t *endpoint_of(tmsg_boxes_t *boxes)
{
    return TMSG_CONTAINER_OF(boxes, tmsg_endpoint_t, boxes);
}

/* Forgets the peer's core: nobody is beside this worker, as far as is known. */
static void forget_core(tmsg_worker_t *worker)
{
    atomic_store_explicit(&worker->peer_core, 0, memory_order_relaxed);
}

static void drop_box(tmsg_endpoint_t *endpoint, tmsg_box_t **own)
{
    if (*own != NULL) {
        endpoint->worker->paths.boxes_made--;
        tmsg_box_free(*own);
        *own = NULL;
    }
}

static void go_without_box(tmsg_endpoint_t *endpoint, const char *why)
{
    tmsg_boxes_t *boxes = &endpoint->boxes;

    drop_box(endpoint, &boxes->offer);
    snprintf(boxes->why, sizeof(boxes->why), "none: %s", why);
    tmsg_log(TMSG_LOG_INFO,
             "%s: small messages go by UCX, for there is no box: %s",
             endpoint->peer, why);
}

const char *tmsg_boxes_words(const tmsg_endpoint_t *endpoint)
{
    const tmsg_boxes_t *boxes = &endpoint->boxes;

    return boxes->out != NULL     ? "stands"
           : boxes->offer != NULL ? "offered"
           : boxes->why[0] != 0   ? boxes->why
                                  : "none";
}

static void make_box(tmsg_endpoint_t *endpoint)
{
    tmsg_boxes_t *boxes = &endpoint->boxes;

    if (endpoint->worker->paths.boxes_made >= BOXES) {
        go_without_box(endpoint, "other peers have all that a worker makes");
        return;
    }
    if (tmsg_box_create(&boxes->offer) != TMSG_OK) {
        go_without_box(endpoint, tmsg_error_message());
        return;
    }
    endpoint->worker->paths.boxes_made++;
    if (!tmsg_control_offer(endpoint, TMSG_RING_WORD_BOX,
                            tmsg_box_shared(boxes->offer)) ||
        tmsg_control_waits(endpoint)) {
        go_without_box(endpoint, "the peer cannot be told of it");
    }
}

__attribute__((noinline)) static void wait_for_one(tmsg_endpoint_t *endpoint)
{
    tmsg_boxes_t *boxes = &endpoint->boxes;

    if (endpoint->carrier == TMSG_CARRIER_SHM &&
        tmsg_carrier_may_find(endpoint, TMSG_FEATURE_BOXES) &&
        !tmsg_control_waits(endpoint) && ++boxes->waited == FEW) {
        make_box(endpoint);
    }
}

bool tmsg_boxes_are_for(const tmsg_endpoint_t *endpoint, size_t header_bytes,
                        size_t payload_bytes)
{
    const tmsg_tuning_t *tuning = &endpoint->worker->context->tuning;
    uint64_t most = tuning->of[endpoint->carrier].box_bytes;

    return most > 0 && most != TMSG_THRESHOLD_NEVER && payload_bytes <= most &&
           payload_bytes <= TMSG_BOX_PAYLOAD_BYTES &&
           header_bytes <= TMSG_BOX_HEADER_BYTES;
}

tmsg_box_t *tmsg_boxes_choose(tmsg_endpoint_t *endpoint)
{
    tmsg_boxes_t *boxes = &endpoint->boxes;

    if (boxes->out != NULL) {
        return tmsg_box_has_room(boxes->out) ? boxes->out : NULL;
    }
    if (boxes->offer == NULL && boxes->why[0] == '\0') {
        wait_for_one(endpoint);
    }
    return NULL;
}

void tmsg_boxes_put(tmsg_endpoint_t *endpoint, size_t payload_bytes)
{
    tmsg_boxes_t *boxes = &endpoint->boxes;

    endpoint->stats.sent_by_box++;
    if (tmsg_box_put(boxes->out, payload_bytes, boxes->sent)) {
        tmsg_control_ring(endpoint, TMSG_RING_WORD_MOVED);
    }
}

void tmsg_boxes_moved(tmsg_worker_t *worker)
{
    worker->boxes_owe = false;
    for (tmsg_node_t *node = worker->boxes.head; node != NULL;
         node = node->next) {
        tmsg_boxes_t *boxes = tmsg_boxes_at(node);

        /* The peer is called once more when all has gone. */
        if (boxes->owes) {
            boxes->owes = endpoint_of(boxes)->in_ucx > 0;
            worker->boxes_owe |= boxes->owes;
            tmsg_boxes_call(boxes);
        }
    }
}

void tmsg_boxes_answered(tmsg_endpoint_t *endpoint, bool taken)
{
    tmsg_boxes_t *boxes = &endpoint->boxes;

    if (boxes->offer == NULL) {
        /* Only the first answer counts. */
        return;
    }
    if (!taken) {
        go_without_box(endpoint,
                       "the peer does not take it, and its log says why");
        return;
    }
    boxes->out = boxes->offer;
    boxes->offer = NULL;
    tmsg_shared_close_fd(tmsg_box_shared(boxes->out));
}

static bool take_offered_box(tmsg_endpoint_t *endpoint, const uint8_t *offer)
{
    tmsg_boxes_t *boxes = &endpoint->boxes;
    tmsg_worker_t *worker = endpoint->worker;

    if (!tmsg_carrier_may_find(endpoint, TMSG_FEATURE_BOXES)) {
        tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                       "no memory is shared here, or there is no socket");
        return false;
    }
    if (worker->boxes.count >= BOXES) {
        tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                       "this worker has %u boxes of other peers", BOXES);
        return false;
    }
    if (tmsg_box_open((pid_t)endpoint->peer_hello.pid,
                      (int)tmsg_get_le(offer, 4), offer + 4,
                      &boxes->in) != TMSG_OK) {
        return false;
    }
    tmsg_list_push(&worker->boxes, &boxes->node);
    return true;
}

/* A side may offer a box once a connection, whatever comes of it. */
void tmsg_boxes_offered(tmsg_endpoint_t *endpoint, const uint8_t *offer)
{
    bool taken;

    if (endpoint->boxes.heard) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, "a second box");
        return;
    }
    endpoint->boxes.heard = true;
    taken = take_offered_box(endpoint, offer);
    if (!taken) {
        tmsg_log(TMSG_LOG_INFO, "%s: small messages come by UCX: %s",
                 endpoint->peer, tmsg_error_message());
    }
    tmsg_control_ring(endpoint, taken ? TMSG_RING_WORD_BOX_TAKEN
                                      : TMSG_RING_WORD_BOX_REFUSED);
}

static void close_in(tmsg_endpoint_t *endpoint)
{
    tmsg_boxes_t *boxes = &endpoint->boxes;

    if (boxes->in != NULL) {
        /* The worker may nap on this box, too. */
        tmsg_worker_rouse(endpoint->worker);
        forget_core(endpoint->worker);
        tmsg_list_remove(&endpoint->worker->boxes, &boxes->node);
        tmsg_box_free(boxes->in);
        boxes->in = NULL;
    }
}

bool tmsg_boxes_next(tmsg_endpoint_t *endpoint, tmsg_boxed_t *boxed)
{
    const tmsg_boxes_t *boxes = &endpoint->boxes;
    tmsg_box_state_t state = tmsg_box_look(boxes->in, boxed);

    if (state == TMSG_BOX_WRONG && endpoint->broken == TMSG_OK) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "the peer says what cannot be of its box");
    }
    return state == TMSG_BOX_FULL && (int32_t)(boxed->after - boxes->came) <= 0;
}

bool tmsg_boxes_check(tmsg_endpoint_t *endpoint, const tmsg_boxed_t *boxed)
{
    uint32_t id;
    uint16_t channel;

    if (tmsg_preamble_peek(boxed->header, boxed->header_bytes, &id, &channel) &&
        id == endpoint->id) {
        endpoint->stats.received_by_box++;
        return true;
    }
    if (endpoint->broken == TMSG_OK) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a message in a box that is for another");
    }
    return false;
}

void tmsg_boxes_note_core(const tmsg_endpoint_t *endpoint)
{
    atomic_store_explicit(&endpoint->worker->peer_core,
                          tmsg_box_core(endpoint->boxes.in) + 1,
                          memory_order_relaxed);
}

__attribute__((noinline)) static void wake_boxes(tmsg_worker_t *worker)
{
    for (tmsg_node_t *node = worker->boxes.head; node != NULL;
         node = node->next) {
        tmsg_box_wake(tmsg_boxes_at(node)->in);
    }
    worker->paths.boxes_sleep = false;
}

void tmsg_boxes_wake(tmsg_worker_t *worker)
{
    /* While another thread sleeps, senders use UCX instead, which wakes it. */
    if (worker->paths.boxes_sleep && !worker->asleep && !worker->armed) {
        wake_boxes(worker);
    }
}

tmsg_endpoint_t *tmsg_boxes_endpoint(tmsg_node_t *node)
{
    return endpoint_of(tmsg_boxes_at(node));
}

void tmsg_boxes_take(tmsg_endpoint_t *endpoint)
{
    tmsg_box_take(endpoint->boxes.in);
}

void tmsg_boxes_count(tmsg_endpoint_t *endpoint) { endpoint->boxes.came++; }

tmsg_endpoint_t *tmsg_boxes_receiver(tmsg_ucx_t *ucx, const void *header,
                                     size_t bytes)
{
    uint32_t id;
    uint16_t channel;
    tmsg_endpoint_t *endpoint = tmsg_preamble_peek(header, bytes, &id, &channel)
                                    ? tmsg_endpoint_by_id(ucx->worker, id)
                                    : NULL;

    if (endpoint == NULL || endpoint->ucx != ucx) {
        return NULL;
    }
    if (endpoint->boxes.in == NULL) {
        forget_core(ucx->worker);
    }
    return endpoint;
}

bool tmsg_boxes_arm(tmsg_worker_t *worker)
{
    bool all = true;
    tmsg_boxed_t boxed;

    worker->paths.boxes_sleep = worker->boxes.count > 0;
    for (tmsg_node_t *node = worker->boxes.head; node != NULL;
         node = node->next) {
        tmsg_boxes_t *boxes = tmsg_boxes_at(node);

        tmsg_box_sleep(boxes->in);
        all = all && !tmsg_boxes_next(endpoint_of(boxes), &boxed);
    }
    /* The messages that were found may be wrong, which leaves a chore. */
    return all && worker->chores.count == 0;
}

bool tmsg_boxes_are_intact(const tmsg_endpoint_t *endpoint)
{
    const tmsg_boxes_t *boxes = &endpoint->boxes;

    return (boxes->out == NULL ||
            tmsg_box_is_intact_out(boxes->out, boxes->sent)) &&
           (boxes->in == NULL || tmsg_box_is_intact_in(boxes->in));
}

void tmsg_boxes_end(tmsg_endpoint_t *endpoint)
{
    close_in(endpoint);
    drop_box(endpoint, &endpoint->boxes.out);
    drop_box(endpoint, &endpoint->boxes.offer);
    endpoint->boxes = (tmsg_boxes_t){.out = NULL};
}

bool tmsg_boxes_are_quiet(const tmsg_worker_t *worker)
{
    bool quiet = true;

    for (tmsg_node_t *node = worker->boxes.head; node != NULL && quiet;
         node = node->next) {
        quiet = endpoint_of(tmsg_boxes_at(node))->in_ucx == 0;
    }
    return quiet;
}
