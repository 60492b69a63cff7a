/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/listen/listener.h"

#include <sodium.h>
#include <stdlib.h>

#include "am/connect/admit.h"
#include "am/connect/admit_blob.h"
#include "am/connect/carrier.h"
#include "am/endpoint/scheme.h"
#include "am/listen/backlog.h"
#include "am/listen/places.h"
#include "am/listen/presence.h"
#include "am/net/netif.h"
#include "am/worker/engine.h"
#include "am/worker/lead.h"
#include "am/worker/reach.h"

/* Checks that strangers are heard only if the application asked for it. The
 * permissions of a socket file keep them out. */
static tmsg_status_t check_secure(const tmsg_listener_t *listener,
                                  const tmsg_listener_params_t *params,
                                  const char *url,
                                  const tmsg_address_t *address)
{
    bool is_safe = address == NULL ? !listener->scheme->network
                                   : tmsg_netif_is_loopback(&address->sa.any);

    if (is_safe || tmsg_listener_is_open(listener, params)) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_INSECURE,
                          "%s is not a loopback address: anyone who reaches it "
                          "could connect; set a keyring, or "
                          "allow_unauthenticated if that is meant",
                          url);
}

/* Returns the addresses of a host. Blocks while a name is looked up. */
static tmsg_status_t look_up_host(const tmsg_worker_t *worker,
                                  const tmsg_url_t *url,
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
                              "host '%s' must be looked up, and a callback "
                              "must not wait for that: give its address",
                              url->host);
    }
    if (status == TMSG_IN_PROGRESS) {
        status = tmsg_resolve_wait(*resolve_p, -1);
    }
    return status != TMSG_OK ? status
                             : tmsg_resolve_take(*resolve_p, address_p, &count);
}

/* Checks that what the application asks for can be had with such a URL. */
static tmsg_status_t check_listener_scheme(const tmsg_listener_t *listener,
                                           const char *url,
                                           tmsg_url_kind_t kind)
{
    if (listener->resume_ms != 0 && !listener->scheme->sessions) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: resume_ms: a %s:// peer cannot be found "
                              "again",
                              url, tmsg_url_scheme(kind));
    }
    if (listener->keyring != NULL && !listener->scheme->keys) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "%s: a %s:// peer cannot prove a key; if they "
                              "may come without, give it a NULL keyring",
                              url, tmsg_url_scheme(kind));
    }
    return TMSG_OK;
}

/* Takes the carrier that is asked for. Strangers of other hosts meet only bytes
 * that this library parses itself, unless the application says otherwise. */
static tmsg_status_t choose_carrier(tmsg_listener_t *listener,
                                    const tmsg_listener_params_t *params,
                                    tmsg_url_kind_t kind,
                                    const tmsg_address_t *address)
{
    if (params != NULL && params->field_mask & TMSG_LISTENER_PARAM_CARRIER) {
        listener->carrier = params->carrier;
        return tmsg_carrier_check("listener", listener->carrier, kind,
                                  listener->devices);
    }
    listener->carrier =
        tmsg_carrier_usual(listener->worker->context, kind, listener->devices);
    if (listener->carrier == TMSG_CARRIER_AUTO && kind == TMSG_URL_TCP &&
        listener->keyring == NULL && listener->devices[0] == '\0' &&
        !tmsg_netif_is_loopback(&address->sa.any)) {
        listener->carrier = TMSG_CARRIER_STREAM;
    }
    return TMSG_OK;
}

/* Prepares all that may take time, so that the worker does not wait for it:
 * names, and the lock of a socket file's folder. */
static tmsg_status_t prepare_listener(tmsg_listener_t *listener,
                                      const char *text,
                                      const tmsg_listener_params_t *params,
                                      tmsg_url_t *url, tmsg_ucx_scope_t *scope)
{
    tmsg_resolve_t *resolve = NULL;
    const tmsg_address_t *address = NULL; /* stays NULL for a path */
    tmsg_status_t status = tmsg_listener_read_params(params, listener);

    if (status == TMSG_OK) {
        status = tmsg_url_parse(text, url);
    }
    if (status == TMSG_OK) {
        listener->scheme = tmsg_schemes[url->kind];
        status = check_listener_scheme(listener, text, url->kind);
    }
    if (status == TMSG_OK) {
        status = tmsg_admit_choose("listener", url->kind,
                                   params != NULL && params->field_mask &
                                                         TMSG_LISTENER_PARAM_TLS
                                       ? params->tls
                                       : NULL,
                                   &listener->keyring, &listener->tls);
    }
    if (status == TMSG_OK) {
        status = tmsg_listener_name_devices(params, url->kind, listener);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (!tmsg_url_has_path(url)) {
        status = look_up_host(listener->worker, url, &resolve, &address);
    }
    if (status == TMSG_OK) {
        status = check_secure(listener, params, text, address);
    }
    if (status == TMSG_OK) {
        status = choose_carrier(listener, params, url->kind, address);
    }
    if (status == TMSG_OK) {
        status = listener->scheme->bind(listener, url, address, scope);
    }
    if (status == TMSG_OK) {
        tmsg_devices_apply(listener->devices, scope);
    }
    tmsg_resolve_abandon(resolve);
    return status;
}

/* Takes a prepared listener into its worker. */
static tmsg_status_t start_listener(tmsg_listener_t *listener,
                                    const tmsg_ucx_scope_t *scope)
{
    tmsg_worker_t *worker = listener->worker;
    tmsg_status_t status = tmsg_worker_check(worker);

    listener->next = worker->listeners;
    worker->listeners = listener;
    if (status == TMSG_OK) {
        status = listener->scheme->listen(listener, scope);
    }
    if (status != TMSG_OK) {
        tmsg_listener_release(listener);
    }
    return status;
}

static void abandon_listener(tmsg_listener_t *listener)
{
    if (listener->sock.fd >= 0) {
        tmsg_sock_listener_close(&listener->sock);
    }
    tmsg_keyring_destroy(listener->keyring);
    tmsg_tls_destroy(listener->tls);
    free(listener);
}

tmsg_status_t tmsg_listener_create(tmsg_worker_t *worker, const char *url,
                                   const tmsg_listener_params_t *params,
                                   tmsg_listener_t **listener_p)
{
    tmsg_ucx_scope_t scope = {.device = ""};
    tmsg_url_t parsed = {.kind = TMSG_URL_TCP};
    tmsg_status_t status = tmsg_worker_check_process(worker);
    tmsg_listener_t *listener;

    if (status != TMSG_OK) {
        return status;
    }
    listener = calloc(1, sizeof(*listener));
    if (listener == NULL) {
        return tmsg_error_memory("a listener");
    }
    listener->worker = worker;
    listener->source.fd = -1;
    listener->sock.fd = -1;
    status = prepare_listener(listener, url, params, &parsed, &scope);
    if (status == TMSG_OK && params != NULL &&
        params->field_mask & TMSG_LISTENER_PARAM_ADVERTISE) {
        status =
            tmsg_listener_advertise(listener, params->advertise, parsed.kind);
    }
    if (status != TMSG_OK) {
        abandon_listener(listener);
        return status;
    }
    tmsg_worker_lock(worker);
    status = start_listener(listener, &scope);
    tmsg_worker_unlock(worker);
    if (status == TMSG_OK && listener_p != NULL) {
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
                              "%s: a peer that died made this blob unusable: "
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
    tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(listener->worker, NULL, &i)) !=
           NULL) {
        if (endpoint->keeper == listener) {
            endpoint->link.listener = NULL;
            endpoint->link.wanting_ucx = NULL;
            tmsg_carrier_uncount(endpoint);
            tmsg_places_leave(listener, endpoint);
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
    tmsg_presence_forget(listener);
    release_kept(listener);
    tmsg_backlog_free(listener);
    tmsg_places_free(listener);
    if (listener->ucx != NULL) {
        listener->ucx->users--;
    }
    if (listener->scheme->unlisten != NULL) {
        listener->scheme->unlisten(listener);
    }
    free(listener->blob);
    tmsg_proved_free(listener->proved);
    tmsg_keyring_destroy(listener->keyring);
    tmsg_tls_destroy(listener->tls);
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
