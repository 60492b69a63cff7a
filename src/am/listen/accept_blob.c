/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/accept_blob.h"

#include <sodium.h>
#include <string.h>

#include "am/connect/admit_blob.h"
#include "am/connect/dialect.h"
#include "am/connect/link.h"
#include "am/connect/wireup.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/listen/accept.h"
#include "am/listen/backlog.h"
#include "am/listen/listener.h"
#include "am/listen/places.h"
#include "core/log.h"

/* Judges the peer's blob. The dialling side has judged our blob by the same
 * rule. */
static tmsg_status_t take_blob(tmsg_endpoint_t *endpoint,
                               const tmsg_blob_t *blob,
                               const tmsg_requester_t *requester)
{
    tmsg_status_t status = tmsg_wireup_judge(endpoint, &blob->hello, false);
    uint8_t body[TMSG_WIREUP_BYTES];

    if (status == TMSG_OK && tmsg_admit_by_blob(endpoint)) {
        tmsg_wireup_fill(endpoint, body);
        status =
            tmsg_admit_blob_answer(endpoint, requester, body, sizeof(body));
    }
    return status != TMSG_OK
               ? status
               : tmsg_wireup_address(
                     endpoint,
                     tmsg_blob_address(blob, endpoint->link.net_only));
}

/* Accepts a connect request by blob: completes the endpoint from the peer's
 * blob. */
static void accept_connect_request(const tmsg_arrival_t *arrival,
                                   tmsg_listener_t *listener,
                                   tmsg_endpoint_t *endpoint,
                                   const tmsg_blob_t *blob,
                                   const tmsg_requester_t *requester)
{
    tmsg_status_t status;

    endpoint->ucx = arrival->ucx;
    endpoint->ucx->users++;
    endpoint->accepted = true;
    endpoint->keeper = listener;
    endpoint->link.listener = listener;
    endpoint->link.strange = true; /* until it is connected */
    endpoint->link.url.kind = TMSG_URL_BLOB;
    tmsg_admit_begin(endpoint, listener->keyring, NULL);
    tmsg_link_set_deadline(endpoint, listener->handshake_timeout_ms);
    listener->handshakes++;
    tmsg_places_take(listener, endpoint, -1);
    memcpy(endpoint->token, listener->token, TMSG_TOKEN_BYTES);
    tmsg_wireup_heard(endpoint, arrival);
    endpoint->peer_hello = blob->hello;
    tmsg_endpoint_name_peer(endpoint, "blob://");
    status = take_blob(endpoint, blob, requester);
    if (status != TMSG_OK) {
        tmsg_endpoint_break(endpoint, status, tmsg_error_message());
    }
}

void tmsg_accept_by_blob(const tmsg_arrival_t *arrival,
                         tmsg_listener_t *listener)
{
    tmsg_requester_t requester = {.turned = TMSG_TURNED_OTHERWISE};
    tmsg_endpoint_t *endpoint;
    tmsg_blob_t blob;
    tmsg_status_t status =
        tmsg_blob_decode(arrival->data, arrival->data_bytes, &blob);

    if (status == TMSG_OK) {
        status = tmsg_admit_blob_judge(listener->keyring, listener->proved,
                                       &blob, arrival->data, arrival->body,
                                       arrival->head.body_bytes, &requester);
    }
    if (status == TMSG_OK && !tmsg_accept_make_room(listener)) {
        if (tmsg_backlog_keep(listener, arrival)) {
            sodium_memzero(&requester, sizeof(requester));
            return;
        }
        requester.turned = TMSG_TURNED_TOO_MANY;
        status = tmsg_error_set(TMSG_ERR_BUSY, "too many are before it");
    }
    if (status == TMSG_OK) {
        status = tmsg_endpoint_create(listener->worker, &tmsg_dialect_own,
                                      &endpoint);
    }
    if (status == TMSG_OK) {
        accept_connect_request(arrival, listener, endpoint, &blob, &requester);
    } else {
        listener->turned[requester.turned]++;
        tmsg_log_of(TMSG_LOG_REQUEST_KIND, listener->url, TMSG_LOG_WARN,
                    "a connect request is ignored: %s", tmsg_error_message());
    }
    sodium_memzero(&requester, sizeof(requester));
}

tmsg_ucx_status_t tmsg_connect_request_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_wireup_receiver(arrival, false, false);
    tmsg_listener_t *listener;

    if (endpoint != NULL) {
        tmsg_wireup_heard(endpoint, arrival);
        return TMSG_UCX_OK;
    }
    listener = arrival->head.body_bytes != TMSG_WIREUP_BYTES
                   ? NULL
                   : tmsg_listener_by_token(arrival->ucx->worker, arrival->ucx,
                                            arrival->body);
    if (listener == NULL) {
        tmsg_log_of(TMSG_LOG_REQUEST_KIND, "no listener", TMSG_LOG_WARN,
                    "a connect request with an unknown token is ignored");
    } else {
        tmsg_accept_by_blob(arrival, listener);
    }
    return TMSG_UCX_OK;
}
