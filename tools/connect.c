/* SPDX-License-Identifier: BSD-3-Clause */
#include "connect.h"

int connect_to(tmsg_worker_t *worker, const char *url, int32_t timeout_ms,
               tmsg_endpoint_t **endpoint_p)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = timeout_ms,
    };
    tmsg_request_t *ready;
    tmsg_status_t status =
        tmsg_endpoint_connect(worker, url, &params, endpoint_p);

    if (status == TMSG_OK) {
        status = tmsg_endpoint_ready(*endpoint_p, &ready);
    }
    if (status != TMSG_OK) {
        complain("%s", tmsg_error_message());
        return status == TMSG_ERR_INVALID_PARAM ? EXIT_USAGE : EXIT_FAILED;
    }
    status = tmsg_request_wait(ready, -1); /* the connect has its timeout */
    if (status != TMSG_OK) {
        complain("%s", tmsg_request_error(ready));
    }
    tmsg_request_destroy(ready);
    return status == TMSG_OK ? EXIT_DONE : EXIT_FAILED;
}

int listen_failed(tmsg_status_t status)
{
    complain("%s%s", tmsg_error_message(),
             status == TMSG_ERR_INSECURE
                 ? "; --key FILE lets those in who have it, "
                   "--allow-unauthenticated strangers"
                 : "");
    return status == TMSG_ERR_INVALID_PARAM || status == TMSG_ERR_INSECURE
               ? EXIT_USAGE
               : EXIT_FAILED;
}
