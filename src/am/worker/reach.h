/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/reach.h - the devices and the address that the application names.
 */
#ifndef TMSG_AM_WORKER_REACH_H
#define TMSG_AM_WORKER_REACH_H

#include <sys/socket.h>

#include <tensormsg/status.h>

#include "am/ucx/ucx_config.h"

/* Takes devices into text of TMSG_DEVICES_BYTES. Errors: INVALID_PARAM,
 * NOT_FOUND. */
tmsg_status_t tmsg_devices_read(const char *devices, char *text);

/* The network device that has an address, and the address, of which UCX takes
 * the first of a device without it: but for loopback and link-local addresses,
 * of which UCX finds its own. Errors: NOT_FOUND, INVALID_PARAM, IO. */
tmsg_status_t tmsg_scope_of_address(const struct sockaddr *address,
                                    tmsg_ucx_scope_t *scope);

/* Makes them the scope's, unless there are none. */
void tmsg_devices_apply(const char *devices, tmsg_ucx_scope_t *scope);

#endif
