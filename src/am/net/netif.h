/* SPDX-License-Identifier: BSD-3-Clause */
/* am/net/netif.h - kinds of addresses, and the network devices that have
 * them. */
#ifndef TMSG_AM_NET_NETIF_H
#define TMSG_AM_NET_NETIF_H

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <tensormsg/status.h>

/* Returns whether an address is loopback: 127.0.0.0/8, ::1, or one of these as
 * IPv4-mapped IPv6. A Unix socket is loopback, too: nobody beyond this machine
 * reaches it. */
bool tmsg_netif_is_loopback(const struct sockaddr *address);

/* Returns whether an address stands for every device: 0.0.0.0, ::, or
 * ::ffff:0.0.0.0. */
bool tmsg_netif_is_any(const struct sockaddr *address);

/* Gives the address as IPv6, IPv4-mapped where it is IPv4, and its zone unless
 * zone_p is NULL. Returns false if it is neither IPv4 nor IPv6. */
bool tmsg_netif_ip(const struct sockaddr *address, struct in6_addr *ip_p,
                   uint32_t *zone_p);

/* Returns whether an address is link-local: fe80::/10, or 169.254.0.0/16 as
 * IPv4-mapped. */
bool tmsg_netif_is_link_local(const struct in6_addr *ip);

/* Returns whether an address of getifaddrs(3) is the device's: it is listed
 * under the device's name, or under a label of an alias of it ("eth0:1"). */
bool tmsg_netif_is_of(const struct ifaddrs *entry, const char *device);

/* Returns whether a device is here and has no address but link-local ones. */
bool tmsg_netif_is_unnumbered(const char *device);

/* Writes the addresses of a device ("10.0.0.1, fd00::1"), cut to `bytes`.
 * Returns `text`. */
const char *tmsg_netif_list(const char *device, char *text, size_t bytes);

/* Writes the name of the network device that has the IPv4 or IPv6 address; the
 * port is ignored. All loopback addresses belong to the loopback device, alias
 * labels ("eth0:1") to their device. Where a link-local address without zone is
 * on several devices, the first counts. Errors: NOT_FOUND (names the address),
 * INVALID_PARAM (not an IP address), IO. */
tmsg_status_t tmsg_netif_of_address(const struct sockaddr *address,
                                    char name[IFNAMSIZ]);

/* Writes the name of the device that has an address of tmsg_netif_ip(). Errors:
 * as tmsg_netif_of_address(). */
tmsg_status_t tmsg_netif_of_ip(const struct in6_addr *ip, char name[IFNAMSIZ]);

/* Checks that each name of a comma-separated list is a network device that is
 * here, or an RDMA device by UCX's name ("mlx5_0:1"). Errors: NOT_FOUND (names
 * it, and the devices that are here), INVALID_PARAM (an empty name). */
tmsg_status_t tmsg_netif_check_devices(const char *devices);

/* Writes UCX's names of the RDMA devices that are the same hardware as a
 * network device, each after a comma (",mlx5_0:1"); "" for none. `sysfs` is
 * "/sys". Returns `text`. */
const char *tmsg_netif_rdma(const char *sysfs, const char *device, char *text,
                            size_t bytes);

#endif
