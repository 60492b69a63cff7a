/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/accept.h"

#include <string.h>
#include <unistd.h>

#include "am/connect/admit.h"
#include "am/connect/carrier.h"
#include "am/connect/dialect.h"
#include "am/connect/handshake.h"
#include "am/connect/link.h"
#include "am/connect/ucx_for.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/scheme.h"
#include "am/listen/backlog.h"
#include "am/listen/places.h"
#include "am/listen/presence.h"
#include "am/path/bulk.h"
#include "am/worker/engine.h"
#include "core/log.h"

#define RETRY_NS UINT64_C(100000000) /* if descriptors ran out */
#define AWAITED_MOST 128
#define STREAM_NS UINT64_C(10000000) /* if a stream may have to be let in */
/* Time in which connections are accepted before others have their turn. */
#define ROUND_NS UINT64_C(2000000)

static void handshake_over(tmsg_listener_t *listener, tmsg_endpoint_t *endpoint)
{
    endpoint->link.listener = NULL;
    endpoint->link.wanting_ucx = NULL;
    listener->wanting_ucx -= endpoint->link.wants_ucx;
    endpoint->link.wants_ucx = false;
    tmsg_carrier_uncount(endpoint);
    tmsg_places_leave(listener, endpoint);
    listener->handshakes--;
    tmsg_backlog_call(listener);
    if (listener->handshakes == listener->max_handshakes - 1 &&
        listener->source.fd >= 0) {
        tmsg_loop_change(&listener->worker->loop, &listener->source, EPOLLIN);
    }
}

static void run_accept(tmsg_due_t *due)
{
    tmsg_endpoint_t *endpoint = TMSG_CONTAINER_OF(due, tmsg_endpoint_t, due);
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_accept_fn on_accept = NULL;
    void *arg = NULL;

    tmsg_worker_lock(worker);
    if (endpoint->handle && endpoint->keeper != NULL) {
        on_accept = endpoint->keeper->on_accept;
        arg = endpoint->keeper->on_accept_arg;
        endpoint->keeper = NULL; /* the application's from here on */
    }
    tmsg_worker_unlock(worker);
    if (on_accept != NULL) {
        on_accept(arg, endpoint);
    }
    tmsg_endpoint_drop(endpoint);
}

void tmsg_accept_connected(tmsg_endpoint_t *endpoint)
{
    tmsg_listener_t *listener = endpoint->link.listener;

    endpoint->link.strange = false;
    if (listener == NULL) {
        return;
    }
    listener->connected++;
    handshake_over(listener, endpoint);
    tmsg_presence_began(listener, endpoint);
    if (listener->on_accept != NULL) {
        endpoint->due.run = run_accept;
        tmsg_endpoint_hold(endpoint);
        tmsg_worker_due(listener->worker, &endpoint->due);
    }
}

static void run_kept_release(tmsg_due_t *due)
{
    tmsg_endpoint_t *endpoint = TMSG_CONTAINER_OF(due, tmsg_endpoint_t, due);
    tmsg_worker_t *worker = endpoint->worker;

    tmsg_worker_lock(worker);
    if (endpoint->handle && endpoint->keeper != NULL) {
        endpoint->keeper = NULL;
        endpoint->handle = false;
        tmsg_engine.forget(endpoint);
        tmsg_endpoint_drop(endpoint);
    }
    tmsg_worker_unlock(worker);
    tmsg_endpoint_drop(endpoint);
}

/* Counts a peer that did not get in, by the reason. */
static void count_turned_away(tmsg_listener_t *listener,
                              const tmsg_endpoint_t *endpoint)
{
    if (tmsg_bulk_took_socket(endpoint)) {
        listener->accepted--; /* a bulk stream is no connection of its own */
    } else if (endpoint->admit.turned != TMSG_TURNED_OTHERWISE) {
        listener->turned[endpoint->admit.turned]++;
    } else if (endpoint->status == TMSG_ERR_TIMED_OUT) {
        listener->timed_out++;
    } else if (endpoint->status == TMSG_ERR_LIMIT_EXCEEDED) {
        listener->too_long++;
    } else {
        listener->turned[TMSG_TURNED_OTHERWISE]++;
    }
}

/* The listener frees an ended endpoint that it keeps. An endpoint that it has
 * handed over, or is about to, is the application's to free. */
void tmsg_accept_ended(tmsg_endpoint_t *endpoint)
{
    tmsg_listener_t *listener = endpoint->link.listener;
    bool handed = listener == NULL && endpoint->keeper != NULL &&
                  endpoint->keeper->on_accept != NULL;

    if (listener != NULL) {
        count_turned_away(listener, endpoint);
        handshake_over(listener, endpoint);
    }
    if (endpoint->keeper != NULL && !handed && endpoint->handle) {
        endpoint->due.run = run_kept_release;
        tmsg_endpoint_hold(endpoint);
        tmsg_worker_due(endpoint->worker, &endpoint->due);
    }
}

static void retry_accept(tmsg_timer_t *timer)
{
    tmsg_listener_t *listener =
        TMSG_CONTAINER_OF(timer, tmsg_listener_t, retry);

    tmsg_loop_change(&listener->worker->loop, &listener->source, EPOLLIN);
}

/* Stops accepting for some time, UINT64_MAX: until a handshake is over. There
 * are no descriptors, or no places, left. */
static void pause_accepting(tmsg_listener_t *listener, uint64_t wait_ns)
{
    tmsg_loop_change(&listener->worker->loop, &listener->source, 0);
    if (wait_ns != UINT64_MAX) {
        listener->retry.expired = retry_accept;
        tmsg_loop_set_alarm(&listener->worker->loop, &listener->retry, wait_ns);
    }
}

static void accept_one(tmsg_listener_t *listener, int fd)
{
    const tmsg_link_terms_t terms = {listener->url, &listener->wanting_ucx,
                                     listener->max_handshake_bytes,
                                     listener->handshake_timeout_ms};
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status =
        tmsg_endpoint_create(listener->worker, &tmsg_dialect_own, &endpoint);

    if (status != TMSG_OK) {
        close(fd);
        tmsg_log_of(TMSG_LOG_NOT_ACCEPTED_KIND, listener->url, TMSG_LOG_WARN,
                    "%s: a connection is dropped: %s", listener->url,
                    tmsg_error_message());
        return;
    }
    endpoint->accepted = true;
    endpoint->keeper = listener;
    memcpy(endpoint->devices, listener->devices, sizeof(endpoint->devices));
    tmsg_handshake_subscribe(endpoint, listener->subscribe);
    tmsg_admit_begin(endpoint, listener->keyring, listener->tls);
    endpoint->link.streams = &listener->streams;
    tmsg_carrier_ask(endpoint, listener->carrier);
    listener->handshakes++;
    listener->accepted++;
    tmsg_places_take(listener, endpoint, fd);
    status = tmsg_link_accepted(endpoint, fd, listener, &terms);
    if (status != TMSG_OK) {
        endpoint->link.listener = listener;
        tmsg_engine.end(endpoint, status, tmsg_error_message());
        return;
    }
    tmsg_link_read_now(endpoint); /* the hello may be here */
}

/* Turns away a peer that holds a place and does not get on, so that such peers
 * do not shut others out. */
static void displace_stranger(tmsg_endpoint_t *stranger)
{
    static const char why[] = "gave way to others, as the oldest of too many "
                              "connections that are in their handshake";

    stranger->admit.turned = TMSG_TURNED_TOO_MANY;
    stranger->link.strange = true; /* even if its address has come */
    if (!tmsg_schemes[stranger->link.url.kind]->socket) {
        /* This is inside UCX, so the endpoint cannot end here. */
        tmsg_endpoint_break(stranger, TMSG_ERR_BUSY, why);
        return;
    }
    tmsg_handshake_tell(stranger, TMSG_ERR_BUSY, why);
    tmsg_engine.end(stranger, TMSG_ERR_BUSY, why);
}

/* Counts the connections that wait for their stream, which comes by a further
 * connection, maybe behind others that came before it. They must not take its
 * place. Without keys they may be anybody's, so that no more than AWAITED_MOST
 * of them are passed over, or as many as there are places. */
static uint32_t count_awaited(const tmsg_listener_t *listener)
{
    uint32_t most =
        listener->keyring != NULL || listener->tls != NULL ? UINT32_MAX
        : listener->max_handshakes > AWAITED_MOST ? listener->max_handshakes
                                                  : AWAITED_MOST;
    uint32_t count = listener->streams.awaited;

    return count < most ? count : most;
}

bool tmsg_accept_is_full(const tmsg_listener_t *listener)
{
    return listener->handshakes >= listener->max_handshakes &&
           listener->handshakes - count_awaited(listener) >=
               listener->max_handshakes;
}

/* Returns whether there is a place. If not, *stranger_p is who makes way for
 * the next connection; NULL: nobody does, and *wait_ns_p says how long that is
 * so at most. What the peer has said in time counts, even if this side has yet
 * to read it. */
static bool has_place(tmsg_listener_t *listener, tmsg_endpoint_t **stranger_p,
                      uint64_t *wait_ns_p)
{
    while (tmsg_accept_is_full(listener)) {
        tmsg_endpoint_t *stranger =
            tmsg_places_choose(listener, tmsg_now_ns(), wait_ns_p);

        *stranger_p = stranger;
        if (stranger == NULL || stranger->link.fd < 0) {
            return false;
        }
        tmsg_endpoint_hold(stranger);
        tmsg_link_read_now(stranger);
        if (!tmsg_places_may_go(stranger)) {
            tmsg_endpoint_drop(stranger);
            continue;
        }
        tmsg_endpoint_drop(stranger);
        return false;
    }
    *stranger_p = NULL;
    return true;
}

bool tmsg_accept_make_room(tmsg_listener_t *listener)
{
    tmsg_endpoint_t *stranger;
    uint64_t wait_ns;

    if (has_place(listener, &stranger, &wait_ns)) {
        return true;
    }
    if (stranger != NULL) {
        displace_stranger(stranger);
    }
    return stranger != NULL;
}

/* Accepts those who wait, for a part of the worker's time. */
static void accept_ready(tmsg_source_t *source, uint32_t events)
{
    tmsg_listener_t *listener =
        TMSG_CONTAINER_OF(source, tmsg_listener_t, source);
    uint64_t until_ns = tmsg_now_ns() + ROUND_NS;
    int fd;

    (void)events;
    do {
        tmsg_endpoint_t *stranger;
        uint64_t wait_ns;
        tmsg_status_t status;

        if (!has_place(listener, &stranger, &wait_ns) && stranger == NULL) {
            /* Nothing tells the listener that one comes to wait for its
             * stream. */
            pause_accepting(listener,
                            listener->streams.all > 0 && wait_ns > STREAM_NS
                                ? STREAM_NS
                                : wait_ns);
            return;
        }
        status = tmsg_sock_accept(&listener->sock, &fd);
        if (status == TMSG_IN_PROGRESS) {
            return;
        }
        if (status != TMSG_OK) {
            tmsg_log_of(TMSG_LOG_NOT_ACCEPTED_KIND, listener->url,
                        TMSG_LOG_WARN, "%s: %s", listener->url,
                        tmsg_error_message());
            pause_accepting(listener, RETRY_NS);
            return;
        }
        if (stranger != NULL) {
            displace_stranger(stranger);
        }
        accept_one(listener, fd);
    } while (tmsg_now_ns() < until_ns);
}

/* Opens UCX, if that may carry connections, on the device that peers will need,
 * so that a failure shows here, not to each of them. The UCX worker stays open
 * for the first peer. */
tmsg_status_t tmsg_accept_begin(tmsg_listener_t *listener,
                                const tmsg_ucx_scope_t *scope)
{
    const tmsg_ucx_scope_t pipes = {.pipes = true};
    bool by_stream = listener->carrier == TMSG_CARRIER_STREAM;
    tmsg_ucx_t *ucx;
    tmsg_status_t status = tmsg_worker_ucx(
        listener->worker, by_stream ? &pipes : scope, false, &ucx);

    if (status != TMSG_OK) {
        return status;
    }
    ucx->users--;
    listener->source.ready = accept_ready;
    return tmsg_loop_add(&listener->worker->loop, &listener->source,
                         listener->sock.fd, EPOLLIN);
}
