/* SPDX-License-Identifier: BSD-3-Clause */
#include "connection.h"

#include <errno.h>
#include <string.h>

#include "credentials.h"
#include "output.h"
#include "signals.h"

#define SLICE_MS 100

bool wait_for(tmsg_request_t *request, int timeout_ms)
{
    uint64_t deadline = now_ns() + (uint64_t)timeout_ms * 1000000;

    for (;;) {
        int left = timeout_ms < 0 ? SLICE_MS : ms_until(deadline);

        tmsg_request_wait(request, left < SLICE_MS ? left : SLICE_MS);
        if (tmsg_request_test(request) != TMSG_IN_PROGRESS) {
            return true;
        }
        if (left == 0 || signals_grace_is_over()) {
            return false;
        }
    }
}

int fail_by(tmsg_status_t status)
{
    complain("%s", tmsg_error_message());
    return status == TMSG_ERR_INVALID_PARAM || status == TMSG_ERR_INSECURE
               ? EXIT_USAGE
               : EXIT_FAILED;
}

int open_context(const connection_options_t *options,
                 const tmsg_context_params_t *params,
                 tmsg_context_t **context_p)
{
    tmsg_context_params_t all = {.field_mask = 0};
    tmsg_keyring_t *keyring = NULL;
    int code;

    if (params != NULL) {
        all = *params;
    }
    if (options->sandbox && !sandbox_prepare(options->listen)) {
        return EXIT_FAILED;
    }
    code = read_keys(options, &keyring);
    if (keyring != NULL) {
        all.field_mask |= TMSG_CONTEXT_PARAM_KEYRING;
        all.keyring = keyring;
    }
    if (code == EXIT_DONE) {
        tmsg_status_t status = tmsg_context_create(&all, context_p);

        code = status == TMSG_OK ? EXIT_DONE : fail_by(status);
    }
    keep_keys(options, keyring);
    return code;
}

int open_worker(const connection_options_t *options,
                const tmsg_worker_params_t *params, tmsg_context_t **context_p,
                tmsg_worker_t **worker_p)
{
    int code = open_context(options, NULL, context_p);
    tmsg_status_t status;

    if (code != EXIT_DONE) {
        return code;
    }
    status = tmsg_worker_create(*context_p, params, worker_p);
    return status == TMSG_OK ? EXIT_DONE : fail_by(status);
}

int connect_to(const connection_options_t *options, const char *url,
               tmsg_worker_t *worker, tmsg_endpoint_t **endpoint_p)
{
    tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT |
                      TMSG_ENDPOINT_PARAM_FLAGS | TMSG_ENDPOINT_PARAM_CARRIER |
                      TMSG_ENDPOINT_PARAM_TLS,
        .connect_timeout_ms = options->timeout_ms,
        .flags = options->wait ? TMSG_ENDPOINT_WAIT : 0,
        .carrier = options->carrier,
    };
    tmsg_request_t *ready;
    int code = read_tls(&options->tls, &params.tls);
    tmsg_status_t status;

    if (code != EXIT_DONE) {
        return code;
    }
    status = tmsg_endpoint_connect(worker, url, &params, endpoint_p);
    tmsg_tls_destroy(params.tls);
    if (status == TMSG_OK) {
        status = tmsg_endpoint_ready(*endpoint_p, &ready);
    }
    if (status != TMSG_OK) {
        return fail_by(status);
    }
    /* The connection has a timeout of its own. */
    if (wait_for(ready, -1)) {
        status = tmsg_request_test(ready);
        if (status != TMSG_OK) {
            complain("%s", tmsg_request_error(ready));
        }
    } else {
        status = TMSG_ERR_CANCELED;
    }
    tmsg_request_destroy(ready);
    return status == TMSG_OK ? EXIT_DONE : EXIT_FAILED;
}

void close_in_order(tmsg_endpoint_t *endpoint, int timeout_ms)
{
    tmsg_request_t *closed;

    if (tmsg_endpoint_close(endpoint, &closed) == TMSG_OK) {
        wait_for(closed, timeout_ms);
        tmsg_request_destroy(closed);
    }
}

int start_listening(const connection_options_t *options, tmsg_worker_t *worker,
                    tmsg_listener_params_t params, tmsg_listener_t **listener_p)
{
    tmsg_status_t status;
    int code;

    params.field_mask |= TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED |
                         TMSG_LISTENER_PARAM_CARRIER | TMSG_LISTENER_PARAM_TLS;
    params.carrier = options->carrier;
    params.allow_unauthenticated = options->allow_unauthenticated;
    params.tls = NULL;
    code = read_tls(&options->tls, &params.tls);
    if (code != EXIT_DONE) {
        return code;
    }
    status = tmsg_listener_create(worker, options->listen, &params, listener_p);
    keep_tls(options, params.tls);
    if (status == TMSG_ERR_INSECURE) {
        complain("%s: give --key FILE to let in its holders, or "
                 "--allow-unauthenticated to let in everybody",
                 tmsg_error_message());
        return EXIT_USAGE;
    }
    if (status != TMSG_OK) {
        return fail_by(status);
    }
    if (!credentials_hear(options)) {
        complain("%s", strerror(errno));
        return EXIT_FAILED;
    }
    if (options->sandbox && !sandbox_enter(options->writes)) {
        return EXIT_FAILED;
    }
    puts(tmsg_listener_url(*listener_p));
    return output_flush() ? EXIT_DONE : EXIT_FAILED;
}
