/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/pool.h - threads of a server's own that run its handlers. */
#ifndef TMSG_RPC_POOL_H
#define TMSG_RPC_POOL_H

#include "rpc/server.h"

/* As many as server->thread_count. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_pool_start(tmsg_server_t *server);

/* Waits for the handlers that run. */
void tmsg_pool_stop(tmsg_server_t *server);

#endif
