/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/path/claim.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/boot/refusal.h"
#include "am/endpoint/conn.h"
#include "am/net/sock.h"
#include "am/tls/tls.h"
#include "am/worker/engine.h"
#include "core/bytes.h"
#include "core/error.h"

#define ID_BYTES 4
#define CLAIM_BYTES (ID_BYTES + TMSG_PROOF_BYTES)

void tmsg_claim_want_writing(tmsg_claim_t *claim, bool writing)
{
    if (claim->writes != writing && claim->source.fd >= 0) {
        claim->writes = writing;
        tmsg_loop_change(&claim->endpoint->worker->loop, &claim->source,
                         EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0));
    }
}

/* Proves that the side that dials once more is the one that dialled the
 * connection: by the token of that and, with keys, by the key of its frames. */
static void prove_dialler(const tmsg_endpoint_t *endpoint, uint8_t frame,
                          uint32_t id, const tmsg_frame_macs_t *macs,
                          uint8_t proof[TMSG_PROOF_BYTES])
{
    uint8_t said[ID_BYTES + TMSG_TOKEN_BYTES];

    tmsg_put_le(said, id, ID_BYTES);
    memcpy(said + ID_BYTES, endpoint->token, TMSG_TOKEN_BYTES);
    tmsg_proof_claim(frame == TMSG_FRAME_BULK ? TMSG_CLAIMS_BULK
                                              : TMSG_CLAIMS_CARRIER,
                     macs->on ? macs->key : NULL, said, sizeof(said), proof);
}

static tmsg_status_t introduce(tmsg_claim_t *claim)
{
    tmsg_endpoint_t *endpoint = claim->endpoint;
    uint8_t data[CLAIM_BYTES];
    tmsg_status_t status;

    tmsg_put_le(data, endpoint->peer_id, ID_BYTES);
    prove_dialler(endpoint, claim->frame, endpoint->peer_id,
                  &endpoint->link.stream.tx, data + ID_BYTES);
    status = tmsg_frame_queue(&claim->stream, claim->frame, data, sizeof(data));
    if (status == TMSG_OK) {
        tmsg_claim_want_writing(claim,
                                tmsg_frame_wants_writing(&claim->stream));
    }
    return status;
}

/* Returns whether the peer of the further connection is that of the first, as
 * far as TLS tells. */
static bool is_peer(const tmsg_endpoint_t *endpoint,
                    const tmsg_frame_stream_t *stream)
{
    const char *who = tmsg_secure_peer(stream);
    const char *known = endpoint->admit.principal;

    return endpoint->admit.tls == NULL
               ? stream->io == NULL
               : who != NULL && known != NULL && strcmp(who, known) == 0;
}

static tmsg_status_t hear_answer(tmsg_claim_t *claim)
{
    const uint8_t *data;
    uint8_t type;
    size_t bytes;
    tmsg_status_t status =
        tmsg_frame_read(&claim->stream, &type, &data, &bytes);

    if (status == TMSG_OK && type == TMSG_FRAME_REFUSE) {
        status = tmsg_handshake_refused(data, bytes);
    } else if (status == TMSG_OK && !is_peer(claim->endpoint, &claim->stream)) {
        status = tmsg_error_set(TMSG_ERR_INSECURE,
                                "another peer answers than before: '%s'",
                                tmsg_secure_peer(&claim->stream));
    } else if (status == TMSG_OK && (type != claim->frame || bytes > 0)) {
        status =
            tmsg_error_set(TMSG_ERR_MALFORMED,
                           "the peer answers with a frame of type %u", type);
    }
    return status;
}

static tmsg_status_t go_on(tmsg_claim_t *claim, uint32_t events)
{
    tmsg_status_t status;

    if (!claim->connected) {
        status = tmsg_sock_connect_result(claim->fd, claim->endpoint->peer);
        if (status != TMSG_OK) {
            return status;
        }
        claim->connected = true;
        status = introduce(claim);
        return status == TMSG_OK ? TMSG_IN_PROGRESS : status;
    }
    if (events & EPOLLOUT) {
        tmsg_frame_flush(&claim->stream); /* an error shows in reading */
    }
    status = hear_answer(claim);
    if (status == TMSG_IN_PROGRESS) {
        tmsg_claim_want_writing(claim,
                                tmsg_frame_wants_writing(&claim->stream));
    }
    return status;
}

static void claim_ready(tmsg_source_t *source, uint32_t events)
{
    tmsg_claim_t *claim = TMSG_CONTAINER_OF(source, tmsg_claim_t, source);
    tmsg_status_t status = go_on(claim, events);

    if (status == TMSG_IN_PROGRESS) {
        return;
    }
    if (status == TMSG_OK) {
        tmsg_claim_want_writing(claim, false);
    }
    claim->over(claim, status);
}

void tmsg_claim_hear(tmsg_claim_t *claim)
{
    claim_ready(&claim->source, EPOLLIN);
}

tmsg_status_t
tmsg_claim_dial(tmsg_claim_t *claim, tmsg_endpoint_t *endpoint, uint8_t frame,
                void (*over)(tmsg_claim_t *claim, tmsg_status_t status))
{
    const tmsg_url_t *url = &endpoint->link.url;
    bool has_path = tmsg_url_has_path(url);
    tmsg_address_t address;
    tmsg_status_t status =
        has_path ? TMSG_OK : tmsg_sock_peer(endpoint->link.fd, &address);
    int fd = -1;

    if (status == TMSG_OK) {
        status = tmsg_sock_connect(url, has_path ? NULL : &address, &fd);
    }
    if (status != TMSG_OK && status != TMSG_IN_PROGRESS) {
        return status;
    }
    *claim = (tmsg_claim_t){.endpoint = endpoint,
                            .frame = frame,
                            .source = {.fd = -1, .ready = claim_ready},
                            .fd = fd,
                            .writes = true,
                            .over = over};
    status = tmsg_loop_add(&endpoint->worker->loop, &claim->source, fd,
                           EPOLLIN | EPOLLOUT);
    if (status != TMSG_OK) {
        close(fd);
        return status;
    }
    tmsg_frame_init(&claim->stream, fd, TMSG_HANDSHAKE_BYTES);
    if (frame == TMSG_FRAME_BULK) { /* fragments may follow the answer */
        tmsg_frame_read_exactly(&claim->stream);
    }
    status = tmsg_secure_frames(endpoint->admit.tls, url->host, &claim->stream);
    if (status != TMSG_OK) {
        tmsg_claim_abandon(claim);
    } else if (frame == TMSG_FRAME_BULK && claim->stream.io != NULL) {
        /* Once fragments have come, its buffer stays as it is. */
        tmsg_secure_widen(claim->stream.io_arg);
    }
    return status;
}

void tmsg_claim_abandon(tmsg_claim_t *claim)
{
    tmsg_loop_remove(&claim->endpoint->worker->loop, &claim->source);
    tmsg_frame_free(&claim->stream);
    shutdown(claim->fd, SHUT_RDWR); /* a child may have it, too */
    close(claim->fd);
}

bool tmsg_claim_may_come(const tmsg_endpoint_t *connection)
{
    const tmsg_link_t *link = &connection->link;

    if (connection->dialling || link->listener == NULL || link->hello_done ||
        link->stream.in.end > link->stream.in.begin) {
        tmsg_error_set(TMSG_ERR_MALFORMED, "a claim out of turn");
        return false;
    }
    return true;
}

tmsg_endpoint_t *tmsg_claim_find(const tmsg_endpoint_t *connection,
                                 uint8_t frame, const uint8_t *data,
                                 size_t bytes)
{
    uint8_t proof[TMSG_PROOF_BYTES];
    tmsg_endpoint_t *endpoint;
    uint32_t id;

    if (bytes != CLAIM_BYTES) {
        return NULL;
    }
    id = (uint32_t)tmsg_get_le(data, ID_BYTES);
    endpoint = tmsg_endpoint_by_id(connection->worker, id);
    if (endpoint == NULL || endpoint == connection || endpoint->dialling) {
        return NULL;
    }
    prove_dialler(endpoint, frame, id, &endpoint->link.stream.rx, proof);
    return sodium_memcmp(proof, data + ID_BYTES, sizeof(proof)) == 0 &&
                   is_peer(endpoint, &connection->link.stream)
               ? endpoint
               : NULL;
}

void tmsg_claim_note_late(tmsg_endpoint_t *connection, const uint8_t *data,
                          size_t bytes)
{
    const tmsg_endpoint_t *endpoint =
        bytes == CLAIM_BYTES
            ? tmsg_endpoint_by_id(connection->worker,
                                  (uint32_t)tmsg_get_le(data, ID_BYTES))
            : NULL;

    connection->paths.late_bulk =
        bytes == CLAIM_BYTES &&
        (endpoint == NULL || endpoint->state == TMSG_EP_ENDED);
}

int tmsg_claim_take(tmsg_endpoint_t *connection)
{
    tmsg_link_t *link = &connection->link;
    int fd = link->fd;

    tmsg_loop_remove(&connection->worker->loop, &link->source);
    link->fd = -1;
    connection->paths.is_bulk = true;
    return fd;
}

tmsg_status_t tmsg_claim_answer(tmsg_endpoint_t *connection, uint8_t frame)
{
    tmsg_frame_stream_t *stream = &connection->link.stream;
    tmsg_status_t status = tmsg_frame_queue(stream, frame, NULL, 0);

    return status == TMSG_OK && tmsg_frame_pending(stream) > 0
               ? tmsg_error_set(TMSG_ERR_IO, "the claim cannot be answered")
               : status;
}

void tmsg_claim_leave(tmsg_endpoint_t *connection, const char *what,
                      const tmsg_endpoint_t *endpoint)
{
    char words[TMSG_ERROR_BYTES];

    tmsg_frame_free(&connection->link.stream);
    snprintf(words, sizeof(words), "this connection %s of %s", what,
             endpoint->peer);
    tmsg_engine.end(connection, TMSG_ERR_CANCELED, words);
}
