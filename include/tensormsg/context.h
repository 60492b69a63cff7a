/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/context.h - what the workers of a process share. */
#ifndef TENSORMSG_CONTEXT_H
#define TENSORMSG_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/limits.h>
#include <tensormsg/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tmsg_context tmsg_context_t;

enum {
    TMSG_CONTEXT_PARAM_LIMITS = 1 << 0,
    TMSG_CONTEXT_PARAM_UCX_CONFIG = 1 << 1
};

typedef struct tmsg_context_params {
    uint64_t field_mask; /* TMSG_CONTEXT_PARAM_*; unset fields default */
    const tmsg_limits_t *limits; /* of peers; NULL: all defaults */
    const char *ucx_config; /* UCX keys of your own, "TLS=tcp;RNDV_THRESH=64k"
                             * without the UCX_ prefix. They outrank UCX_*
                             * variables, which outrank our defaults. Up to
                             * UCX 1.16 a transport's key goes without the
                             * transport's name ("PUT_ENABLE", not
                             * "TCP_PUT_ENABLE"). */
} tmsg_context_params_t;

/* Creates a context. *params (NULL: all defaults) is copied with what it
 * points to. On TMSG_OK the
 * caller owns *context_p and frees it with tmsg_context_destroy(). Opens no
 * network port and starts no thread yet. Thread-safe. Errors: INVALID_PARAM
 * (unknown bit, a limit of 0, malformed ucx_config, a value that UCX cannot
 * read or a key that it has not; up to UCX 1.16 such a key shows when UCX is
 * first opened, by a listener or a connection), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_context_create(const tmsg_context_params_t *params,
                                           tmsg_context_t **context_p);

/* Gives the caller's hold back. Workers of the context keep what they need of
 * it, so the order of destruction does not matter. NULL is allowed. */
TMSG_API void tmsg_context_destroy(tmsg_context_t *context);

/* Describes the machine and the set-up as a JSON object: library, wire and UCX
 * versions, the transports and devices that UCX finds, limits, and every UCX
 * key with its value and origin (code, environment, default) and why we set
 * it, with all UCX_* variables of the environment. Opens and closes UCX to
 * look, which takes some milliseconds; where that fails, "transports" is empty
 * and "ucx_error" says why. *json_p is freed with tmsg_string_free(). Errors:
 * NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_context_describe(tmsg_context_t *context,
                                             char **json_p);

#ifdef __cplusplus
}
#endif

#endif
