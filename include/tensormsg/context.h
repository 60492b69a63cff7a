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
    /* No thread of the context's own, which sends signs of life to the peers
     * and hears theirs while the application computes. Neither side of a
     * connection then notices that the other one is stopped or hangs, and a
     * host that is cut off is noticed by TCP alone, in no less than 2 s; see
     * "Silent peers" in docs/understand/connections.md. */
    TMSG_CONTEXT_NO_THREAD = 1 << 0,

    /* Where a faster path for device memory exists and cannot be taken (UCX
     * does not know that memory, or the receiver has none of its kind), the
     * send or the receive fails with UNSUPPORTED and says why, in place of
     * being staged or falling back to the host. See docs/reference/domains.md.
     */
    TMSG_CONTEXT_REQUIRE_PATH = 1 << 1
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
    uint32_t flags;         /* TMSG_CONTEXT_*; default 0, or NO_THREAD where the
                             * variable TENSORMSG_NO_THREAD is 1, REQUIRE_PATH
                             * where TENSORMSG_REQUIRE_PATH is */
    uint32_t peer_timeout_ms; /* a peer that was silent for so long (stopped,
                               * hanging, cut off) is lost: its endpoint ends
                               * with PEER_LOST. 0: never; else at least 200.
                               * Default 5000, or what the variable
                               * TENSORMSG_PEER_TIMEOUT_MS says */
    const char *config_file;  /* JSON, docs/reference/configuration.md: what
                               * stands  behind the fields above and the
                               * variables.  Default what the variable
                               * TENSORMSG_CONFIG  names, or none; "" is none */
    tmsg_trace_fn on_trace;   /* told of each step of each message; default
                               * NULL, which costs nothing */
    void *on_trace_arg;       /* passed to on_trace; set with it */
    const char *device_table; /* numbers for devices: JSON, or the name of a
                               * file of it (docs/reference/devices.md). Default
                               * what the variable TENSORMSG_DEVICE_TABLE says,
                               * or none; "" is none */
    tmsg_keyring_t *keyring; /* that peers have to prove a key of, and that this
                              * side proves one of (tensormsg/key.h), of all
                              * listeners and endpoints that are given none of
                              * their own. Default NULL: no key */
} tmsg_context_params_t;

/* Creates a context. *params (NULL: all defaults) is copied with what it
 * points to. The variable TENSORMSG_THRESHOLDS says at which sizes messages
 * take another way (docs/reference/thresholds.md),
 * TENSORMSG_HUGE_PAGE_BYTES from which size on the library asks for huge pages
 * (docs/reference/configuration.md). On TMSG_OK the caller owns *context_p and
 * frees it with tmsg_context_destroy(). Opens no network port and starts no
 * thread yet: the first connection starts the small one, which blocks all
 * signals and ends with the context. Thread-safe. Errors: INVALID_PARAM
 * (unknown bit or flag, a limit of 0, a peer_timeout_ms below 200, a variable
 * that says no such thing, a configuration file that is not as
 * docs/reference/configuration.md has it, a device table that is not as
 * docs/reference/devices.md has it or names no device of this machine,
 * malformed ucx_config, a value that UCX cannot read or a key that it has not;
 * up to UCX 1.16 such a key shows when UCX is first opened, by a listener or a
 * connection), NOT_FOUND (no such file), IO, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_context_create(const tmsg_context_params_t *params,
                                           tmsg_context_t **context_p);

/* Gives the caller's hold back. Workers of the context keep what they need of
 * it, so the order of destruction does not matter. NULL is allowed. */
TMSG_API void tmsg_context_destroy(tmsg_context_t *context);

/* The device that the context's device table calls by `index`, for a tensor, or
 * to receive into (tmsg_incoming_choose()). From any thread. Errors: NOT_FOUND
 * (no such entry, or no table), UNSUPPORTED (no driver of this process shows
 * that device: its ordinal is not known), INVALID_PARAM (NULL). */
TMSG_API tmsg_status_t tmsg_context_device(const tmsg_context_t *context,
                                           uint32_t index,
                                           tmsg_device_t *device_p);

/* Describes the machine and the set-up as a JSON object: "version",
 * "wire_version" and "ucx_version"; "tls", the version of OpenSSL, or that
 * there is none; "config_file", the one that was read or "";
 * "peer_timeout_ms", and "heartbeats", false with TMSG_CONTEXT_NO_THREAD;
 * "limits" (tensormsg/limits.h); "huge_page_bytes" and "bulk_connections"
 * (docs/reference/configuration.md);
 * "thresholds" of docs/reference/thresholds.md for each transport
 * (null: never); "ucx_keys", UCX's keys that are ours or the user's, each with
 * "name", "value", "origin" (code, environment, file or default) and "why" we
 * set it, and all UCX_* variables of the environment; "transports", with their
 * devices, and "ucx_memory_types" that UCX finds; "domains", the kinds of
 * memory with "how" their tensors travel (docs/reference/domains.md); "devices"
 * of the machine as tensormsg/devices.h has them; "cuda_driver" and "nvml",
 * which of NVIDIA's drivers was met and what follows. Opens and closes UCX to
 * look, which takes some milliseconds; where that fails "transports" is empty,
 * "ucx_memory_types" is missing, and "ucx_error" says why. Opens NVIDIA's
 * drivers, if there are some, and makes no context on a GPU. *json_p is freed
 * with tmsg_string_free(). Errors: NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_context_describe(tmsg_context_t *context,
                                             char **json_p);

#ifdef __cplusplus
}
#endif

#endif
