/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/bulk_tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/boot/refusal.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"
#include "am/net/sock.h"
#include "am/path/bulk.h"
#include "am/worker/engine.h"
#include "core/bytes.h"
#include "core/log.h"

#define ID_BYTES 4
#define CLAIM_BYTES (ID_BYTES + TMSG_PROOF_BYTES)
#define SPARED 16 /* descriptors that bulk streams leave to connections */
#define AHEAD_LEAST ((uint64_t)4 * 1024 * 1024)
#define AHEAD_PER_US ((uint64_t)12500) /* bytes at 100 Gb/s */
/* Other events wait while the kernel copies the bytes of a turn. */
#define TURN_BYTES ((size_t)128 * 1024)
#define LOW_MOST ((uint64_t)256 * 1024) /* most bytes that a read waits for */
#define LOW_LEAST ((uint64_t)64 * 1024)

static void go_without_bulk(tmsg_endpoint_t *endpoint, const char *why)
{
    tmsg_bulk_go_without(endpoint, "bulk stream", why);
}

/* Measures `ahead` by the time that the TCP handshake took, because no process
 * had to answer that. */
static void measure_ahead(tmsg_bulk_tcp_t *tcp)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);

    if (getsockopt(tcp->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        info.tcpi_rtt == 0) {
        return;
    }
    tcp->ahead = AHEAD_LEAST + info.tcpi_rtt * AHEAD_PER_US;
    if (tcp->ahead > TMSG_BULK_AHEAD_MOST) {
        tcp->ahead = TMSG_BULK_AHEAD_MOST;
    }
}

/* Returns in words why there can be no bulk stream, or NULL if there may be
 * one. */
static const char *ruled_out(const tmsg_endpoint_t *endpoint)
{
    uint32_t both = endpoint->ucx == NULL ? 0
                                          : endpoint->ucx->hello.features &
                                                endpoint->peer_hello.features;

    if (endpoint->link.url.kind != TMSG_URL_TCP || endpoint->link.fd < 0) {
        return "it needs a tcp:// connection";
    }
    if (!(both & TMSG_FEATURE_BULK)) {
        return "the peer is of an older version";
    }
    if (endpoint->devices[0] != '\0') {
        return "the devices to be used are named";
    }
    return NULL;
}

static void want_writing(tmsg_bulk_tcp_t *tcp, bool writing)
{
    if (tcp->writes != writing && tcp->source.fd >= 0) {
        tcp->writes = writing;
        tmsg_loop_change(&tcp->bulk.endpoint->worker->loop, &tcp->source,
                         EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0));
    }
}

/* Ends a bulk stream before any fragment went by it, so that nothing is lost
 * with it. */
static void give_up_tcp_bulk(tmsg_endpoint_t *endpoint, const char *why)
{
    go_without_bulk(endpoint, why);
    tmsg_bulk_end(endpoint);
}

static void bulk_socket_ready(tmsg_source_t *source, uint32_t events);

/* Makes the socket the endpoint's bulk stream. On error the socket is closed.
 * Errors: NO_MEMORY, IO. */
static tmsg_status_t adopt_bulk_socket(tmsg_endpoint_t *endpoint, int fd,
                                       uint32_t events)
{
    tmsg_bulk_tcp_t *tcp = calloc(1, sizeof(*tcp));
    tmsg_status_t status;

    if (tcp == NULL) {
        close(fd);
        return tmsg_error_memory("a bulk stream");
    }
    tcp->fd = fd;
    tcp->measured = UINT64_MAX;
    tcp->source.ready = bulk_socket_ready;
    tcp->writes = (events & EPOLLOUT) != 0;
    status = tmsg_loop_add(&endpoint->worker->loop, &tcp->source, fd, events);
    if (status != TMSG_OK) {
        close(fd);
        free(tcp);
        return status;
    }
    tmsg_bulk_adopt(&tcp->bulk, &tmsg_mover_tcp, endpoint);
    endpoint->paths.bulk_why[0] = '\0';
    return TMSG_OK;
}

/* Proves that the side that dials a bulk stream is the one that dialled the
 * connection: by the token of that and, with keys, by the key of its frames. */
static void prove_dialler(const tmsg_endpoint_t *endpoint, uint32_t id,
                          const tmsg_frame_macs_t *macs,
                          uint8_t proof[TMSG_PROOF_BYTES])
{
    uint8_t said[ID_BYTES + TMSG_TOKEN_BYTES];

    tmsg_put_le(said, id, ID_BYTES);
    memcpy(said + ID_BYTES, endpoint->token, TMSG_TOKEN_BYTES);
    tmsg_proof_bulk(macs->on ? macs->key : NULL, said, sizeof(said), proof);
}

static void introduce_bulk(tmsg_bulk_tcp_t *tcp)
{
    tmsg_endpoint_t *endpoint = tcp->bulk.endpoint;
    uint8_t claim[CLAIM_BYTES];

    tmsg_put_le(claim, endpoint->peer_id, ID_BYTES);
    prove_dialler(endpoint, endpoint->peer_id, &endpoint->link.stream.tx,
                  claim + ID_BYTES);
    if (tmsg_frame_queue(&tcp->stream, TMSG_FRAME_BULK, claim, sizeof(claim)) !=
        TMSG_OK) {
        give_up_tcp_bulk(endpoint, tmsg_error_message());
        return;
    }
    want_writing(tcp, tmsg_frame_pending(&tcp->stream) > 0);
}

/* Tunes the socket for fragments alone, which may be a long time apart. */
static void tune_bulk(tmsg_bulk_tcp_t *tcp)
{
    uint32_t timeout_ms = tcp->bulk.endpoint->worker->context->peer_timeout_ms;

    tmsg_sock_keep_alive(tcp->fd);
    if (timeout_ms > 0) {
        tmsg_unacked_hasten(tcp->fd, timeout_ms);
    }
    measure_ahead(tcp);
}

static void finish_bulk_dial(tmsg_bulk_tcp_t *tcp)
{
    tmsg_endpoint_t *endpoint = tcp->bulk.endpoint;
    tmsg_status_t status = tmsg_sock_connect_result(tcp->fd, endpoint->peer);

    if (status == TMSG_OK) {
        tcp->connected = true;
        tune_bulk(tcp);
        introduce_bulk(tcp);
    } else if (status != TMSG_IN_PROGRESS) {
        give_up_tcp_bulk(endpoint, tmsg_error_message());
    }
}

/* Makes the bulk stream stand. The peer takes the connection for the bulk
 * stream, too, so that nothing but fragments follows. */
static void let_bulk_stand(tmsg_bulk_tcp_t *tcp)
{
    tmsg_frame_free(&tcp->stream);
    tcp->bulk.stands = true;
    want_writing(tcp, false);
    tmsg_log(TMSG_LOG_DEBUG, "%s: large payloads go by a bulk stream",
             tcp->bulk.endpoint->peer);
}

static void hear_bulk_answer(tmsg_bulk_tcp_t *tcp)
{
    const uint8_t *data;
    uint8_t type;
    size_t bytes;
    tmsg_status_t status = tmsg_frame_read(&tcp->stream, &type, &data, &bytes);

    if (status == TMSG_OK && type == TMSG_FRAME_REFUSE) {
        status = tmsg_handshake_refused(data, bytes);
    } else if (status == TMSG_OK &&
               (type != TMSG_FRAME_BULK || bytes > 0 ||
                tcp->stream.in.end > tcp->stream.in.begin)) {
        status =
            tmsg_error_set(TMSG_ERR_MALFORMED,
                           "the peer answers with a frame of type %u", type);
    }
    if (status == TMSG_OK) {
        let_bulk_stand(tcp);
    } else if (status != TMSG_IN_PROGRESS) {
        give_up_tcp_bulk(tcp->bulk.endpoint, tmsg_error_message());
    }
}

static void bulk_socket_ready(tmsg_source_t *source, uint32_t events)
{
    tmsg_bulk_tcp_t *tcp = TMSG_CONTAINER_OF(source, tmsg_bulk_tcp_t, source);

    if (!tcp->connected) {
        finish_bulk_dial(tcp);
    } else if (tcp->bulk.stands) {
        tmsg_bulk_stir(tcp->bulk.endpoint);
    } else {
        if (events & EPOLLOUT) {
            /* An error shows in reading. */
            tmsg_frame_flush(&tcp->stream);
            want_writing(tcp, tmsg_frame_pending(&tcp->stream) > 0);
        }
        hear_bulk_answer(tcp);
    }
}

static void begin_tcp_bulk(tmsg_endpoint_t *endpoint)
{
    const char *why = ruled_out(endpoint);
    tmsg_address_t address;
    tmsg_status_t status;
    int fd;

    if (endpoint->transport != TMSG_TRANSPORT_TCP || !endpoint->dialling) {
        return;
    }
    if (why != NULL) {
        go_without_bulk(endpoint, why);
        return;
    }
    status = tmsg_ucx_check_descriptors(endpoint->link.fd, SPARED);
    if (status == TMSG_OK) {
        status = tmsg_sock_peer(endpoint->link.fd, &address);
    }
    if (status == TMSG_OK) {
        status = tmsg_sock_connect(&endpoint->link.url, &address, &fd);
    }
    if (status == TMSG_OK || status == TMSG_IN_PROGRESS) {
        status = adopt_bulk_socket(endpoint, fd, EPOLLIN | EPOLLOUT);
    }
    if (status != TMSG_OK) {
        go_without_bulk(endpoint, tmsg_error_message());
        return;
    }
    tmsg_frame_init(&tmsg_bulk_tcp_of(endpoint->paths.bulk)->stream, fd,
                    TMSG_HANDSHAKE_BYTES);
}

/* Returns whether a claim came late: its endpoint is gone, and the side that
 * dialled the bulk stream has done with it. */
static bool claim_is_late(const tmsg_endpoint_t *connection,
                          const uint8_t *data, size_t bytes)
{
    const tmsg_endpoint_t *endpoint =
        bytes == CLAIM_BYTES
            ? tmsg_endpoint_by_id(connection->worker,
                                  (uint32_t)tmsg_get_le(data, ID_BYTES))
            : NULL;

    return bytes == CLAIM_BYTES &&
           (endpoint == NULL || endpoint->state == TMSG_EP_ENDED);
}

/* Returns the endpoint that a claim is for, if the proof is right, or NULL. */
static tmsg_endpoint_t *find_claimed(const tmsg_endpoint_t *connection,
                                     const uint8_t *data, size_t bytes)
{
    uint8_t proof[TMSG_PROOF_BYTES];
    tmsg_endpoint_t *endpoint;
    uint32_t id;

    if (bytes != CLAIM_BYTES) {
        return NULL;
    }
    id = (uint32_t)tmsg_get_le(data, ID_BYTES);
    endpoint = tmsg_endpoint_by_id(connection->worker, id);
    if (endpoint == NULL || endpoint->dialling ||
        endpoint->paths.bulk != NULL ||
        (endpoint->state != TMSG_EP_OPEN &&
         endpoint->state != TMSG_EP_CLOSING) ||
        ruled_out(endpoint) != NULL) {
        return NULL;
    }
    prove_dialler(endpoint, id, &endpoint->link.stream.rx, proof);
    return sodium_memcmp(proof, data + ID_BYTES, sizeof(proof)) == 0 ? endpoint
                                                                     : NULL;
}

tmsg_status_t tmsg_bulk_tcp_claim(tmsg_endpoint_t *connection,
                                  const uint8_t *data, size_t bytes)
{
    tmsg_link_t *link = &connection->link;
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status;
    char words[TMSG_ERROR_BYTES];
    int fd = link->fd;

    if (connection->dialling || link->listener == NULL || link->hello_done ||
        link->stream.in.end > link->stream.in.begin) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "a bulk stream out of turn");
    }
    endpoint = find_claimed(connection, data, bytes);
    if (endpoint == NULL) {
        connection->paths.late_bulk = claim_is_late(connection, data, bytes);
        return tmsg_error_set(TMSG_ERR_REFUSED,
                              "no connection here waits for this bulk stream");
    }
    tmsg_loop_remove(&connection->worker->loop, &link->source);
    link->fd = -1;
    connection->paths.is_bulk = true;
    status = adopt_bulk_socket(endpoint, fd, EPOLLIN);
    if (status == TMSG_OK) {
        tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(endpoint->paths.bulk);

        tune_bulk(tcp);
        tcp->connected = true;
        tcp->bulk.stands = true;
        status = tmsg_frame_queue(&link->stream, TMSG_FRAME_BULK, NULL, 0);
        if (status != TMSG_OK) {
            give_up_tcp_bulk(endpoint, tmsg_error_message());
        }
    } else {
        go_without_bulk(endpoint, tmsg_error_message());
    }
    tmsg_frame_free(&link->stream);
    snprintf(words, sizeof(words), "this connection %s the bulk stream of %s",
             endpoint->paths.bulk != NULL ? "is now" : "was to be",
             endpoint->peer);
    tmsg_engine.end(connection, TMSG_ERR_CANCELED, words);
    return TMSG_OK;
}

static size_t segment_bytes(int fd)
{
    int segment = 0;
    socklen_t bytes = sizeof(segment);

    return getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, &bytes) == 0
               ? (size_t)segment
               : 0;
}

/* Ends the call where a segment ends, because a segment that is not full would
 * go by itself. Only the first call of a turn may write less than that. */
static size_t trim_to_segment(tmsg_bulk_t *bulk, size_t most, bool first)
{
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    const tmsg_bulk_out_t *out = &bulk->out;
    size_t beyond;

    if (out->header_left == sizeof(out->header) &&
        tcp->measured != bulk->written) { /* a fragment begins */
        tcp->segment = segment_bytes(tcp->fd);
        tcp->measured = bulk->written;
    }
    if (tcp->segment == 0 || out->header_left + out->bytes.left <= most) {
        return most;
    }
    beyond = (size_t)((bulk->written + most) % tcp->segment);
    if (beyond < most) {
        return most - beyond;
    }
    return first ? most : 0;
}

/* Returns the bytes that a call moved; 0: none can be, for now or for ever. */
static size_t judge_tcp_bytes(tmsg_bulk_t *bulk, ssize_t moved)
{
    if (moved > 0) {
        return (size_t)moved;
    }
    if (moved == 0) {
        tmsg_bulk_lose(bulk, TMSG_ERR_PEER_LOST, "the peer closed it");
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR &&
               errno != ENOBUFS) {
        tmsg_error_errno(TMSG_ERR_PEER_LOST, "it broke");
        tmsg_bulk_lose(bulk, TMSG_ERR_PEER_LOST, tmsg_error_message());
    }
    return 0;
}

static size_t send_places(tmsg_bulk_t *bulk, struct iovec *from, size_t count)
{
    const struct msghdr call = {.msg_iov = from, .msg_iovlen = count};
    ssize_t moved =
        sendmsg(tmsg_bulk_tcp_of(bulk)->fd, &call, MSG_DONTWAIT | MSG_NOSIGNAL);

    return moved < 0 && errno == EFAULT ? TMSG_MOVER_UNREADABLE
                                        : judge_tcp_bytes(bulk, moved);
}

/* Sets from how many bytes on the socket is readable. If segments were read one
 * by one, as they come, each would be acknowledged by itself, which the
 * sender's processor pays for. */
static void set_low(tmsg_bulk_t *bulk, uint64_t bytes)
{
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    uint64_t low = bytes < LOW_MOST ? bytes : LOW_MOST;
    int wanted = low < LOW_LEAST ? 1 : (int)low;

    if (wanted != tcp->low) {
        tcp->low = wanted;
        setsockopt(tcp->fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof(wanted));
    }
}

static bool bulk_is_readable(const tmsg_bulk_tcp_t *tcp)
{
    struct pollfd socket = {tcp->fd, POLLIN, 0};

    return tcp->low <= 1 || poll(&socket, 1, 0) != 0;
}

static size_t receive_by_tcp(tmsg_bulk_t *bulk, struct iovec *into,
                             size_t count, uint64_t most)
{
    const tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    struct msghdr call = {.msg_iov = into, .msg_iovlen = count};

    if (!bulk_is_readable(tcp)) {
        return 0;
    }
    return judge_tcp_bytes(
        bulk, count == 0
                  ? recv(tcp->fd, NULL, (size_t)most, MSG_DONTWAIT | MSG_TRUNC)
                  : recvmsg(tcp->fd, &call, MSG_DONTWAIT));
}

/* Leaves the bulk stream to the loop, which looks at it next. */
static bool leave_to_loop(tmsg_bulk_t *bulk)
{
    want_writing(tmsg_bulk_tcp_of(bulk), tmsg_bulk_has_output(bulk));
    return true;
}

static int tcp_bulk_socket(const tmsg_bulk_t *bulk)
{
    return tmsg_bulk_tcp_of(bulk)->fd;
}

static uint64_t tcp_ahead(const tmsg_bulk_t *bulk)
{
    return tmsg_bulk_tcp_of(bulk)->ahead;
}

static void shut_tcp_bulk(tmsg_bulk_t *bulk)
{
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);

    tmsg_loop_remove(&bulk->endpoint->worker->loop, &tcp->source);
    shutdown(tcp->fd, SHUT_RDWR); /* a child may have it, too */
}

static void free_tcp_bulk(tmsg_bulk_t *bulk)
{
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);

    if (!bulk->stands) {
        tmsg_frame_free(&tcp->stream);
    }
    close(tcp->fd);
    free(tcp);
}

const tmsg_mover_t tmsg_mover_tcp = {
    .ready = "stands",
    .unready = "dialled",
    .turn_bytes = TURN_BYTES,
    .begin = begin_tcp_bulk,
    .trim = trim_to_segment,
    .write = send_places,
    .read = receive_by_tcp,
    .expect = set_low,
    .await = leave_to_loop,
    .socket = tcp_bulk_socket,
    .ahead = tcp_ahead,
    .shut = shut_tcp_bulk,
    .free = free_tcp_bulk,
};
