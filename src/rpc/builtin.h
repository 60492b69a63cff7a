/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/builtin.h - the methods that every worker answers, with or without a
 * server of the application's. They are methods of a server of the hub's own,
 * hub->builtin, which is not bounded and is never drained. It is made when it
 * is first needed. */
#ifndef TMSG_RPC_BUILTIN_H
#define TMSG_RPC_BUILTIN_H

#include "rpc/server.h"

/* Makes hub->builtin, which holds the hub, and hub->offers, if there are none.
 * Lock held. Errors: NO_MEMORY, CLOSED (the worker is gone). */
tmsg_status_t tmsg_builtin_begin(tmsg_hub_t *hub);

/* Gives hub->builtin up: the worker is gone. Lock not held. */
void tmsg_builtin_leave(tmsg_hub_t *hub);

/* Makes a method of the library's own; NULL: no memory. */
tmsg_method_t *tmsg_builtin_method(const char *name, tmsg_handler_fn handler,
                                   uint32_t flags);

/* A list of methods or of offers, or a description, costs far more than the
 * call that asks for it: few go to a peer at a time. tmsg_list_begin() counts
 * one more; tmsg_list_end() replies with it, or fails if `status` is not OK,
 * and destroys it. Lock not held. Errors: RESOURCE_EXHAUSTED. */
#define TMSG_LISTS_MOST 4

tmsg_status_t tmsg_list_begin(tmsg_task_t *task);
void tmsg_list_end(tmsg_task_t *task, tmsg_status_t status, tmsg_map_t *map);

/* tmsg_hub_method() returns the method of that name, of the application's
 * server or of hub->builtin; NULL: there is none. tmsg_hub_method_called() does
 * so for a call: it looks first at the methods of the last calls, and makes
 * hub->builtin if the name is of a method there. It returns NULL, and sets
 * *status_p, if there is no memory for that. Lock held. */
tmsg_method_t *tmsg_hub_method(const tmsg_hub_t *hub, const char *name,
                               size_t bytes);
tmsg_method_t *tmsg_hub_method_called(tmsg_hub_t *hub, const char *name,
                                      size_t bytes, tmsg_status_t *status_p);

#endif
