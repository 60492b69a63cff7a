/* SPDX-License-Identifier: BSD-3-Clause */
/* am/ucx/first.h - which of a device's addresses UCX takes.
 *
 * UCX takes the first address that getifaddrs(3) lists of a device and of the
 * family in UCX_TCP_AF_PRIO, and has no key to choose another. If the wanted
 * address is not the first, our function is put between libucs and
 * getifaddrs(3) while UCX opens. It lists that address before the others, for
 * the thread that opens UCX. If the address is the first anyway, nothing is put
 * between them. */
#ifndef TMSG_AM_UCX_FIRST_H
#define TMSG_AM_UCX_FIRST_H

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>

/* Returns whether UCX takes the address of its own accord. UCX does if the
 * address is the first of its family on the device; it skips link-local ones.
 * IPv4 addresses are written as IPv4-mapped. Also true if the addresses cannot
 * be listed. */
bool tmsg_first_is(const char *device, const struct in6_addr *address);

/* Lists the address first on this thread, until tmsg_first_end(). False: libucs
 * does not call getifaddrs(3) in a way that can be redirected. The caller calls
 * tmsg_first_end() in either case. */
bool tmsg_first_begin(const char *device, const struct in6_addr *address);
void tmsg_first_end(void);

/* Makes the address the first of its device and family in a list, under the
 * device's name: swaps it with the entry that is the first. */
void tmsg_first_sort(struct ifaddrs *list, const char *device,
                     const struct in6_addr *address);

#endif
