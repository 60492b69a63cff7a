/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of an endpoint that return when the operation has ended. */
#include "am/endpoint/endpoint.h"
#include "am/worker/lead.h"
#include "core/error.h"
#include "core/params.h"

/* Begins a call that waits. Until stop_waiting() the worker is there, though
 * another thread may end it. Refuses the call inside a callback; `instead` is
 * what the callback may call. */
static tmsg_status_t start_waiting(const tmsg_endpoint_t *endpoint,
                                   const char *instead)
{
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    if (tmsg_worker_in_callback(endpoint->worker)) {
        return tmsg_error_set(TMSG_ERR_WOULD_BLOCK,
                              "a callback must not wait; call %s there",
                              instead);
    }
    tmsg_worker_stay(endpoint->worker);
    return TMSG_OK;
}

static void stop_waiting(tmsg_worker_t *worker)
{
    tmsg_worker_lock(worker);
    tmsg_worker_leave(worker, false);
}

/* Reads the parameters of a send that waits, and adds what makes it end in
 * time, when the peer's application has the message. */
static tmsg_status_t read_send_params(const tmsg_send_params_t *params,
                                      int timeout_ms, tmsg_send_params_t *read)
{
    static const tmsg_param_t rows[] = {
        TMSG_PARAM(tmsg_send_params_t, TMSG_SEND_PARAM_FLAGS, flags),
        TMSG_PARAM(tmsg_send_params_t, TMSG_SEND_PARAM_POLICY, policy),
        TMSG_PARAMS(tmsg_send_params_t, TMSG_SEND_PARAM_ON_DONE, on_done,
                    on_done_arg),
        TMSG_PARAM(tmsg_send_params_t, TMSG_SEND_PARAM_CHANNEL, channel),
        TMSG_PARAM(tmsg_send_params_t, TMSG_SEND_PARAM_TIMEOUT, timeout_ms),
        TMSG_PARAMS(tmsg_send_params_t, TMSG_SEND_PARAM_ON_RELEASE, on_release,
                    on_release_arg),
        TMSG_PARAMS(tmsg_send_params_t, TMSG_SEND_PARAM_WAY, way, protocol)};
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_status_t status;

    *read = (tmsg_send_params_t){.field_mask = 0};
    status = tmsg_params_read("send", params, mask, rows,
                              sizeof(rows) / sizeof(rows[0]), read);
    if (status != TMSG_OK) {
        return status;
    }
    if (mask & TMSG_SEND_PARAM_TIMEOUT) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "send: params have a timeout_ms, and the "
                              "argument timeout_ms is another; leave out that "
                              "of params");
    }
    read->field_mask = mask | TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_TIMEOUT;
    read->flags |= TMSG_SEND_ACKED;
    read->timeout_ms = timeout_ms;
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_send_wait(tmsg_endpoint_t *endpoint,
                                      const tmsg_map_t *map,
                                      const tmsg_send_params_t *params,
                                      int timeout_ms)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_send_params_t read;
    tmsg_request_t *sent;
    tmsg_status_t status = read_send_params(params, timeout_ms, &read);

    if (status == TMSG_OK) {
        status = start_waiting(endpoint, "tmsg_endpoint_send()");
    }
    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_endpoint_send(endpoint, map, &read, &sent);
    if (status == TMSG_OK) {
        status = tmsg_request_wait_released(sent, -1);
        tmsg_request_destroy(sent);
    }
    stop_waiting(worker);
    return status;
}

tmsg_status_t tmsg_endpoint_close_wait(tmsg_endpoint_t *endpoint,
                                       int timeout_ms)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_request_t *closed;
    tmsg_status_t status = start_waiting(endpoint, "tmsg_endpoint_close()");

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_endpoint_hold(endpoint); /* its end may free it meanwhile */
    status = tmsg_endpoint_close(endpoint, &closed);
    if (status == TMSG_OK) {
        status = tmsg_request_wait(closed, timeout_ms);
        /* Canceled, the request does not wait for the end in vain. */
        if (status == TMSG_ERR_TIMED_OUT &&
            tmsg_request_cancel(closed) == TMSG_ERR_CANCELED) {
            status = tmsg_error_set(
                status,
                "%s: the connection did not end in order within %d ms; it "
                "goes on closing",
                tmsg_endpoint_peer(endpoint), timeout_ms);
        }
        tmsg_request_destroy(closed);
    }
    tmsg_endpoint_drop(endpoint);
    stop_waiting(worker);
    return status;
}
