/* SPDX-License-Identifier: BSD-3-Clause */
/* The context's thread notes when a peer was last heard. The worker judges it,
 * because only the thread that drives the worker can be told. The worker also
 * looks at the paths of an endpoint, with or without heartbeats. */
#include "am/connect/liveness.h"

#include <stdio.h>

#include "am/connect/paths.h"
#include "am/endpoint/endpoint.h"
#include "am/net/sock.h"
#include "am/ucx/ucx_events.h"
#include "am/worker/engine.h"

#define NS_PER_MS 1000000ULL

/* Returns how long a peer may be silent: the timeout in nanoseconds, less some
 * time to find it out. */
static uint64_t silence_most_ns(const tmsg_worker_t *worker)
{
    return worker->context->peer_timeout_ms * NS_PER_MS / 16 * 15;
}

static bool is_judged(const tmsg_endpoint_t *endpoint)
{
    return endpoint->link.pulse.stream != NULL;
}

static uint64_t silent_ns(const tmsg_endpoint_t *endpoint)
{
    uint64_t heard = endpoint->link.stream.heard_ns;
    uint64_t now = tmsg_now_ns();

    return now > heard ? now - heard : 0;
}

/* Ends an endpoint whose peer is silent. What the peer sent by UCX before
 * counts, and is read first. */
static void end_silent(tmsg_endpoint_t *endpoint)
{
    char why[160];

    snprintf(why, sizeof(why),
             "no sign of life for %.1f s: it was stopped, or the network cut",
             (double)silent_ns(endpoint) / 1e9);
    if (endpoint->ep != NULL) {
        tmsg_ucx_events.drain(endpoint->ucx);
    }
    tmsg_engine.end(endpoint, TMSG_ERR_PEER_LOST, why);
}

/* Returns how long the peer may still be silent. Ends the endpoint if that was
 * too long. A peer that has hung up is not silent: its end is about to be
 * read. */
static uint64_t judge_silence(tmsg_endpoint_t *endpoint, uint64_t most)
{
    uint64_t silent = silent_ns(endpoint);

    if (silent >= most) {
        tmsg_frame_listen(&endpoint->link.stream, TMSG_FRAME_HEARTBEAT);
        silent = silent_ns(endpoint);
    }
    if (silent < most) {
        return most - silent;
    }
    if (endpoint->broken != TMSG_OK || !tmsg_link_alive(endpoint)) {
        return most;
    }
    end_silent(endpoint);
    return 0;
}

static void set_silence_timer(tmsg_worker_t *worker, uint64_t ns)
{
    tmsg_loop_set_timer(&worker->loop, &worker->liveness,
                        (ns + NS_PER_MS - 1) / NS_PER_MS);
}

static bool needs_looks(const tmsg_endpoint_t *endpoint)
{
    return is_judged(endpoint) || tmsg_paths_are_watched(endpoint);
}

/* Returns whether the peer has given a sign of life lately. Heartbeats come
 * about twice in half of `most`. Without heartbeats nothing tells, and it
 * counts as alive. */
static bool gives_signs(tmsg_endpoint_t *endpoint, uint64_t most)
{
    if (is_judged(endpoint) && silent_ns(endpoint) >= most / 2) {
        tmsg_frame_listen(&endpoint->link.stream, TMSG_FRAME_HEARTBEAT);
        return silent_ns(endpoint) < most / 2;
    }
    return true;
}

/* Returns the time until the next look at an endpoint. UINT64_MAX: none is
 * needed. */
static uint64_t look_at_peer(tmsg_endpoint_t *endpoint, uint64_t most)
{
    uint64_t left = is_judged(endpoint) ? judge_silence(endpoint, most) : most;

    if (tmsg_paths_are_watched(endpoint)) {
        uint64_t of_paths =
            tmsg_paths_look(endpoint, most, gives_signs(endpoint, most));

        left = of_paths < left ? of_paths : left;
    }
    return needs_looks(endpoint) ? left : UINT64_MAX;
}

static void look_at_peers(tmsg_timer_t *timer)
{
    tmsg_worker_t *worker = TMSG_CONTAINER_OF(timer, tmsg_worker_t, liveness);
    uint64_t most = silence_most_ns(worker), least = most / 15;
    uint64_t next = UINT64_MAX;
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    if (tmsg_keepalive_is_late(&worker->context->keepalive)) {
        set_silence_timer(worker, least);
        return;
    }
    while ((endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
        if (needs_looks(endpoint)) {
            uint64_t left;

            tmsg_endpoint_hold(endpoint);
            left = look_at_peer(endpoint, most);
            tmsg_endpoint_drop(endpoint);
            next = left < next ? left : next;
        }
    }
    if (next != UINT64_MAX) {
        set_silence_timer(worker, next < least ? least : next);
    }
}

static void begin_to_look(tmsg_worker_t *worker)
{
    if (worker->context->peer_timeout_ms != 0 &&
        worker->liveness.deadline_ns == 0) {
        worker->liveness.expired = look_at_peers;
        set_silence_timer(worker, silence_most_ns(worker));
    }
}

tmsg_status_t tmsg_liveness_begin(tmsg_endpoint_t *endpoint)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_context_t *context = worker->context;
    uint32_t wanted = endpoint->peer_hello.heartbeat_ms;
    tmsg_status_t status;

    tmsg_sock_set_timeout(endpoint->link.fd, context->peer_timeout_ms);
    if (endpoint->ucx->hello.heartbeat_ms == 0 || wanted == 0) {
        return TMSG_OK;
    }
    status = tmsg_keepalive_add(&context->keepalive, &endpoint->link.pulse,
                                &endpoint->link.stream, wanted);
    if (status == TMSG_OK) {
        begin_to_look(worker);
    }
    return status;
}

void tmsg_liveness_opened(tmsg_endpoint_t *endpoint)
{
    if (tmsg_paths_are_watched(endpoint)) {
        tmsg_paths_begin(endpoint);
        begin_to_look(endpoint->worker);
    }
}

void tmsg_liveness_after_fin(tmsg_endpoint_t *endpoint)
{
    tmsg_keepalive_put_off(&endpoint->link.pulse);
}

void tmsg_liveness_end(tmsg_endpoint_t *endpoint)
{
    tmsg_keepalive_remove(&endpoint->worker->context->keepalive,
                          &endpoint->link.pulse);
}
