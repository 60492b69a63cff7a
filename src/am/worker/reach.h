/* SPDX-License-Identifier: BSD-3-Clause */
/* am/worker/reach.h - the devices and the address that the application names.
 */
#ifndef TMSG_AM_WORKER_REACH_H
#define TMSG_AM_WORKER_REACH_H

#include "am/listen/listener.h"

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

/* Whether it may be reached by others than this machine's: they have to prove a
 * key, or the application wants them. */
bool tmsg_listener_is_open(const tmsg_listener_t *listener,
                           const tmsg_listener_params_t *params);

/* Takes the URL that peers are told, with the bound port where it has none;
 * NULL is none. Errors: INVALID_PARAM. */
tmsg_status_t tmsg_listener_advertise(tmsg_listener_t *listener,
                                      const char *text, tmsg_url_kind_t kind);

/* Takes the devices, which open UCX's door to more. Errors: as above, and
 * INSECURE. */
tmsg_status_t tmsg_listener_name_devices(const tmsg_listener_params_t *params,
                                         tmsg_url_kind_t kind,
                                         tmsg_listener_t *listener);

#endif
