/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/reflect.h - the methods that every server has. */
#ifndef TMSG_RPC_REFLECT_H
#define TMSG_RPC_REFLECT_H

#include "rpc/server.h"

/* Of the metadata that travels. */
#define TMSG_REFLECT_METHOD "method/" /* and its name: what the list says */
#define TMSG_HEALTH_ASKED "method"
#define TMSG_HEALTH_TOLD "health"

/* Gives a new server those that `flags` (TMSG_SERVER_*) do not take away.
 * Errors: NO_MEMORY. */
tmsg_status_t tmsg_reflect_offer(tmsg_server_t *server, uint32_t flags);

/* The value of a word that came; 0: none that is known. */
tmsg_health_t tmsg_health_of(const char *word);

#endif
