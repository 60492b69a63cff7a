/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/refuse.h - what a server was asked for and no handler will see, nor a
 * `begin` of an interceptor. */
#ifndef TMSG_RPC_REFUSE_H
#define TMSG_RPC_REFUSE_H

#include "rpc/server.h"

/* A call that comes, or the opening of a stream, is refused, with that: it is
 * counted. The worker's lock may be held, the hub's is not. True: interceptors
 * are to be told, and the worker is to be woken for that. */
bool tmsg_refuse(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                 tmsg_status_t status, const char *words);

/* A task, which counts as such, has ended so: tells interceptors. Without a
 * lock. */
void tmsg_refuse_task(const tmsg_task_t *task, tmsg_status_t status,
                      const char *words);

#endif
