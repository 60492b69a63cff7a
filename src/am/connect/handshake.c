/* SPDX-License-Identifier: BSD-3-Clause */
/* The two sides of a bootstrap socket say this to each other before UCX:
 *
 *   dialling                      dialled
 *   HELLO           ------------>
 *                   <------------ HELLO, or REFUSE
 *   with keys: PROOF both ways, see admit.c
 *                   <------------ ADDRESS (its id, token, UCX address)
 *   ADDRESS         ------------>
 *
 * Then both sides join their UCX endpoints, by UCX; see wireup.c. */
#include "am/connect/handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/connect/admit.h"
#include "am/connect/carrier.h"
#include "am/connect/link.h"
#include "am/connect/liveness.h"
#include "am/connect/redial.h"
#include "am/connect/ucx_for.h"
#include "am/connect/wireup.h"
#include "am/endpoint/conn.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/scheme.h"
#include "am/endpoint/session.h"
#include "am/endpoint/session_ops.h"
#include "am/net/sock.h"
#include "am/ucx/backing.h"
#include "am/ucx/deferred.h"
#include "am/ucx/ucx_events.h"
#include "am/worker/reach.h"
#include "core/bytes.h"
#include "core/shown.h"

#define ID_BYTES 4
#define REFUSE_TEXT_MAX 300

static bool is_by_network(const tmsg_endpoint_t *endpoint)
{
    return tmsg_schemes[endpoint->link.url.kind]->network;
}

static tmsg_status_t send_hello(tmsg_endpoint_t *endpoint)
{
    uint8_t buffer[TMSG_HELLO_BYTES_MAX];
    tmsg_hello_t hello = endpoint->ucx->hello;
    size_t bytes;
    tmsg_status_t status;

    tmsg_session_ops.hello(endpoint, &hello);
    tmsg_wireup_keep_apart(endpoint, &hello);
    hello.subscribe = endpoint->conn.subscribe;
    hello.carrier = tmsg_carrier_is_stream(endpoint) ? TMSG_CARRIER_STREAM
                                                     : endpoint->conn.carrier;
    hello.eager_bytes = tmsg_credit_open(endpoint);
    endpoint->credit.rx_edge = hello.eager_bytes;
    if (is_by_network(endpoint)) {
        hello.descriptor = (uint32_t)endpoint->link.fd + 1;
    }
    status = tmsg_admit_hello(endpoint, &hello);
    if (status == TMSG_OK) {
        status = tmsg_hello_encode(&hello, buffer, sizeof(buffer), &bytes);
    }
    if (status != TMSG_OK) {
        return status;
    }
    tmsg_admit_said(endpoint, buffer, bytes);
    return tmsg_link_put(endpoint, TMSG_FRAME_HELLO, buffer, bytes);
}

/* Sends an ADDRESS without an address: a stream carries the messages. */
static tmsg_status_t invite_stream(tmsg_endpoint_t *endpoint)
{
    uint8_t frame[ID_BYTES + TMSG_TOKEN_BYTES];

    tmsg_put_le(frame, endpoint->id, ID_BYTES);
    memcpy(frame + ID_BYTES, endpoint->token, TMSG_TOKEN_BYTES);
    endpoint->link.address_sent = true;
    return tmsg_link_put(endpoint, TMSG_FRAME_ADDRESS, frame, sizeof(frame));
}

static tmsg_status_t invite_ucx(tmsg_endpoint_t *endpoint)
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
        status = tmsg_link_put(endpoint, TMSG_FRAME_ADDRESS, frame,
                               ID_BYTES + bytes);
    }
    free(frame);
out:
    tmsg_ucx_address_free(address);
    return status;
}

/* ADDRESS carries [endpoint id u32][sealed address], in both directions; of a
 * stream [endpoint id u32][token]. */
tmsg_status_t tmsg_handshake_invite(tmsg_endpoint_t *endpoint)
{
    if (tmsg_carrier_is_stream(endpoint)) {
        return invite_stream(endpoint);
    }
    return invite_ucx(endpoint);
}

/* REFUSE carries [status i32][words]. */
void tmsg_handshake_tell(tmsg_endpoint_t *endpoint, tmsg_status_t refusal,
                         const char *why)
{
    uint8_t data[4 + REFUSE_TEXT_MAX];
    size_t bytes = tmsg_shown_cut(why, REFUSE_TEXT_MAX);

    tmsg_put_le(data, (uint32_t)refusal, 4);
    memcpy(data + 4, why, bytes);
    endpoint->link.explained = true;
    tmsg_link_put(endpoint, TMSG_FRAME_REFUSE, data, 4 + bytes);
}

/* The error message is copied first, because sending may replace it: the peer
 * may have hung up. */
tmsg_status_t tmsg_handshake_refuse(tmsg_endpoint_t *endpoint,
                                    tmsg_status_t status)
{
    char why[TMSG_ERROR_BYTES];

    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    tmsg_handshake_tell(endpoint, status, why);
    return tmsg_error_set(status, "%s", why);
}

/* Counts the endpoint among those of its listener that will need UCX. A
 * connection that has said nothing does not count, nor with keys one that has
 * not proved a key: anybody can begin a handshake. */
static void count_for_ucx(tmsg_endpoint_t *endpoint)
{
    tmsg_link_t *link = &endpoint->link;

    if (link->wanting_ucx != NULL && !link->wants_ucx) {
        link->wants_ucx = true;
        ++*link->wanting_ucx;
    }
}

/* Returns how many others of the endpoint's listener will need UCX. */
static size_t count_beside(const tmsg_endpoint_t *endpoint)
{
    const tmsg_link_t *link = &endpoint->link;

    return link->wanting_ucx == NULL ? 0 : *link->wanting_ucx - link->wants_ucx;
}

/* Checks that there are descriptors for what UCX needs for this connection, and
 * for the others that have come so far. */
static tmsg_status_t check_ucx_descriptors(const tmsg_endpoint_t *endpoint)
{
    return !is_by_network(endpoint)
               ? TMSG_OK
               : tmsg_ucx_check_descriptors(endpoint->worker->loop.epoll_fd,
                                            4 + 3 * count_beside(endpoint));
}

/* Decides whether the peer may get shared memory; link.apart tells why not. The
 * peer's hello may claim anything, so the kernel is asked whether its address
 * is local. Peers that were given up and keep shared memory limit how many
 * others get it. */
static tmsg_status_t judge_memory(tmsg_endpoint_t *endpoint)
{
    static const char full[] = "too many peers that were given up have not "
                               "hung up, and may write to shared memory";
    tmsg_link_t *link = &endpoint->link;

    link->apart = NULL;
    if (is_by_network(endpoint) && !tmsg_sock_is_local(link->fd)) {
        link->apart = "other host";
    } else if (tmsg_deferred_is_full(endpoint->worker->ucx)) {
        link->apart = full;
    }
    return link->apart == NULL || is_by_network(endpoint)
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED, "%s", full);
}

/* Takes the UCX worker for the scope of the address at our end of the socket,
 * or what stands for it if a stream carries the messages. */
static tmsg_status_t choose_ucx(tmsg_endpoint_t *endpoint)
{
    tmsg_ucx_scope_t scope = {.device = ""};
    tmsg_address_t local;
    tmsg_status_t status;

    if (tmsg_carrier_is_stream(endpoint)) {
        scope.pipes = true;
        return tmsg_worker_ucx(endpoint->worker, &scope, endpoint->dialling,
                               &endpoint->ucx);
    }
    status = judge_memory(endpoint);
    if (status != TMSG_OK) {
        return status;
    }
    if (is_by_network(endpoint)) {
        status = tmsg_sock_local(endpoint->link.fd, &local);
        if (status == TMSG_OK) {
            status = tmsg_scope_of_address(&local.sa.any, &scope);
        }
        if (status == TMSG_OK) {
            status = check_ucx_descriptors(endpoint);
        }
        if (status != TMSG_OK) {
            return status;
        }
        tmsg_devices_apply(endpoint->devices, &scope);
    }
    status = tmsg_worker_ucx(endpoint->worker, &scope, endpoint->dialling,
                             &endpoint->ucx);
    if (status == TMSG_OK && endpoint->ucx->scope.net_only &&
        endpoint->link.apart == NULL) {
        endpoint->link.apart = tmsg_backing_apart(endpoint->ucx->lack);
    }
    return status;
}

/* Goes on with a stream: the dialling side has opened UCX for its hello, and
 * the peer asks for a stream. UCX is closed if nobody else uses it. */
static tmsg_status_t leave_ucx(tmsg_endpoint_t *endpoint)
{
    tmsg_ucx_t *before = endpoint->ucx;

    before->users--;
    endpoint->ucx = NULL;
    if (before->users == 0) {
        tmsg_ucx_events.supersede(before);
    }
    return choose_ucx(endpoint);
}

/* Once: its name is read unlocked. */
static void name_peer(tmsg_endpoint_t *endpoint)
{
    char url[TMSG_URL_TEXT_BYTES];

    if (endpoint->peer == endpoint->peer_name) {
        return;
    }
    if (tmsg_url_has_path(&endpoint->link.url)) {
        tmsg_url_format(&endpoint->link.url, url, sizeof(url));
    } else {
        tmsg_sock_peer_name(endpoint->link.fd, url, sizeof(url));
        if (tmsg_schemes[endpoint->link.url.kind]->secure) {
            tmsg_url_rename(url, sizeof(url), endpoint->link.url.kind);
        }
    }
    tmsg_endpoint_name_peer(endpoint, url);
}

/* Returns where the peer's hello is kept. With keys, a hello that answers for a
 * session's peer may be anybody's until its proof. It is kept apart until then,
 * because the hello before it says what the application may send meanwhile. */
static tmsg_hello_t *place_of_hello(tmsg_endpoint_t *endpoint)
{
    return endpoint->admit.keyring != NULL && tmsg_resume_is_away(endpoint)
               ? &endpoint->resume->claimed
               : &endpoint->peer_hello;
}

/* Takes the peer's hello and decides whether the two sides can work
 * together. */
static tmsg_status_t judge_hello(tmsg_endpoint_t *endpoint, const uint8_t *data,
                                 size_t bytes)
{
    tmsg_hello_t theirs;
    tmsg_status_t status = tmsg_hello_decode(data, bytes, &theirs);

    if (status != TMSG_OK) {
        return status;
    }
    endpoint->link.hello_done = true;
    endpoint->link.hello_ns = tmsg_now_ns();
    if (endpoint->admit.keyring == NULL) {
        tmsg_frame_allow(&endpoint->link.stream, TMSG_FRAME_MAX_BYTES);
        count_for_ucx(endpoint);
    }
    tmsg_admit_heard(endpoint, data, bytes);
    status = tmsg_admit_by_tls(endpoint);
    if (status == TMSG_OK) {
        status = tmsg_admit_expect(endpoint, &theirs);
    }
    if (status == TMSG_OK) {
        status = tmsg_redial_recognize(endpoint, &theirs);
    }
    if (status == TMSG_OK &&
        !(endpoint->dialling && endpoint->admit.keyring != NULL)) {
        status = tmsg_session_ops.recognize(endpoint, &theirs);
    }
    if (status != TMSG_OK) {
        return status;
    }
    *place_of_hello(endpoint) = theirs;
    if (place_of_hello(endpoint) == &endpoint->peer_hello) {
        name_peer(endpoint);
    }
    status = tmsg_carrier_choose(endpoint, &theirs);
    if (status == TMSG_OK && endpoint->dialling &&
        tmsg_carrier_is_stream(endpoint) && endpoint->ucx->pipes == NULL) {
        status = leave_ucx(endpoint);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (!endpoint->dialling) {
        status = choose_ucx(endpoint);
        if (status != TMSG_OK || (status = send_hello(endpoint)) != TMSG_OK) {
            return status;
        }
    }
    return tmsg_wireup_judge(endpoint, &theirs, !is_by_network(endpoint));
}

/* Refuses the peer, unless it has been told already, in fewer words. */
static tmsg_status_t refuse_untold(tmsg_endpoint_t *endpoint,
                                   tmsg_status_t status)
{
    return endpoint->link.explained ? status
                                    : tmsg_handshake_refuse(endpoint, status);
}

/* Continues the handshake: the peer is the right one, and works together with
 * this side. */
static tmsg_status_t continue_handshake(tmsg_endpoint_t *endpoint)
{
    if (tmsg_resume_goes_on(endpoint)) {
        return tmsg_session_ops.ask(endpoint);
    }
    return endpoint->dialling || endpoint->peer_hello.resumes
               ? TMSG_OK
               : tmsg_handshake_invite(endpoint);
}

tmsg_status_t tmsg_handshake_hello(tmsg_endpoint_t *endpoint,
                                   const uint8_t *data, size_t bytes)
{
    tmsg_status_t status;

    if (endpoint->link.hello_done) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "a second hello");
    }
    status = judge_hello(endpoint, data, bytes);
    if (status != TMSG_OK) {
        return refuse_untold(endpoint, status);
    }
    if (endpoint->admit.keyring == NULL) {
        return continue_handshake(endpoint);
    }
    return endpoint->dialling ? tmsg_admit_prove(endpoint) : TMSG_OK;
}

static tmsg_status_t believe_hello(tmsg_endpoint_t *endpoint)
{
    const tmsg_hello_t *theirs = place_of_hello(endpoint);
    tmsg_status_t status = tmsg_session_ops.recognize(endpoint, theirs);

    if (status == TMSG_OK && theirs != &endpoint->peer_hello) {
        endpoint->peer_hello = *theirs;
        name_peer(endpoint);
    }
    return status;
}

/* Only a proved hello is the peer's own word, so what it says of a session
 * counts only from here on. */
tmsg_status_t tmsg_handshake_proof(tmsg_endpoint_t *endpoint,
                                   const uint8_t *data, size_t bytes)
{
    tmsg_status_t status = tmsg_admit_judge(endpoint, data, bytes);

    if (status == TMSG_OK && endpoint->dialling) {
        status = believe_hello(endpoint);
    } else if (status == TMSG_OK) { /* others may have proved theirs since */
        count_for_ucx(endpoint);
        status = check_ucx_descriptors(endpoint);
    }
    return status == TMSG_OK ? continue_handshake(endpoint)
                             : refuse_untold(endpoint, status);
}

/* Takes the peer's address. The dialling side answers it with its own, and
 * begins the wireup. */
static tmsg_status_t take_address(tmsg_endpoint_t *endpoint,
                                  const tmsg_sealed_t *sealed)
{
    tmsg_status_t status = tmsg_wireup_address(endpoint, sealed);

    if (status == TMSG_OK && endpoint->dialling) {
        memcpy(endpoint->token, sealed->token, TMSG_TOKEN_BYTES);
        status = tmsg_handshake_invite(endpoint);
    }
    if (status == TMSG_OK) {
        status = tmsg_liveness_begin(endpoint);
    }
    if (status == TMSG_OK && endpoint->dialling) {
        return tmsg_wireup_begin(endpoint);
    }
    /* A connect request may be here. */
    tmsg_worker_chore(endpoint->worker, endpoint);
    return status;
}

/* Takes the peer's word that a stream may come. The dialling side answers it,
 * and dials the stream. */
static tmsg_status_t take_stream(tmsg_endpoint_t *endpoint,
                                 const uint8_t token[TMSG_TOKEN_BYTES])
{
    tmsg_status_t status = TMSG_OK;

    if (endpoint->dialling) {
        memcpy(endpoint->token, token, TMSG_TOKEN_BYTES);
        status = tmsg_handshake_invite(endpoint);
    }
    if (status == TMSG_OK) {
        status = tmsg_liveness_begin(endpoint);
    }
    if (status == TMSG_OK && endpoint->dialling) {
        return tmsg_carrier_dial(endpoint);
    }
    if (status == TMSG_OK) {
        tmsg_carrier_go_on(endpoint);
    }
    return status;
}

static tmsg_status_t decode_address(const tmsg_endpoint_t *endpoint,
                                    const uint8_t *data, size_t bytes,
                                    tmsg_sealed_t *sealed)
{
    if (!tmsg_carrier_is_stream(endpoint)) {
        return tmsg_sealed_decode(data, bytes, sealed);
    }
    if (bytes != TMSG_TOKEN_BYTES) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "an address where a stream carries the messages");
    }
    memcpy(sealed->token, data, TMSG_TOKEN_BYTES);
    return TMSG_OK;
}

tmsg_status_t tmsg_handshake_address(tmsg_endpoint_t *endpoint,
                                     const uint8_t *data, size_t bytes)
{
    tmsg_sealed_t sealed;
    tmsg_status_t status;

    if (!endpoint->link.hello_done || endpoint->link.address_done ||
        bytes < ID_BYTES || tmsg_resume_is_asking(endpoint) ||
        (!endpoint->dialling && !endpoint->link.address_sent)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "an address out of turn");
    }
    status =
        decode_address(endpoint, data + ID_BYTES, bytes - ID_BYTES, &sealed);
    if (status != TMSG_OK) {
        return status;
    }
    endpoint->peer_id = (uint32_t)tmsg_get_le(data, ID_BYTES);
    endpoint->link.address_done = true;
    endpoint->link.address_ns = tmsg_now_ns();
    endpoint->link.strange = false;
    tmsg_link_judge_passing(endpoint);
    status = tmsg_carrier_is_stream(endpoint)
                 ? take_stream(endpoint, sealed.token)
                 : take_address(endpoint, &sealed);
    return status == TMSG_OK ? status : tmsg_handshake_refuse(endpoint, status);
}

void tmsg_handshake_begin(tmsg_endpoint_t *endpoint)
{
    tmsg_status_t status;

    /* What carries the messages is chosen for each connection anew. */
    tmsg_carrier_ask(endpoint, endpoint->conn.carrier);
    status = choose_ucx(endpoint);
    if (status == TMSG_OK) {
        status = send_hello(endpoint);
    }
    if (status != TMSG_OK) {
        tmsg_link_fail(endpoint, tmsg_handshake_refuse(endpoint, status));
    }
}

void tmsg_handshake_inherit(tmsg_endpoint_t *heir, const tmsg_endpoint_t *old)
{
    heir->dialling = true;
    heir->link.url = old->link.url;
    memcpy(heir->peer_url, old->peer_url, sizeof(heir->peer_url));
    memcpy(heir->devices, old->devices, sizeof(heir->devices));
    heir->conn.subscribe = old->conn.subscribe;
    tmsg_carrier_ask(heir, old->conn.carrier);
    /* The new peer is taken to be like the old one, until it has said hello. */
    heir->peer_hello = old->peer_hello;
    tmsg_admit_begin(heir, old->admit.keyring, old->admit.tls);
}

void tmsg_handshake_subscribe(tmsg_endpoint_t *endpoint, uint32_t bits)
{
    endpoint->conn.subscribe = bits;
}
