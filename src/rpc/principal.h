/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/principal.h - who may call a method. */
#ifndef TMSG_RPC_PRINCIPAL_H
#define TMSG_RPC_PRINCIPAL_H

#include <tensormsg/server.h>

/* Copies a list of names, with a space between two; of NULL it is NULL. Freed
 * with free(). Errors: INVALID_PARAM, NO_MEMORY. */
tmsg_status_t tmsg_principals_read(const char *list, char **copy_p);

/* Whether who comes by the endpoint is on the list. Errors: REFUSED, in words
 * that name nobody who is. */
tmsg_status_t tmsg_principals_check(const char *list,
                                    const tmsg_endpoint_t *endpoint);

#endif
