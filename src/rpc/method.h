/* SPDX-License-Identifier: BSD-3-Clause */
/* rpc/method.h - the signature and description that a method was declared with.
 */
#ifndef TMSG_RPC_METHOD_H
#define TMSG_RPC_METHOD_H

#include "rpc/server.h"

/* Gives a method its signature and description. Errors: INVALID_PARAM,
 * LIMIT_EXCEEDED, NO_MEMORY. */
tmsg_status_t tmsg_method_declare(tmsg_method_t *method,
                                  const tmsg_method_params_t *params);

/* Names that begin with this are the library's own. */
#define TMSG_METHOD_RESERVED "tensormsg."

bool tmsg_method_is_reserved(const char *name, size_t bytes);

/* Frees a method. NULL is allowed. */
void tmsg_method_free(tmsg_method_t *method);

/* Checks whether a request may go to the handler. Errors: INVALID_PARAM. */
static inline tmsg_status_t
tmsg_method_check_request(const tmsg_method_t *method,
                          const tmsg_map_t *request)
{
    return method->signature == NULL
               ? TMSG_OK
               : tmsg_signature_check_inputs(method->signature, request);
}

/* Checks whether a reply may go to the caller. The method has a signature.
 * Errors: INTERNAL. */
tmsg_status_t tmsg_method_check_reply(const tmsg_method_t *method,
                                      const tmsg_map_t *request,
                                      const tmsg_map_t *reply);

#endif
