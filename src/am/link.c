/* SPDX-License-Identifier: BSD-3-Clause */
/* The bootstrap socket of a connection, both sides:
 *
 *   dialling                      dialled
 *   HELLO           ------------>
 *                   <------------ HELLO, or REFUSE
 *                   <------------ ADDRESS (its id, token, UCX address)
 *   ADDRESS         ------------>
 *   attach, by UCX  ------------>
 *                   <------------ attached, by UCX
 *
 * The socket then stays open: it carries the orderly end (BYE, FIN), and its
 * own end without one is a lost peer. */
#include "am/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "am/attach.h"
#include "am/close.h"
#include "am/control.h"
#include "am/linger.h"
#include "am/listener.h"
#include "am/netif.h"
#include "am/progress.h"
#include "am/sock.h"
#include "core/bytes.h"
#include "core/log.h"

enum {
    FRAME_HELLO = 1,
    FRAME_REFUSE = 2,
    FRAME_ADDRESS = 3,
    FRAME_BYE = TMSG_KIND_BYE, /* the number of the first message not sent */
    FRAME_FIN = TMSG_KIND_FIN,
};

#define ID_BYTES 4
#define REFUSE_TEXT_MAX 300
#define FRAMES_A_ROUND 32 /* of one peer, before others have their turn */

static tmsg_endpoint_t *endpoint_of(tmsg_link_t *link)
{
    return TMSG_CONTAINER_OF(link, tmsg_endpoint_t, link);
}

static tmsg_endpoint_t *of_source(tmsg_source_t *source)
{
    return endpoint_of(TMSG_CONTAINER_OF(source, tmsg_link_t, source));
}

static void fail(tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    char why[TMSG_ERROR_BYTES];

    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    tmsg_endpoint_end(endpoint, status, why);
}

static void expired(tmsg_timer_t *timer)
{
    tmsg_endpoint_t *endpoint =
        endpoint_of(TMSG_CONTAINER_OF(timer, tmsg_link_t, deadline));
    const char *what = !endpoint->link.connected ? "no connection in time"
                       : !endpoint->link.address_done
                           ? "the handshake was not finished in time"
                           : "no answer by UCX in time: is its port behind a "
                             "firewall?";

    tmsg_endpoint_end(endpoint, TMSG_ERR_TIMED_OUT, what);
}

static void want(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    bool writing = !link->connected || tmsg_frame_pending(&link->stream) > 0;

    tmsg_loop_change(&endpoint->worker->loop, &link->source,
                     EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0));
}

static tmsg_status_t send_frame(tmsg_endpoint_t *endpoint, uint8_t type,
                                const void *data, size_t bytes)
{
    tmsg_status_t status =
        tmsg_frame_queue(&endpoint->link.stream, type, data, bytes);

    want(endpoint);
    return status;
}

void tmsg_link_send(tmsg_endpoint_t *endpoint, uint8_t frame, uint32_t value)
{
    uint8_t data[4];

    tmsg_put_le(data, value, 4);
    if (send_frame(endpoint, frame, data, sizeof(data)) != TMSG_OK) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, tmsg_error_message());
    }
}

static tmsg_status_t send_hello(tmsg_endpoint_t *endpoint)
{
    uint8_t buffer[TMSG_HELLO_BYTES_MAX];
    size_t bytes;
    tmsg_status_t status = tmsg_hello_encode(&endpoint->ucx->hello, buffer,
                                             sizeof(buffer), &bytes);

    return status != TMSG_OK ? status
                             : send_frame(endpoint, FRAME_HELLO, buffer, bytes);
}

/* [endpoint id u32][sealed address] */
static tmsg_status_t send_address(tmsg_endpoint_t *endpoint)
{
    tmsg_sealed_t sealed;
    void *address = NULL;
    uint8_t *frame;
    size_t bytes;
    tmsg_status_t status =
        tmsg_ucx_address(endpoint->ucx, endpoint->link.net_only, &address,
                         &sealed.address_bytes);

    if (status != TMSG_OK) {
        return status;
    }
    bytes = sealed.address_bytes + TMSG_SEALED_EXTRA_BYTES;
    frame = malloc(ID_BYTES + bytes);
    if (frame == NULL) {
        status = tmsg_error_memory("an address frame");
        goto out;
    }
    memcpy(sealed.token, endpoint->token, TMSG_TOKEN_BYTES);
    sealed.address = address;
    tmsg_put_le(frame, endpoint->id, ID_BYTES);
    status = tmsg_sealed_encode(&sealed, frame + ID_BYTES, bytes, &bytes);
    if (status == TMSG_OK) {
        endpoint->link.address_sent = true;
        status = send_frame(endpoint, FRAME_ADDRESS, frame, ID_BYTES + bytes);
    }
    free(frame);
out:
    tmsg_ucx_address_free(address);
    return status;
}

/* [status i32][words]: the peer hears what we would tell our application. */
static void send_refusal(tmsg_endpoint_t *endpoint, tmsg_status_t refusal,
                         const char *why)
{
    uint8_t data[4 + REFUSE_TEXT_MAX];
    size_t bytes = strnlen(why, REFUSE_TEXT_MAX);

    tmsg_put_le(data, (uint32_t)refusal, 4);
    memcpy(data + 4, why, bytes);
    send_frame(endpoint, FRAME_REFUSE, data, 4 + bytes);
}

/* Tells the peer why this side gives up, and returns that. The peer may have
 * hung up meanwhile: its words are not ours. */
static tmsg_status_t refuse(tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    char why[TMSG_ERROR_BYTES];

    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    send_refusal(endpoint, status, why);
    return tmsg_error_set(status, "%s", why);
}

void tmsg_link_refuse(tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    fail(endpoint, endpoint->link.fd >= 0 ? refuse(endpoint, status) : status);
}

/* The scope of the address at our end of the socket. */
static tmsg_status_t choose_ucx(tmsg_endpoint_t *endpoint)
{
    tmsg_ucx_scope_t scope = {""};
    tmsg_address_t local;
    char device[IFNAMSIZ];
    tmsg_status_t status = TMSG_OK;

    if (endpoint->link.url.kind == TMSG_URL_TCP) {
        status = tmsg_sock_local(endpoint->link.fd, &local);
        if (status == TMSG_OK) {
            status = tmsg_netif_of_address(&local.sa.any, device);
        }
        if (status != TMSG_OK) {
            return status;
        }
        snprintf(scope.device, sizeof(scope.device), "%s", device);
    }
    return tmsg_worker_ucx(endpoint->worker, &scope, endpoint->dialling,
                           &endpoint->ucx);
}

static void name_peer(tmsg_endpoint_t *endpoint)
{
    char url[TMSG_URL_TEXT_BYTES];

    if (endpoint->link.url.kind == TMSG_URL_UNIX) {
        tmsg_url_format(&endpoint->link.url, url, sizeof(url));
    } else {
        tmsg_sock_peer_name(endpoint->link.fd, url, sizeof(url));
    }
    tmsg_endpoint_name_peer(endpoint, url);
}

/* Takes the peer's hello and decides whether the two can work together. */
static tmsg_status_t judge_hello(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                 size_t bytes)
{
    tmsg_hello_t theirs;
    tmsg_status_t status = tmsg_hello_decode(data, bytes, &theirs);

    if (status != TMSG_OK) {
        return status;
    }
    endpoint->link.hello_done = true;
    endpoint->peer_hello = theirs;
    name_peer(endpoint);
    if (!endpoint->dialling) {
        status = choose_ucx(endpoint);
        if (status != TMSG_OK || (status = send_hello(endpoint)) != TMSG_OK) {
            return status;
        }
    }
    return tmsg_attach_judge(endpoint, &theirs,
                             endpoint->link.url.kind == TMSG_URL_UNIX);
}

static tmsg_status_t on_hello(tmsg_endpoint_t *endpoint, const uint8_t *data,
                              size_t bytes)
{
    tmsg_status_t status;

    if (endpoint->link.hello_done) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "a second hello");
    }
    status = judge_hello(endpoint, data, bytes);
    if (status != TMSG_OK) {
        return refuse(endpoint, status);
    }
    return endpoint->dialling ? TMSG_OK : send_address(endpoint);
}

static tmsg_status_t on_address(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                size_t bytes)
{
    tmsg_sealed_t sealed;
    tmsg_status_t status;

    if (!endpoint->link.hello_done || endpoint->link.address_done ||
        bytes < ID_BYTES) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "an address out of turn");
    }
    status = tmsg_sealed_decode(data + ID_BYTES, bytes - ID_BYTES, &sealed);
    if (status != TMSG_OK) {
        return status;
    }
    endpoint->peer_id = (uint32_t)tmsg_get_le(data, ID_BYTES);
    endpoint->link.address_done = true;
    if (endpoint->dialling) {
        memcpy(endpoint->token, sealed.token, TMSG_TOKEN_BYTES);
        status = send_address(endpoint);
        if (status == TMSG_OK) {
            status = tmsg_attach_dial(endpoint, &sealed);
        }
        return status == TMSG_OK ? status : refuse(endpoint, status);
    }
    endpoint->peer_address = malloc(sealed.address_bytes);
    if (endpoint->peer_address == NULL) {
        return tmsg_error_memory("a peer's address");
    }
    memcpy(endpoint->peer_address, sealed.address, sealed.address_bytes);
    tmsg_worker_chore(endpoint->worker, endpoint); /* its attach may be here */
    return TMSG_OK;
}

static tmsg_status_t on_refuse(const uint8_t *data, size_t bytes)
{
    tmsg_status_t status =
        bytes < 4 ? TMSG_ERR_REFUSED
                  : tmsg_control_failure((int32_t)tmsg_get_le(data, 4));

    return tmsg_error_set(status, "refused by the peer: %.*s",
                          bytes < 4 ? 0 : (int)(bytes - 4),
                          (const char *)data + 4);
}

static tmsg_status_t on_frame(tmsg_endpoint_t *endpoint, uint8_t type,
                              const uint8_t *data, size_t bytes)
{
    switch (type) {
    case FRAME_HELLO:
        return on_hello(endpoint, data, bytes);
    case FRAME_ADDRESS:
        return on_address(endpoint, data, bytes);
    case FRAME_BYE:
    case FRAME_FIN:
        /* The peer may have opened before its answer by UCX got here. */
        if (!endpoint->link.address_done || bytes != 4) {
            return tmsg_error_set(TMSG_ERR_MALFORMED, "an end out of turn");
        }
        if (type == FRAME_BYE) {
            tmsg_close_bye(endpoint, (uint32_t)tmsg_get_le(data, 4));
        } else {
            tmsg_close_fin(endpoint);
        }
        return TMSG_OK;
    default: /* of a later version: skipped from who was admitted */
        return endpoint->link.address_done
                   ? TMSG_OK
                   : tmsg_error_set(TMSG_ERR_MALFORMED,
                                    "a frame of unknown type %u in the "
                                    "handshake",
                                    type);
    }
}

/* The socket ended. What the peer sent by UCX before that is already here: its
 * last words count. */
static void hung_up(tmsg_endpoint_t *endpoint)
{
    tmsg_loop_remove(&endpoint->worker->loop, &endpoint->link.source);
    if (endpoint->fin_sent && endpoint->fin_received) {
        tmsg_endpoint_end(endpoint, TMSG_ERR_CLOSED, "closed");
        return;
    }
    if (endpoint->ep != NULL) {
        tmsg_worker_drain(endpoint->worker, endpoint->ucx);
    }
    tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST,
                        "the connection broke: the peer died, or closed it "
                        "at once");
}

static void read_frames(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_status_t status = TMSG_OK;
    const uint8_t *data;
    uint8_t type;
    size_t bytes;

    for (int i = 0; i < FRAMES_A_ROUND && endpoint->state != TMSG_EP_ENDED &&
                    status == TMSG_OK;
         i++) {
        status = tmsg_frame_read(&link->stream, &type, &data, &bytes);
        if (status == TMSG_OK && type == FRAME_REFUSE) {
            fail(endpoint, on_refuse(data, bytes)); /* whatever it says */
            return;
        }
        if (status == TMSG_OK) {
            status = on_frame(endpoint, type, data, bytes);
        }
    }
    /* What lies in our buffer does not make the socket readable. */
    link->unread = status == TMSG_OK;
    if (link->unread) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    if (status == TMSG_ERR_CLOSED || status == TMSG_ERR_PEER_LOST) {
        hung_up(endpoint);
    } else if (status < 0) {
        fail(endpoint, status);
    }
}

void tmsg_link_read_on(tmsg_endpoint_t *endpoint)
{
    if (endpoint->link.unread && endpoint->link.source.fd >= 0) {
        read_frames(endpoint);
    }
}

static void start_hello(tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status = choose_ucx(endpoint);

    if (status == TMSG_OK) {
        status = send_hello(endpoint);
    }
    if (status != TMSG_OK) {
        fail(endpoint, refuse(endpoint, status));
    }
}

static void try_next(tmsg_endpoint_t *endpoint);

static void finish_connect(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_status_t status = tmsg_sock_connect_result(link->fd, endpoint->peer);

    if (status == TMSG_IN_PROGRESS) {
        return;
    }
    if (status != TMSG_OK) {
        tmsg_loop_remove(&endpoint->worker->loop, &link->source);
        close(link->fd);
        link->fd = -1;
        try_next(endpoint);
        return;
    }
    link->connected = true;
    start_hello(endpoint);
}

static void ready(tmsg_source_t *source, uint32_t events)
{
    tmsg_endpoint_t *endpoint = of_source(source);
    tmsg_link_t *link = &endpoint->link;

    tmsg_endpoint_hold(endpoint);
    if (!link->connected) {
        finish_connect(endpoint);
    } else {
        if (events & EPOLLOUT) {
            tmsg_frame_flush(&link->stream); /* an error shows in reading */
        }
        if (events & ~(uint32_t)EPOLLOUT) {
            read_frames(endpoint);
        }
    }
    if (endpoint->state != TMSG_EP_ENDED && link->source.fd >= 0) {
        want(endpoint);
    }
    tmsg_endpoint_drop(endpoint);
}

/* Takes a socket, connected or about to be, into the loop. */
static tmsg_status_t adopt(tmsg_endpoint_t *endpoint, int fd)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_status_t status;

    link->source.ready = ready;
    status = tmsg_loop_add(&endpoint->worker->loop, &link->source, fd,
                           EPOLLIN | EPOLLOUT);
    if (status != TMSG_OK) {
        close(fd);
        return status;
    }
    link->fd = fd;
    tmsg_frame_init(&link->stream, fd, TMSG_FRAME_MAX_BYTES);
    return TMSG_OK;
}

/* Dials one address. OK and IN_PROGRESS end the search. */
static tmsg_status_t dial(tmsg_endpoint_t *endpoint,
                          const tmsg_address_t *address)
{
    int fd;
    tmsg_status_t status = tmsg_sock_connect(&endpoint->link.url, address, &fd);

    if (status != TMSG_OK && status != TMSG_IN_PROGRESS) {
        return status;
    }
    return adopt(endpoint, fd); /* the loop tells when it is connected */
}

/* Goes through the addresses of the host until one lets itself be dialled. */
static void try_next(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    const tmsg_address_t *addresses = NULL;
    size_t count = 1; /* of a Unix socket */
    tmsg_status_t status = TMSG_OK;

    if (link->url.kind == TMSG_URL_TCP) {
        status = tmsg_resolve_take(link->resolve, &addresses, &count);
        if (status != TMSG_OK) {
            fail(endpoint, status);
            return;
        }
    }
    status = TMSG_ERR_UNREACHABLE; /* in the words of the last attempt */
    while (link->next_address < count && status != TMSG_OK) {
        status =
            dial(endpoint,
                 addresses == NULL ? NULL : &addresses[link->next_address]);
        link->next_address++;
    }
    if (status != TMSG_OK) {
        fail(endpoint, status);
    }
}

static void resolved(tmsg_source_t *source, uint32_t events)
{
    tmsg_endpoint_t *endpoint =
        endpoint_of(TMSG_CONTAINER_OF(source, tmsg_link_t, resolve_source));

    (void)events;
    tmsg_endpoint_hold(endpoint);
    tmsg_loop_remove(&endpoint->worker->loop, source);
    try_next(endpoint);
    tmsg_endpoint_drop(endpoint);
}

tmsg_status_t tmsg_link_dial(tmsg_endpoint_t *endpoint, const char *url,
                             int timeout_ms)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_loop_t *loop = &endpoint->worker->loop;
    tmsg_status_t status;

    if (url == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "url is NULL");
    }
    status = tmsg_url_parse(url, &link->url);
    if (status != TMSG_OK) {
        return status;
    }
    if (link->url.kind == TMSG_URL_BLOB) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "'%s': connect to a blob listener by its blob",
                              url);
    }
    tmsg_url_format(&link->url, endpoint->peer_url, sizeof(endpoint->peer_url));
    link->deadline.expired = expired;
    tmsg_loop_set_timer(loop, &link->deadline, (uint64_t)timeout_ms);
    if (link->url.kind == TMSG_URL_UNIX) {
        try_next(endpoint);
        return TMSG_OK;
    }
    status = tmsg_resolve_start(link->url.host, link->url.port, false,
                                &link->resolve);
    if (status != TMSG_OK) {
        return status;
    }
    link->resolve_source.ready = resolved;
    return tmsg_loop_add(loop, &link->resolve_source,
                         tmsg_resolve_fd(link->resolve), EPOLLIN);
}

tmsg_status_t tmsg_link_accepted(tmsg_endpoint_t *endpoint, int fd,
                                 tmsg_listener_t *listener, int timeout_ms)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_status_t status;

    if (getrandom(endpoint->token, TMSG_TOKEN_BYTES, 0) != TMSG_TOKEN_BYTES) {
        close(fd);
        return tmsg_error_errno(TMSG_ERR_IO, "getrandom");
    }
    tmsg_url_parse(listener->url, &link->url);
    tmsg_sock_peer_name(fd, endpoint->peer_url, sizeof(endpoint->peer_url));
    link->connected = true;
    link->listener = listener;
    status = adopt(endpoint, fd);
    if (status != TMSG_OK) {
        return status;
    }
    want(endpoint);
    link->deadline.expired = expired;
    tmsg_loop_set_timer(&endpoint->worker->loop, &link->deadline,
                        (uint64_t)timeout_ms);
    return TMSG_OK;
}

/* A peer in this process may be waiting for this very thread. */
void tmsg_link_close(tmsg_endpoint_t *endpoint, bool writes)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_loop_t *loop = &endpoint->worker->loop;

    tmsg_loop_clear_timer(loop, &link->deadline);
    tmsg_loop_remove(loop, &link->resolve_source);
    tmsg_resolve_abandon(link->resolve);
    link->resolve = NULL;
    if (link->fd < 0) {
        return;
    }
    tmsg_loop_remove(loop, &link->source);
    tmsg_frame_flush(&link->stream); /* a refusal's words, if they fit */
    if (writes && endpoint->peer_hello.pid != (uint32_t)getpid()) {
        tmsg_linger_begin(endpoint->ucx, link->fd);
    } else {
        shutdown(link->fd, SHUT_RDWR);
        close(link->fd);
    }
    link->fd = -1;
    tmsg_frame_free(&link->stream);
}

bool tmsg_link_alive(const tmsg_endpoint_t *endpoint)
{
    uint8_t byte;
    ssize_t got;

    if (endpoint->link.fd < 0) {
        return endpoint->link.url.kind == TMSG_URL_BLOB;
    }
    got = recv(endpoint->link.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}
