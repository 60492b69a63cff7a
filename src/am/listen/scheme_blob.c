/* SPDX-License-Identifier: BSD-3-Clause */
/* blob://host - a scheme without a socket: a peer connects by the bytes of
 * tmsg_listener_blob(), which the application carries to it. */
#include <sys/random.h>

#include "am/connect/admit_blob.h"
#include "am/connect/ucx_for.h"
#include "am/connect/wireup.h"
#include "am/endpoint/scheme.h"
#include "am/listen/listener.h"
#include "am/worker/reach.h"

/* Finds the network device of the address. */
static tmsg_status_t bind_blob(tmsg_listener_t *listener, const tmsg_url_t *url,
                               const tmsg_address_t *address,
                               tmsg_ucx_scope_t *scope)
{
    tmsg_status_t status = tmsg_scope_of_address(&address->sa.any, scope);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_url_format(url, listener->url, sizeof(listener->url));
    if (getrandom(listener->token, TMSG_TOKEN_BYTES, 0) != TMSG_TOKEN_BYTES) {
        return tmsg_error_errno(TMSG_ERR_IO, "getrandom");
    }
    return TMSG_OK;
}

static tmsg_status_t listen_blob(tmsg_listener_t *listener,
                                 const tmsg_ucx_scope_t *scope)
{
    tmsg_status_t status =
        tmsg_worker_ucx(listener->worker, scope, false, &listener->ucx);

    if (status == TMSG_OK) {
        status = tmsg_wireup_blob_of(listener->ucx, listener->token, 0,
                                     listener->keyring != NULL, &listener->blob,
                                     &listener->blob_bytes);
    }
    return status != TMSG_OK || listener->keyring == NULL
               ? status
               : tmsg_proved_create(listener->blob, listener->blob_bytes,
                                    &listener->proved);
}

const tmsg_scheme_t tmsg_scheme_blob = {
    .keys = true,
    .devices = true,
    .bind = bind_blob,
    .listen = listen_blob,
};
