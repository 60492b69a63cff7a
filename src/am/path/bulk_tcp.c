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
#include "am/path/bulk_crew.h"
#include "am/tls/tls.h"
#include "core/log.h"

#define SPARED 16 /* descriptors that bulk streams leave to connections */
#define AHEAD_LEAST ((uint64_t)4 * 1024 * 1024)
#define AHEAD_PER_US ((uint64_t)12500) /* bytes at 100 Gb/s */
/* Other events wait while the kernel copies the bytes of a turn. */
#define TURN_BYTES ((size_t)128 * 1024)
#define LOW_MOST ((uint64_t)256 * 1024) /* most bytes that a read waits for */
#define LOW_LEAST ((uint64_t)64 * 1024)
/* The first subflow has moved so many bytes before there are more. */
#define WIDEN_FROM ((uint64_t)16 * 1024 * 1024)
#define PROCESSORS_A_SUBFLOW 2 /* where their number is left to us */

_Static_assert(TMSG_BULK_SUBFLOWS_MOST <= TMSG_FRAGMENTS_SENT,
               "a message has a fragment for each subflow");

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

static uint32_t features_of_both(const tmsg_endpoint_t *endpoint)
{
    return endpoint->ucx == NULL
               ? 0
               : endpoint->ucx->hello.features & endpoint->peer_hello.features;
}

static bool knows_subflows(const tmsg_endpoint_t *endpoint)
{
    return (features_of_both(endpoint) & TMSG_FEATURE_SUBFLOWS) != 0;
}

/* Returns in words why there can be no bulk stream, or NULL if there may be
 * one. */
static const char *ruled_out(const tmsg_endpoint_t *endpoint)
{
    if (!tmsg_schemes[endpoint->link.url.kind]->socket ||
        !tmsg_schemes[endpoint->link.url.kind]->network ||
        endpoint->link.fd < 0) {
        return "it needs a tcp:// or tls:// connection";
    }
    if (!(features_of_both(endpoint) & TMSG_FEATURE_BULK)) {
        return "the peer is of an older version";
    }
    if (endpoint->devices[0] != '\0') {
        return "the devices to be used are named";
    }
    return NULL;
}

/* Ends a subflow before any fragment went by it, so that nothing is lost with
 * it. */
static void give_up_subflow(tmsg_bulk_tcp_t *tcp, const char *why)
{
    tmsg_endpoint_t *endpoint = tcp->bulk.endpoint;

    if (endpoint->paths.bulk == &tcp->bulk) {
        go_without_bulk(endpoint, why);
    } else {
        tmsg_log(TMSG_LOG_DEBUG, "%s: one subflow less for large payloads: %s",
                 endpoint->peer, why);
    }
    tmsg_bulk_free_subflow(&tcp->bulk);
}

static void bulk_socket_ready(tmsg_source_t *source, uint32_t events)
{
    tmsg_bulk_tcp_t *tcp =
        TMSG_CONTAINER_OF(source, tmsg_bulk_tcp_t, claim.source);

    (void)events;
    tmsg_bulk_stir_subflow(&tcp->bulk);
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

/* Makes an accepted socket a subflow. On error the socket is closed. Errors:
 * NO_MEMORY, IO. */
static tmsg_status_t adopt_socket(tmsg_endpoint_t *endpoint, int fd,
                                  tmsg_bulk_tcp_t **tcp_p)
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
    *tcp_p = tcp;
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

/* Makes a subflow stand whose socket the peer takes for one, too, so that
 * nothing but fragments follows. */
static void let_stand(tmsg_bulk_tcp_t *tcp)
{
    tmsg_endpoint_t *endpoint = tcp->bulk.endpoint;

    tune_bulk(tcp);
    tcp->bulk.stands = true;
    if (endpoint->paths.bulk != &tcp->bulk) {
        tmsg_bulk_call_crew(endpoint->worker);
        tmsg_bulk_stir(endpoint); /* fragments may wait for the others */
    }
}

/* Makes a subflow stand that the peer has answered. */
static void let_dialled_stand(tmsg_bulk_tcp_t *tcp)
{
    take_io(tcp, &tcp->claim.stream);
    tmsg_frame_free(&tcp->claim.stream);
    tcp->claim.source.ready = bulk_socket_ready;
    let_stand(tcp);
    tmsg_log(TMSG_LOG_DEBUG, "%s: large payloads go by a bulk stream",
             tcp->bulk.endpoint->peer);
}

static void bulk_claimed(tmsg_claim_t *claim, tmsg_status_t status)
{
    tmsg_bulk_tcp_t *tcp = TMSG_CONTAINER_OF(claim, tmsg_bulk_tcp_t, claim);

    if (status == TMSG_OK) {
        let_dialled_stand(tcp);
    } else {
        give_up_subflow(tcp, tmsg_error_message());
    }
}

/* Dials a subflow. Errors: UNREACHABLE, BUSY, LIMIT_EXCEEDED, IO, NO_MEMORY. */
static tmsg_status_t dial_subflow(tmsg_endpoint_t *endpoint)
{
    tmsg_bulk_tcp_t *tcp = NULL;
    tmsg_status_t status =
        tmsg_ucx_check_descriptors(endpoint->link.fd, SPARED);

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
    }
    return status;
}

static void begin_tcp_bulk(tmsg_endpoint_t *endpoint)
{
    const char *why = ruled_out(endpoint);

    if (endpoint->transport != TMSG_TRANSPORT_TCP || !endpoint->dialling) {
        return;
    }
    if (why == NULL && dial_subflow(endpoint) != TMSG_OK) {
        why = tmsg_error_message();
    }
    if (why != NULL) {
        go_without_bulk(endpoint, why);
    }
}

/* Returns how many subflows there are to be. TLS keeps a processor busy at each
 * end, which more subflows relieve if there are others to help. */
static unsigned count_wanted(const tmsg_bulk_tcp_t *tcp)
{
    unsigned wanted = tcp->bulk.endpoint->worker->context->bulk_connections;

    if (wanted == 0) {
        wanted =
            tcp->io == NULL ? 1 : tmsg_bulk_processors() / PROCESSORS_A_SUBFLOW;
    }
    return wanted < TMSG_BULK_SUBFLOWS_MOST ? wanted : TMSG_BULK_SUBFLOWS_MOST;
}

/* Dials the further subflows, once, when so much has gone by the first one that
 * they are worth it. */
static void widen(tmsg_bulk_t *bulk)
{
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    tmsg_endpoint_t *endpoint = bulk->endpoint;
    tmsg_status_t status = TMSG_OK;

    if (tcp->widened || bulk != endpoint->paths.bulk || !endpoint->dialling ||
        bulk->written + bulk->read < WIDEN_FROM) {
        return;
    }
    tcp->widened = true;
    if (!knows_subflows(endpoint)) {
        return;
    }
    for (unsigned wanted = count_wanted(tcp); wanted > 1 && status == TMSG_OK;
         wanted--) {
        status = dial_subflow(endpoint);
    }
    if (status != TMSG_OK) {
        tmsg_log(TMSG_LOG_DEBUG, "%s: no more subflows for large payloads: %s",
                 endpoint->peer, tmsg_error_message());
    }
}

/* Returns whether the endpoint takes one more subflow. Those that were lost
 * count, too: each keeps its socket until the connection ends. */
static bool takes_subflow(const tmsg_endpoint_t *endpoint)
{
    const tmsg_bulk_t *bulk = endpoint->paths.bulk;
    unsigned count = 0;

    if (bulk != NULL && (bulk->maker != &tmsg_mover_tcp || bulk->lost ||
                         !knows_subflows(endpoint))) {
        return false;
    }
    for (; bulk != NULL; bulk = bulk->next) {
        count++;
    }
    return count < TMSG_BULK_SUBFLOWS_MOST;
}

/* Returns the endpoint that a claim is for, or NULL. */
static tmsg_endpoint_t *find_claimed(const tmsg_endpoint_t *connection,
                                     const uint8_t *data, size_t bytes)
{
    tmsg_endpoint_t *endpoint =
        tmsg_claim_find(connection, TMSG_FRAME_BULK, data, bytes);

    return endpoint != NULL && takes_subflow(endpoint) &&
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
    tmsg_bulk_tcp_t *tcp;
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
    status = adopt_socket(endpoint, tmsg_claim_take(connection), &tcp);
    if (status == TMSG_OK) {
        tcp->claim.connected = true;
        let_stand(tcp);
        status = tmsg_claim_answer(connection, TMSG_FRAME_BULK);
        if (status == TMSG_OK) {
            take_io(tcp, &connection->link.stream);
        } else {
            give_up_subflow(tcp, tmsg_error_message());
        }
    } else if (endpoint->paths.bulk == NULL) {
        go_without_bulk(endpoint, tmsg_error_message());
    }
    tmsg_claim_leave(connection,
                     endpoint->paths.bulk != NULL
                         ? "is now the bulk stream"
                         : "should have become the bulk stream",
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

static tmsg_status_t explain_tcp(const tmsg_bulk_t *bulk, int error)
{
    const tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);

    if (error == 0) {
        tmsg_error_set(TMSG_ERR_PEER_LOST, "the peer closed it");
    } else if (error == EPROTO && tcp->io != NULL) {
        tcp->io->failed(tcp->io_arg);
    } else {
        errno = error;
        tmsg_error_errno(TMSG_ERR_PEER_LOST, "it broke");
    }
    return TMSG_ERR_PEER_LOST;
}

static ssize_t or_errno(ssize_t moved) { return moved < 0 ? -errno : moved; }

static ssize_t send_places(tmsg_bulk_t *bulk, struct iovec *from, size_t count)
{
    const tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    const struct msghdr call = {.msg_iov = from, .msg_iovlen = count};

    return or_errno(tcp->io != NULL ? tcp->io->write(tcp->io_arg, from, count)
                                    : sendmsg(tcp->claim.fd, &call,
                                              MSG_DONTWAIT | MSG_NOSIGNAL));
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
static ssize_t receive_by_io(tmsg_bulk_t *bulk, const struct iovec *into,
                             size_t count, uint64_t most)
{
    uint8_t nowhere[16 * 1024];
    const struct iovec away = {
        nowhere, most < sizeof(nowhere) ? (size_t)most : sizeof(nowhere)};
    tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    ssize_t moved = tcp->io->read(tcp->io_arg, count > 0 ? into : &away,
                                  count > 0 ? count : 1);

    tcp->more = moved > 0;
    return or_errno(moved);
}

static ssize_t receive_by_tcp(tmsg_bulk_t *bulk, struct iovec *into,
                              size_t count, uint64_t most)
{
    const tmsg_bulk_tcp_t *tcp = tmsg_bulk_tcp_of(bulk);
    struct msghdr call = {.msg_iov = into, .msg_iovlen = count};

    if (tcp->io != NULL) {
        return receive_by_io(bulk, into, count, most);
    }
    if (!bulk_is_readable(tcp)) {
        return -EAGAIN;
    }
    return or_errno(count == 0 ? recv(tcp->claim.fd, NULL, (size_t)most,
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
    .explain = explain_tcp,
    .expect = set_low,
    .moved = widen,
    .await = leave_to_loop,
    .socket = tcp_bulk_socket,
    .ahead = tcp_ahead,
    .shut = shut_tcp_bulk,
    .free = free_tcp_bulk,
};
