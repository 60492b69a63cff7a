/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections that UCX makes by itself, over its own sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "am/connect/dialect.h"
#include "am/connect/link.h"
#include "am/connect/ucx_for.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/scheme.h"
#include "am/listen/accept.h"
#include "am/net/netif.h"
#include "am/net/sock.h"
#include "am/ucx/ucx_ep.h"
#include "am/ucx/ucx_events.h"
#include "am/ucx/ucx_listener.h"
#include "am/ucxx/dialect.h"
#include "am/ucxx/ucxx.h"
#include "am/worker/engine.h"
#include "am/worker/reach.h"
#include "core/log.h"

/* A tag that we do not use, and its hash, which Python's UCXX checks: the first
 * 8 bytes of the SHA-1 of "(0,)", as an integer. */
static const uint64_t greeting[] = {0, 0x22dd0956b1627f9fULL};

_Static_assert(sizeof(greeting) == TMSG_UCXX_GREETING_BYTES,
               "two integers of the machine's");

tmsg_status_t tmsg_ucxx_scope(const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();

    if (address->sa.any.sa_family == AF_INET6 && version.major == 1 &&
        version.minor <= 13 && tmsg_netif_is_loopback(&address->sa.any)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "UCX %u.%u does not use IPv6's loopback: take "
                              "127.0.0.1",
                              version.major, version.minor);
    }
    *scope = (tmsg_ucx_scope_t){.device = "all",
                                .family = address->sa.any.sa_family};
    return tmsg_netif_is_any(&address->sa.any)
               ? TMSG_OK
               : tmsg_scope_of_address(&address->sa.any, scope);
}

/* Asks the kernel for the route, by a socket that sends nothing. */
tmsg_status_t tmsg_ucxx_route(const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope)
{
    int fd = socket(address->sa.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    tmsg_address_t local;
    tmsg_status_t status;

    if (fd < 0) {
        return tmsg_error_errno(TMSG_ERR_IO, "socket");
    }
    if (connect(fd, &address->sa.any, address->bytes) != 0) {
        status = tmsg_error_errno(TMSG_ERR_UNREACHABLE, "no route there");
    } else {
        status = tmsg_sock_local(fd, &local);
    }
    close(fd);
    return status != TMSG_OK ? status : tmsg_ucxx_scope(&local, scope);
}

tmsg_status_t tmsg_ucxx_begin(tmsg_endpoint_t *endpoint)
{
    endpoint->ucxx = calloc(1, sizeof(*endpoint->ucxx));
    if (endpoint->ucxx == NULL) {
        return tmsg_error_memory("an endpoint");
    }
    endpoint->ucxx->endpoint = endpoint;
    endpoint->dialect = &tmsg_dialect_ucxx;
    endpoint->link.url.kind = TMSG_URL_UCX;
    endpoint->link.net_only = true;
    snprintf(endpoint->why, sizeof(endpoint->why),
             "ucx:// uses the network, unless UCX_TLS says otherwise");
    return TMSG_OK;
}

static bool ucxx_sends_are_over(const tmsg_endpoint_t *endpoint)
{
    return endpoint->channels.queued == 0 && endpoint->posted.count == 0;
}

/* Handles the loss of an endpoint, of which UCX tells no more than a status.
 * Inside UCX. */
static void lose_ucxx(tmsg_endpoint_t *endpoint, tmsg_ucx_status_t ucs)
{
    char why[160];

    if (endpoint->state == TMSG_EP_CONNECTING) {
        snprintf(why, sizeof(why),
                 "UCX does not connect: %s (nobody listens there, or with "
                 "another version of UCX)",
                 tmsg_ucx_status_words(ucs));
        tmsg_endpoint_break(endpoint,
                            ucs == TMSG_UCX_REJECTED ? TMSG_ERR_REFUSED
                                                     : TMSG_ERR_UNREACHABLE,
                            why);
    } else if (endpoint->state == TMSG_EP_CLOSING &&
               ucxx_sends_are_over(endpoint)) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_CLOSED, "closed");
    } else {
        snprintf(why, sizeof(why),
                 "the peer closed the connection, or died: %s",
                 tmsg_ucx_status_words(ucs));
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

static void ucxx_ep_failed(void *arg, tmsg_ucx_ep_t ep, tmsg_ucx_status_t ucs)
{
    (void)ep;
    lose_ucxx(arg, ucs);
}

/* Handles the end of an operation that UCX has reported. What follows from it
 * is a chore. */
static void end_ucxx_op(tmsg_ucxx_t *ucxx, tmsg_op_t *op)
{
    tmsg_endpoint_t *endpoint = ucxx->endpoint;

    tmsg_op_over(endpoint, op);
    if (endpoint->state != TMSG_EP_ENDED) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    tmsg_endpoint_reported(endpoint);
}

static void flush_abandoned(tmsg_op_t *op)
{
    end_ucxx_op(TMSG_CONTAINER_OF(op, tmsg_ucxx_t, flush), op);
}

static void flush_over(tmsg_ucxx_t *ucxx, tmsg_ucx_status_t ucs)
{
    if (ucs == TMSG_UCX_OK) {
        ucxx->flushed = ucxx->connected;
        ucxx->connected = true;
    } else if (ucxx->endpoint->state != TMSG_EP_ENDED) {
        lose_ucxx(ucxx->endpoint, ucs);
    }
    end_ucxx_op(ucxx, &ucxx->flush);
}

static void flush_reported(void *request, tmsg_ucx_status_t ucs, void *arg)
{
    tmsg_ucx_request_free(request);
    flush_over(arg, ucs);
}

/* Flushes an endpoint. The first flush ends when it is connected, the second
 * when UCX has sent everything. */
static void flush_ep(tmsg_endpoint_t *endpoint)
{
    tmsg_ucxx_t *ucxx = endpoint->ucxx;
    tmsg_ucx_status_t ucs;

    tmsg_op_begin(endpoint, &ucxx->flush, flush_abandoned);
    ucs = tmsg_ucx_ep_flush(endpoint->ep, flush_reported, ucxx);
    if (ucs != TMSG_UCX_IN_PROGRESS) {
        flush_over(ucxx, ucs);
    }
}

static void greet_abandoned(tmsg_op_t *op)
{
    end_ucxx_op(TMSG_CONTAINER_OF(op, tmsg_ucxx_t, greet), op);
}

static void greet_reported(void *request, tmsg_ucx_status_t ucs, void *arg)
{
    tmsg_ucxx_t *ucxx = arg;

    (void)ucs; /* a lost peer shows elsewhere */
    tmsg_ucx_request_free(request);
    end_ucxx_op(ucxx, &ucxx->greet);
}

static void send_greeting(tmsg_endpoint_t *endpoint)
{
    tmsg_ucxx_t *ucxx = endpoint->ucxx;

    tmsg_op_begin(endpoint, &ucxx->greet, greet_abandoned);
    if (tmsg_ucx_stream_send(endpoint->ep, greeting, sizeof(greeting),
                             greet_reported, ucxx) != TMSG_UCX_IN_PROGRESS) {
        end_ucxx_op(ucxx, &ucxx->greet);
    }
}

static void hear_abandoned(tmsg_op_t *op)
{
    end_ucxx_op(TMSG_CONTAINER_OF(op, tmsg_ucxx_t, hear), op);
}

/* Only the listening side greets unasked, so the dialling side has to
 * answer. */
static void hear_over(tmsg_ucxx_t *ucxx, tmsg_ucx_status_t ucs)
{
    ucxx->hearing = false;
    ucxx->to_answer = ucs == TMSG_UCX_OK && ucxx->endpoint->dialling;
    end_ucxx_op(ucxx, &ucxx->hear);
}

static void hear_reported(void *request, tmsg_ucx_status_t ucs, size_t length,
                          void *arg)
{
    (void)length;
    tmsg_ucx_request_free(request);
    hear_over(arg, ucs);
}

/* Begins to receive the peer's greeting. C++ UCXX sends none; the operation
 * then ends with the endpoint. */
static void hear_greeting(tmsg_endpoint_t *endpoint)
{
    tmsg_ucxx_t *ucxx = endpoint->ucxx;
    tmsg_ucx_status_t ucs;

    ucxx->hearing = true;
    tmsg_op_begin(endpoint, &ucxx->hear, hear_abandoned);
    ucs = tmsg_ucx_stream_receive(endpoint->ep, ucxx->heard,
                                  sizeof(ucxx->heard), hear_reported, ucxx);
    if (ucs != TMSG_UCX_IN_PROGRESS) {
        hear_over(ucxx, ucs);
    }
}

static void answer_greeting(tmsg_endpoint_t *endpoint)
{
    if (endpoint->ucxx->to_answer) {
        endpoint->ucxx->to_answer = false;
        send_greeting(endpoint);
    }
}

/* Begins to talk: the UCX endpoint is there. */
static void begin_talk(tmsg_endpoint_t *endpoint)
{
    /* UCX tells this UCX endpoint as the sender of messages. */
    endpoint->reply_ep = endpoint->ep;
    endpoint->peer_hello.queue_depth = INT32_MAX;
    hear_greeting(endpoint);
}

tmsg_status_t tmsg_ucxx_dial(tmsg_endpoint_t *endpoint,
                             const tmsg_address_t *address)
{
    tmsg_ucx_scope_t scope;
    tmsg_status_t status = tmsg_ucxx_route(address, &scope);

    if (status == TMSG_OK) {
        status =
            tmsg_worker_ucx(endpoint->worker, &scope, true, &endpoint->ucx);
    }
    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_ucx_ep_dial(endpoint->ucx, &address->sa.any, address->bytes,
                              ucxx_ep_failed, endpoint, &endpoint->ep);
    if (status == TMSG_OK) {
        begin_talk(endpoint);
        flush_ep(endpoint);
    } else { /* the next address may be of another family */
        endpoint->ucx->users--;
        endpoint->ucx = NULL;
    }
    return status;
}

static tmsg_status_t accept_caller(tmsg_endpoint_t *endpoint)
{
    tmsg_ucxx_t *ucxx = endpoint->ucxx;
    tmsg_ucx_caller_t caller = ucxx->caller;
    tmsg_status_t status;

    ucxx->caller = NULL; /* UCX takes it, also on error */
    status = tmsg_ucx_ep_accept(endpoint->ucx, caller, ucxx_ep_failed, endpoint,
                                &endpoint->ep);
    if (status == TMSG_OK) {
        begin_talk(endpoint);
        send_greeting(endpoint);
        flush_ep(endpoint);
    }
    return status;
}

tmsg_status_t tmsg_ucxx_advance(tmsg_endpoint_t *endpoint)
{
    tmsg_ucxx_t *ucxx = endpoint->ucxx;

    if (ucxx->caller != NULL) {
        return accept_caller(endpoint);
    }
    answer_greeting(endpoint);
    if (!ucxx->connected) {
        return TMSG_IN_PROGRESS;
    }
    tmsg_engine.opened(endpoint);
    return TMSG_OK;
}

/* Closes in order. UCXX has no message for this: what was sent goes out, then
 * the endpoint ends. */
void tmsg_ucxx_close(tmsg_endpoint_t *endpoint)
{
    tmsg_ucxx_t *ucxx = endpoint->ucxx;

    answer_greeting(endpoint);
    if (endpoint->close_wanted && endpoint->state == TMSG_EP_OPEN) {
        endpoint->state = TMSG_EP_CLOSING;
    }
    if (endpoint->state != TMSG_EP_CLOSING || !ucxx_sends_are_over(endpoint) ||
        !ucxx->connected) {
        return;
    }
    if (!ucxx->closing) {
        ucxx->closing = true;
        flush_ep(endpoint);
    }
    if (ucxx->flushed) {
        tmsg_engine.end(endpoint, TMSG_ERR_CLOSED, "closed");
    }
}

void tmsg_ucxx_end(tmsg_endpoint_t *endpoint)
{
    tmsg_ucxx_t *ucxx = endpoint->ucxx;

    if (ucxx->caller != NULL) {
        tmsg_ucx_caller_reject(endpoint->ucx, ucxx->caller);
        ucxx->caller = NULL;
    }
}

static void name_ucx_url(const struct sockaddr_storage *address, char *url,
                         size_t url_bytes)
{
    union {
        const struct sockaddr_storage *storage;
        const struct sockaddr *any;
    } named = {.storage = address};

    tmsg_url_format_sockaddr(named.any, sizeof(*address), url, url_bytes);
    tmsg_url_rename(url, url_bytes, TMSG_URL_UCX);
}

static void name_client(tmsg_endpoint_t *endpoint, tmsg_ucx_caller_t caller)
{
    struct sockaddr_storage address;

    if (tmsg_ucx_caller_address(caller, &address)) {
        name_ucx_url(&address, endpoint->peer_url, sizeof(endpoint->peer_url));
    }
}

/* Takes a caller into the listener's handshakes. Inside UCX. */
static tmsg_status_t take_caller(tmsg_listener_t *listener,
                                 tmsg_ucx_caller_t caller)
{
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status;

    if (tmsg_accept_is_full(listener)) {
        return tmsg_error_set(TMSG_ERR_BUSY, "max_handshakes %u are under way",
                              listener->max_handshakes);
    }
    status =
        tmsg_endpoint_create(listener->worker, &tmsg_dialect_own, &endpoint);
    if (status != TMSG_OK) {
        return status;
    }
    endpoint->accepted = true;
    status = tmsg_ucxx_begin(endpoint);
    if (status != TMSG_OK) {
        tmsg_engine.release(endpoint);
        return status;
    }
    name_client(endpoint, caller);
    endpoint->keeper = listener;
    endpoint->link.listener = listener;
    endpoint->link.strange = true; /* until it is connected */
    listener->handshakes++;
    endpoint->ucx = listener->ucx;
    endpoint->ucx->users++;
    endpoint->ucxx->caller = caller;
    tmsg_link_set_deadline(endpoint, listener->handshake_timeout_ms);
    tmsg_worker_chore(listener->worker, endpoint);
    return TMSG_OK;
}

static void caller_came(tmsg_ucx_caller_t caller, void *arg)
{
    const tmsg_ucx_t *ucx = arg;

    if (ucx->keeper == NULL) {
        tmsg_ucx_caller_reject(ucx, caller);
    } else if (take_caller(ucx->keeper, caller) != TMSG_OK) {
        tmsg_log_of(TMSG_LOG_TURNED_AWAY_KIND, "ucx:// peers", TMSG_LOG_WARN,
                    "%s: a connection is rejected: %s", ucx->keeper->url,
                    tmsg_error_message());
        tmsg_ucx_caller_reject(ucx, caller);
    }
}

static tmsg_status_t not_listening(const tmsg_listener_t *listener,
                                   tmsg_ucx_status_t ucs)
{
    return tmsg_error_set(ucs == TMSG_UCX_BUSY ? TMSG_ERR_ALREADY_EXISTS
                          : ucs == TMSG_UCX_INVALID_ADDR ||
                                  ucs == TMSG_UCX_NO_DEVICE
                              ? TMSG_ERR_NOT_FOUND
                              : TMSG_ERR_INTERNAL,
                          "%s: UCX does not listen: %s", listener->url,
                          tmsg_ucx_status_words(ucs));
}

tmsg_status_t tmsg_ucxx_listen(tmsg_listener_t *listener,
                               const tmsg_ucx_scope_t *scope)
{
    struct sockaddr_storage bound;
    tmsg_ucx_status_t ucs;
    tmsg_status_t status =
        tmsg_worker_ucx(listener->worker, scope, false, &listener->ucx);

    if (status != TMSG_OK) {
        return status;
    }
    listener->ucx->keeper = listener;
    ucs = tmsg_ucx_listen(listener->ucx, &listener->address.sa.any,
                          listener->address.bytes, caller_came, &bound);
    if (ucs != TMSG_UCX_OK) {
        return not_listening(listener, ucs);
    }
    name_ucx_url(&bound, listener->url, sizeof(listener->url));
    return TMSG_OK;
}

/* UCX reads freed memory if its listener is destroyed while a connection is
 * half made, and UCX does not tell of such a connection. So the listener is
 * destroyed with its UCX worker. */
void tmsg_ucxx_unlisten(tmsg_listener_t *listener)
{
    tmsg_ucx_t *ucx = listener->ucx;

    if (ucx != NULL && ucx->keeper == listener) {
        ucx->keeper = NULL;
        ucx->retired = true;
        tmsg_ucx_events.sweep(listener->worker);
    }
}

/* Tries whether the address can be bound. UCX itself binds it later, and
 * complains by itself if that fails. */
static tmsg_status_t bind_ucx(tmsg_listener_t *listener, const tmsg_url_t *url,
                              const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope)
{
    tmsg_status_t status = tmsg_sock_listen(url, address, 1, &listener->sock);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_sock_listener_close(&listener->sock);
    listener->sock.fd = -1;
    listener->address = *address;
    tmsg_url_format(url, listener->url, sizeof(listener->url));
    return tmsg_ucxx_scope(address, scope);
}

/* A name may resolve to ::1 first, to which UCX 1.13 does not connect. */
const tmsg_scheme_t tmsg_scheme_ucx = {
    .ipv4_first = true,
    .begin = tmsg_ucxx_begin,
    .dial = tmsg_ucxx_dial,
    .bind = bind_ucx,
    .listen = tmsg_ucxx_listen,
    .unlisten = tmsg_ucxx_unlisten,
    .arrived = tmsg_ucxx_arrived,
};
