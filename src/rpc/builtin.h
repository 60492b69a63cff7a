/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/builtin.h - the methods that every worker answers, with or without a
 * server of the application's. They are methods of a server of the hub's own,
 * hub->builtin, which is not bounded and is never drained. */
#ifndef TMSG_RPC_BUILTIN_H
#define TMSG_RPC_BUILTIN_H

#include "rpc/server.h"

/* Makes hub->builtin, which holds the hub. Errors: NO_MEMORY. */
tmsg_status_t tmsg_builtin_create(tmsg_hub_t *hub);

/* Gives hub->builtin up: the worker is gone. Lock not held. */
void tmsg_builtin_leave(tmsg_hub_t *hub);

/* Adds a method of the library's own to a server. Takes the lock. Errors:
 * NO_MEMORY. */
tmsg_status_t tmsg_builtin_add(tmsg_server_t *server, const char *name,
                               tmsg_handler_fn handler, uint32_t flags);

/* tmsg_hub_method() returns the method of that name, of the application's
 * server or of hub->builtin; NULL: there is none. tmsg_hub_method_called() does
 * so for a call, and looks first at the methods of the last calls. Lock held.
 */
tmsg_method_t *tmsg_hub_method(const tmsg_hub_t *hub, const char *name,
                               size_t bytes);
tmsg_method_t *tmsg_hub_method_called(const tmsg_hub_t *hub, const char *name,
                                      size_t bytes);

#endif
