/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/pool.h - a server's own threads, which run its handlers. */
#ifndef TMSG_RPC_POOL_H
#define TMSG_RPC_POOL_H

#include "rpc/server.h"

/* Starts server->thread_count threads. Errors: NO_MEMORY, IO. */
tmsg_status_t tmsg_pool_start(tmsg_server_t *server);

/* Ends the threads, and waits for the handlers that run. */
void tmsg_pool_stop(tmsg_server_t *server);

#endif
