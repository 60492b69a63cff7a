/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/context.h - what the workers of a process share.
 *
 * A context holds limits, settings of UCX, keys, and the thread that notices
 * silent peers. One context is enough for a process. A worker that is created
 * without a context gets its own.
 *
 *     tmsg_context_create(NULL, &context);
 *     tmsg_worker_create(context, NULL, &worker);
 *     tmsg_context_describe(context, &json); // the machine and the settings
 *     tmsg_string_free(json);
 *     tmsg_context_destroy(context);
 */
#ifndef TENSORMSG_CONTEXT_H
#define TENSORMSG_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/device.h>
#include <tensormsg/key.h>
#include <tensormsg/limits.h>
#include <tensormsg/status.h>
#include <tensormsg/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tmsg_context tmsg_context_t;

enum {
    TMSG_CONTEXT_PARAM_LIMITS = 1 << 0,
    TMSG_CONTEXT_PARAM_UCX_CONFIG = 1 << 1,
    TMSG_CONTEXT_PARAM_FLAGS = 1 << 2,
    TMSG_CONTEXT_PARAM_PEER_TIMEOUT = 1 << 3,
    TMSG_CONTEXT_PARAM_ON_TRACE = 1 << 4,
    TMSG_CONTEXT_PARAM_CONFIG_FILE = 1 << 5,
    TMSG_CONTEXT_PARAM_DEVICE_TABLE = 1 << 6,
    TMSG_CONTEXT_PARAM_KEYRING = 1 << 7
};

enum {
    /* The context has no thread of its own. That thread exchanges heartbeats
     * with the peers while the application computes. Without it neither side of
     * a connection notices that the other one is stopped or hangs. TCP alone
     * notices a host that is cut off, after 2 s or more. See
     * "Silent peers" in docs/understand/connections.md. */
    TMSG_CONTEXT_NO_THREAD = 1 << 0,

    /* A send or receive of device memory fails with UNSUPPORTED, and says why,
     * if a faster path exists and cannot be used. UCX may not know the memory,
     * or the receiver may have no such memory. Without this flag the data are
     * staged, or fall back to the host. See docs/reference/domains.md. */
    TMSG_CONTEXT_REQUIRE_PATH = 1 << 1
};

typedef struct tmsg_context_params {
    uint64_t field_mask; /* TMSG_CONTEXT_PARAM_*; unset fields default */
    const tmsg_limits_t *limits; /* for peers; NULL: all defaults */
    const char *ucx_config;   /* UCX keys of your own, without the UCX_ prefix:
                               * "TLS=tcp;RNDV_THRESH=64k". They outrank UCX_*
                               * variables, which outrank our defaults. Up to
                               * UCX 1.16 a transport's key goes without the
                               * transport's name ("PUT_ENABLE", not
                               * "TCP_PUT_ENABLE"). */
    uint32_t flags;           /* TMSG_CONTEXT_*; default 0. The default has
                               * NO_THREAD if the variable TENSORMSG_NO_THREAD
                               * is 1, and REQUIRE_PATH if
                               * TENSORMSG_REQUIRE_PATH is 1 */
    uint32_t peer_timeout_ms; /* a peer that is silent for this time (stopped,
                               * hanging, cut off) is lost: its endpoint ends
                               * with PEER_LOST. 0: never; else at least 200.
                               * Default 5000, or the variable
                               * TENSORMSG_PEER_TIMEOUT_MS */
    const char *config_file;  /* name of a JSON file
                               * (docs/reference/configuration.md), which ranks
                               * below the fields above and the variables.
                               * Default the variable TENSORMSG_CONFIG, or no
                               * file; "" is no file */
    tmsg_trace_fn on_trace;   /* called at each step of each message; default
                               * NULL, which costs nothing */
    void *on_trace_arg;       /* passed to on_trace; set with it */
    const char *device_table; /* numbers for devices: JSON, or the name of a
                               * JSON file (docs/reference/devices.md). Default
                               * the variable TENSORMSG_DEVICE_TABLE, or no
                               * table; "" is no table */
    tmsg_keyring_t *keyring;  /* for all listeners and endpoints that are given
                               * no keyring of their own: peers prove a key of
                               * it, and so does this side (tensormsg/key.h).
                               * Default NULL: no key */
} tmsg_context_params_t;

/* Creates a context. *params (NULL: all defaults) is copied with what it
 * points to. On TMSG_OK the caller owns *context_p and frees it with
 * tmsg_context_destroy().
 *
 * The variable TENSORMSG_THRESHOLDS sets the sizes at which messages take
 * another path (docs/reference/thresholds.md). TENSORMSG_HUGE_PAGE_BYTES sets
 * the size from which on the library asks for huge pages
 * (docs/reference/configuration.md).
 *
 * This call opens no network port and starts no thread. The first connection
 * starts the context's thread, which blocks all signals and ends with the
 * context. Thread-safe. Errors:
 *   INVALID_PARAM - an unknown bit or flag; a limit of 0; a peer_timeout_ms
 *     below 200; a variable with a value that is not allowed; a configuration
 *     file or device table that breaks its format; a device table with a device
 *     that this machine does not have; a ucx_config that is malformed, has a
 *     key that UCX does not know, or a value that UCX cannot read. Up to UCX
 *     1.20 an unknown key shows when UCX is first opened, by a listener or a
 *     connection.
 *   NOT_FOUND - no such file
 *   IO - the file cannot be read
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_context_create(const tmsg_context_params_t *params,
                                           tmsg_context_t **context_p);

/* Gives the caller's hold back. The workers of the context keep what they need,
 * so contexts and workers may be destroyed in any order. NULL is allowed. */
TMSG_API void tmsg_context_destroy(tmsg_context_t *context);

/* Gives the device that the context's device table calls `index`, for a tensor
 * or for tmsg_incoming_choose(). From any thread. Errors:
 *   NOT_FOUND - no such entry, or no table
 *   UNSUPPORTED - no driver of this process shows that device, so that its
 *     ordinal is not known
 *   INVALID_PARAM - a pointer is NULL */
TMSG_API tmsg_status_t tmsg_context_device(const tmsg_context_t *context,
                                           uint32_t index,
                                           tmsg_device_t *device_p);

/* Describes the machine and the settings as a JSON object:
 *  - "version", "wire_version", "ucx_version"
 *  - "tls": the version of OpenSSL, or that it is missing
 *  - "config_file": the file that was read, or ""
 *  - "peer_timeout_ms"
 *  - "heartbeats": false with TMSG_CONTEXT_NO_THREAD
 *  - "limits": tensormsg/limits.h
 *  - "huge_page_bytes", "bulk_connections": docs/reference/configuration.md
 *  - "thresholds": of each transport (docs/reference/thresholds.md); null:
 *    never
 *  - "ucx_keys": UCX's keys that the library or the user sets, and all UCX_*
 *    variables. Each has "name", "value", "origin" (code, environment, file or
 *    default) and "why" the library sets it
 *  - "transports": those that UCX finds, with their devices
 *  - "ucx_memory_types": those that UCX finds
 *  - "domains": kinds of memory, with "how" their tensors travel
 *    (docs/reference/domains.md)
 *  - "devices": of the machine, as in tensormsg/devices.h
 *  - "cuda_driver", "nvml": which of NVIDIA's drivers was found, and what
 *    follows
 *  - "ucx_error": only if UCX cannot be opened: why. Then "transports" is empty
 *    and "ucx_memory_types" is missing.
 *
 * This call opens and closes UCX, which takes some milliseconds. It opens
 * NVIDIA's drivers if they are there, and makes no context on a GPU. *json_p is
 * freed with tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_context_describe(tmsg_context_t *context,
                                             char **json_p);

#ifdef __cplusplus
}
#endif

#endif
