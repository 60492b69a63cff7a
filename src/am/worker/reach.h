/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/reach.h - the devices and the address that the application
 * names. */
#ifndef TMSG_AM_WORKER_REACH_H
#define TMSG_AM_WORKER_REACH_H

#include <sys/socket.h>

#include <tensormsg/status.h>

#include "am/ucx/config.h"

/* Checks a list of network devices and copies it into `text`, which has
 * TMSG_DEVICES_BYTES. Errors: INVALID_PARAM, NOT_FOUND. */
tmsg_status_t tmsg_devices_read(const char *devices, char *text);

/* Writes the network device that has an address, and the address, into *scope.
 * Without an address UCX takes the first address of the device. Loopback and
 * link-local addresses are not written: for these UCX finds its own. Errors:
 * NOT_FOUND, INVALID_PARAM, IO. */
tmsg_status_t tmsg_scope_of_address(const struct sockaddr *address,
                                    tmsg_ucx_scope_t *scope);

/* Makes `devices` the devices of the scope, unless the list is empty. */
void tmsg_devices_apply(const char *devices, tmsg_ucx_scope_t *scope);

#endif
