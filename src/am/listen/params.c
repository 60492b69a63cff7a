/* SPDX-License-Identifier: BSD-3-Clause */
/* This file reads what an application asks of a listener. */
#include <string.h>

#include "am/endpoint/conn.h"
#include "am/endpoint/scheme.h"
#include "am/listen/listener.h"
#include "am/net/url.h"
#include "am/worker/reach.h"
#include "core/error.h"
#include "core/params.h"

#define HANDSHAKE_TIMEOUT_MS 5000
#define MAX_HANDSHAKES 128
#define HANDSHAKE_BYTES_LEAST 1024

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_LISTENER_PARAM_ON_ACCEPT |                                \
                TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED |                    \
                TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT |                        \
                TMSG_LISTENER_PARAM_MAX_HANDSHAKES |                           \
                TMSG_LISTENER_PARAM_ADVERTISE | TMSG_LISTENER_PARAM_DEVICES |  \
                TMSG_LISTENER_PARAM_RESUME | TMSG_LISTENER_PARAM_KEYRING |     \
                TMSG_LISTENER_PARAM_MAX_HANDSHAKE_BYTES |                      \
                TMSG_LISTENER_PARAM_ON_PEER | TMSG_LISTENER_PARAM_SUBSCRIBE |  \
                TMSG_LISTENER_PARAM_CARRIER | TMSG_LISTENER_PARAM_TLS))

static tmsg_status_t check_listener_params(const tmsg_listener_t *listener)
{
    if (listener->handshake_timeout_ms <= 0 || listener->max_handshakes == 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "listener: handshake_timeout_ms %d and "
                              "max_handshakes %u must be positive",
                              listener->handshake_timeout_ms,
                              listener->max_handshakes);
    }
    return listener->max_handshake_bytes >= HANDSHAKE_BYTES_LEAST &&
                   listener->max_handshake_bytes <= TMSG_FRAME_MAX_BYTES
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "listener: max_handshake_bytes %u is not "
                                "within %d to %u",
                                listener->max_handshake_bytes,
                                HANDSHAKE_BYTES_LEAST, TMSG_FRAME_MAX_BYTES);
}

/* Takes the listener's own keyring or the context's, and holds it. */
static void take_keyring(const tmsg_listener_params_t *params,
                         tmsg_listener_t *listener)
{
    listener->keyring = listener->worker->context->keyring;
    if (params != NULL && params->field_mask & TMSG_LISTENER_PARAM_KEYRING) {
        listener->keyring = params->keyring;
    }
    if (listener->keyring != NULL) {
        tmsg_keyring_hold(listener->keyring);
    }
}

static void take_functions(const tmsg_listener_params_t *params,
                           tmsg_listener_t *listener)
{
    if (params->field_mask & TMSG_LISTENER_PARAM_ON_ACCEPT) {
        listener->on_accept = params->on_accept;
        listener->on_accept_arg = params->on_accept_arg;
    }
    if (params->field_mask & TMSG_LISTENER_PARAM_ON_PEER) {
        listener->on_peer = params->on_peer;
        listener->on_lost = params->on_lost;
        listener->on_peer_arg = params->on_peer_arg;
    }
}

tmsg_status_t tmsg_listener_read_params(const tmsg_listener_params_t *params,
                                        tmsg_listener_t *listener)
{
    listener->handshake_timeout_ms = HANDSHAKE_TIMEOUT_MS;
    listener->max_handshakes = MAX_HANDSHAKES;
    listener->max_handshake_bytes = TMSG_HANDSHAKE_BYTES;
    take_keyring(params, listener);
    if (params == NULL) {
        return TMSG_OK;
    }
    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("listener",
                                   params->field_mask & ~PARAMS_KNOWN);
    }
    take_functions(params, listener);
    if (params->field_mask & TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT) {
        listener->handshake_timeout_ms = params->handshake_timeout_ms;
    }
    if (params->field_mask & TMSG_LISTENER_PARAM_MAX_HANDSHAKES) {
        listener->max_handshakes = params->max_handshakes;
    }
    if (params->field_mask & TMSG_LISTENER_PARAM_RESUME) {
        if (params->resume_ms < -1) {
            return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                  "listener: resume_ms %d", params->resume_ms);
        }
        listener->resume_ms = (uint32_t)params->resume_ms; /* -1: for ever */
    }
    if (params->field_mask & TMSG_LISTENER_PARAM_SUBSCRIBE) {
        if (params->subscribe & ~(uint32_t)TMSG_SUBSCRIBE_NEWEST) {
            return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                  "listener: unknown subscribe bits 0x%x",
                                  params->subscribe);
        }
        listener->subscribe = params->subscribe;
    }
    if (params->field_mask & TMSG_LISTENER_PARAM_MAX_HANDSHAKE_BYTES) {
        listener->max_handshake_bytes = params->max_handshake_bytes;
    }
    return check_listener_params(listener);
}

bool tmsg_listener_is_open(const tmsg_listener_t *listener,
                           const tmsg_listener_params_t *params)
{
    return listener->keyring != NULL || listener->tls != NULL ||
           (params != NULL &&
            (params->field_mask & TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED) &&
            params->allow_unauthenticated);
}

tmsg_status_t tmsg_listener_advertise(tmsg_listener_t *listener,
                                      const char *text, tmsg_url_kind_t kind)
{
    tmsg_url_t url = {.kind = kind}, bound;
    tmsg_status_t status;

    if (text == NULL) {
        return TMSG_OK;
    }
    status = tmsg_url_parse(text, &url);
    if (status != TMSG_OK) {
        return status;
    }
    if (!tmsg_schemes[kind]->advertises || url.kind != kind ||
        url.host[0] == '\0') {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "%s: only tcp://host:port and tls://host:port can "
            "be advertised, each for such a listener",
            tmsg_error_name(text, strlen(text)).text);
    }
    status = tmsg_url_parse(listener->url, &bound);
    if (status == TMSG_OK) {
        url.port = url.port == 0 ? bound.port : url.port;
        tmsg_url_format(&url, listener->advertised,
                        sizeof(listener->advertised));
    }
    return status;
}

tmsg_status_t tmsg_listener_name_devices(const tmsg_listener_params_t *params,
                                         tmsg_url_kind_t kind,
                                         tmsg_listener_t *listener)
{
    tmsg_status_t status;

    if (params == NULL || !(params->field_mask & TMSG_LISTENER_PARAM_DEVICES) ||
        params->devices == NULL) {
        return TMSG_OK;
    }
    if (!tmsg_schemes[kind]->devices) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "listener: devices cannot be named for %s://",
                              tmsg_url_scheme(kind));
    }
    status = tmsg_devices_read(params->devices, listener->devices);
    if (status == TMSG_OK && strcmp(listener->devices, "lo") != 0 &&
        !tmsg_listener_is_open(listener, params)) {
        return tmsg_error_set(TMSG_ERR_INSECURE,
                              "devices '%s': anyone who reaches them could "
                              "reach UCX there; set a keyring, or "
                              "allow_unauthenticated if that is meant",
                              listener->devices);
    }
    return status;
}
