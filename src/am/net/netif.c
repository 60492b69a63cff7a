/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/net/netif.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "am/net/url.h"
#include "core/error.h"

/* Holds every address as IPv6, so that there is one kind to compare. */
typedef struct {
    struct in6_addr bytes;
    uint32_t zone;
} ip_t;

static bool ip_of(const struct sockaddr *address, ip_t *ip)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    memset(ip, 0, sizeof(*ip));
    if (address->sa_family == AF_INET) {
        memcpy(&in, address, sizeof(in));
        ip->bytes.s6_addr[10] = 0xff;
        ip->bytes.s6_addr[11] = 0xff;
        memcpy(&ip->bytes.s6_addr[12], &in.sin_addr, 4);
        return true;
    }
    if (address->sa_family == AF_INET6) {
        memcpy(&in6, address, sizeof(in6));
        ip->bytes = in6.sin6_addr;
        ip->zone = in6.sin6_scope_id;
        return true;
    }
    return false;
}

static bool ip_equal(const ip_t *a, const ip_t *b)
{
    return memcmp(&a->bytes, &b->bytes, sizeof(a->bytes)) == 0 &&
           (a->zone == 0 || b->zone == 0 || a->zone == b->zone);
}

bool tmsg_netif_ip(const struct sockaddr *address, struct in6_addr *ip_p,
                   uint32_t *zone_p)
{
    ip_t ip;
    bool is_ip = ip_of(address, &ip);

    if (is_ip) {
        *ip_p = ip.bytes;
    }
    if (is_ip && zone_p != NULL) {
        *zone_p = ip.zone;
    }
    return is_ip;
}

bool tmsg_netif_is_link_local(const struct in6_addr *ip)
{
    return IN6_IS_ADDR_LINKLOCAL(ip) ||
           (IN6_IS_ADDR_V4MAPPED(ip) && ip->s6_addr[12] == 169 &&
            ip->s6_addr[13] == 254);
}

bool tmsg_netif_is_of(const struct ifaddrs *entry, const char *device)
{
    size_t length = strcspn(entry->ifa_name, ":");

    return length == strlen(device) &&
           memcmp(entry->ifa_name, device, length) == 0;
}

bool tmsg_netif_is_unnumbered(const char *device)
{
    bool found = false, numbered = false;
    struct ifaddrs *list;

    if (getifaddrs(&list) != 0) {
        return false;
    }
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        ip_t ip;

        if (tmsg_netif_is_of(at, device)) {
            found = true;
            numbered |= at->ifa_addr != NULL && ip_of(at->ifa_addr, &ip) &&
                        !tmsg_netif_is_link_local(&ip.bytes);
        }
    }
    freeifaddrs(list);
    return found && !numbered;
}

const char *tmsg_netif_list(const char *device, char *text, size_t bytes)
{
    struct ifaddrs *list;
    size_t used = 0;

    text[0] = '\0';
    if (getifaddrs(&list) != 0) {
        return text;
    }
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        char name[INET6_ADDRSTRLEN];
        bool is_v4 = at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET;
        ip_t ip;

        if (tmsg_netif_is_of(at, device) && at->ifa_addr != NULL &&
            ip_of(at->ifa_addr, &ip) &&
            inet_ntop(is_v4 ? AF_INET : AF_INET6,
                      is_v4 ? &ip.bytes.s6_addr[12] : ip.bytes.s6_addr, name,
                      sizeof(name)) != NULL &&
            used + strlen(name) + sizeof(", ") <= bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                     used == 0 ? "" : ", ", name);
        }
    }
    freeifaddrs(list);
    return text;
}

bool tmsg_netif_is_loopback(const struct sockaddr *address)
{
    ip_t ip;

    if (address->sa_family == AF_UNIX) {
        return true;
    }
    if (!ip_of(address, &ip)) {
        return false;
    }
    return IN6_IS_ADDR_LOOPBACK(&ip.bytes) ||
           (IN6_IS_ADDR_V4MAPPED(&ip.bytes) && ip.bytes.s6_addr[12] == 127);
}

bool tmsg_netif_is_any(const struct sockaddr *address)
{
    static const uint8_t zero[4];
    ip_t ip;

    if (!ip_of(address, &ip)) {
        return false;
    }
    return IN6_IS_ADDR_UNSPECIFIED(&ip.bytes) ||
           (IN6_IS_ADDR_V4MAPPED(&ip.bytes) &&
            memcmp(&ip.bytes.s6_addr[12], zero, sizeof(zero)) == 0);
}

static bool has_address(const struct ifaddrs *device, const ip_t *wanted,
                        bool is_loopback)
{
    ip_t ip;

    if (is_loopback) {
        return (device->ifa_flags & IFF_LOOPBACK) != 0;
    }
    return device->ifa_addr != NULL && ip_of(device->ifa_addr, &ip) &&
           ip_equal(&ip, wanted);
}

tmsg_status_t tmsg_netif_of_ip(const struct in6_addr *ip, char name[IFNAMSIZ])
{
    union {
        struct sockaddr any;
        struct sockaddr_in6 in6;
    } sa = {.in6 = {.sin6_family = AF_INET6, .sin6_addr = *ip}};

    return tmsg_netif_of_address(&sa.any, name);
}

static tmsg_status_t address_not_found(const struct sockaddr *address)
{
    char text[TMSG_URL_TEXT_BYTES];
    socklen_t bytes = address->sa_family == AF_INET
                          ? sizeof(struct sockaddr_in)
                          : sizeof(struct sockaddr_in6);

    return tmsg_error_set(
        TMSG_ERR_NOT_FOUND, "no network device here has the address of %s",
        tmsg_url_format_sockaddr(address, bytes, text, sizeof(text)));
}

tmsg_status_t tmsg_netif_of_address(const struct sockaddr *address,
                                    char name[IFNAMSIZ])
{
    bool is_loopback = tmsg_netif_is_loopback(address);
    struct ifaddrs *devices, *device;
    size_t length;
    ip_t ip;

    if (!ip_of(address, &ip)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "address family %d is not IPv4 or IPv6",
                              address->sa_family);
    }
    if (getifaddrs(&devices) != 0) {
        return tmsg_error_errno(TMSG_ERR_IO, "listing network devices");
    }
    device = devices;
    while (device != NULL && !has_address(device, &ip, is_loopback)) {
        device = device->ifa_next;
    }
    if (device != NULL) {
        length = strcspn(device->ifa_name, ":");
        length = length < IFNAMSIZ ? length : IFNAMSIZ - 1;
        memcpy(name, device->ifa_name, length);
        name[length] = '\0';
    }
    freeifaddrs(devices);
    return device != NULL ? TMSG_OK : address_not_found(address);
}

const char *tmsg_netif_rdma(const char *sysfs, const char *device, char *text,
                            size_t bytes)
{
    char path[PATH_MAX];
    unsigned port = 0;
    size_t used = 0;
    const struct dirent *entry;
    FILE *file;
    DIR *folder;

    text[0] = '\0';
    snprintf(path, sizeof(path), "%s/class/net/%s/dev_port", sysfs, device);
    file = fopen(path, "re");
    if (file != NULL) {
        port = fscanf(file, "%u", &port) == 1 ? port : 0;
        fclose(file);
    }
    snprintf(path, sizeof(path), "%s/class/net/%s/device/infiniband", sysfs,
             device);
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        size_t length = strlen(entry->d_name) + sizeof(",:4294967296");

        if (entry->d_name[0] != '.' && used + length < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, ",%s:%u",
                                     entry->d_name, port + 1);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return text;
}

static bool is_rdma(const char *name, size_t length)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s",
             (int)strcspn(name, ":,"), name);
    return memchr(name, '/', length) == NULL && access(path, F_OK) == 0;
}

static tmsg_status_t unknown_device(const char *name, size_t length)
{
    struct if_nameindex *all = if_nameindex();
    char here[200] = "";
    size_t used = 0;

    for (size_t i = 0; all != NULL && all[i].if_name != NULL; i++) {
        if (used + strlen(all[i].if_name) + sizeof(", ") < sizeof(here)) {
            used += (size_t)snprintf(here + used, sizeof(here) - used, "%s%s",
                                     i == 0 ? "" : ", ", all[i].if_name);
        }
    }
    if (all != NULL) {
        if_freenameindex(all);
    }
    return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                          "there is no device '%s'; there are: %s",
                          tmsg_error_name(name, length).text, here);
}

tmsg_status_t tmsg_netif_check_devices(const char *devices)
{
    for (const char *name = devices;; name += strcspn(name, ",") + 1) {
        size_t length = strcspn(name, ",");
        char device[IFNAMSIZ];

        if (length == 0) {
            return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                  "devices '%.64s': a name is empty", devices);
        }
        snprintf(device, sizeof(device), "%.*s", (int)length, name);
        if ((length >= sizeof(device) || if_nametoindex(device) == 0) &&
            !is_rdma(name, length)) {
            return unknown_device(name, length);
        }
        if (name[length] == '\0') {
            return TMSG_OK;
        }
    }
}
