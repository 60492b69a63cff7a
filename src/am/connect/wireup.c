/* SPDX-License-Identifier: BSD-3-Clause */
/* Joins the two UCX endpoints of a connection, in two rounds:
 *
 *   dialling                      dialled
 *   CONNECT_REQUEST ------------>          makes its UCX endpoint
 *                   <------------ CONNECT_REPLY
 *   WIREUP          ------------>
 *                   <------------ WIREUP_REPLY
 *
 * If UCX can send the first round at once, it goes without asking UCX for a
 * reply endpoint, so that UCX does not begin its own wireup of the two UCX
 * endpoints. UCX up to 1.13 aborts the process, and 1.22 crashes, if a peer
 * goes away while messages of that wireup wait for a socket to be connected. In
 * the second round both sockets are connected, and UCX names the reply
 * endpoint. Each side then checks that it is the UCX endpoint that it holds. */
#include "am/connect/wireup.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "am/connect/admit_blob.h"
#include "am/connect/carrier.h"
#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/lease.h"
#include "am/endpoint/log.h"
#include "am/endpoint/scheme.h"
#include "am/net/peer.h"
#include "am/ucx/ep_index.h"
#include "am/ucx/peer_address.h"
#include "am/ucx/siblings.h"
#include "am/ucx/ucx_events.h"
#include "am/worker/engine.h"
#include "core/bytes.h"
#include "core/log.h"
#include "core/shown.h"

#define CONNECT_REQUEST_AGAIN_MS 1
/* Tries at most, if UCX may never send the connect request at once. */
#define REQUESTS_MOST 5
#define END_MS 1000 /* time for a socket to say that the peer is gone */

/* Without a boot id no peer, of whatever version, takes the two sides for the
 * same machine. */
void tmsg_wireup_keep_apart(const tmsg_endpoint_t *endpoint, tmsg_hello_t *mine)
{
    if (endpoint->link.apart != NULL) {
        memset(mine->boot_id, 0, sizeof(mine->boot_id));
    }
}

tmsg_status_t tmsg_wireup_judge(tmsg_endpoint_t *endpoint,
                                const tmsg_hello_t *theirs, bool shm_only)
{
    tmsg_hello_t mine = endpoint->ucx->hello;
    tmsg_status_t status;

    tmsg_wireup_keep_apart(endpoint, &mine);
    status = tmsg_carrier_is_stream(endpoint)
                 ? tmsg_hello_check_stream(&mine, theirs)
                 : tmsg_hello_check(&mine, theirs, shm_only);
    if (status != TMSG_OK) {
        return status;
    }
    if (theirs->max_am_header < TMSG_AM_HEADER_LEAST) {
        return tmsg_error_set(TMSG_ERR_INCOMPATIBLE,
                              "the peer takes headers of %u bytes, at least %d "
                              "are needed",
                              theirs->max_am_header, TMSG_AM_HEADER_LEAST);
    }
    if (tmsg_carrier_is_stream(endpoint)) {
        endpoint->link.net_only = !shm_only;
        snprintf(endpoint->why, sizeof(endpoint->why),
                 endpoint->admit.tls != NULL
                     ? "TLS encrypts everything, and nothing bypasses it"
                     : "a stream carries the messages");
        return TMSG_OK;
    }
    endpoint->link.net_only = !tmsg_hello_same_machine(
        &mine, theirs, endpoint->why, sizeof(endpoint->why));
    if (endpoint->link.apart != NULL) {
        snprintf(endpoint->why, sizeof(endpoint->why), "%s",
                 endpoint->link.apart);
    }
    if (shm_only && endpoint->link.net_only) {
        return tmsg_error_set(TMSG_ERR_UNREACHABLE,
                              "a unix:// URL needs shared memory: %s",
                              endpoint->why);
    }
    return TMSG_OK;
}

#define BODY_BYTES_MOST (TMSG_WIREUP_BYTES + TMSG_ANSWER_EXTRA_BYTES)

_Static_assert(TMSG_LEASE_BYTES + TMSG_JOIN_EXTRA_BYTES <=
                   TMSG_ANSWER_EXTRA_BYTES,
               "the second round has room for what it carries");

tmsg_preamble_t tmsg_wireup_fill(const tmsg_endpoint_t *endpoint, uint8_t *body)
{
    memcpy(body, endpoint->token, TMSG_TOKEN_BYTES);
    tmsg_put_le(body + TMSG_TOKEN_BYTES, endpoint->id, 4);
    tmsg_put_le(body + TMSG_TOKEN_BYTES + 4, endpoint->conn.number, 4);
    return (tmsg_preamble_t){.endpoint_id = endpoint->peer_id};
}

static tmsg_status_t send_wireup(tmsg_endpoint_t *endpoint)
{
    uint8_t body[BODY_BYTES_MOST];
    tmsg_preamble_t head = tmsg_wireup_fill(endpoint, body);
    size_t bytes = TMSG_WIREUP_BYTES;
    tmsg_status_t status;

    if (tmsg_lease_is_known(endpoint)) {
        status = tmsg_lease_grant(endpoint, body + bytes);
        if (status != TMSG_OK) {
            return status;
        }
        bytes += TMSG_LEASE_BYTES;
    }
    if (tmsg_admit_by_blob(endpoint)) {
        tmsg_admit_blob_join(endpoint, body + TMSG_WIREUP_BYTES,
                             bytes - TMSG_WIREUP_BYTES, body + bytes);
        bytes += TMSG_JOIN_EXTRA_BYTES;
    }
    return tmsg_control_post(endpoint,
                             endpoint->dialling ? TMSG_KIND_WIREUP
                                                : TMSG_KIND_WIREUP_REPLY,
                             &head, body, bytes, NULL, 0);
}

/* Returns whether UCX may never send the connect request at once. A blob or a
 * proof may be too long for that. UCX 1.17 and later send nothing at once over
 * TCP, but do not abort there either. */
static bool may_never_go_at_once(const tmsg_connect_request_t *connect_request)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();

    return connect_request->blob != NULL || connect_request->proof_bytes > 0 ||
           version.major > 1 || version.minor >= 17;
}

/* Sends a connect request, or its reply, without UCX's wireup: only what UCX
 * sends at once goes so, which needs a connected socket. Until then a timer
 * tries again. */
static tmsg_status_t send_connect_request(tmsg_endpoint_t *endpoint)
{
    tmsg_connect_request_t *connect_request = &endpoint->conn.connect_request;
    uint8_t body[BODY_BYTES_MOST];
    tmsg_preamble_t head = tmsg_wireup_fill(endpoint, body);
    size_t bytes = TMSG_WIREUP_BYTES + connect_request->proof_bytes;
    uint8_t kind = endpoint->dialling ? TMSG_KIND_CONNECT_REQUEST
                                      : TMSG_KIND_CONNECT_REPLY;
    tmsg_status_t status;

    memcpy(body + TMSG_WIREUP_BYTES, connect_request->proof,
           connect_request->proof_bytes);
    if (connect_request->attempts == REQUESTS_MOST &&
        may_never_go_at_once(connect_request)) {
        status = tmsg_control_post(endpoint, kind, &head, body, bytes,
                                   connect_request->blob,
                                   connect_request->blob_bytes);
    } else {
        connect_request->attempts += connect_request->attempts < REQUESTS_MOST;
        status = tmsg_control_try(endpoint, kind, &head, body, bytes,
                                  connect_request->blob,
                                  connect_request->blob_bytes);
    }
    if (status == TMSG_IN_PROGRESS) {
        tmsg_loop_set_timer(&endpoint->worker->loop, &connect_request->again,
                            CONNECT_REQUEST_AGAIN_MS);
        return TMSG_OK;
    }
    free(connect_request->blob);
    connect_request->blob = NULL;
    return status;
}

static void connect_request_again(tmsg_timer_t *timer)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(timer, tmsg_endpoint_t, conn.connect_request.again);
    tmsg_status_t status = send_connect_request(endpoint);

    if (status != TMSG_OK) {
        tmsg_engine.end(endpoint, status, tmsg_error_message());
    }
}

tmsg_status_t tmsg_wireup_address(tmsg_endpoint_t *endpoint,
                                  const tmsg_sealed_t *sealed)
{
    const tmsg_address_claim_t claim = {
        .hello = &endpoint->peer_hello,
        .net_only = endpoint->link.net_only,
        .keyed = endpoint->admit.keyring != NULL,
    };
    tmsg_status_t status;

    endpoint->conn.is_sibling = tmsg_siblings_have(
        &endpoint->peer_hello, sealed->address, sealed->address_bytes);
    status = tmsg_peer_address_check(endpoint->ucx, &claim, sealed->address,
                                     sealed->address_bytes,
                                     &endpoint->conn.peer_address);
    if (status == TMSG_OK) {
        endpoint->peer_memory =
            tmsg_peer_address_memory(endpoint->conn.peer_address);
    }
    return status;
}

/* Proves the connect request, which is complete only when the UCX endpoint has
 * its number. */
static tmsg_status_t prove_connect_request(tmsg_endpoint_t *endpoint)
{
    uint8_t body[TMSG_WIREUP_BYTES];

    tmsg_wireup_fill(endpoint, body);
    return tmsg_admit_blob_prove(endpoint, body, sizeof(body));
}

static tmsg_status_t shm_not_found(const tmsg_endpoint_t *endpoint)
{
    return tmsg_error_set(TMSG_ERR_UNREACHABLE,
                          "the shared memory of process %u cannot be opened: "
                          "it has ended, or UCX cannot open its files",
                          endpoint->peer_hello.pid);
}

static void no_end_heard(tmsg_timer_t *timer)
{
    tmsg_endpoint_t *endpoint =
        TMSG_CONTAINER_OF(timer, tmsg_endpoint_t, conn.connect_request.again);

    if (endpoint->broken == TMSG_OK) { /* else the end was heard just now */
        tmsg_engine.end(endpoint, TMSG_ERR_UNREACHABLE, endpoint->broken_why);
    }
}

/* Waits for the end of the peer's socket, which tells what happened. If the
 * peer is killed just now, its memory and ports are gone before its socket
 * ends. The deadline is cleared, because the reason is already known. */
static tmsg_status_t await_its_end(tmsg_endpoint_t *endpoint)
{
    tmsg_loop_t *loop = &endpoint->worker->loop;

    if (endpoint->link.source.fd < 0) {
        return TMSG_ERR_UNREACHABLE;
    }
    tmsg_shown_format(endpoint->broken_why, sizeof(endpoint->broken_why), "%s",
                      tmsg_error_message());
    tmsg_loop_clear_timer(loop, &endpoint->link.deadline);
    endpoint->conn.connect_request.again.expired = no_end_heard;
    tmsg_loop_set_timer(loop, &endpoint->conn.connect_request.again, END_MS);
    return TMSG_OK;
}

tmsg_status_t tmsg_wireup_begin(tmsg_endpoint_t *endpoint)
{
    tmsg_ucx_t *ucx = endpoint->ucx;
    uint64_t peer = endpoint->peer_hello.ucx_id;
    const tmsg_peer_address_t *address = endpoint->conn.peer_address;
    tmsg_status_t status = endpoint->link.net_only
                               ? TMSG_OK
                               : tmsg_siblings_meet(ucx, &endpoint->peer_hello);

    if (status != TMSG_OK) {
        return status;
    }
    status =
        endpoint->dialling
            ? tmsg_ep_index_make(ucx, peer, address, &endpoint->ep,
                                 &endpoint->conn.sockets,
                                 &endpoint->conn.number)
            : tmsg_ep_index_match(ucx, peer, address, endpoint->conn.number,
                                  &endpoint->ep, &endpoint->conn.sockets);
    if (status == TMSG_ERR_PEER_LOST) {
        status = shm_not_found(endpoint);
    }
    if (status == TMSG_ERR_UNREACHABLE) {
        return await_its_end(endpoint);
    }
    if (status == TMSG_ERR_BUSY) {
        tmsg_ucx_events.doubt(ucx); /* a new one counts anew */
    }
    endpoint->conn.connect_request.again.expired = connect_request_again;
    if (status == TMSG_OK && endpoint->dialling &&
        tmsg_admit_by_blob(endpoint)) {
        status = prove_connect_request(endpoint);
    }
    return status != TMSG_OK ? status : send_connect_request(endpoint);
}

void tmsg_wireup_end(tmsg_endpoint_t *endpoint)
{
    tmsg_loop_clear_timer(&endpoint->worker->loop,
                          &endpoint->conn.connect_request.again);
    free(endpoint->conn.connect_request.blob);
    endpoint->conn.connect_request.blob = NULL;
    tmsg_carrier_end(endpoint);
}

static tmsg_status_t check_reply(const tmsg_endpoint_t *endpoint)
{
    return endpoint->reply_ep == endpoint->ep
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INTERNAL,
                                "UCX joined the endpoints of two connections");
}

/* Lists the sockets of all endpoints on a UCX worker. The caller frees the
 * list. NULL: there are none, or no memory. */
static int *list_sockets(const tmsg_ucx_t *ucx, size_t *count_p)
{
    size_t room = (size_t)ucx->worker->endpoint_slots * TMSG_EP_SOCKETS_MOST;
    int *fds = malloc(room * sizeof(*fds));
    tmsg_endpoint_t *endpoint;
    uint32_t at = 0;

    *count_p = 0;
    while (fds != NULL &&
           (endpoint = tmsg_endpoint_next(ucx->worker, ucx, &at)) != NULL) {
        for (unsigned i = 0; i < endpoint->conn.sockets.count; i++) {
            fds[(*count_p)++] = endpoint->conn.sockets.of[i].fd;
        }
    }
    return fds;
}

/* Prepares to find the socket of an accepted endpoint by the message that it
 * sends next. This is needed if the sockets were not found when its UCX
 * endpoint was made. tmsg_ep_sockets_find_sent() follows the message. NULL:
 * there is nothing to find. */
static tmsg_watched_t *before_send(const tmsg_endpoint_t *endpoint)
{
    const tmsg_ucx_t *ucx = endpoint->ucx;
    tmsg_watched_t *before = NULL;
    size_t count;
    int *fds;

    if (endpoint->dialling || endpoint->conn.sockets.count > 0 ||
        ucx->sets.count == 0) {
        return NULL;
    }
    fds = list_sockets(ucx, &count);
    if (fds != NULL) {
        before = tmsg_ep_sockets_before_send(&ucx->sets, ucx->fd, fds, count);
    }
    free(fds);
    return before;
}

/* Takes the next step of the dialled side: it answers the connect request, and
 * then the wireup, with which the endpoint opens. */
static tmsg_status_t advance_dialled(tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status;

    if (endpoint->conn.peer_address == NULL) {
        return TMSG_IN_PROGRESS;
    }
    if (endpoint->ep == NULL) {
        return endpoint->conn.connect_request.again.deadline_ns != 0
                   ? TMSG_IN_PROGRESS /* until the peer's end is heard */
                   : tmsg_wireup_begin(endpoint);
    }
    if (endpoint->reply_ep == NULL) {
        return TMSG_IN_PROGRESS;
    }
    status = check_reply(endpoint);
    if (status == TMSG_OK) {
        tmsg_watched_t *before = before_send(endpoint);

        status = send_wireup(endpoint);
        tmsg_ep_sockets_find_sent(before, &endpoint->conn.sockets);
    }
    if (status == TMSG_OK) {
        tmsg_engine.opened(endpoint);
    }
    return status;
}

/* Begins the second round, once: the dialling side sends WIREUP. */
static tmsg_status_t advance_dialling(tmsg_endpoint_t *endpoint)
{
    if (endpoint->conn.began_wireup) {
        return TMSG_IN_PROGRESS;
    }
    endpoint->conn.began_wireup = true;
    return send_wireup(endpoint);
}

tmsg_status_t tmsg_wireup_advance(tmsg_endpoint_t *endpoint)
{
    if (!endpoint->conn.heard_connect) {
        return TMSG_IN_PROGRESS;
    }
    return endpoint->dialling ? advance_dialling(endpoint)
                              : advance_dialled(endpoint);
}

bool tmsg_wireup_keep_ep(tmsg_endpoint_t *endpoint)
{
    bool keeps = !endpoint->dialling && endpoint->reply_ep == NULL;

    if (keeps) {
        tmsg_ep_index_keep(endpoint->ucx, endpoint->peer_hello.ucx_id,
                           endpoint->conn.number, endpoint->ep,
                           &endpoint->conn.sockets);
    }
    return keeps;
}

void tmsg_wireup_cut_sockets(tmsg_endpoint_t *endpoint)
{
    tmsg_ep_sockets_cut(&endpoint->conn.sockets);
}

void tmsg_wireup_forget(tmsg_endpoint_t *endpoint)
{
    tmsg_peer_address_free(endpoint->conn.peer_address);
    endpoint->conn.peer_address = NULL;
    endpoint->reply_ep = NULL;
    endpoint->conn.heard_connect = false;
    endpoint->conn.began_wireup = false;
    endpoint->conn.connect_request.attempts = 0;
}

void tmsg_wireup_heard(tmsg_endpoint_t *endpoint, const tmsg_arrival_t *arrival)
{
    const uint8_t *ids = arrival->body + TMSG_TOKEN_BYTES;

    if (endpoint->conn.heard_connect) {
        return;
    }
    endpoint->peer_id = (uint32_t)tmsg_get_le(ids, 4);
    if (!endpoint->dialling) {
        endpoint->conn.number = (uint32_t)tmsg_get_le(ids + 4, 4);
    }
    endpoint->conn.heard_connect = true;
    tmsg_worker_chore(endpoint->worker, endpoint);
}

/* Returns the length of the lease, which follows the ids in the body of a
 * message of the second round. */
static size_t lease_bytes(const tmsg_endpoint_t *endpoint)
{
    return tmsg_lease_is_known(endpoint) ? TMSG_LEASE_BYTES : 0;
}

/* Returns the length that the body must have. The body of a CONNECT_REQUEST has
 * no proofs: they are in its blob. */
static size_t body_bytes(const tmsg_endpoint_t *endpoint, uint8_t kind,
                         bool second)
{
    size_t bytes = TMSG_WIREUP_BYTES + (second ? lease_bytes(endpoint) : 0);

    if (!tmsg_admit_by_blob(endpoint) || kind == TMSG_KIND_CONNECT_REQUEST) {
        return bytes;
    }
    return bytes + (second ? TMSG_JOIN_EXTRA_BYTES : TMSG_ANSWER_EXTRA_BYTES);
}

bool tmsg_wireup_is_first(const tmsg_endpoint_t *endpoint, const void *header,
                          size_t bytes)
{
    tmsg_preamble_t head;

    return !endpoint->conn.heard_connect &&
           tmsg_preamble_decode(header, bytes, &head) == TMSG_OK &&
           head.kind == (endpoint->dialling ? TMSG_KIND_CONNECT_REPLY
                                            : TMSG_KIND_CONNECT_REQUEST) &&
           head.body_bytes >= TMSG_TOKEN_BYTES &&
           sodium_memcmp((const uint8_t *)header + head.bytes, endpoint->token,
                         TMSG_TOKEN_BYTES) == 0;
}

tmsg_endpoint_t *tmsg_wireup_receiver(const tmsg_arrival_t *arrival,
                                      bool dialling, bool second)
{
    tmsg_endpoint_t *endpoint =
        tmsg_endpoint_by_id(arrival->ucx->worker, arrival->head.endpoint_id);

    if (endpoint == NULL || endpoint->ucx != arrival->ucx ||
        endpoint->dialling != dialling ||
        endpoint->state != TMSG_EP_CONNECTING ||
        arrival->head.body_bytes !=
            body_bytes(endpoint, arrival->head.kind, second) ||
        sodium_memcmp(endpoint->token, arrival->body, TMSG_TOKEN_BYTES) != 0) {
        return NULL;
    }
    return endpoint;
}

tmsg_ucx_status_t tmsg_connect_reply_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_wireup_receiver(arrival, true, false);

    /* A CONNECT_REPLY that was not asked for cannot be answered, so it is
     * ignored. */
    if (endpoint == NULL || endpoint->ep == NULL ||
        endpoint->conn.heard_connect) {
        return TMSG_UCX_OK;
    }
    if (tmsg_admit_by_blob(endpoint) &&
        !tmsg_admit_blob_answered(endpoint, arrival->body, TMSG_WIREUP_BYTES)) {
        tmsg_endpoint_log(endpoint, TMSG_LOG_IGNORED_KIND, TMSG_LOG_WARN,
                          "an answer to a connect request is ignored: it "
                          "proves no key that is in this side's keyring");
        return TMSG_UCX_OK;
    }
    tmsg_wireup_heard(endpoint, arrival);
    return TMSG_UCX_OK;
}

/* Returns why the process that the peer's hello names may be another's, in
 * words; NULL: it is the peer's. By blob there is no socket, and so no word of
 * the kernel. There a peer that names this process is believed if its address
 * is that of another UCX worker of this process: what it says then came from
 * here. */
static const char *doubt_process(const tmsg_endpoint_t *endpoint)
{
    const tmsg_hello_t *peer = &endpoint->peer_hello;
    const tmsg_peer_claim_t claim = {
        .pid = peer->pid, .uid = peer->uid, .descriptor = peer->descriptor};

    if (tmsg_schemes[endpoint->link.url.kind]->socket) {
        return tmsg_peer_doubt(endpoint->link.fd, &claim);
    }
    return peer->pid == (uint32_t)getpid() && !endpoint->conn.is_sibling
               ? "the peer says that it is in this process, and is not known "
                 "here"
               : NULL;
}

static tmsg_endpoint_t *take_reply_ep(const tmsg_arrival_t *arrival,
                                      bool dialling)
{
    tmsg_endpoint_t *endpoint = tmsg_wireup_receiver(arrival, dialling, true);

    if (endpoint == NULL || endpoint->ep == NULL || arrival->reply_ep == NULL ||
        endpoint->reply_ep != NULL ||
        (tmsg_admit_by_blob(endpoint) &&
         !tmsg_admit_blob_joined(endpoint, arrival->body + TMSG_WIREUP_BYTES,
                                 lease_bytes(endpoint)))) {
        tmsg_log_of(TMSG_LOG_IGNORED_KIND, TMSG_LOG_UNKNOWN, TMSG_LOG_WARN,
                    "a wireup out of turn is ignored");
        return NULL;
    }
    if (lease_bytes(endpoint) > 0) {
        tmsg_lease_take(endpoint, arrival->body + TMSG_WIREUP_BYTES,
                        endpoint->link.net_only ? NULL
                                                : doubt_process(endpoint));
    }
    endpoint->reply_ep = arrival->reply_ep;
    tmsg_worker_chore(endpoint->worker, endpoint);
    return endpoint;
}

tmsg_ucx_status_t tmsg_wireup_arrived(const tmsg_arrival_t *arrival)
{
    take_reply_ep(arrival, false);
    return TMSG_UCX_OK;
}

/* The endpoint opens at once, because the peer's first message may be next. */
tmsg_ucx_status_t tmsg_wireup_reply_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = take_reply_ep(arrival, true);

    if (endpoint == NULL) {
        return TMSG_UCX_OK;
    }
    if (check_reply(endpoint) == TMSG_OK) {
        tmsg_engine.opened(endpoint);
    } else {
        tmsg_endpoint_break(endpoint, TMSG_ERR_INTERNAL, tmsg_error_message());
    }
    return TMSG_UCX_OK;
}
