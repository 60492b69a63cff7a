/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/first.h - which of a device's addresses UCX takes.
 *
 * UCX takes the first address that getifaddrs(3) lists of a device and of the
 * family in UCX_TCP_AF_PRIO, and has no key for another. For an address that is
 * not the first, our function is put between libucs and getifaddrs(3) while UCX
 * opens: it lists that address before the others, for the thread that opens.
 * Where the address is the first anyway nothing is put anywhere. */
#ifndef TMSG_AM_UCX_FIRST_H
#define TMSG_AM_UCX_FIRST_H

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>

/* Whether UCX takes the address of its own accord: it is the first of its
 * family on the device, but for link-local ones, which UCX leaves out. IPv4
 * addresses are written as IPv4-mapped. True where nothing can be listed. */
bool tmsg_first_is(const char *device, const struct in6_addr *address);

/* Lists the address first on this thread, until tmsg_first_end(). False: libucs
 * does not call getifaddrs(3) in a way that can be led elsewhere. Either way
 * tmsg_first_end() is to be called. */
bool tmsg_first_begin(const char *device, const struct in6_addr *address);
void tmsg_first_end(void);

/* Makes the address the first of its device and family in a list, under the
 * device's name, by swapping it with the one that is. */
void tmsg_first_sort(struct ifaddrs *list, const char *device,
                     const struct in6_addr *address);

#endif
