/* SPDX-License-Identifier: BSD-3-Clause */
/* The dialling side of the bootstrap socket, until the socket is connected. */
#include <unistd.h>

#include "am/connect/handshake.h"
#include "am/connect/link.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/scheme.h"
#include "am/net/sock.h"

static const tmsg_scheme_t *scheme_of(const tmsg_endpoint_t *endpoint)
{
    return tmsg_schemes[endpoint->link.url.kind];
}

tmsg_status_t tmsg_link_dial_address(tmsg_endpoint_t *endpoint,
                                     const tmsg_address_t *address)
{
    int fd;
    tmsg_status_t status = tmsg_sock_connect(&endpoint->link.url, address, &fd);

    if (status != TMSG_OK && status != TMSG_IN_PROGRESS) {
        return status;
    }
    /* The loop tells when the socket is connected. */
    return tmsg_link_adopt(endpoint, fd);
}

/* The time between two attempts where a queue is full, at first and at most. */
#define QUEUE_FIRST_MS 1
#define QUEUE_MOST_MS 50

static void try_next(tmsg_endpoint_t *endpoint);

static void dial_again(tmsg_timer_t *timer)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(timer, tmsg_endpoint_t, link.queue);

    tmsg_endpoint_hold(endpoint);
    endpoint->link.next_address = 0;
    try_next(endpoint);
    tmsg_endpoint_drop(endpoint);
}

/* Waits for room in the queue of a Unix listener, as the kernel does for TCP,
 * until the time to connect is over. Nothing tells of room. */
static void await_queue(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;

    link->queue_ms = link->queue_ms == 0                  ? QUEUE_FIRST_MS
                     : 2 * link->queue_ms < QUEUE_MOST_MS ? 2 * link->queue_ms
                                                          : QUEUE_MOST_MS;
    link->queue.expired = dial_again;
    tmsg_loop_set_timer(&endpoint->worker->loop, &link->queue, link->queue_ms);
}

/* Dials the addresses of the host in turn, until dialling one does not fail at
 * once. */
static void try_next(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    const tmsg_address_t *addresses = NULL;
    size_t count = 1; /* a path counts as one */
    tmsg_status_t status = TMSG_OK;

    if (!tmsg_url_has_path(&link->url)) {
        status = tmsg_resolve_take(link->resolve, &addresses, &count);
        if (status != TMSG_OK) {
            tmsg_link_fail(endpoint, status);
            return;
        }
    }
    status = TMSG_ERR_UNREACHABLE; /* the last attempt has set the words */
    while (link->next_address < count && status != TMSG_OK) {
        status = scheme_of(endpoint)->dial(
            endpoint,
            addresses == NULL ? NULL : &addresses[link->next_address]);
        link->next_address++;
    }
    if (status == TMSG_ERR_BUSY && tmsg_url_has_path(&link->url)) {
        await_queue(endpoint);
    } else if (status != TMSG_OK) {
        tmsg_link_fail(endpoint, status);
    }
}

/* Closes the socket that is being connected. */
static void give_up_address(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;

    tmsg_loop_remove(&endpoint->worker->loop, &link->source);
    tmsg_frame_free(&link->stream);
    close(link->fd);
    link->fd = -1;
}

void tmsg_link_dial_other(tmsg_endpoint_t *endpoint)
{
    const tmsg_link_t *link = &endpoint->link;
    const tmsg_address_t *addresses;
    size_t count;

    if (link->fd >= 0 && !link->connected && link->resolve != NULL &&
        tmsg_resolve_take(link->resolve, &addresses, &count) == TMSG_OK &&
        link->next_address < count) {
        give_up_address(endpoint);
        try_next(endpoint);
    }
}

void tmsg_link_dialled(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_status_t status = tmsg_sock_connect_result(link->fd, endpoint->peer);

    if (status == TMSG_IN_PROGRESS) {
        return;
    }
    if (status != TMSG_OK) {
        give_up_address(endpoint);
        try_next(endpoint);
        return;
    }
    link->connected = true;
    tmsg_handshake_begin(endpoint);
}

static void host_resolved(tmsg_source_t *source, uint32_t events)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(source, tmsg_endpoint_t, link.resolve_source);

    (void)events;
    tmsg_endpoint_hold(endpoint);
    tmsg_loop_remove(&endpoint->worker->loop, source);
    try_next(endpoint);
    tmsg_endpoint_drop(endpoint);
}

tmsg_status_t tmsg_link_redial(tmsg_endpoint_t *endpoint, int timeout_ms)
{
    tmsg_link_t *link = &endpoint->link;
    const tmsg_scheme_t *scheme = scheme_of(endpoint);
    tmsg_status_t status = TMSG_OK;

    tmsg_link_set_deadline(endpoint, timeout_ms);
    if (scheme->begin != NULL) {
        status = scheme->begin(endpoint);
    }
    if (status == TMSG_OK && tmsg_url_has_path(&link->url)) {
        try_next(endpoint);
        return TMSG_OK;
    }
    if (status == TMSG_OK) {
        status = tmsg_resolve_start(link->url.host, link->url.port,
                                    scheme->ipv4_first, &link->resolve);
    }
    if (status != TMSG_OK) {
        return status;
    }
    link->resolve_source.ready = host_resolved;
    return tmsg_loop_add(&endpoint->worker->loop, &link->resolve_source,
                         tmsg_resolve_fd(link->resolve), EPOLLIN);
}

tmsg_status_t tmsg_link_dial(tmsg_endpoint_t *endpoint, int timeout_ms)
{
    tmsg_url_format(&endpoint->link.url, endpoint->peer_url,
                    sizeof(endpoint->peer_url));
    return tmsg_link_redial(endpoint, timeout_ms);
}
