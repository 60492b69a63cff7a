/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/principal.h - who may call a method. */
#ifndef TMSG_RPC_PRINCIPAL_H
#define TMSG_RPC_PRINCIPAL_H

#include <stdbool.h>

#include <tensormsg/server.h>

/* Copies a list of names, with a space between two; a NULL list gives NULL. The
 * caller frees the copy with free(). Errors: INVALID_PARAM (the words begin
 * with `of`), NO_MEMORY. */
tmsg_status_t tmsg_principals_read(const char *of, const char *list,
                                   char **copy_p);

/* Stands on a list for every principal. */
#define TMSG_PRINCIPAL_ANY "*"

/* Returns whether a name is on the list, which may be NULL. */
bool tmsg_principals_have(const char *list, const char *name);

/* Returns whether the endpoint's principal is on the list. */
bool tmsg_principals_allow(const char *list, const tmsg_endpoint_t *endpoint);

/* Checks that it is on the list of a method. Errors: REFUSED; its words name
 * nobody who is on the list. */
tmsg_status_t tmsg_principals_check(const char *list,
                                    const tmsg_endpoint_t *endpoint);

#endif
