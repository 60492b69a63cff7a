/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/fastboxes.h"

#include <stdio.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/log.h"
#include "am/endpoint/transport.h"
#include "am/path/offer.h"
#include "am/path/shared.h"
#include "am/shm/fastbox.h"
#include "am/worker/engine.h"
#include "am/worker/nap.h"
#include "serialize/header.h"

#define FEW 16 /* messages by UCX before a fast box is worth its memory */
/* A worker makes at most this many fast boxes, and opens as many of peers. */
#define FASTBOXES TMSG_FASTBOX_NAPS

static tmsg_endpoint_t *endpoint_of(tmsg_fastboxes_t *fastboxes)
{
    return TMSG_CONTAINER_OF(fastboxes, tmsg_endpoint_t, fastboxes);
}

/* Forgets the peer's core: nobody is beside this worker, as far as is known. */
static void forget_core(tmsg_worker_t *worker)
{
    atomic_store_explicit(&worker->peer_core, 0, memory_order_relaxed);
}

static void drop_fastbox(tmsg_endpoint_t *endpoint, tmsg_fastbox_t **own)
{
    if (*own != NULL) {
        endpoint->worker->paths.fastboxes_made--;
        tmsg_fastbox_free(*own);
        *own = NULL;
    }
}

static void go_without_fastbox(tmsg_endpoint_t *endpoint, const char *why)
{
    tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    drop_fastbox(endpoint, &fastboxes->offer);
    snprintf(fastboxes->why, sizeof(fastboxes->why), "none: %s", why);
    tmsg_endpoint_log(
        endpoint, TMSG_LOG_WITHOUT_KIND, TMSG_LOG_INFO,
        "small messages go by UCX, because there is no fast box: %s", why);
}

const char *tmsg_fastboxes_words(const tmsg_endpoint_t *endpoint)
{
    const tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    return fastboxes->out != NULL     ? "stands"
           : fastboxes->offer != NULL ? "offered"
           : fastboxes->why[0] != 0   ? fastboxes->why
                                      : "none";
}

static void make_fastbox(tmsg_endpoint_t *endpoint)
{
    tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    if (endpoint->worker->paths.fastboxes_made >= FASTBOXES) {
        go_without_fastbox(endpoint,
                           "other peers have all that a worker makes");
        return;
    }
    if (tmsg_fastbox_create(&fastboxes->offer) != TMSG_OK) {
        go_without_fastbox(endpoint, tmsg_error_message());
        return;
    }
    endpoint->worker->paths.fastboxes_made++;
    if (!tmsg_offer_send(endpoint, TMSG_RING_WORD_FASTBOX,
                         tmsg_fastbox_segment(fastboxes->offer)) ||
        tmsg_control_waits(endpoint)) {
        go_without_fastbox(endpoint, "the peer cannot be told");
    }
}

__attribute__((noinline)) static void wait_for_one(tmsg_endpoint_t *endpoint)
{
    tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    if (endpoint->transport == TMSG_TRANSPORT_SHM &&
        tmsg_transport_may_find(endpoint, TMSG_FEATURE_FASTBOXES) &&
        !tmsg_control_waits(endpoint) && ++fastboxes->waited == FEW) {
        make_fastbox(endpoint);
    }
}

bool tmsg_fastboxes_are_for(const tmsg_endpoint_t *endpoint,
                            size_t header_bytes, size_t payload_bytes)
{
    const tmsg_tuning_t *tuning = &endpoint->worker->context->tuning;
    uint64_t most = tuning->of[endpoint->transport].fastbox_bytes;

    return most > 0 && most != TMSG_THRESHOLD_NEVER && payload_bytes <= most &&
           payload_bytes <= TMSG_FASTBOX_PAYLOAD_BYTES &&
           header_bytes <= TMSG_FASTBOX_HEADER_BYTES;
}

tmsg_fastbox_t *tmsg_fastboxes_choose(tmsg_endpoint_t *endpoint)
{
    tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    if (fastboxes->out != NULL) {
        return tmsg_fastbox_has_room(fastboxes->out) ? fastboxes->out : NULL;
    }
    if (fastboxes->offer == NULL && fastboxes->why[0] == '\0') {
        wait_for_one(endpoint);
    }
    return NULL;
}

void tmsg_fastboxes_put(tmsg_endpoint_t *endpoint, size_t payload_bytes)
{
    tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    endpoint->stats.sent_by_fastbox++;
    if (tmsg_fastbox_put(fastboxes->out, payload_bytes, fastboxes->sent)) {
        tmsg_control_ring(endpoint, TMSG_RING_WORD_MOVED);
    }
}

void tmsg_fastboxes_moved(tmsg_worker_t *worker)
{
    worker->fastboxes_unreported = false;
    for (tmsg_node_t *node = worker->fastboxes.head; node != NULL;
         node = node->next) {
        tmsg_fastboxes_t *fastboxes = tmsg_fastboxes_at(node);

        /* The peer is woken once more when UCX has sent everything. */
        if (fastboxes->unreported) {
            fastboxes->unreported = endpoint_of(fastboxes)->in_ucx > 0;
            worker->fastboxes_unreported |= fastboxes->unreported;
            tmsg_fastboxes_call(fastboxes);
        }
    }
}

void tmsg_fastboxes_answered(tmsg_endpoint_t *endpoint, bool taken)
{
    tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    if (fastboxes->offer == NULL) {
        /* Only the first answer counts. */
        return;
    }
    if (!taken) {
        go_without_fastbox(endpoint,
                           "the peer does not take it, and its log says why");
        return;
    }
    if (tmsg_segment_settle(tmsg_fastbox_segment(fastboxes->offer)) !=
        TMSG_OK) {
        go_without_fastbox(endpoint, tmsg_error_message());
        return;
    }
    fastboxes->out = fastboxes->offer;
    fastboxes->offer = NULL;
    tmsg_shared_note(endpoint, tmsg_fastbox_segment(fastboxes->out));
}

static bool take_offered_fastbox(tmsg_endpoint_t *endpoint,
                                 const tmsg_segment_offer_t *offer)
{
    tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;
    tmsg_worker_t *worker = endpoint->worker;

    if (!tmsg_transport_may_find(endpoint, TMSG_FEATURE_FASTBOXES)) {
        tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                       "no memory is shared here, or there is no socket");
        return false;
    }
    if (worker->fastboxes.count >= FASTBOXES) {
        tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                       "this worker has %u fast boxes of other peers",
                       FASTBOXES);
        return false;
    }
    if (!tmsg_offer_is_there(endpoint, offer) ||
        tmsg_fastbox_open(offer, &fastboxes->in) != TMSG_OK) {
        return false;
    }
    tmsg_shared_note(endpoint, tmsg_fastbox_segment(fastboxes->in));
    tmsg_list_push(&worker->fastboxes, &fastboxes->node);
    return true;
}

/* A side may offer a fast box once a connection, whatever comes of it. */
void tmsg_fastboxes_offered(tmsg_endpoint_t *endpoint,
                            const tmsg_segment_offer_t *offer)
{
    bool taken;

    if (endpoint->fastboxes.heard) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED, "a second fast box");
        return;
    }
    endpoint->fastboxes.heard = true;
    taken = take_offered_fastbox(endpoint, offer);
    if (!taken) {
        tmsg_endpoint_log(endpoint, TMSG_LOG_WITHOUT_KIND, TMSG_LOG_INFO,
                          "small messages come by UCX: %s",
                          tmsg_error_message());
    }
    tmsg_control_ring(endpoint, taken ? TMSG_RING_WORD_FASTBOX_TAKEN
                                      : TMSG_RING_WORD_FASTBOX_REFUSED);
}

static void close_in(tmsg_endpoint_t *endpoint)
{
    tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    if (fastboxes->in != NULL) {
        /* The worker may nap on this fast box, too. */
        tmsg_worker_rouse(endpoint->worker);
        forget_core(endpoint->worker);
        tmsg_list_remove(&endpoint->worker->fastboxes, &fastboxes->node);
        tmsg_fastbox_free(fastboxes->in);
        fastboxes->in = NULL;
    }
}

bool tmsg_fastboxes_next(tmsg_endpoint_t *endpoint,
                         tmsg_fastbox_message_t *fastboxed)
{
    const tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;
    tmsg_fastbox_state_t state = tmsg_fastbox_look(fastboxes->in, fastboxed);

    if (state == TMSG_FASTBOX_WRONG && endpoint->broken == TMSG_OK) {
        tmsg_endpoint_break(
            endpoint, TMSG_ERR_MALFORMED,
            "the peer says impossible things about its fast box");
    }
    return state == TMSG_FASTBOX_FULL &&
           (int32_t)(fastboxed->after - fastboxes->came) <= 0;
}

bool tmsg_fastboxes_check(tmsg_endpoint_t *endpoint,
                          const tmsg_fastbox_message_t *fastboxed)
{
    uint32_t id;
    uint16_t channel;

    if (tmsg_preamble_peek(fastboxed->header, fastboxed->header_bytes, &id,
                           &channel) &&
        id == endpoint->id) {
        endpoint->stats.received_by_fastbox++;
        return true;
    }
    if (endpoint->broken == TMSG_OK) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "a message in a fast box that is for another");
    }
    return false;
}

void tmsg_fastboxes_note_core(const tmsg_endpoint_t *endpoint)
{
    atomic_store_explicit(&endpoint->worker->peer_core,
                          tmsg_fastbox_core(endpoint->fastboxes.in) + 1,
                          memory_order_relaxed);
}

__attribute__((noinline)) static void wake_fastboxes(tmsg_worker_t *worker)
{
    for (tmsg_node_t *node = worker->fastboxes.head; node != NULL;
         node = node->next) {
        tmsg_fastbox_wake(tmsg_fastboxes_at(node)->in);
    }
    worker->paths.fastboxes_sleep = false;
}

void tmsg_fastboxes_wake(tmsg_worker_t *worker)
{
    /* While another thread sleeps, senders use UCX instead, which wakes it. */
    if (worker->paths.fastboxes_sleep && !worker->asleep && !worker->armed) {
        wake_fastboxes(worker);
    }
}

tmsg_endpoint_t *tmsg_fastboxes_endpoint(tmsg_node_t *node)
{
    return endpoint_of(tmsg_fastboxes_at(node));
}

void tmsg_fastboxes_take(tmsg_endpoint_t *endpoint)
{
    tmsg_fastbox_take(endpoint->fastboxes.in);
}

void tmsg_fastboxes_count(tmsg_endpoint_t *endpoint)
{
    endpoint->fastboxes.came++;
}

tmsg_endpoint_t *tmsg_fastboxes_receiver(tmsg_ucx_t *ucx, const void *header,
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
    if (endpoint->fastboxes.in == NULL) {
        forget_core(ucx->worker);
    }
    return endpoint;
}

bool tmsg_fastboxes_arm(tmsg_worker_t *worker)
{
    bool all = true;
    tmsg_fastbox_message_t fastboxed;

    worker->paths.fastboxes_sleep = worker->fastboxes.count > 0;
    for (tmsg_node_t *node = worker->fastboxes.head; node != NULL;
         node = node->next) {
        tmsg_fastboxes_t *fastboxes = tmsg_fastboxes_at(node);

        tmsg_fastbox_sleep(fastboxes->in);
        all = all && !tmsg_fastboxes_next(endpoint_of(fastboxes), &fastboxed);
    }
    /* The messages that were found may be wrong, which leaves a chore. */
    return all && worker->chores.count == 0;
}

bool tmsg_fastboxes_are_intact(const tmsg_endpoint_t *endpoint)
{
    const tmsg_fastboxes_t *fastboxes = &endpoint->fastboxes;

    return (fastboxes->out == NULL ||
            tmsg_fastbox_is_intact_out(fastboxes->out, fastboxes->sent)) &&
           (fastboxes->in == NULL || tmsg_fastbox_is_intact_in(fastboxes->in));
}

void tmsg_fastboxes_end(tmsg_endpoint_t *endpoint)
{
    close_in(endpoint);
    drop_fastbox(endpoint, &endpoint->fastboxes.out);
    drop_fastbox(endpoint, &endpoint->fastboxes.offer);
    endpoint->fastboxes = (tmsg_fastboxes_t){.out = NULL};
}

bool tmsg_fastboxes_are_quiet(const tmsg_worker_t *worker)
{
    bool quiet = true;

    for (tmsg_node_t *node = worker->fastboxes.head; node != NULL && quiet;
         node = node->next) {
        quiet = endpoint_of(tmsg_fastboxes_at(node))->in_ucx == 0;
    }
    return quiet;
}
