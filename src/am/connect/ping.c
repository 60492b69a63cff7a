/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/connect/ping.h"

#include <stdio.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/session.h"
#include "am/path/bulk.h"
#include "core/error.h"

static tmsg_status_t check_ping(const tmsg_endpoint_t *endpoint)
{
    switch (endpoint->state) {
    case TMSG_EP_CONNECTING:
    case TMSG_EP_AWAY:
        return tmsg_resume_is_away(endpoint)
                   ? tmsg_error_set(TMSG_ERR_BUSY, "%s",
                                    tmsg_resume_words(endpoint))
                   : tmsg_error_set(TMSG_ERR_BUSY,
                                    "%s: it is not connected yet",
                                    endpoint->peer);
    case TMSG_EP_ENDED:
        return tmsg_error_set(endpoint->status, "%s", endpoint->error);
    case TMSG_EP_CLOSING:
        return tmsg_error_set(TMSG_ERR_CLOSED, "%s: the endpoint is closed",
                              endpoint->peer);
    default:
        break;
    }
    if (!tmsg_ping_is_known(endpoint)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: this peer answers no ping", endpoint->peer);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_ping(tmsg_endpoint_t *endpoint,
                                 tmsg_request_t **request_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_request_t *request;
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_worker_lock(worker);
    endpoint = tmsg_endpoint_now(endpoint);
    status = check_ping(endpoint);
    if (status == TMSG_OK && endpoint->ping_ns == 0) {
        status = tmsg_ping_send(endpoint);
    }
    if (status == TMSG_OK) {
        status =
            tmsg_events_add(&endpoint->conn.pings, worker, endpoint, &request);
    }
    if (status == TMSG_OK && request_p != NULL) {
        *request_p = request;
    } else if (status == TMSG_OK) {
        tmsg_request_drop(request);
    }
    tmsg_worker_unlock(worker);
    return status;
}

tmsg_ucx_status_t tmsg_ping_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);

    if (endpoint != NULL) {
        tmsg_control_pong(endpoint, arrival->head.message_id);
    }
    return TMSG_UCX_OK;
}

tmsg_ucx_status_t tmsg_pong_arrived(const tmsg_arrival_t *arrival)
{
    tmsg_endpoint_t *endpoint = tmsg_control_receiver(arrival);

    if (endpoint == NULL) {
        return TMSG_UCX_OK;
    }
    if (endpoint->ping_ns == 0 ||
        endpoint->ping_id != arrival->head.message_id) {
        tmsg_endpoint_break(endpoint, TMSG_ERR_MALFORMED,
                            "an answer to a ping that was not sent");
        return TMSG_UCX_OK;
    }
    tmsg_histogram_note(&endpoint->stats.round_trip_ns,
                        tmsg_now_ns() - endpoint->ping_ns);
    endpoint->ping_ns = 0;
    tmsg_events_end(&endpoint->conn.pings, TMSG_OK, NULL);
    tmsg_bulk_ponged(endpoint);
    return TMSG_UCX_OK;
}

void tmsg_ping_end(tmsg_endpoint_t *endpoint, tmsg_status_t status,
                   const char *error)
{
    tmsg_events_end(&endpoint->conn.pings, status, error);
}

void tmsg_ping_lost(tmsg_endpoint_t *endpoint, const char *why)
{
    char error[TMSG_ERROR_BYTES];

    endpoint->ping_ns = 0;
    snprintf(error, sizeof(error), "%s: %s", endpoint->peer, why);
    tmsg_events_end(&endpoint->conn.pings, TMSG_ERR_PEER_LOST, error);
}
