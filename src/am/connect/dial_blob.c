/* SPDX-License-Identifier: BSD-3-Clause */
/* The dialling side of a connection by blob, and the content of our own blobs.
 * No socket precedes such a connection. */
#include <stdio.h>
#include <string.h>

#include "am/connect/admit.h"
#include "am/connect/admit_blob.h"
#include "am/connect/link.h"
#include "am/connect/ucx_for.h"
#include "am/connect/wireup.h"
#include "am/endpoint/endpoint.h"
#include "am/ucx/backing.h"
#include "am/worker/reach.h"

/* Takes the UCX worker for a blob. This side does not know the device that the
 * blob's listener uses. On the same machine it uses shared memory and loopback,
 * else any device that leads there. */
static tmsg_status_t blob_ucx(tmsg_endpoint_t *endpoint,
                              const tmsg_hello_t *theirs)
{
    tmsg_ucx_scope_t scope = {.device = "lo"};
    tmsg_hello_t mine;
    tmsg_status_t status;

    tmsg_hello_fill_local(endpoint->worker->context->instance_id, &mine);
    if (mine.boot_id[0] == '\0' || strcmp(mine.boot_id, theirs->boot_id) != 0 ||
        mine.ns_net != theirs->ns_net) {
        snprintf(scope.device, sizeof(scope.device), "all");
    }
    tmsg_devices_apply(endpoint->devices, &scope);
    status = tmsg_worker_ucx(endpoint->worker, &scope, true, &endpoint->ucx);
    if (status == TMSG_OK && endpoint->ucx->scope.net_only) {
        endpoint->link.apart = tmsg_backing_apart(endpoint->ucx->lack);
    }
    return status;
}

tmsg_status_t tmsg_wireup_blob_of(const tmsg_ucx_t *ucx,
                                  const uint8_t token[TMSG_TOKEN_BYTES],
                                  uint32_t subscribe, bool asks_for_key,
                                  void **blob_p, size_t *bytes_p)
{
    tmsg_blob_t blob = {.hello = ucx->hello, .asks_for_key = asks_for_key};
    void *whole = NULL, *net = NULL;
    tmsg_status_t status = TMSG_OK;

    blob.hello.subscribe = subscribe;
    if (asks_for_key) {
        blob.hello.admission = TMSG_ADMISSION_VERSION;
        status = tmsg_admit_nonce(&blob.hello);
    }
    if (status == TMSG_OK) {
        status =
            tmsg_ucx_address(ucx, false, &whole, &blob.whole.address_bytes);
    }
    if (status == TMSG_OK) {
        status = tmsg_ucx_address(ucx, true, &net, &blob.net.address_bytes);
    }
    if (status == TMSG_OK) {
        memcpy(blob.whole.token, token, TMSG_TOKEN_BYTES);
        memcpy(blob.net.token, token, TMSG_TOKEN_BYTES);
        blob.whole.address = whole;
        blob.net.address = net;
        status = tmsg_blob_encode(&blob, blob_p, bytes_p);
    }
    tmsg_ucx_address_free(whole);
    tmsg_ucx_address_free(net);
    return status;
}

tmsg_status_t tmsg_wireup_blob(tmsg_endpoint_t *endpoint, const void *blob,
                               size_t blob_bytes, int timeout_ms)
{
    tmsg_blob_t theirs;
    tmsg_status_t status = tmsg_blob_decode(blob, blob_bytes, &theirs);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_admit_blob_expect(endpoint, &theirs, blob);
    if (status == TMSG_OK) {
        status = blob_ucx(endpoint, &theirs.hello);
    }
    if (status != TMSG_OK) {
        return status;
    }
    endpoint->peer_hello = theirs.hello;
    tmsg_endpoint_name_peer(endpoint, "blob://");
    status = tmsg_wireup_judge(endpoint, &theirs.hello, false);
    if (status != TMSG_OK) {
        return status;
    }
    memcpy(endpoint->token, theirs.whole.token, TMSG_TOKEN_BYTES);
    status = tmsg_wireup_blob_of(
        endpoint->ucx, endpoint->token, endpoint->conn.subscribe,
        tmsg_admit_by_blob(endpoint), &endpoint->conn.connect_request.blob,
        &endpoint->conn.connect_request.blob_bytes);
    if (status == TMSG_OK) {
        status = tmsg_wireup_address(
            endpoint, tmsg_blob_address(&theirs, endpoint->link.net_only));
    }
    if (status == TMSG_OK) {
        status = tmsg_wireup_begin(endpoint);
    }
    if (status == TMSG_OK) {
        tmsg_link_set_deadline(endpoint, timeout_ms);
    }
    return status;
}
