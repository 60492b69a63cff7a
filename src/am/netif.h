/* SPDX-License-Identifier: BSD-3-Clause */
/* am/netif.h - what kind of address it is, and which device has it. */
#ifndef TMSG_AM_NETIF_H
#define TMSG_AM_NETIF_H

#include <net/if.h>
#include <stdbool.h>
#include <sys/socket.h>

#include <tensormsg/status.h>

/* 127.0.0.0/8, ::1, or one of these as IPv4-mapped IPv6. A Unix socket is
 * loopback too: nobody beyond this machine reaches it. */
bool tmsg_netif_is_loopback(const struct sockaddr *address);

/* 0.0.0.0, ::, or ::ffff:0.0.0.0: every device. */
bool tmsg_netif_is_any(const struct sockaddr *address);

/* Writes the name of the network device that has the IPv4 or IPv6 address; the
 * port is ignored. All loopback addresses belong to the loopback device, alias
 * labels ("eth0:1") to their device. Where a link-local address without zone
 * is on several devices, the first counts. Errors: NOT_FOUND (names the
 * address), INVALID_PARAM (not an IP address), IO. */
tmsg_status_t tmsg_netif_of_address(const struct sockaddr *address,
                                    char name[IFNAMSIZ]);

/* Whether each of a comma-separated list is a network device that is here, or
 * an RDMA device by UCX's name ("mlx5_0:1"). Errors: NOT_FOUND (names it, and
 * those that are here), INVALID_PARAM (an empty name). */
tmsg_status_t tmsg_netif_check_devices(const char *devices);

/* Writes UCX's names of the RDMA devices that are the same hardware as a
 * network device, each after a comma (",mlx5_0:1"); "" for none. `sysfs` is
 * "/sys". Returns `text`. */
const char *tmsg_netif_rdma(const char *sysfs, const char *device, char *text,
                            size_t bytes);

#endif
