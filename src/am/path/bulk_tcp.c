/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/bulk_tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/scheme.h"
#include "am/net/sock.h"
#include "am/path/bulk.h"
#include "am/tls/tls.h"
#include "core/log.h"

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

    if (getsockopt(tcp->claim.fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
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

    if (!tmsg_schemes[endpoint->link.url.kind]->socket ||
        !tmsg_schemes[endpoint->link.url.kind]->network ||
        endpoint->link.fd < 0) {
        return "it needs a tcp:// or tls:// connection";
    }
    if (!(both & TMSG_FEATURE_BULK)) {
        return "the peer is of an older version";
    }
    if (endpoint->devices[0] != '\0') {
        return "the devices to be used are named";
    }
    return NULL;
}

/* Ends a bulk stream before any fragment went by it, so that nothing is lost
 * with it. */
static void give_up_tcp_bulk(tmsg_endpoint_t *endpoint, const char *why)
{
    go_without_bulk(endpoint, why);
    tmsg_bulk_end(endpoint);
}

static void bulk_socket_ready(tmsg_source_t *source, uint32_t events)
{
    tmsg_bulk_tcp_t *tcp =
        TMSG_CONTAINER_OF(source, tmsg_bulk_tcp_t, claim.source);

    (void)events;
    tmsg_bulk_stir(tcp->bulk.endpoint);
}

/* Returns a bulk stream without a socket, or NULL. */
static tmsg_bulk_tcp_t *new_bulk(void)
{
    tmsg_bulk_tcp_t *tcp = calloc(1, sizeof(*tcp));

    if (tcp == NULL) {
        tmsg_error_memory("a bulk stream");
        return NULL;
    }
    tcp->measured = UINT64_MAX;
    return tcp;
}

static void adopt_bulk(tmsg_bulk_tcp_t *tcp, tmsg_endpoint_t *endpoint)
{
    tmsg_bulk_adopt(&tcp->bulk, &tmsg_mover_tcp, endpoint);
    endpoint->paths.bulk_why[0] = '\0';
}

/* Makes an accepted socket the endpoint's bulk stream. On error the socket is
 * closed. Errors: NO_MEMORY, IO. */
static tmsg_status_t adopt_bulk_socket(tmsg_endpoint_t *endpoint, int fd)
{
    tmsg_bulk_tcp_t *tcp = new_bulk();
    tmsg_status_t status = TMSG_ERR_NO_MEMORY;

    if (tcp != NULL) {
        tcp->claim.endpoint = endpoint;
        tcp->claim.fd = fd;
        tcp->claim.source.ready = bulk_socket_ready;
        status = tmsg_loop_add(&endpoint->worker->loop, &tcp->claim.source, fd,
                               EPOLLIN);
    }
    if (status != TMSG_OK) {
        close(fd);
        free(tcp);
        return status;
    }
    adopt_bulk(tcp, endpoint);
    return TMSG_OK;
}

/* Tunes the socket for fragments alone, which may be a long time apart. */
static void tune_bulk(tmsg_bulk_tcp_t *tcp)
{
    uint32_t timeout_ms = tcp->bulk.endpoint->worker->context->peer_timeout_ms;

    tmsg_sock_keep_alive(tcp->claim.fd);
    if (timeout_ms > 0) {
        tmsg_unacked_hasten(tcp->claim.fd, timeout_ms);
    }
    measure_ahead(tcp);
}

/* Takes what moves the bytes from the frames that came first. */
static void take_io(tmsg_bulk_tcp_t *tcp, tmsg_frame_stream_t *frames)
{
    tcp->io = frames->io;
    if (tcp->io != NULL) {
        tcp->io_arg = tmsg_frame_take_io(frames);
        tcp->more = true;
        tmsg_secure_widen(tcp->io_arg);
    }
}

/* Makes the bulk stream stand. The peer takes the connection for the bulk
 * stream, too, so that nothing but fragments follows. */
static void let_bulk_stand(tmsg_bulk_tcp_t *tcp)
{
    take_io(tcp, &tcp->claim.stream);
    tmsg_frame_free(&tcp->claim.stream);
    tcp->claim.source.ready = bulk_socket_ready;
    tune_bulk(tcp);
    tcp->bulk.stands = true;
    tmsg_log(TMSG_LOG_DEBUG, "%s: large payloads go by a bulk stream",
             tcp->bulk.endpoint->peer);
}

static void bulk_claimed(tmsg_claim_t *claim, tmsg_status_t status)
{
    tmsg_bulk_tcp_t *tcp = TMSG_CONTAINER_OF(claim, tmsg_bulk_tcp_t, claim);

    if (status == TMSG_OK && claim->stream.in.end > claim->stream.in.begin) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                "the peer writes before the bulk stream "
                                "stands");
    }
    if (status == TMSG_OK) {
        let_bulk_stand(tcp);
    } else {
        give_up_tcp_bulk(claim->endpoint, tmsg_error_message());
    }
}

static void begin_tcp_bulk(tmsg_endpoint_t *endpoint)
{
    const char *why = ruled_out(endpoint);
    tmsg_bulk_tcp_t *tcp = NULL;
    tmsg_status_t status;

    if (endpoint->transport != TMSG_TRANSPORT_TCP || !endpoint->dialling) {
        return;
    }
    if (why != NULL) {
        go_without_bulk(endpoint, why);
        return;
    }
    status = tmsg_ucx_check_descriptors(endpoint->link.fd, SPARED);
    if (status == TMSG_OK && (tcp = new_bulk()) == NULL) {
        status = TMSG_ERR_NO_MEMORY;
    }
    if (status == TMSG_OK) {
        status = tmsg_claim_dial(&tcp->claim, endpoint, TMSG_FRAME_BULK,
                                 bulk_claimed);
    }
    if (status == TMSG_OK) {
        adopt_bulk(tcp, endpoint);
    } else {
        free(tcp);
        go_without_bulk(endpoint, tmsg_error_message());
    }
}

/* Returns the endpoint that a claim is for, or NULL. */
static tmsg_endpoint_t *find_claimed(const tmsg_endpoint_t *connection,
                                     const uint8_t *data, size_t bytes)
{
    tmsg_endpoint_t *endpoint =
        tmsg_claim_find(connection, TMSG_FRAME_BULK, data, bytes);

    return endpoint != NULL && endpoint->paths.bulk == NULL &&
                   (endpoint->state == TMSG_EP_OPEN ||
                    endpoint->state == TMSG_EP_CLOSING) &&
                   ruled_out(endpoint) == NULL
               ? endpoint
               : NULL;
}

tmsg_status_t tmsg_bulk_tcp_claim(tmsg_endpoint_t *connection,
                                  const uint8_t *data, size_t bytes)
{
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status;

    if (!tmsg_claim_may_come(connection)) {
        return TMSG_ERR_MALFORMED;
    }
    endpoint = find_claimed(connection, data, bytes);
    if (endpoint == NULL) {
        tmsg_claim_note_late(connection, data, bytes);
        return tmsg_error_set(TMSG_ERR_REFUSED,
                              "no connection here waits for this bulk stream");
    }
    status = adopt_bulk_socket(endpoint, tmsg_claim_take(connection));
    if (status == TMSG_OK) {
        tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(endpoint->paths.bulk);

        tune_bulk(tcp);
        tcp->claim.connected = true;
        tcp->bulk.stands = true;
        status = tmsg_claim_answer(connection, TMSG_FRAME_BULK);
        if (status == TMSG_OK) {
            take_io(tcp, &connection->link.stream);
        } else {
            give_up_tcp_bulk(endpoint, tmsg_error_message());
        }
    } else {
        go_without_bulk(endpoint, tmsg_error_message());
    }
    tmsg_claim_leave(connection,
                     endpoint->paths.bulk != NULL ? "is now the bulk stream"
                                                  : "was to be the bulk stream",
                     endpoint);
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

    if (tcp->io != NULL) { /* its records are no segments */
        return most;
    }
    if (out->header_left == sizeof(out->header) &&
        tcp->measured != bulk->written) { /* a fragment begins */
        tcp->segment = segment_bytes(tcp->claim.fd);
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

static tmsg_status_t tell_break(const tmsg_bulk_tcp_t *tcp)
{
    return errno == EPROTO && tcp->io != NULL
               ? tcp->io->failed(tcp->io_arg)
               : tmsg_error_errno(TMSG_ERR_PEER_LOST, "it broke");
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
        tell_break(tmsg_bulk_tcp_of(bulk));
        tmsg_bulk_lose(bulk, TMSG_ERR_PEER_LOST, tmsg_error_message());
    }
    return 0;
}

static size_t send_places(tmsg_bulk_t *bulk, struct iovec *from, size_t count)
{
    const tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    const struct msghdr call = {.msg_iov = from, .msg_iovlen = count};
    ssize_t moved = tcp->io != NULL ? tcp->io->write(tcp->io_arg, from, count)
                                    : sendmsg(tcp->claim.fd, &call,
                                              MSG_DONTWAIT | MSG_NOSIGNAL);

    return moved < 0 && errno == EFAULT ? TMSG_MOVER_UNREADABLE
                                        : judge_tcp_bytes(bulk, moved);
}

/* Sets from how many bytes on the socket is readable. If segments were read one
 * by one, as they come, each would be acknowledged by itself, which the
 * sender's processor pays for. */
static void set_low(tmsg_bulk_t *bulk, uint64_t bytes)
{
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    uint64_t low = tcp->io != NULL ? 1 : bytes < LOW_MOST ? bytes : LOW_MOST;
    int wanted = low < LOW_LEAST ? 1 : (int)low;

    if (wanted != tcp->low) {
        tcp->low = wanted;
        setsockopt(tcp->claim.fd, SOL_SOCKET, SO_RCVLOWAT, &wanted,
                   sizeof(wanted));
    }
}

static bool bulk_is_readable(const tmsg_bulk_tcp_t *tcp)
{
    struct pollfd socket = {tcp->claim.fd, POLLIN, 0};

    return tcp->low <= 1 || poll(&socket, 1, 0) != 0;
}

/* Reads what another than the socket decrypts. Without places it is thrown
 * away. */
static size_t receive_by_io(tmsg_bulk_t *bulk, const struct iovec *into,
                            size_t count, uint64_t most)
{
    uint8_t nowhere[16 * 1024];
    const struct iovec away = {
        nowhere, most < sizeof(nowhere) ? (size_t)most : sizeof(nowhere)};
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    ssize_t moved = tcp->io->read(tcp->io_arg, count > 0 ? into : &away,
                                  count > 0 ? count : 1);

    tcp->more = moved > 0;
    return judge_tcp_bytes(bulk, moved);
}

static size_t receive_by_tcp(tmsg_bulk_t *bulk, struct iovec *into,
                             size_t count, uint64_t most)
{
    const tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    struct msghdr call = {.msg_iov = into, .msg_iovlen = count};

    if (tcp->io != NULL) {
        return receive_by_io(bulk, into, count, most);
    }
    if (!bulk_is_readable(tcp)) {
        return 0;
    }
    return judge_tcp_bytes(
        bulk, count == 0 ? recv(tcp->claim.fd, NULL, (size_t)most,
                                MSG_DONTWAIT | MSG_TRUNC)
                         : recvmsg(tcp->claim.fd, &call, MSG_DONTWAIT));
}

/* Leaves the bulk stream to the loop, which looks at it next. */
static bool leave_to_loop(tmsg_bulk_t *bulk)
{
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    bool settled = tcp->io == NULL || tcp->io->flush(tcp->io_arg);

    tmsg_claim_want_writing(&tcp->claim,
                            !settled || tmsg_bulk_has_output(bulk));
    return tcp->io == NULL || !tcp->more;
}

static int tcp_bulk_socket(const tmsg_bulk_t *bulk)
{
    return tmsg_bulk_tcp_of(bulk)->claim.fd;
}

static uint64_t tcp_ahead(const tmsg_bulk_t *bulk)
{
    return tmsg_bulk_tcp_of(bulk)->ahead;
}

static void shut_tcp_bulk(tmsg_bulk_t *bulk)
{
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);

    tmsg_loop_remove(&bulk->endpoint->worker->loop, &tcp->claim.source);
    shutdown(tcp->claim.fd, SHUT_RDWR); /* a child may have it, too */
}

static void free_tcp_bulk(tmsg_bulk_t *bulk)
{
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);

    if (!bulk->stands) {
        tmsg_frame_free(&tcp->claim.stream);
    }
    close(tcp->claim.fd);
    if (tcp->io != NULL) {
        tcp->io->free(tcp->io_arg);
    }
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
