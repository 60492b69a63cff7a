/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/refuse.h - calls that were refused before a handler or a `begin` of an
 * interceptor saw them. */
#ifndef TMSG_RPC_REFUSE_H
#define TMSG_RPC_REFUSE_H

#include "rpc/server.h"

/* Counts a call or stream that is refused with `status`. The worker's lock may
 * be held, the hub's is not. Returns true if interceptors are to be told; the
 * caller then wakes the worker. */
bool tmsg_refuse(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                 tmsg_status_t status, const char *words);

/* Tells interceptors that a task, which is counted as a task, has ended so.
 * Lock not held. */
void tmsg_refuse_task(const tmsg_task_t *task, tmsg_status_t status,
                      const char *words);

#endif
