/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/accept.h"

#include <string.h>
#include <unistd.h>

#include "am/connect/admit.h"
#include "am/connect/dialect.h"
#include "am/connect/handshake.h"
#include "am/connect/link.h"
#include "am/connect/ucx_for.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/scheme.h"
#include "am/listen/backlog.h"
#include "am/path/bulk.h"
#include "am/worker/engine.h"
#include "core/log.h"

#define RETRY_MS 100
#define ACCEPTS_A_ROUND 16

static void handshake_over(tmsg_listener_t *listener)
{
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

    if (listener == NULL) {
        return;
    }
    endpoint->link.listener = NULL;
    endpoint->link.handshakes = NULL;
    listener->connected++;
    handshake_over(listener);
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
        endpoint->link.listener = NULL;
        endpoint->link.handshakes = NULL;
        count_turned_away(listener, endpoint);
        handshake_over(listener);
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

/* Stops accepting: there are no descriptors, or no handshakes, left. */
static void pause_accepting(tmsg_listener_t *listener, bool timed)
{
    tmsg_loop_change(&listener->worker->loop, &listener->source, 0);
    if (timed) {
        listener->retry.expired = retry_accept;
        tmsg_loop_set_timer(&listener->worker->loop, &listener->retry,
                            RETRY_MS);
    }
}

static void accept_one(tmsg_listener_t *listener, int fd)
{
    const tmsg_link_terms_t terms = {listener->url, &listener->handshakes,
                                     listener->max_handshake_bytes,
                                     listener->handshake_timeout_ms};
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status =
        tmsg_endpoint_create(listener->worker, &tmsg_dialect_own, &endpoint);

    if (status != TMSG_OK) {
        close(fd);
        tmsg_log(TMSG_LOG_WARN, "%s: a connection is dropped: %s",
                 listener->url, tmsg_error_message());
        return;
    }
    endpoint->accepted = true;
    endpoint->keeper = listener;
    memcpy(endpoint->devices, listener->devices, sizeof(endpoint->devices));
    tmsg_admit_begin(endpoint, listener->keyring);
    listener->handshakes++;
    listener->accepted++;
    status = tmsg_link_accepted(endpoint, fd, listener, &terms);
    if (status != TMSG_OK) {
        endpoint->link.listener = listener;
        tmsg_engine.end(endpoint, status, tmsg_error_message());
    }
}

/* Returns the peer that is longest in its handshake without a proof. NULL:
 * there is none. */
static tmsg_endpoint_t *oldest_stranger(const tmsg_listener_t *listener)
{
    tmsg_endpoint_t *endpoint, *oldest = NULL;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(listener->worker, NULL, &i)) !=
           NULL) {
        if (endpoint->link.listener == listener &&
            !tmsg_admit_is_over(endpoint) && endpoint->broken == TMSG_OK &&
            (oldest == NULL ||
             endpoint->link.since_ns < oldest->link.since_ns)) {
            oldest = endpoint;
        }
    }
    return oldest;
}

/* Turns away a peer that holds a place without a proof, so that such peers do
 * not shut others out. A peer with a key proves it within two round trips. */
static void displace_stranger(tmsg_endpoint_t *stranger)
{
    static const char why[] = "gave way to others, as the oldest of too many "
                              "connections without a proof";

    stranger->admit.turned = TMSG_TURNED_TOO_MANY;
    if (!tmsg_schemes[stranger->link.url.kind]->socket) {
        /* This is inside UCX, so the endpoint cannot end here. */
        tmsg_endpoint_break(stranger, TMSG_ERR_BUSY, why);
        return;
    }
    tmsg_handshake_tell(stranger, TMSG_ERR_BUSY, why);
    tmsg_engine.end(stranger, TMSG_ERR_BUSY, why);
}

bool tmsg_accept_is_full(const tmsg_listener_t *listener)
{
    return listener->handshakes >= listener->max_handshakes;
}

bool tmsg_accept_make_room(tmsg_listener_t *listener)
{
    bool full = tmsg_accept_is_full(listener);
    tmsg_endpoint_t *stranger = full ? oldest_stranger(listener) : NULL;

    if (stranger != NULL) {
        displace_stranger(stranger);
    }
    return !full || stranger != NULL;
}

static void accept_ready(tmsg_source_t *source, uint32_t events)
{
    tmsg_listener_t *listener =
        TMSG_CONTAINER_OF(source, tmsg_listener_t, source);
    int fd;

    (void)events;
    for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
        bool full = tmsg_accept_is_full(listener);
        tmsg_endpoint_t *stranger = full ? oldest_stranger(listener) : NULL;
        tmsg_status_t status;

        if (full && stranger == NULL) {
            pause_accepting(listener, false);
            return;
        }
        status = tmsg_sock_accept(&listener->sock, &fd);
        if (status == TMSG_IN_PROGRESS) {
            return;
        }
        if (status != TMSG_OK) {
            tmsg_log(TMSG_LOG_WARN, "%s: %s", listener->url,
                     tmsg_error_message());
            pause_accepting(listener, true);
            return;
        }
        if (stranger != NULL) {
            displace_stranger(stranger);
        }
        accept_one(listener, fd);
    }
}

/* Opens UCX on the device that peers will need, so that a failure shows here,
 * not to each of them. The UCX worker stays open for the first peer. */
tmsg_status_t tmsg_accept_begin(tmsg_listener_t *listener,
                                const tmsg_ucx_scope_t *scope)
{
    tmsg_ucx_t *ucx;
    tmsg_status_t status =
        tmsg_worker_ucx(listener->worker, scope, false, &ucx);

    if (status != TMSG_OK) {
        return status;
    }
    ucx->users--;
    listener->source.ready = accept_ready;
    return tmsg_loop_add(&listener->worker->loop, &listener->source,
                         listener->sock.fd, EPOLLIN);
}
