/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/connect/carrier.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "am/connect/link.h"
#include "am/endpoint/scheme.h"
#include "am/endpoint/session.h"
#include "am/net/peer.h"
#include "am/net/sock.h"
#include "am/path/claim.h"
#include "am/tls/tls.h"
#include "am/ucx/ucx_pipe.h"
#include "am/worker/engine.h"
#include "am/worker/settings.h"
#include "core/error.h"

/* Bytes that the kernel holds and has not sent, beyond which small messages
 * would wait behind a large payload. */
#define UNSENT_MOST (256 * 1024)
#define AGAIN_MS 10 /* a listener without a place is asked again */

tmsg_status_t tmsg_carrier_check(const char *what, int32_t carrier,
                                 tmsg_url_kind_t kind, const char *devices)
{
    if (carrier < TMSG_CARRIER_AUTO || carrier > TMSG_CARRIER_STREAM) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s: unknown carrier %d",
                              what, carrier);
    }
    if (carrier == TMSG_CARRIER_UCX && tmsg_schemes[kind]->secure) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: UCX does not encrypt: a %s:// peer is "
                              "carried by a stream",
                              what, tmsg_url_scheme(kind));
    }
    if (carrier != TMSG_CARRIER_STREAM) {
        return TMSG_OK;
    }
    if (!tmsg_schemes[kind]->socket) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: a %s:// peer cannot be carried by a stream: "
                              "tcp://, unix:// and tls:// can",
                              what, tmsg_url_scheme(kind));
    }
    return devices[0] == '\0'
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "%s: devices are for UCX, which does not carry "
                                "a stream: leave one of the two out",
                                what);
}

int32_t tmsg_carrier_usual(const tmsg_context_t *context, tmsg_url_kind_t kind,
                           const char *devices)
{
    return tmsg_schemes[kind]->socket && !tmsg_schemes[kind]->secure &&
                   devices[0] == '\0'
               ? context->carrier
               : TMSG_CARRIER_AUTO;
}

/* Counts the connection at its listener, as what it is now. */
static void count_stream(tmsg_endpoint_t *endpoint, bool is_stream)
{
    tmsg_link_t *link = &endpoint->link;

    if (link->streams != NULL) {
        link->streams->all -= link->is_stream;
        link->streams->awaited -= link->awaits_a_stream;
        link->is_stream = is_stream;
        link->awaits_a_stream = is_stream && link->address_done;
        link->streams->all += link->is_stream;
        link->streams->awaited += link->awaits_a_stream;
    }
}

void tmsg_carrier_uncount(tmsg_endpoint_t *endpoint)
{
    count_stream(endpoint, false);
    endpoint->link.streams = NULL;
}

void tmsg_carrier_ask(tmsg_endpoint_t *endpoint, int32_t carrier)
{
    if (endpoint->admit.tls != NULL) { /* UCX does not encrypt */
        carrier = TMSG_CARRIER_STREAM;
    }
    endpoint->conn.carrier = (uint8_t)carrier;
    endpoint->conn.pipes = carrier == TMSG_CARRIER_STREAM;
    count_stream(endpoint, endpoint->conn.pipes);
}

bool tmsg_carrier_is_stream(const tmsg_endpoint_t *endpoint)
{
    return endpoint->conn.pipes;
}

static bool share_namespaces(const tmsg_hello_t *mine,
                             const tmsg_hello_t *theirs)
{
    return mine->ns_pid == theirs->ns_pid && mine->ns_ipc == theirs->ns_ipc &&
           mine->ns_mnt == theirs->ns_mnt && mine->ns_user == theirs->ns_user &&
           mine->ns_net == theirs->ns_net;
}

/* Returns whether the dialled side of unix:// asks for a stream: UCX would
 * refuse the two, because they do not share their namespaces. The peer is of
 * this user, as the kernel says: others are refused as ever. */
static bool is_apart(const tmsg_endpoint_t *endpoint,
                     const tmsg_hello_t *theirs)
{
    tmsg_hello_t mine;

    if (endpoint->dialling || tmsg_schemes[endpoint->link.url.kind]->network ||
        endpoint->conn.carrier != TMSG_CARRIER_AUTO ||
        theirs->carrier != TMSG_CARRIER_AUTO ||
        !(theirs->features & TMSG_FEATURE_CARRIERS)) {
        return false;
    }
    tmsg_hello_fill_local(endpoint->worker->context->instance_id, &mine);
    return !share_namespaces(&mine, theirs) &&
           tmsg_peer_is_user(endpoint->link.fd, mine.uid);
}

tmsg_status_t tmsg_carrier_choose(tmsg_endpoint_t *endpoint,
                                  const tmsg_hello_t *theirs)
{
    uint8_t mine = endpoint->conn.carrier;
    bool pipes = mine == TMSG_CARRIER_STREAM ||
                 theirs->carrier == TMSG_CARRIER_STREAM ||
                 is_apart(endpoint, theirs);

    if (pipes && !(theirs->features & TMSG_FEATURE_CARRIERS)) {
        return tmsg_error_set(TMSG_ERR_INCOMPATIBLE,
                              "this side asks for a stream "
                              "(carrier=stream), which the peer's version does "
                              "not know");
    }
    if (pipes &&
        (mine == TMSG_CARRIER_UCX || theirs->carrier == TMSG_CARRIER_UCX)) {
        return tmsg_error_set(
            TMSG_ERR_INCOMPATIBLE,
            "this side asks for carrier=%s, the peer for carrier=%s",
            tmsg_carrier_names[mine],
            tmsg_carrier_names[theirs->carrier > TMSG_CARRIER_STREAM
                                   ? 0
                                   : theirs->carrier]);
    }
    endpoint->conn.pipes = pipes;
    count_stream(endpoint, pipes);
    return TMSG_OK;
}

/* Has paths.c watch the socket, as one of UCX's. */
static void watch_socket(tmsg_endpoint_t *endpoint, int fd)
{
    tmsg_ep_sockets_t *sockets = &endpoint->conn.sockets;
    struct stat file;

    if (tmsg_ucx_pipe_is_tcp(endpoint->ep) && fstat(fd, &file) == 0) {
        *sockets = (tmsg_ep_sockets_t){.count = 1};
        sockets->of[0].fd = fd;
        sockets->of[0].inode = (uint64_t)file.st_ino;
    }
}

static void tune_socket(int fd)
{
    int unsent = UNSENT_MOST, one = 1;

    tmsg_sock_keep_alive(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

/* Makes the socket of some frames the endpoint's stream, with what has been
 * read of it. On error nothing has changed. Otherwise what moves the bytes is
 * the stream's, and the caller takes it from the frames. */
static tmsg_status_t adopt_stream(tmsg_endpoint_t *endpoint,
                                  tmsg_frame_stream_t *frames)
{
    const tmsg_frame_buffer_t *in = &frames->in;
    int fd = frames->socket;
    tmsg_status_t status;

    tune_socket(fd);
    status = tmsg_ucx_pipe_ep(endpoint->ucx, fd, frames->io, frames->io_arg,
                              in->data + in->begin, in->end - in->begin,
                              &endpoint->ep);
    if (status == TMSG_OK) {
        if (endpoint->admit.tls != NULL) {
            tmsg_secure_widen(frames->io_arg);
        }
        endpoint->reply_ep = endpoint->ep;
        endpoint->conn.counted = (tmsg_counted_t){0};
        watch_socket(endpoint, fd);
    }
    return status;
}

static void dial_again(tmsg_timer_t *timer);

/* Waits for a place at the listener, as long as the connection may take. */
static void await_place(tmsg_endpoint_t *endpoint)
{
    endpoint->conn.connect_request.again.expired = dial_again;
    tmsg_loop_set_timer(&endpoint->worker->loop,
                        &endpoint->conn.connect_request.again, AGAIN_MS);
}

static void carrier_claimed(tmsg_claim_t *claim, tmsg_status_t status)
{
    tmsg_endpoint_t *endpoint = claim->endpoint;

    if (status == TMSG_ERR_BUSY) {
        tmsg_carrier_end(endpoint);
        await_place(endpoint);
        return;
    }
    /* Not in order; and whoever answered may have proved nothing, which must
     * not end a session. */
    if (status == TMSG_ERR_CLOSED ||
        (status != TMSG_OK && tmsg_resume_keeps(endpoint))) {
        status = TMSG_ERR_PEER_LOST;
    }
    tmsg_endpoint_hold(endpoint);
    if (status == TMSG_OK) {
        tmsg_loop_remove(&endpoint->worker->loop, &claim->source);
        status = adopt_stream(endpoint, &claim->stream);
    }
    if (status == TMSG_OK) {
        tmsg_frame_take_io(&claim->stream);
        tmsg_frame_free(&claim->stream);
        free(claim);
        endpoint->conn.claim = NULL;
        tmsg_engine.opened(endpoint);
    } else {
        tmsg_link_fail(endpoint, status);
    }
    tmsg_endpoint_drop(endpoint);
}

tmsg_status_t tmsg_carrier_dial(tmsg_endpoint_t *endpoint)
{
    tmsg_claim_t *claim = malloc(sizeof(*claim));
    tmsg_status_t status;

    if (claim == NULL) {
        return tmsg_error_memory("a stream");
    }
    status =
        tmsg_claim_dial(claim, endpoint, TMSG_FRAME_CARRIER, carrier_claimed);
    if (status == TMSG_OK) {
        endpoint->conn.claim = claim;
        return TMSG_OK;
    }
    free(claim);
    if (status == TMSG_ERR_BUSY) {
        await_place(endpoint);
        return TMSG_OK;
    }
    return status;
}

static void dial_again(tmsg_timer_t *timer)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(timer, tmsg_endpoint_t, conn.connect_request.again);
    tmsg_status_t status = tmsg_carrier_dial(endpoint);

    if (status != TMSG_OK) {
        tmsg_link_fail(endpoint, status);
    }
}

/* Opens the endpoint with the socket of the connection that claims it. */
static void take_claim(tmsg_endpoint_t *endpoint, tmsg_endpoint_t *connection)
{
    int fd = tmsg_claim_take(connection);
    tmsg_status_t status = adopt_stream(endpoint, &connection->link.stream);

    tmsg_endpoint_hold(endpoint);
    if (status == TMSG_OK) {
        status = tmsg_claim_answer(connection, TMSG_FRAME_CARRIER);
        tmsg_frame_take_io(&connection->link.stream);
    } else {
        close(fd);
    }
    if (status == TMSG_OK) {
        tmsg_claim_leave(connection, "is now the stream", endpoint);
        tmsg_engine.opened(endpoint);
    } else {
        tmsg_link_refuse(endpoint, status);
        tmsg_claim_leave(connection, "should have become the stream", endpoint);
    }
    tmsg_endpoint_drop(endpoint);
}

static bool awaits_claim(const tmsg_endpoint_t *endpoint)
{
    return endpoint->state == TMSG_EP_CONNECTING && endpoint->ep == NULL &&
           endpoint->conn.pipes && endpoint->link.address_sent &&
           endpoint->ucx != NULL;
}

void tmsg_carrier_move(tmsg_endpoint_t *session,
                       const tmsg_endpoint_t *connection)
{
    session->conn.pipes = connection->conn.pipes;
}

tmsg_status_t tmsg_carrier_claim(tmsg_endpoint_t *connection,
                                 const uint8_t *data, size_t bytes)
{
    tmsg_endpoint_t *endpoint;

    if (!tmsg_claim_may_come(connection)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "a claim out of turn");
    }
    endpoint = tmsg_claim_find(connection, TMSG_FRAME_CARRIER, data, bytes);
    if (endpoint == NULL || !awaits_claim(endpoint)) {
        tmsg_claim_note_late(connection, data, bytes);
        return tmsg_error_set(TMSG_ERR_REFUSED,
                              "no connection here waits for this stream");
    }
    if (endpoint->link.address_done) {
        take_claim(endpoint, connection);
    } else {
        connection->conn.claims = true;
        endpoint->conn.claimant = connection->id;
    }
    return TMSG_OK;
}

void tmsg_carrier_go_on(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_t *connection =
        endpoint->conn.claimant == 0
            ? NULL
            : tmsg_endpoint_by_id(endpoint->worker, endpoint->conn.claimant);

    count_stream(endpoint, true);
    endpoint->conn.claimant = 0;
    if (connection != NULL && connection->conn.claims &&
        connection->state == TMSG_EP_CONNECTING && connection->link.fd >= 0) {
        take_claim(endpoint, connection);
    }
}

void tmsg_carrier_hear(tmsg_endpoint_t *endpoint)
{
    if (endpoint->conn.claim != NULL) {
        tmsg_claim_hear(endpoint->conn.claim);
    }
}

void tmsg_carrier_end(tmsg_endpoint_t *endpoint)
{
    if (endpoint->conn.claim != NULL) {
        tmsg_claim_abandon(endpoint->conn.claim);
        free(endpoint->conn.claim);
        endpoint->conn.claim = NULL;
    }
    endpoint->conn.claimant = 0;
}
