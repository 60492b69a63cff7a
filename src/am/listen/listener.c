/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/listener.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "am/connect/admit_blob.h"
#include "am/connect/attach.h"
#include "am/connect/ucx_for.h"
#include "am/endpoint/scheme.h"
#include "am/listen/accept.h"
#include "am/listen/knocks.h"
#include "am/net/netif.h"
#include "am/worker/engine.h"
#include "am/worker/lead.h"
#include "am/worker/reach.h"

#define BACKLOG 1024

/* Hearing strangers has to be asked for. */
static tmsg_status_t check_secure(const tmsg_listener_t *listener,
                                  const tmsg_listener_params_t *params,
                                  const char *url,
                                  const struct sockaddr *address)
{
    if (tmsg_listener_is_open(listener, params) ||
        tmsg_netif_is_loopback(address)) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_INSECURE,
                          "%s is not a loopback address: anyone who reaches it "
                          "could connect; set a keyring, or "
                          "allow_unauthenticated if that is meant",
                          url);
}

/* The addresses of a host; blocks while a name is looked up. */
static tmsg_status_t look_up(const tmsg_worker_t *worker, const tmsg_url_t *url,
                             tmsg_resolve_t **resolve_p,
                             const tmsg_address_t **address_p)
{
    size_t count;
    tmsg_status_t status =
        tmsg_resolve_start(url->host, url->port, true, resolve_p);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_resolve_take(*resolve_p, address_p, &count);
    if (status == TMSG_IN_PROGRESS && tmsg_worker_in_callback(worker)) {
        return tmsg_error_set(TMSG_ERR_WOULD_BLOCK,
                              "host '%s' has to be looked up, for which a "
                              "callback may not wait; give its address",
                              url->host);
    }
    if (status == TMSG_IN_PROGRESS) {
        status = tmsg_resolve_wait(*resolve_p, -1);
    }
    return status != TMSG_OK ? status
                             : tmsg_resolve_take(*resolve_p, address_p, &count);
}

/* The network device that UCX will need; of all addresses, loopback's to try.
 */
static tmsg_status_t find_device(const tmsg_address_t *address,
                                 tmsg_ucx_scope_t *scope)
{
    if (!tmsg_netif_is_any(&address->sa.any)) {
        return tmsg_scope_of_address(&address->sa.any, scope);
    }
    snprintf(scope->device, sizeof(scope->device), "lo");
    return TMSG_OK;
}

static tmsg_status_t bind_tcp(tmsg_listener_t *listener, const tmsg_url_t *url,
                              const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope)
{
    tmsg_address_t local;
    tmsg_status_t status =
        tmsg_sock_listen(url, address, BACKLOG, &listener->sock);

    if (status == TMSG_OK) {
        status = tmsg_sock_local(listener->sock.fd, &local);
    }
    if (status == TMSG_OK) {
        tmsg_url_format_sockaddr(&local.sa.any, local.bytes, listener->url,
                                 sizeof(listener->url));
        status = find_device(&local, scope);
    }
    return status;
}

/* Finds the network device of a blob listener's address. */
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

/* UCX binds it, later, and complains on its own: whether it can is tried out
 * before. */
static tmsg_status_t bind_ucx(tmsg_listener_t *listener, const tmsg_url_t *url,
                              const tmsg_address_t *address,
                              tmsg_ucx_scope_t *scope)
{
    tmsg_status_t status = tmsg_sock_listen(url, address, 1, &listener->sock);

    if (status != TMSG_OK) {
        return status;
    }
    tmsg_sock_listener_close(&listener->sock);
    listener->sock.fd = -1;
    listener->address = *address;
    tmsg_url_format(url, listener->url, sizeof(listener->url));
    return tmsg_scheme_ucx.scope(address, scope);
}

static tmsg_status_t (*const binders[])(tmsg_listener_t *listener,
                                        const tmsg_url_t *url,
                                        const tmsg_address_t *address,
                                        tmsg_ucx_scope_t *scope) = {
    [TMSG_URL_TCP] = bind_tcp,
    [TMSG_URL_BLOB] = bind_blob,
    [TMSG_URL_UCX] = bind_ucx,
};

/* All that may take its time, which the worker does not wait for: names, and
 * the lock of a socket file's folder. */
static tmsg_status_t prepare(tmsg_listener_t *listener, const char *text,
                             const tmsg_listener_params_t *params,
                             tmsg_url_t *url, tmsg_ucx_scope_t *scope)
{
    tmsg_resolve_t *resolve = NULL;
    const tmsg_address_t *address;
    tmsg_status_t status = tmsg_listener_read_params(params, listener);

    if (status == TMSG_OK) {
        status = tmsg_url_parse(text, url);
    }
    if (status == TMSG_OK && listener->resume_ms != 0 &&
        (url->kind == TMSG_URL_BLOB || url->kind == TMSG_URL_UCX)) {
        status = tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                "%s: resume_ms is for tcp:// and unix:// alone",
                                text);
    }
    if (status == TMSG_OK && listener->keyring != NULL &&
        url->kind == TMSG_URL_UCX) {
        status = tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                                "%s: a peer that speaks UCXX cannot prove a "
                                "key; if they may come without, give it a NULL "
                                "keyring",
                                text);
    }
    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_listener_name_devices(params, url->kind, listener);
    if (status != TMSG_OK) {
        return status;
    }
    if (url->kind == TMSG_URL_UNIX) {
        tmsg_url_format(url, listener->url, sizeof(listener->url));
        return tmsg_sock_listen(url, NULL, BACKLOG, &listener->sock);
    }
    status = look_up(listener->worker, url, &resolve, &address);
    if (status == TMSG_OK) {
        status = check_secure(listener, params, text, &address->sa.any);
    }
    if (status == TMSG_OK) {
        status = binders[url->kind](listener, url, address, scope);
    }
    if (status == TMSG_OK) {
        tmsg_devices_apply(listener->devices, scope);
    }
    tmsg_resolve_abandon(resolve);
    return status;
}

static tmsg_status_t listen_blob(tmsg_listener_t *listener,
                                 const tmsg_ucx_scope_t *scope)
{
    tmsg_status_t status =
        tmsg_worker_ucx(listener->worker, scope, false, &listener->ucx);

    if (status == TMSG_OK) {
        status = tmsg_attach_blob_of(listener->ucx, listener->token, 0,
                                     listener->keyring != NULL, &listener->blob,
                                     &listener->blob_bytes);
    }
    return status != TMSG_OK || listener->keyring == NULL
               ? status
               : tmsg_proved_create(listener->blob, listener->blob_bytes,
                                    &listener->proved);
}

/* Peers will need UCX on that device: what keeps it from opening shows here,
 * not to each of them. It stays open for the first. */
static tmsg_status_t listen_socket(tmsg_listener_t *listener,
                                   const tmsg_ucx_scope_t *scope)
{
    tmsg_ucx_t *ucx;
    tmsg_status_t status =
        tmsg_worker_ucx(listener->worker, scope, false, &ucx);

    if (status != TMSG_OK) {
        return status;
    }
    ucx->users--;
    return tmsg_accept_begin(listener);
}

/* Takes a prepared listener into its worker. */
static tmsg_status_t start(tmsg_listener_t *listener, tmsg_url_kind_t kind,
                           const tmsg_ucx_scope_t *scope)
{
    tmsg_worker_t *worker = listener->worker;
    tmsg_status_t status = tmsg_worker_check(worker);

    listener->next = worker->listeners;
    worker->listeners = listener;
    if (status == TMSG_OK) {
        status = kind == TMSG_URL_BLOB ? listen_blob(listener, scope)
                 : kind == TMSG_URL_UCX
                     ? tmsg_scheme_ucx.listen(listener, scope)
                     : listen_socket(listener, scope);
    }
    if (status != TMSG_OK) {
        tmsg_listener_release(listener);
    }
    return status;
}

static void abandon(tmsg_listener_t *listener)
{
    if (listener->sock.fd >= 0) {
        tmsg_sock_listener_close(&listener->sock);
    }
    tmsg_keyring_destroy(listener->keyring);
    free(listener);
}

tmsg_status_t tmsg_listener_create(tmsg_worker_t *worker, const char *url,
                                   const tmsg_listener_params_t *params,
                                   tmsg_listener_t **listener_p)
{
    tmsg_listener_t *listener = calloc(1, sizeof(*listener));
    tmsg_ucx_scope_t scope = {.device = ""};
    tmsg_url_t parsed = {.kind = TMSG_URL_TCP};
    tmsg_status_t status;

    if (listener == NULL) {
        return tmsg_error_memory("a listener");
    }
    listener->worker = worker;
    listener->source.fd = -1;
    listener->sock.fd = -1;
    status = prepare(listener, url, params, &parsed, &scope);
    if (status == TMSG_OK && params != NULL &&
        params->field_mask & TMSG_LISTENER_PARAM_ADVERTISE) {
        status =
            tmsg_listener_advertise(listener, params->advertise, parsed.kind);
    }
    if (status != TMSG_OK) {
        abandon(listener);
        return status;
    }
    tmsg_worker_lock(worker);
    status = start(listener, parsed.kind, &scope);
    tmsg_worker_unlock(worker);
    if (status == TMSG_OK) {
        *listener_p = listener;
    }
    return status;
}

const char *tmsg_listener_url(const tmsg_listener_t *listener)
{
    return listener->advertised[0] != '\0' ? listener->advertised
                                           : listener->url;
}

tmsg_status_t tmsg_listener_blob(const tmsg_listener_t *listener,
                                 const void **blob_p, size_t *blob_bytes_p)
{
    if (listener->blob == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "%s: only a blob:// listener has a blob",
                              listener->url);
    }
    if (listener->ucx == NULL) {
        return tmsg_error_set(TMSG_ERR_CLOSED,
                              "%s: a peer that died took the blob with it; "
                              "make another listener",
                              listener->url);
    }
    if (listener->proved != NULL) {
        tmsg_status_t status;

        tmsg_worker_lock(listener->worker);
        status = tmsg_proved_now(listener->proved, listener->keyring, blob_p,
                                 blob_bytes_p);
        tmsg_worker_unlock(listener->worker);
        return status;
    }
    *blob_p = listener->blob;
    *blob_bytes_p = listener->blob_bytes;
    return TMSG_OK;
}

tmsg_listener_t *tmsg_listener_by_token(tmsg_worker_t *worker,
                                        const tmsg_ucx_t *ucx,
                                        const uint8_t *token)
{
    tmsg_listener_t *listener = worker->listeners;

    while (listener != NULL &&
           (listener->ucx != ucx || listener->ucx == NULL ||
            sodium_memcmp(listener->token, token, TMSG_TOKEN_BYTES) != 0)) {
        listener = listener->next;
    }
    return listener;
}

/* Ends what the listener still owns: its endpoints and handshakes. */
static void release_kept(tmsg_listener_t *listener)
{
    tmsg_worker_t *worker = listener->worker;

    for (uint32_t i = 0; i < worker->endpoint_slots; i++) {
        tmsg_endpoint_t *endpoint = worker->endpoints[i];

        if (endpoint != NULL && endpoint->keeper == listener) {
            endpoint->link.listener = NULL;
            endpoint->link.handshakes = NULL;
            tmsg_engine.release(endpoint);
        }
    }
}

void tmsg_listener_release(tmsg_listener_t *listener)
{
    tmsg_worker_t *worker = listener->worker;
    tmsg_listener_t **place = &worker->listeners;

    while (*place != listener) {
        place = &(*place)->next;
    }
    *place = listener->next;
    tmsg_loop_remove(&worker->loop, &listener->source);
    tmsg_loop_clear_timer(&worker->loop, &listener->retry);
    if (listener->sock.fd >= 0) {
        tmsg_sock_listener_close(&listener->sock);
    }
    release_kept(listener);
    tmsg_knocks_free(listener);
    if (listener->ucx != NULL) {
        listener->ucx->users--;
        tmsg_scheme_ucx.unlisten(listener);
    }
    free(listener->blob);
    tmsg_proved_free(listener->proved);
    tmsg_keyring_destroy(listener->keyring);
    free(listener);
}

void tmsg_listener_destroy(tmsg_listener_t *listener)
{
    tmsg_worker_t *worker;

    if (listener == NULL) {
        return;
    }
    worker = listener->worker;
    tmsg_worker_lock(worker);
    tmsg_listener_release(listener);
    tmsg_worker_unlock(worker);
}
