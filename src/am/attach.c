/* SPDX-License-Identifier: BSD-3-Clause */
/* Joins the two UCX endpoints of a connection. Only one side dials; the other
 * makes its UCX endpoint when the dialling side's first AM has come, and must
 * then hold the very endpoint that the AM can be answered by. */
#include "am/attach.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/bytes.h"
#include "am/control.h"
#include "am/listener.h"
#include "core/log.h"

#define PAIR_ATTEMPTS 64 /* connections between two UCX workers that cross */

static void ucx_failed(void *arg, ucp_ep_h ep, ucs_status_t ucs)
{
    const tmsg_ucx_t *ucx = arg;
    tmsg_worker_t *worker = ucx->worker;

    for (uint32_t i = 0; i < worker->endpoint_slots; i++) {
        tmsg_endpoint_t *endpoint = worker->endpoints[i];
        char why[128];

        if (endpoint != NULL && endpoint->ep == ep) {
            snprintf(why, sizeof(why), "UCX lost the connection: %s",
                     ucs_status_string(ucs));
            tmsg_endpoint_break(endpoint, TMSG_ERR_PEER_LOST, why);
        }
    }
}

/* `address` is aligned as malloc() does. */
static tmsg_status_t create_ep(tmsg_ucx_t *ucx, const void *address,
                               ucp_ep_h *ep_p)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = ucx_failed, .arg = ucx},
    };
    ucs_status_t ucs = ucp_ep_create(ucx->ucp, &params, ep_p);

    if (ucs == UCS_OK) {
        return TMSG_OK;
    }
    if (ucs == UCS_ERR_UNREACHABLE) {
        return tmsg_error_set(TMSG_ERR_UNREACHABLE,
                              "no transport of UCX's leads there (UCX_TLS, "
                              "UCX_NET_DEVICES, /dev/shm)");
    }
    return tmsg_error_set(TMSG_ERR_INTERNAL, "ucp_ep_create: %s",
                          ucs_status_string(ucs));
}

tmsg_status_t tmsg_attach_judge(tmsg_endpoint_t *endpoint,
                                const tmsg_hello_t *theirs, bool shm_only)
{
    tmsg_status_t status =
        tmsg_hello_check(&endpoint->ucx->hello, theirs, shm_only);

    if (status != TMSG_OK) {
        return status;
    }
    if (theirs->max_am_header < TMSG_AM_HEADER_LEAST) {
        return tmsg_error_set(TMSG_ERR_INCOMPATIBLE,
                              "the peer takes headers of %u bytes, at least %d "
                              "are needed",
                              theirs->max_am_header, TMSG_AM_HEADER_LEAST);
    }
    endpoint->peer_hello = *theirs;
    endpoint->link.net_only = !tmsg_hello_same_machine(
        &endpoint->ucx->hello, theirs, endpoint->why, sizeof(endpoint->why));
    if (shm_only && endpoint->link.net_only) {
        return tmsg_error_set(TMSG_ERR_UNREACHABLE,
                              "a unix:// URL needs shared memory: %s",
                              endpoint->why);
    }
    return TMSG_OK;
}

/* The attach: body [token][our endpoint id u32]; by blob the payload is our
 * blob. */
tmsg_status_t tmsg_attach_dial(tmsg_endpoint_t *endpoint,
                               const tmsg_sealed_t *sealed, const void *extra,
                               size_t extra_bytes)
{
    uint8_t body[TMSG_TOKEN_BYTES + 4];
    tmsg_preamble_t head = {.endpoint_id = endpoint->peer_id};
    void *address = malloc(sealed->address_bytes);
    tmsg_status_t status;

    if (address == NULL) {
        return tmsg_error_memory("a peer's address");
    }
    memcpy(address, sealed->address, sealed->address_bytes);
    status = create_ep(endpoint->ucx, address, &endpoint->ep);
    free(address);
    if (status != TMSG_OK) {
        return status;
    }
    memcpy(body, endpoint->token, TMSG_TOKEN_BYTES);
    tmsg_put_le(body + TMSG_TOKEN_BYTES, endpoint->id, 4);
    return tmsg_control_post(endpoint, TMSG_KIND_ATTACH, &head, body,
                             sizeof(body), extra, extra_bytes);
}

static void blob_expired(tmsg_timer_t *timer)
{
    tmsg_endpoint_end(TMSG_CONTAINER_OF(timer, tmsg_endpoint_t, link.deadline),
                      TMSG_ERR_TIMED_OUT,
                      "no answer in time: is the listener of the blob alive?");
}

static void name_blob_peer(tmsg_endpoint_t *endpoint)
{
    snprintf(endpoint->peer, sizeof(endpoint->peer), "blob:// (pid %u on %s)",
             endpoint->peer_hello.pid, endpoint->peer_hello.host);
}

/* The device that the blob's listener uses is not ours to know: shared memory
 * and loopback on the same machine, else whatever leads there. */
static tmsg_status_t blob_ucx(tmsg_endpoint_t *endpoint,
                              const tmsg_hello_t *theirs)
{
    tmsg_ucx_scope_t scope = {"lo"};
    tmsg_hello_t mine;

    tmsg_hello_fill_local(endpoint->worker->context->instance_id, &mine);
    if (mine.boot_id[0] == '\0' || strcmp(mine.boot_id, theirs->boot_id) != 0 ||
        mine.ns_net != theirs->ns_net) {
        snprintf(scope.device, sizeof(scope.device), "all");
    }
    return tmsg_worker_ucx(endpoint->worker, &scope, true, &endpoint->ucx);
}

tmsg_status_t tmsg_attach_blob(tmsg_endpoint_t *endpoint, const void *blob,
                               size_t blob_bytes, int timeout_ms)
{
    tmsg_blob_t theirs, mine;
    void *own = NULL, *address = NULL;
    size_t own_bytes = 0;
    tmsg_status_t status = tmsg_blob_decode(blob, blob_bytes, &theirs);

    if (status != TMSG_OK) {
        return status;
    }
    endpoint->link.url.kind = TMSG_URL_BLOB;
    status = blob_ucx(endpoint, &theirs.hello);
    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_attach_judge(endpoint, &theirs.hello, false);
    name_blob_peer(endpoint);
    if (status != TMSG_OK) {
        return status;
    }
    if (endpoint->link.net_only && theirs.hello.boot_id[0] != '\0' &&
        strcmp(theirs.hello.boot_id, endpoint->ucx->hello.boot_id) == 0) {
        /* The address in the blob has shared memory in it, and UCX would
         * insist on that. */
        return tmsg_error_set(TMSG_ERR_UNREACHABLE,
                              "a blob of this machine needs shared memory: "
                              "%s; use tcp://",
                              endpoint->why);
    }
    memcpy(endpoint->token, theirs.sealed.token, TMSG_TOKEN_BYTES);
    mine.hello = endpoint->ucx->hello;
    memcpy(mine.sealed.token, endpoint->token, TMSG_TOKEN_BYTES);
    status = tmsg_ucx_address(endpoint->ucx, endpoint->link.net_only, &address,
                              &mine.sealed.address_bytes);
    if (status != TMSG_OK) {
        return status;
    }
    mine.sealed.address = address;
    status = tmsg_blob_encode(&mine, &own, &own_bytes);
    if (status == TMSG_OK) {
        status = tmsg_attach_dial(endpoint, &theirs.sealed, own, own_bytes);
    }
    free(own);
    tmsg_ucx_address_free(address);
    if (status == TMSG_OK) {
        endpoint->link.deadline.expired = blob_expired;
        tmsg_loop_set_timer(&endpoint->worker->loop, &endpoint->link.deadline,
                            (uint64_t)timeout_ms);
    }
    return status;
}

/* Takes a UCX endpoint that was made for a connection which crossed this one.
 */
static bool take_spare(tmsg_ucx_t *ucx, ucp_ep_h wanted)
{
    for (size_t i = 0; i < ucx->spare_count; i++) {
        if (ucx->spares[i] == wanted) {
            ucx->spares[i] = ucx->spares[--ucx->spare_count];
            return true;
        }
    }
    return false;
}

/* UCX pairs endpoints of two workers in the order in which each side made
 * them. Attaches that overtook each other ask for a later one first: those in
 * between are kept for the attaches that will ask for them. */
static tmsg_status_t pair(tmsg_endpoint_t *endpoint)
{
    tmsg_ucx_t *ucx = endpoint->ucx;
    ucp_ep_h ep;

    if (take_spare(ucx, endpoint->reply_ep)) {
        endpoint->ep = endpoint->reply_ep;
        return TMSG_OK;
    }
    for (int i = 0; i < PAIR_ATTEMPTS; i++) {
        tmsg_status_t status = create_ep(ucx, endpoint->peer_address, &ep);

        if (status != TMSG_OK) {
            return status;
        }
        if (ep == endpoint->reply_ep) {
            endpoint->ep = ep;
            return TMSG_OK;
        }
        if (ucx->spare_count == TMSG_UCX_SPARES) {
            break;
        }
        ucx->spares[ucx->spare_count++] = ep;
    }
    return tmsg_error_set(TMSG_ERR_INTERNAL,
                          "UCX joined the endpoints of two connections");
}

tmsg_status_t tmsg_attach_accept(tmsg_endpoint_t *endpoint)
{
    uint8_t id[4];
    tmsg_preamble_t head = {.endpoint_id = endpoint->peer_id};
    tmsg_status_t status;

    if (endpoint->dialling || endpoint->peer_address == NULL ||
        endpoint->reply_ep == NULL) {
        return TMSG_IN_PROGRESS;
    }
    status = pair(endpoint);
    free(endpoint->peer_address);
    endpoint->peer_address = NULL;
    if (status != TMSG_OK) {
        return status;
    }
    tmsg_put_le(id, endpoint->id, sizeof(id));
    status = tmsg_control_post(endpoint, TMSG_KIND_ATTACHED, &head, id,
                               sizeof(id), NULL, 0);
    if (status == TMSG_OK) {
        tmsg_endpoint_opened(endpoint);
    }
    return status;
}

/* An attach by blob: the endpoint is made here, from the peer's blob. */
static void attach_by_blob(const tmsg_arrival_t *arrival,
                           tmsg_listener_t *listener, uint32_t peer_id)
{
    tmsg_worker_t *worker = listener->worker;
    tmsg_endpoint_t *endpoint;
    tmsg_blob_t blob;

    if (tmsg_blob_decode(arrival->data, arrival->data_bytes, &blob) !=
            TMSG_OK ||
        tmsg_endpoint_create(worker, &endpoint) != TMSG_OK) {
        tmsg_log(TMSG_LOG_WARN, "an attach is ignored: %s",
                 tmsg_error_message());
        return;
    }
    endpoint->ucx = arrival->ucx;
    endpoint->ucx->users++;
    endpoint->accepted = true;
    endpoint->keeper = listener;
    endpoint->link.listener = listener;
    endpoint->link.url.kind = TMSG_URL_BLOB;
    listener->handshakes++;
    endpoint->peer_id = peer_id;
    endpoint->reply_ep = arrival->reply_ep;
    /* The dialling side has judged our blob by the same rule. */
    if (tmsg_attach_judge(endpoint, &blob.hello, false) != TMSG_OK) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_INCOMPATIBLE,
                            tmsg_error_message());
    }
    name_blob_peer(endpoint);
    endpoint->peer_address = malloc(blob.sealed.address_bytes);
    if (endpoint->peer_address == NULL) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_NO_MEMORY,
                            "no memory for a peer's address");
        return;
    }
    memcpy(endpoint->peer_address, blob.sealed.address,
           blob.sealed.address_bytes);
    tmsg_worker_chore(worker, endpoint);
}

ucs_status_t tmsg_attach_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_worker_t *worker = arrival->ucx->worker;
    tmsg_endpoint_t *endpoint =
        tmsg_endpoint_by_id(worker, arrival->head.endpoint_id);
    tmsg_listener_t *listener;

    if (arrival->head.body_bytes != TMSG_TOKEN_BYTES + 4 ||
        arrival->reply_ep == NULL) {
        tmsg_log(TMSG_LOG_WARN, "a malformed attach is ignored");
        return UCS_OK;
    }
    if (endpoint != NULL && endpoint->ucx == arrival->ucx &&
        !endpoint->dialling && endpoint->state == TMSG_EP_CONNECTING &&
        sodium_memcmp(endpoint->token, arrival->body, TMSG_TOKEN_BYTES) == 0) {
        endpoint->reply_ep = arrival->reply_ep;
        tmsg_worker_chore(worker, endpoint);
        return UCS_OK;
    }
    listener = tmsg_listener_by_token(worker, arrival->ucx, arrival->body);
    if (listener == NULL) {
        tmsg_log(TMSG_LOG_WARN, "an attach with an unknown token is ignored");
        return UCS_OK;
    }
    attach_by_blob(arrival, listener,
                   (uint32_t)tmsg_get_le(arrival->body + TMSG_TOKEN_BYTES, 4));
    return UCS_OK;
}

/* The dialling endpoint that an answer is for, or NULL. */
static tmsg_endpoint_t *dialling(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint =
        tmsg_endpoint_by_id(arrival->ucx->worker, arrival->head.endpoint_id);

    if (endpoint == NULL || endpoint->ucx != arrival->ucx ||
        !endpoint->dialling || endpoint->state != TMSG_EP_CONNECTING) {
        return NULL;
    }
    return endpoint;
}

ucs_status_t tmsg_attached_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = dialling(arrival);

    if (endpoint == NULL || arrival->head.body_bytes != 4) {
        return UCS_OK;
    }
    if (arrival->reply_ep != endpoint->ep) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_INTERNAL,
                            "UCX joined the endpoints of two connections");
        return UCS_OK;
    }
    endpoint->peer_id = (uint32_t)tmsg_get_le(arrival->body, 4);
    tmsg_endpoint_opened(endpoint);
    return UCS_OK;
}
