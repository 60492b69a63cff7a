/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/lane.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/boot/refusal.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/net/sock.h"
#include "am/path/lane_ring.h"
#include "am/shm/ring.h"
#include "am/worker/engine.h"
#include "core/bytes.h"
#include "core/log.h"

#define ID_BYTES 4
#define CLAIM_BYTES (ID_BYTES + TMSG_PROOF_BYTES)
#define SPARED 16 /* descriptors that are left to connections before lanes */
#define QUIET_MOST 256  /* turns, before the loop alone looks */
#define LISTEN_EVERY 16 /* of those that write, where nothing is heard */
#define AHEAD_LEAST ((uint64_t)4 * 1024 * 1024)
#define AHEAD_MOST ((uint64_t)64 * 1024 * 1024)
#define AHEAD_PER_US ((uint64_t)12500)    /* which 100 Gb/s carry */
#define TURNS_BYTES ((size_t)1024 * 1024) /* of all lanes at a time */

static bool stands(const tmsg_endpoint_t *endpoint)
{
    return endpoint->lane != NULL && endpoint->lane->stands &&
           !endpoint->lane->lost;
}

bool tmsg_lane_sends(const tmsg_endpoint_t *endpoint)
{
    return stands(endpoint) || tmsg_lane_ring_sends(endpoint);
}

/* As the handshake took, which no process had to answer. */
static void measure_ahead(tmsg_lane_t *lane)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);

    if (getsockopt(lane->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        info.tcpi_rtt == 0) {
        return;
    }
    lane->ahead = AHEAD_LEAST + info.tcpi_rtt * AHEAD_PER_US;
    if (lane->ahead > AHEAD_MOST) {
        lane->ahead = AHEAD_MOST;
    }
}

uint64_t tmsg_lane_ahead(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->lane;

    if (lane != NULL && lane->fd < 0) {
        return AHEAD_LEAST;
    }
    return lane != NULL && lane->ahead > 0 ? lane->ahead : AHEAD_MOST;
}

bool tmsg_lane_receives(const tmsg_endpoint_t *endpoint)
{
    return stands(endpoint) || tmsg_lane_ring_receives(endpoint);
}

bool tmsg_lane_may_send(const tmsg_endpoint_t *endpoint)
{
    return stands(endpoint) || tmsg_lane_ring_may_send(endpoint);
}

bool tmsg_lane_make(tmsg_endpoint_t *endpoint)
{
    return stands(endpoint) || tmsg_lane_ring_make(endpoint);
}

const char *tmsg_lane_words(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->lane;

    return stands(endpoint)                    ? "stands"
           : tmsg_lane_ring_may_send(endpoint) ? "ring"
           : endpoint->lane_why[0] != '\0'     ? endpoint->lane_why
           : lane != NULL && lane->lost        ? "lost"
           : lane == NULL || lane->fd < 0      ? "none"
                                               : "dialled";
}

void tmsg_lane_go_without(tmsg_endpoint_t *endpoint, const char *what,
                          const char *why)
{
    snprintf(endpoint->lane_why, sizeof(endpoint->lane_why), "none: %s", why);
    tmsg_log(TMSG_LOG_INFO,
             "%s: large payloads go by UCX, for there is no %s: %s",
             endpoint->peer, what, why);
}

static void go_without(tmsg_endpoint_t *endpoint, const char *why)
{
    tmsg_lane_go_without(endpoint, "lane", why);
}

/* Its words, or NULL where there may be one. */
static const char *ruled_out(const tmsg_endpoint_t *endpoint)
{
    uint32_t both = endpoint->ucx == NULL ? 0
                                          : endpoint->ucx->hello.features &
                                                endpoint->peer_hello.features;

    if (endpoint->link.url.kind != TMSG_URL_TCP || endpoint->link.fd < 0) {
        return "it needs a tcp:// connection";
    }
    if (!(both & TMSG_FEATURE_LANE)) {
        return "the peer is of an older version";
    }
    if (endpoint->devices[0] != '\0') {
        return "the devices to be used are named";
    }
    return NULL;
}

static void want(tmsg_lane_t *lane, bool writing)
{
    if (lane->writes != writing && lane->source.fd >= 0) {
        lane->writes = writing;
        tmsg_loop_change(&lane->endpoint->worker->loop, &lane->source,
                         EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0));
    }
}

static void unlist(tmsg_lane_t *lane)
{
    if (lane->listed) {
        tmsg_list_remove(&lane->endpoint->worker->lanes, &lane->node);
        lane->listed = false;
    }
}

static void leave_loop(tmsg_lane_t *lane)
{
    tmsg_loop_t *loop = &lane->endpoint->worker->loop;

    tmsg_loop_remove(loop, &lane->source);
    unlist(lane);
}

/* The dialling side may never have heard that it stands: it goes without then,
 * and asks for nothing by it. Where it has heard, it loses it, too, and ends
 * the connection itself. */
static bool may_go_without(const tmsg_lane_t *lane)
{
    return !lane->endpoint->dialling && !lane->used && !lane->out.busy &&
           lane->endpoint->pulled.count == 0;
}

static void shut(tmsg_lane_t *lane)
{
    lane->lost = true;
    leave_loop(lane);
    if (lane->fd >= 0) {
        shutdown(lane->fd, SHUT_RDWR);
    }
}

void tmsg_lane_lose(tmsg_lane_t *lane, tmsg_status_t status, const char *why)
{
    shut(lane);
    if (status == TMSG_ERR_PEER_LOST && may_go_without(lane)) {
        go_without(lane->endpoint, why);
    } else if (status == TMSG_ERR_PEER_LOST) {
        tmsg_endpoint_lose_lane(lane->endpoint, why);
    } else {
        tmsg_endpoint_break(lane->endpoint, status, why);
    }
}

const tmsg_unacked_t *tmsg_lane_look(tmsg_endpoint_t *endpoint)
{
    tmsg_lane_t *lane = endpoint->lane;

    if (lane != NULL && lane->fd < 0 && tmsg_lane_ring_has_work(lane)) {
        tmsg_lane_stir(endpoint);
    }
    if (!stands(endpoint)) {
        return NULL;
    }
    tmsg_unacked_look(&lane->unacked, lane->fd);
    return &lane->unacked;
}

bool tmsg_lane_is_intact(const tmsg_endpoint_t *endpoint)
{
    const tmsg_lane_t *lane = endpoint->lane;

    return lane == NULL ||
           ((lane->ring_out == NULL || tmsg_ring_is_intact(lane->ring_out)) &&
            (lane->ring_in == NULL || tmsg_ring_is_intact(lane->ring_in)));
}

void tmsg_lane_give_up(tmsg_endpoint_t *endpoint, const char *why)
{
    tmsg_lane_t *lane = endpoint->lane;

    shut(lane);
    if (may_go_without(lane)) {
        go_without(endpoint, why);
    } else {
        tmsg_engine.end(endpoint, TMSG_ERR_PEER_LOST, why);
    }
}

void tmsg_lane_end(tmsg_endpoint_t *endpoint)
{
    tmsg_lane_t *lane = endpoint->lane;

    if (lane == NULL) {
        return;
    }
    endpoint->lane = NULL;
    leave_loop(lane);
    if (lane->fd >= 0) {
        if (!lane->stands) {
            tmsg_frame_free(&lane->stream);
        }
        shutdown(lane->fd, SHUT_RDWR); /* a child may have it, too */
        close(lane->fd);
    }
    tmsg_lane_drop(lane);
    tmsg_ring_free(lane->ring_out);
    tmsg_ring_free(lane->ring_in);
    free(lane);
}

/* While it does not stand nothing is lost with it. */
static void give_up(tmsg_endpoint_t *endpoint, const char *why)
{
    go_without(endpoint, why);
    tmsg_lane_end(endpoint);
}

static void ready(tmsg_source_t *source, uint32_t events);

/* Errors: NO_MEMORY, IO; the socket is closed then. */
static tmsg_status_t adopt(tmsg_endpoint_t *endpoint, int fd, uint32_t events)
{
    tmsg_lane_t *lane = calloc(1, sizeof(*lane));
    tmsg_status_t status;

    if (lane == NULL) {
        close(fd);
        return tmsg_error_memory("a lane");
    }
    lane->endpoint = endpoint;
    lane->fd = fd;
    lane->source.ready = ready;
    lane->writes = (events & EPOLLOUT) != 0;
    status = tmsg_loop_add(&endpoint->worker->loop, &lane->source, fd, events);
    if (status != TMSG_OK) {
        close(fd);
        free(lane);
        return status;
    }
    endpoint->lane = lane;
    endpoint->lane_why[0] = '\0';
    return TMSG_OK;
}

/* That who dials a lane is who dialled the connection: of its token and, with
 * keys, by the key of its frames. */
static void prove(const tmsg_endpoint_t *endpoint, uint32_t id,
                  const tmsg_frame_macs_t *macs,
                  uint8_t proof[TMSG_PROOF_BYTES])
{
    uint8_t said[ID_BYTES + TMSG_TOKEN_BYTES];

    tmsg_put_le(said, id, ID_BYTES);
    memcpy(said + ID_BYTES, endpoint->token, TMSG_TOKEN_BYTES);
    tmsg_proof_lane(macs->on ? macs->key : NULL, said, sizeof(said), proof);
}

static void introduce(tmsg_lane_t *lane)
{
    tmsg_endpoint_t *endpoint = lane->endpoint;
    uint8_t claim[CLAIM_BYTES];

    tmsg_put_le(claim, endpoint->peer_id, ID_BYTES);
    prove(endpoint, endpoint->peer_id, &endpoint->link.stream.tx,
          claim + ID_BYTES);
    if (tmsg_frame_queue(&lane->stream, TMSG_FRAME_LANE, claim,
                         sizeof(claim)) != TMSG_OK) {
        give_up(endpoint, tmsg_error_message());
        return;
    }
    want(lane, tmsg_frame_pending(&lane->stream) > 0);
}

/* Nothing but parts goes by it, and for long nothing may. */
static void tune(tmsg_lane_t *lane)
{
    uint32_t timeout_ms = lane->endpoint->worker->context->peer_timeout_ms;

    tmsg_sock_keep_alive(lane->fd);
    if (timeout_ms > 0) {
        tmsg_unacked_hasten(lane->fd, timeout_ms);
    }
    measure_ahead(lane);
}

static void dialled(tmsg_lane_t *lane)
{
    tmsg_endpoint_t *endpoint = lane->endpoint;
    tmsg_status_t status = tmsg_sock_connect_result(lane->fd, endpoint->peer);

    if (status == TMSG_OK) {
        lane->connected = true;
        tune(lane);
        introduce(lane);
    } else if (status != TMSG_IN_PROGRESS) {
        give_up(endpoint, tmsg_error_message());
    }
}

/* The peer has it for the lane, too: nothing but parts follows. */
static void stand(tmsg_lane_t *lane)
{
    tmsg_frame_free(&lane->stream);
    lane->stands = true;
    want(lane, false);
    tmsg_log(TMSG_LOG_DEBUG, "%s: large payloads go by a lane",
             lane->endpoint->peer);
}

static void hear(tmsg_lane_t *lane)
{
    const uint8_t *data;
    uint8_t type;
    size_t bytes;
    tmsg_status_t status = tmsg_frame_read(&lane->stream, &type, &data, &bytes);

    if (status == TMSG_OK && type == TMSG_FRAME_REFUSE) {
        status = tmsg_handshake_refused(data, bytes);
    } else if (status == TMSG_OK &&
               (type != TMSG_FRAME_LANE || bytes > 0 ||
                lane->stream.in.end > lane->stream.in.begin)) {
        status =
            tmsg_error_set(TMSG_ERR_MALFORMED,
                           "the peer answers with a frame of type %u", type);
    }
    if (status == TMSG_OK) {
        stand(lane);
    } else if (status != TMSG_IN_PROGRESS) {
        give_up(lane->endpoint, tmsg_error_message());
    }
}

static void ready(tmsg_source_t *source, uint32_t events)
{
    tmsg_lane_t *lane = TMSG_CONTAINER_OF(source, tmsg_lane_t, source);

    if (!lane->connected) {
        dialled(lane);
    } else if (lane->stands) {
        tmsg_lane_stir(lane->endpoint);
    } else {
        if (events & EPOLLOUT) {
            tmsg_frame_flush(&lane->stream); /* an error shows in reading */
            want(lane, tmsg_frame_pending(&lane->stream) > 0);
        }
        hear(lane);
    }
}

void tmsg_lane_begin(tmsg_endpoint_t *endpoint)
{
    const char *why = ruled_out(endpoint);
    tmsg_address_t address;
    tmsg_status_t status;
    int fd;

    if (endpoint->carrier != TMSG_CARRIER_TCP || !endpoint->dialling ||
        endpoint->lane != NULL) { /* a ring that the peer was early to offer */
        return;
    }
    if (why != NULL) {
        go_without(endpoint, why);
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
        status = adopt(endpoint, fd, EPOLLIN | EPOLLOUT);
    }
    if (status != TMSG_OK) {
        go_without(endpoint, tmsg_error_message());
        return;
    }
    tmsg_frame_init(&endpoint->lane->stream, fd, TMSG_HANDSHAKE_BYTES);
}

/* One that came late: whoever dialled it has done with the connection. */
static bool is_late(const tmsg_endpoint_t *connection, const uint8_t *data,
                    size_t bytes)
{
    const tmsg_endpoint_t *endpoint =
        bytes == CLAIM_BYTES
            ? tmsg_endpoint_by_id(connection->worker,
                                  (uint32_t)tmsg_get_le(data, ID_BYTES))
            : NULL;

    return bytes == CLAIM_BYTES &&
           (endpoint == NULL || endpoint->state == TMSG_EP_ENDED);
}

/* The endpoint that a claim is of, with its proof; NULL: there is none. */
static tmsg_endpoint_t *find(const tmsg_endpoint_t *connection,
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
    if (endpoint == NULL || endpoint->dialling || endpoint->lane != NULL ||
        (endpoint->state != TMSG_EP_OPEN &&
         endpoint->state != TMSG_EP_CLOSING) ||
        ruled_out(endpoint) != NULL) {
        return NULL;
    }
    prove(endpoint, id, &endpoint->link.stream.rx, proof);
    return sodium_memcmp(proof, data + ID_BYTES, sizeof(proof)) == 0 ? endpoint
                                                                     : NULL;
}

tmsg_status_t tmsg_lane_claim(tmsg_endpoint_t *connection, const uint8_t *data,
                              size_t bytes)
{
    tmsg_link_t *link = &connection->link;
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status;
    char words[TMSG_ERROR_BYTES];
    int fd = link->fd;

    if (connection->dialling || link->listener == NULL || link->hello_done ||
        link->stream.in.end > link->stream.in.begin) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "a lane out of turn");
    }
    endpoint = find(connection, data, bytes);
    if (endpoint == NULL) {
        connection->late_lane = is_late(connection, data, bytes);
        return tmsg_error_set(TMSG_ERR_REFUSED,
                              "no connection here waits for this lane");
    }
    tmsg_loop_remove(&connection->worker->loop, &link->source);
    link->fd = -1;
    connection->is_lane = true;
    status = adopt(endpoint, fd, EPOLLIN);
    if (status == TMSG_OK) {
        tune(endpoint->lane);
        endpoint->lane->connected = true;
        endpoint->lane->stands = true;
        status = tmsg_frame_queue(&link->stream, TMSG_FRAME_LANE, NULL, 0);
        if (status != TMSG_OK) {
            give_up(endpoint, tmsg_error_message());
        }
    } else {
        go_without(endpoint, tmsg_error_message());
    }
    tmsg_frame_free(&link->stream);
    snprintf(words, sizeof(words), "this connection %s the lane of %s",
             endpoint->lane != NULL ? "is now" : "was to be", endpoint->peer);
    tmsg_engine.end(connection, TMSG_ERR_CANCELED, words);
    return TMSG_OK;
}

static void enlist(tmsg_lane_t *lane)
{
    if (!lane->listed) {
        tmsg_list_push(&lane->endpoint->worker->lanes, &lane->node);
        lane->listed = true;
    }
}

void tmsg_lane_stir(tmsg_endpoint_t *endpoint)
{
    tmsg_lane_t *lane = endpoint->lane;

    if (lane != NULL && (lane->stands || lane->fd < 0) && !lane->lost) {
        lane->quiet = 0;
        lane->silent = 0;
        enlist(lane);
    }
}

void tmsg_lane_ponged(tmsg_endpoint_t *endpoint)
{
    if (endpoint->lane != NULL && endpoint->lane->out.waits) {
        tmsg_lane_stir(endpoint);
    }
}

/* Who looks at it next is the loop; false: there is something to be done. */
static bool leave_to_loop(tmsg_lane_t *lane)
{
    if (lane->fd < 0) {
        return tmsg_lane_ring_await(lane);
    }
    want(lane, tmsg_lane_has_output(lane));
    return true;
}

/* Those that have been still for a while are left to the loop. Gives the bytes
 * that were moved. */
static size_t turn(tmsg_lane_t *lane)
{
    size_t most = tmsg_lane_turn_bytes(lane);
    size_t written = tmsg_lane_write(lane, most), read = 0;

    if (!lane->lost &&
        (lane->silent < QUIET_MOST || lane->silent % LISTEN_EVERY == 0)) {
        read = tmsg_lane_read(lane, most);
    }
    lane->silent = read > 0 ? 0 : lane->silent + 1;
    lane->quiet = written + read > 0 ? 0 : lane->quiet + 1;
    if (!lane->lost && lane->fd < 0 && written + read > 0) {
        tmsg_lane_ring_wake(lane);
    }
    if (!lane->lost && (lane->quiet < QUIET_MOST || !leave_to_loop(lane))) {
        enlist(lane);
    }
    return written + read;
}

/* All of them together have no more than one would: the rest has the next
 * turn. */
unsigned tmsg_lanes_turn(tmsg_worker_t *worker)
{
    size_t count = worker->lanes.count, moved = 0;
    unsigned busy = 0;

    for (; count > 0 && worker->lanes.count > 0 && moved < TURNS_BYTES;
         count--) {
        tmsg_lane_t *lane =
            TMSG_CONTAINER_OF(tmsg_list_pop(&worker->lanes), tmsg_lane_t, node);
        tmsg_endpoint_t *endpoint = lane->endpoint;
        size_t bytes;

        lane->listed = false;
        tmsg_endpoint_hold(endpoint);
        bytes = turn(lane);
        tmsg_endpoint_drop(endpoint);
        busy += bytes > 0;
        moved += bytes;
    }
    return busy;
}

bool tmsg_lanes_arm(tmsg_worker_t *worker)
{
    bool all = true;

    for (tmsg_node_t *node = worker->lanes.head; node != NULL;
         node = node->next) {
        all = leave_to_loop(TMSG_CONTAINER_OF(node, tmsg_lane_t, node)) && all;
    }
    return all;
}
