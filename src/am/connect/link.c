/* SPDX-License-Identifier: BSD-3-Clause */
/* After the handshake the socket stays open. It carries heartbeats and the
 * orderly end (BYE, FIN). If the socket ends without an orderly end, the peer
 * is lost. */
#include "am/connect/link.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "am/boot/refusal.h"
#include "am/connect/admit.h"
#include "am/connect/carrier.h"
#include "am/connect/close.h"
#include "am/connect/counted.h"
#include "am/connect/handshake.h"
#include "am/connect/liveness.h"
#include "am/connect/redial.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/link_ops.h"
#include "am/endpoint/scheme.h"
#include "am/endpoint/session.h"
#include "am/endpoint/session_ops.h"
#include "am/net/peer.h"
#include "am/net/sock.h"
#include "am/net/unwanted.h"
#include "am/path/bulk_tcp.h"
#include "am/path/ipc.h"
#include "am/path/loans.h"
#include "am/path/offer.h"
#include "am/tls/tls.h"
#include "am/ucx/linger.h"
#include "am/ucx/ucx_events.h"
#include "am/worker/engine.h"
#include "core/bytes.h"

#define NS_PER_MS 1000000ULL
#define SLICES_MOST 4 /* slices of the time to connect, at most */
/* Least length of such a slice: the threads that drive workers pause. */
#define SLICE_MS 64
/* Frames of one peer, before others have their turn. A segment of so many bytes
 * ends it, as it takes a millisecond. */
#define FRAMES_A_ROUND 32
#define SEGMENT_A_ROUND ((uint64_t)64 << 20)
#define LAST_ROUNDS 8 /* rounds to find a peer's last words */

void tmsg_link_fail(tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    char why[TMSG_ERROR_BYTES];

    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    tmsg_engine.end(endpoint, status, why);
}

/* Returns the words for what has not come in time. */
static const char *what_is_missing(const tmsg_endpoint_t *endpoint)
{
    const tmsg_link_t *link = &endpoint->link;
    bool by_blob = link->url.kind == TMSG_URL_BLOB;

    if (by_blob && endpoint->dialling) {
        return endpoint->admit.keyring == NULL
                   ? "no answer in time: is the listener of the blob alive?"
                   : "no answer in time: is the listener of the blob alive, "
                     "and has it still a key of this side's?";
    }
    if (endpoint->ucxx != NULL && !endpoint->dialling) {
        return "UCX was not connected in time (is it of another version?)";
    }
    if (!by_blob && !link->connected) {
        return link->queue_ms > 0
                   ? "no connection in time: the listener's queue was full, "
                     "because it accepts no connections"
                   : "no connection in time";
    }
    if (by_blob || !link->address_done) {
        return "the handshake was not finished in time";
    }
    return tmsg_carrier_is_stream(endpoint)
               ? "the stream of messages was not connected in time"
               : "no answer by UCX in time: is its port behind a firewall?";
}

/* Begins the next slice of the deadline. If this process was stopped, the last
 * slice ended late; the next one has its whole length all the same. */
static void next_slice(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    uint64_t now = tmsg_now_ns();

    if (now - link->slice_end_ns > link->slice_ns) {
        link->slice_end_ns = now;
    }
    link->slice_end_ns += link->slice_ns;
    tmsg_loop_set_alarm(&endpoint->worker->loop, &link->deadline,
                        link->slice_end_ns - now);
}

static void slice_ended(tmsg_timer_t *timer)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(timer, tmsg_endpoint_t, link.deadline);

    if (--endpoint->link.slices > 0) {
        if (endpoint->link.slices != SLICES_MOST / 2 ||
            !tmsg_redial_halfway(endpoint, what_is_missing(endpoint))) {
            next_slice(endpoint);
            tmsg_link_dial_other(endpoint);
        }
    } else if (tmsg_redial_waited_in_vain(endpoint)) {
        return;
    } else if (tmsg_redial_found_no_place(endpoint)) {
        tmsg_engine.end(
            endpoint, TMSG_ERR_BUSY,
            endpoint->admit.tls == NULL
                ? "the listener had no free place in time"
                : "the listener had no free place in time, or does not use "
                  "tls://: it closed each connection in the TLS handshake");
    } else {
        tmsg_engine.end(endpoint, TMSG_ERR_TIMED_OUT,
                        what_is_missing(endpoint));
    }
}

void tmsg_link_set_deadline(tmsg_endpoint_t *endpoint, int timeout_ms)
{
    tmsg_link_t *link = &endpoint->link;
    uint64_t ms = (uint64_t)timeout_ms;

    link->since_ns = tmsg_now_ns();
    link->slices = ms / SLICE_MS < SLICES_MOST ? 1 : SLICES_MOST;
    link->slice_ns = ms * NS_PER_MS / link->slices;
    link->slice_end_ns = link->since_ns;
    link->deadline.expired = slice_ended;
    next_slice(endpoint);
}

int tmsg_link_left_ms(const tmsg_endpoint_t *endpoint)
{
    const tmsg_link_t *link = &endpoint->link;
    uint64_t now = tmsg_now_ns();
    uint64_t left = link->slice_end_ns > now ? link->slice_end_ns - now : 0;

    if (link->slices > 0) {
        left += (link->slices - 1) * link->slice_ns;
    }
    return (int)(left / NS_PER_MS);
}

static void want_events(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    bool writing = !link->connected || tmsg_frame_wants_writing(&link->stream);

    tmsg_loop_change(&endpoint->worker->loop, &link->source,
                     EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0));
}

tmsg_status_t tmsg_link_put(tmsg_endpoint_t *endpoint, uint8_t type,
                            const void *data, size_t bytes)
{
    tmsg_status_t status =
        tmsg_frame_queue(&endpoint->link.stream, type, data, bytes);

    want_events(endpoint);
    return status;
}

#define TAKES(frame) (UINT64_C(1) << (frame))

/* A descriptor gives whoever has it the memory, and a socket may be in others'
 * hands than those of the peer that proved a key, who passes on what the two
 * say. So the kernel has to confirm the peer: its process or, where that has
 * another number here, its user. */
static const char *doubt_holder(const tmsg_endpoint_t *endpoint)
{
    const tmsg_hello_t *peer = &endpoint->peer_hello;
    const tmsg_peer_claim_t claim = {.pid = peer->pid, .uid = peer->uid};
    int fd = endpoint->link.fd;

    if (tmsg_schemes[endpoint->link.url.kind]->network) {
        return "descriptors pass by unix:// alone";
    }
    if (peer->ns_pid == endpoint->ucx->hello.ns_pid) {
        return tmsg_peer_doubt(fd, &claim);
    }
    return tmsg_peer_is_user(fd, peer->uid)
               ? NULL
               : "the kernel names another user at the other end of the socket "
                 "than the peer does";
}

void tmsg_link_judge_passing(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;

    link->passes_none =
        tmsg_unwanted_is_full()
            ? "descriptors that peers have sent cannot be closed"
            : doubt_holder(endpoint);
    if (link->passes_none == NULL) {
        tmsg_sock_take_fds(link->fd);
        tmsg_frame_take_fds(&link->stream,
                            TAKES(TMSG_FRAME_RING) | TAKES(TMSG_FRAME_SEGMENT));
    }
}

static bool link_passes(const tmsg_endpoint_t *endpoint, const char **why_p)
{
    const tmsg_link_t *link = &endpoint->link;

    *why_p = link->fd < 0          ? "there is no socket"
             : !link->address_done ? "the handshake is not over"
             : (endpoint->peer_hello.features & TMSG_FEATURE_PASSES) == 0
                 ? "the peer is of a version that takes no descriptors"
                 : link->passes_none;
    return *why_p == NULL;
}

static tmsg_status_t link_put(tmsg_endpoint_t *endpoint, uint8_t frame,
                              const void *data, size_t bytes)
{
    return endpoint->link.fd < 0
               ? tmsg_error_set(TMSG_ERR_PEER_LOST, "there is no socket")
               : tmsg_link_put(endpoint, frame, data, bytes);
}

static tmsg_status_t link_put_fd(tmsg_endpoint_t *endpoint, uint8_t frame,
                                 const void *data, size_t bytes, int fd)
{
    const char *why;
    tmsg_status_t status;

    if (!link_passes(endpoint, &why)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED, "%s", why);
    }
    status =
        tmsg_frame_queue_fd(&endpoint->link.stream, frame, data, bytes, fd);
    want_events(endpoint);
    return status;
}

static void link_look(tmsg_endpoint_t *endpoint)
{
    if (endpoint->link.fd >= 0 && endpoint->link.connected) {
        endpoint->link.unread = true;
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
}

const tmsg_link_ops_t tmsg_link_ops = {
    .passes = link_passes,
    .put = link_put,
    .put_fd = link_put_fd,
    .look = link_look,
};

void tmsg_link_send(tmsg_endpoint_t *endpoint, uint8_t frame,
                    const uint8_t *data, size_t bytes)
{
    if (tmsg_link_put(endpoint, frame, data, bytes) != TMSG_OK) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, tmsg_error_message());
    }
}

void tmsg_link_refuse(tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    tmsg_link_fail(endpoint, endpoint->link.fd >= 0
                                 ? tmsg_handshake_refuse(endpoint, status)
                                 : status);
}

/* Takes a frame of an open connection. Some may have a descriptor, which is
 * their handler's. */
static tmsg_status_t on_open_frame(tmsg_endpoint_t *endpoint, uint8_t type,
                                   const uint8_t *data, size_t bytes)
{
    if (endpoint->ep == NULL) { /* the peer may have opened before us */
        tmsg_carrier_hear(endpoint);
    }
    if (!endpoint->link.address_done || endpoint->ep == NULL) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a frame of type %u out of turn", type);
    }
    if (type == TMSG_FRAME_DEVICE) {
        return tmsg_ipc_frame(endpoint, data, bytes);
    }
    return type == TMSG_FRAME_RING
               ? tmsg_offer_frame(endpoint, data, bytes,
                                  tmsg_frame_fd(&endpoint->link.stream))
               : tmsg_loan_frame(endpoint, type, data, bytes,
                                 tmsg_frame_fd(&endpoint->link.stream));
}

static tmsg_status_t on_frame(tmsg_endpoint_t *endpoint, uint8_t type,
                              const uint8_t *data, size_t bytes)
{
    if (endpoint->conn.claims) { /* it is to be another's stream */
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a frame of type %u behind a claim", type);
    }
    if (type != TMSG_FRAME_HELLO && type != TMSG_FRAME_PROOF &&
        type != TMSG_FRAME_BULK && type != TMSG_FRAME_CARRIER &&
        !tmsg_admit_is_over(endpoint)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "a frame of type %u before admission", type);
    }
    switch (type) {
    case TMSG_FRAME_HELLO:
        return tmsg_handshake_hello(endpoint, data, bytes);
    case TMSG_FRAME_PROOF:
        return tmsg_handshake_proof(endpoint, data, bytes);
    case TMSG_FRAME_ADDRESS:
        return tmsg_handshake_address(endpoint, data, bytes);
    case TMSG_FRAME_BULK:
        return tmsg_bulk_tcp_claim(endpoint, data, bytes);
    case TMSG_FRAME_CARRIER:
        return tmsg_carrier_claim(endpoint, data, bytes);
    case TMSG_FRAME_RESUME:
        return tmsg_session_ops.asked(endpoint, data, bytes);
    case TMSG_FRAME_RESUMED:
        return tmsg_session_ops.granted(endpoint, data, bytes);
    case TMSG_FRAME_RING:
    case TMSG_FRAME_SEGMENT:
    case TMSG_FRAME_SEGMENT_TAKEN:
    case TMSG_FRAME_SEGMENT_REFUSED:
    case TMSG_FRAME_LOAN_BACK:
    case TMSG_FRAME_SEGMENT_GONE:
    case TMSG_FRAME_DEVICE:
        return on_open_frame(endpoint, type, data, bytes);
    case TMSG_FRAME_COUNT:
        return tmsg_counted_asked(endpoint, bytes);
    case TMSG_FRAME_COUNTED:
        return tmsg_counted_told(endpoint, data, bytes);
    case TMSG_FRAME_BYE:
    case TMSG_FRAME_FIN:
        /* The peer may have opened before its answer by UCX got here. */
        if (!endpoint->link.address_done || bytes < 4 ||
            (type == TMSG_FRAME_FIN && bytes > 4)) {
            return tmsg_error_set(TMSG_ERR_MALFORMED, "an end out of turn");
        }
        if (type == TMSG_FRAME_BYE) {
            tmsg_close_bye(endpoint, (uint32_t)tmsg_get_le(data, 4), data + 4,
                           bytes - 4);
        } else {
            tmsg_close_fin(endpoint, (uint32_t)tmsg_get_le(data, 4));
        }
        return TMSG_OK;
    default: /* a later version's frame: skipped after ADDRESS */
        return endpoint->link.address_done
                   ? TMSG_OK
                   : tmsg_error_set(TMSG_ERR_MALFORMED,
                                    "a frame of unknown type %u in the "
                                    "handshake",
                                    type);
    }
}

/* Handles the end of the socket. The peer's last words count: what it sent by
 * UCX before that is already here, and is read first. */
static void hung_up(tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    char why[TMSG_ERROR_BYTES] = "the connection broke: the peer died, or "
                                 "closed it at once";

    if (status == TMSG_ERR_PEER_LOST) {
        snprintf(why, sizeof(why), "the connection broke: %s",
                 tmsg_error_message());
    }
    tmsg_loop_remove(&endpoint->worker->loop, &endpoint->link.source);
    if (endpoint->fin_sent && endpoint->conn.fin_received) {
        tmsg_engine.end(endpoint, TMSG_ERR_CLOSED, "closed");
        return;
    }
    if (endpoint->ep != NULL) {
        endpoint->link.hung_up = true;
        tmsg_ucx_events.drain(endpoint->ucx);
        endpoint->link.hung_up = false;
    }
    tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, why);
}

/* Ends the endpoint by a REFUSE frame. A refusal is an error, whatever it
 * says. */
static void be_refused(tmsg_endpoint_t *endpoint, const uint8_t *data,
                       size_t bytes)
{
    tmsg_status_t status = tmsg_handshake_refused(data, bytes);

    endpoint->link.explained = true;
    endpoint->link.refused = true;
    if (tmsg_admit_is_over(endpoint)) {
        tmsg_session_ops.refused(endpoint, status);
    } else if (tmsg_resume_goes_on(endpoint)) {
        /* Without a proof anybody may say so. */
        status = TMSG_ERR_PEER_LOST;
    }
    tmsg_link_fail(endpoint, status);
}

/* Looks for a refusal behind a frame whose answer could not be written, for the
 * peer has hung up: it may have said why. Keeps the error's words. */
static bool finds_refusal(tmsg_endpoint_t *endpoint)
{
    char words[TMSG_ERROR_BYTES];
    const uint8_t *data;
    uint8_t type = TMSG_FRAME_HELLO;
    size_t bytes;

    snprintf(words, sizeof(words), "%s", tmsg_error_message());
    for (int i = 0; i < FRAMES_A_ROUND && type != TMSG_FRAME_REFUSE; i++) {
        if (tmsg_frame_read(&endpoint->link.stream, &type, &data, &bytes) !=
            TMSG_OK) {
            (void)tmsg_error_set(TMSG_ERR_PEER_LOST, "%s", words);
            return false;
        }
    }
    if (type == TMSG_FRAME_REFUSE) {
        be_refused(endpoint, data, bytes);
    }
    return type == TMSG_FRAME_REFUSE;
}

/* Returns whether the frame may have taken long. */
static bool is_long(uint8_t type, const uint8_t *data, size_t bytes)
{
    return type == TMSG_FRAME_SEGMENT && bytes >= 12 &&
           tmsg_get_le(data + 4, 8) >= SEGMENT_A_ROUND;
}

/* Returns whether TLS has failed before the peer had proved anything: so
 * anybody may have done it. */
static bool fails_in_tls(const tmsg_endpoint_t *endpoint, tmsg_status_t status)
{
    return status < 0 && endpoint->admit.tls != NULL &&
           tmsg_secure_peer(&endpoint->link.stream) == NULL;
}

static void read_frames(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_status_t status = TMSG_OK;
    const uint8_t *data;
    uint8_t type;
    size_t bytes;
    bool over = false, cut;

    for (int i = 0; i < FRAMES_A_ROUND && !over &&
                    !tmsg_endpoint_is_down(endpoint) && status == TMSG_OK;
         i++) {
        status = tmsg_frame_read(&link->stream, &type, &data, &bytes);
        if (status == TMSG_OK && type == TMSG_FRAME_REFUSE) {
            be_refused(endpoint, data, bytes);
            return;
        }
        if (status == TMSG_OK) {
            over = is_long(type, data, bytes);
            status = on_frame(endpoint, type, data, bytes);
            if (status == TMSG_ERR_PEER_LOST &&
                !tmsg_endpoint_is_down(endpoint) && finds_refusal(endpoint)) {
                return;
            }
        }
    }
    if (tmsg_endpoint_is_down(endpoint)) {
        return;
    }
    if (status == TMSG_ERR_REFUSED && !endpoint->dialling &&
        fails_in_tls(endpoint, status)) {
        endpoint->admit.turned = TMSG_TURNED_WRONG_KEY;
    }
    if (status == TMSG_ERR_INCOMPATIBLE && !link->hello_done &&
        endpoint->admit.tls == NULL) { /* it begins with TLS */
        status = tmsg_handshake_refuse(endpoint, status);
    }
    /* Frames in our buffer do not make the socket readable. */
    link->unread = status == TMSG_OK;
    if (link->unread) {
        tmsg_worker_chore(endpoint->worker, endpoint);
    }
    /* Somebody between two peers can break their connection, but must not end
     * their session. */
    cut = status == TMSG_ERR_BUSY && endpoint->admit.tls != NULL;
    if ((status == TMSG_ERR_CORRUPT || cut || fails_in_tls(endpoint, status)) &&
        tmsg_resume_keeps(endpoint)) {
        status = TMSG_ERR_PEER_LOST;
    } else if (cut) {
        link->refused = true; /* it has no place: redial.h */
    }
    if (status == TMSG_ERR_CLOSED || status == TMSG_ERR_PEER_LOST) {
        hung_up(endpoint, status);
    } else if (status < 0) {
        tmsg_link_fail(endpoint, status);
    }
}

void tmsg_link_read_on(tmsg_endpoint_t *endpoint)
{
    if (endpoint->link.unread && endpoint->link.source.fd >= 0) {
        read_frames(endpoint);
    }
}

void tmsg_link_last_words(tmsg_endpoint_t *endpoint)
{
    const tmsg_link_t *link = &endpoint->link;

    for (int i = 0; i < LAST_ROUNDS && link->source.fd >= 0 && link->connected;
         i++) {
        read_frames(endpoint);
        if (!link->unread) {
            break;
        }
    }
}

void tmsg_link_take_back(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;
    const uint8_t *data;
    uint8_t type;
    size_t bytes;

    for (int i = 0;
         i < LAST_ROUNDS * FRAMES_A_ROUND && link->fd >= 0 &&
         link->address_done && tmsg_loans_are_out(endpoint) &&
         tmsg_frame_read(&link->stream, &type, &data, &bytes) == TMSG_OK;
         i++) {
        if (type == TMSG_FRAME_LOAN_BACK &&
            tmsg_loan_frame(endpoint, type, data, bytes, TMSG_FRAME_FD_NONE) !=
                TMSG_OK) {
            break; /* it lies: the rest counts for nothing */
        }
    }
}

void tmsg_link_read_now(tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_hold(endpoint);
    if (endpoint->link.source.fd >= 0 && !tmsg_endpoint_is_down(endpoint)) {
        read_frames(endpoint);
    }
    tmsg_endpoint_drop(endpoint);
}

static void link_ready(tmsg_source_t *source, uint32_t events)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(source, tmsg_endpoint_t, link.source);
    tmsg_link_t *link = &endpoint->link;

    tmsg_endpoint_hold(endpoint);
    if (!link->connected) {
        tmsg_link_dialled(endpoint);
    } else {
        if (events & EPOLLOUT) {
            tmsg_frame_flush(&link->stream); /* errors show in reading */
        }
        if (events & ~(uint32_t)EPOLLOUT) {
            read_frames(endpoint);
        }
    }
    if (!tmsg_endpoint_is_down(endpoint) && link->source.fd >= 0) {
        want_events(endpoint);
    }
    tmsg_endpoint_drop(endpoint);
}

/* Returns the limit of a frame's payload for now. */
static size_t first_bytes(const tmsg_endpoint_t *endpoint)
{
    const tmsg_link_t *link = &endpoint->link;

    if (endpoint->admit.keyring == NULL && !link->connected) {
        return TMSG_FRAME_MAX_BYTES;
    }
    return link->handshake_bytes == 0 ? TMSG_HANDSHAKE_BYTES
                                      : link->handshake_bytes;
}

static tmsg_status_t begin_stream(tmsg_endpoint_t *endpoint, int fd)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_status_t status;

    tmsg_frame_init(&link->stream, fd, first_bytes(endpoint));
    status = tmsg_secure_frames(endpoint->admit.tls,
                                endpoint->dialling ? link->url.host : NULL,
                                &link->stream);
    if (status != TMSG_OK) {
        tmsg_frame_free(&link->stream);
    }
    return status;
}

tmsg_status_t tmsg_link_adopt(tmsg_endpoint_t *endpoint, int fd)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_status_t status;

    link->source.ready = link_ready;
    status = tmsg_loop_add(&endpoint->worker->loop, &link->source, fd,
                           EPOLLIN | EPOLLOUT);
    if (status != TMSG_OK) {
        close(fd);
        return status;
    }
    link->fd = fd;
    status = begin_stream(endpoint, fd);
    if (status != TMSG_OK) {
        tmsg_loop_remove(&endpoint->worker->loop, &link->source);
        link->fd = -1;
        close(fd);
    }
    return status;
}

tmsg_status_t tmsg_link_accepted(tmsg_endpoint_t *endpoint, int fd,
                                 tmsg_listener_t *listener,
                                 const tmsg_link_terms_t *terms)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_status_t status;

    if (getrandom(endpoint->token, TMSG_TOKEN_BYTES, 0) != TMSG_TOKEN_BYTES) {
        close(fd);
        return tmsg_error_errno(TMSG_ERR_IO, "getrandom");
    }
    tmsg_url_parse(terms->url, &link->url);
    link->handshake_bytes = terms->handshake_bytes;
    link->wanting_ucx = terms->wanting_ucx;
    tmsg_sock_peer_name(fd, endpoint->peer_url, sizeof(endpoint->peer_url));
    if (tmsg_schemes[link->url.kind]->secure) {
        tmsg_url_rename(endpoint->peer_url, sizeof(endpoint->peer_url),
                        link->url.kind);
    }
    link->connected = true;
    link->listener = listener;
    link->strange = true;
    status = tmsg_link_adopt(endpoint, fd);
    if (status != TMSG_OK) {
        return status;
    }
    want_events(endpoint);
    tmsg_link_set_deadline(endpoint, terms->timeout_ms);
    return TMSG_OK;
}

tmsg_status_t tmsg_link_move(tmsg_endpoint_t *to, tmsg_endpoint_t *from,
                             int timeout_ms)
{
    tmsg_loop_t *loop = &to->worker->loop;
    tmsg_link_t *link = &to->link;
    int fd = from->link.fd;
    tmsg_status_t status;

    tmsg_loop_remove(loop, &from->link.source);
    from->link.fd = -1;
    link->source.ready = link_ready;
    status = tmsg_loop_add(loop, &link->source, fd, EPOLLIN);
    if (status != TMSG_OK) {
        tmsg_frame_free(&from->link.stream);
        close(fd);
        return status;
    }
    tmsg_frame_move(&link->stream, &from->link.stream);
    link->fd = fd;
    link->connected = true;
    link->hello_done = true;
    link->net_only = from->link.net_only;
    to->admit.admitted = from->admit.admitted;
    link->unread = true; /* frames may be in the buffer */
    tmsg_worker_chore(to->worker, to);
    want_events(to);
    tmsg_link_set_deadline(to, timeout_ms);
    return TMSG_OK;
}

/* Forgets what belongs to this connection alone. */
static void forget_link(tmsg_link_t *link)
{
    link->connected = false;
    link->hello_done = false;
    link->address_sent = false;
    link->address_done = false;
    link->strange = false;
    link->apart = NULL;
    link->net_only = false;
    link->explained = false;
    link->refused = false;
    link->unread = false;
    link->next_address = 0;
    link->queue_ms = 0;
}

bool tmsg_link_is_strange(const tmsg_endpoint_t *endpoint)
{
    return endpoint->link.strange;
}

/* A peer in this process is not waited for: it may be waiting for this very
 * thread. What it may still open is kept for it (siblings.h). */
void tmsg_link_close(tmsg_endpoint_t *endpoint, bool writes)
{
    tmsg_link_t *link = &endpoint->link;
    tmsg_loop_t *loop = &endpoint->worker->loop;
    bool stranger = tmsg_link_is_strange(endpoint);

    tmsg_loop_clear_timer(loop, &link->deadline);
    tmsg_loop_clear_timer(loop, &endpoint->conn.again);
    tmsg_loop_clear_timer(loop, &link->queue);
    tmsg_loop_remove(loop, &link->resolve_source);
    tmsg_resolve_abandon(link->resolve);
    link->resolve = NULL;
    forget_link(link);
    tmsg_admit_forget(endpoint);
    if (link->fd < 0) {
        return;
    }
    tmsg_loop_remove(loop, &link->source);
    tmsg_liveness_end(endpoint);
    tmsg_frame_flush(&link->stream); /* the words of a refusal, if they fit */
    if (writes && endpoint->peer_hello.pid != (uint32_t)getpid()) {
        tmsg_linger_begin(endpoint->ucx, link->fd,
                          endpoint->conn.began_wireup &&
                              endpoint->reply_ep == NULL,
                          stranger, endpoint->peer);
    } else {
        shutdown(link->fd, SHUT_RDWR);
        tmsg_frame_drop_unread(&link->stream);
        close(link->fd);
    }
    link->fd = -1;
    tmsg_frame_free(&link->stream);
}
