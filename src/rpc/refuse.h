/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/refuse.h - what a server was asked for and does not take. */
#ifndef TMSG_RPC_REFUSE_H
#define TMSG_RPC_REFUSE_H

#include "rpc/server.h"

/* A call that comes, or a stream, is refused, with that: it is counted. The
 * worker's lock may be held, the hub's is not. */
void tmsg_refuse(tmsg_rpc_peer_t *peer, const tmsg_call_head_t *head,
                 tmsg_status_t status);

#endif
