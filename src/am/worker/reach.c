/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/reach.h"

#include <stdio.h>
#include <string.h>

#include "am/net/netif.h"
#include "am/net/url.h"
#include "core/error.h"

tmsg_status_t tmsg_devices_read(const char *devices, char *text)
{
    size_t bytes = strlen(devices) + 1;
    tmsg_status_t status;

    if (bytes > TMSG_DEVICES_BYTES) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "devices: more than %d bytes of names",
                              TMSG_DEVICES_BYTES - 1);
    }
    status = tmsg_netif_check_devices(devices);
    if (status == TMSG_OK) {
        memcpy(text, devices, bytes);
    }
    return status;
}

tmsg_status_t tmsg_scope_of_address(const struct sockaddr *address,
                                    tmsg_ucx_scope_t *scope)
{
    char device[IFNAMSIZ];
    struct in6_addr ip;
    tmsg_status_t status = tmsg_netif_of_address(address, device);

    if (status != TMSG_OK) {
        return status;
    }
    snprintf(scope->device, sizeof(scope->device), "%s", device);
    if (!tmsg_netif_is_loopback(address) && tmsg_netif_ip(address, &ip, NULL) &&
        !tmsg_netif_is_link_local(&ip)) {
        scope->address = ip;
    }
    return TMSG_OK;
}

static bool is_listed(const char *devices, const char *device)
{
    size_t length = strlen(device);

    while (*devices != '\0') {
        size_t next = strcspn(devices, ",");

        if (next == length && memcmp(devices, device, length) == 0) {
            return true;
        }
        devices += next + (devices[next] == ',');
    }
    return false;
}

/* The address counts where its device is one of them. */
void tmsg_devices_apply(const char *devices, tmsg_ucx_scope_t *scope)
{
    if (devices[0] != '\0') {
        if (!is_listed(devices, scope->device)) {
            memset(&scope->address, 0, sizeof(scope->address));
        }
        snprintf(scope->device, sizeof(scope->device), "%s", devices);
        scope->named = true;
    }
}

bool tmsg_listener_is_open(const tmsg_listener_t *listener,
                           const tmsg_listener_params_t *params)
{
    return listener->keyring != NULL ||
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
    if (kind != TMSG_URL_TCP || url.kind != TMSG_URL_TCP ||
        url.host[0] == '\0') {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "%s: only tcp://host:port can be advertised, and "
                              "for such a listener",
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
    if (kind != TMSG_URL_TCP && kind != TMSG_URL_BLOB) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "listener: devices are for tcp:// and blob://");
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
