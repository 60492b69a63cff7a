/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/reach.h"

#include <stdio.h>
#include <string.h>

#include "am/net/loop.h"
#include "am/net/netif.h"
#include "core/error.h"

#define HOLDS_NS UINT64_C(1000000000)

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

/* Finds the device of an address. Listing the devices takes some 30 system
 * calls, and any stranger can have this side ask with each hello, so the last
 * answer holds for a moment. */
static tmsg_status_t find_device(const struct sockaddr *address,
                                 char device[IFNAMSIZ])
{
    static _Thread_local struct {
        struct in6_addr ip;
        uint32_t zone;
        uint64_t found_ns; /* 0: nothing was asked yet */
        char device[IFNAMSIZ];
    } last;
    struct in6_addr ip;
    uint32_t zone = 0;
    bool is_ip = tmsg_netif_ip(address, &ip, &zone);
    uint64_t now_ns = tmsg_now_ns();
    tmsg_status_t status;

    if (is_ip && last.found_ns != 0 && now_ns - last.found_ns < HOLDS_NS &&
        zone == last.zone && memcmp(&ip, &last.ip, sizeof(ip)) == 0) {
        memcpy(device, last.device, IFNAMSIZ);
        return TMSG_OK;
    }
    status = tmsg_netif_of_address(address, device);
    if (status == TMSG_OK && is_ip) {
        last.ip = ip;
        last.zone = zone;
        last.found_ns = now_ns;
        memcpy(last.device, device, IFNAMSIZ);
    }
    return status;
}

tmsg_status_t tmsg_scope_of_address(const struct sockaddr *address,
                                    tmsg_ucx_scope_t *scope)
{
    char device[IFNAMSIZ];
    struct in6_addr ip;
    tmsg_status_t status = find_device(address, device);

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

static bool is_device_listed(const char *devices, const char *device)
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

/* Names the devices of a scope. Its address stays only if its device is one of
 * them. */
void tmsg_devices_apply(const char *devices, tmsg_ucx_scope_t *scope)
{
    if (devices[0] != '\0') {
        if (!is_device_listed(devices, scope->device)) {
            memset(&scope->address, 0, sizeof(scope->address));
        }
        snprintf(scope->device, sizeof(scope->device), "%s", devices);
        scope->named = true;
    }
}
