/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/log.h - where the library's log lines go.
 *
 * The library logs nothing unless a program or the variable TENSORMSG_LOG asks
 * for it.
 *
 *     tmsg_log_set(TMSG_LOG_WARN, NULL, NULL); // to standard error
 *     tmsg_log_set_ucx(log_line, NULL);        // UCX's lines to a function
 */
#ifndef TENSORMSG_LOG_H
#define TENSORMSG_LOG_H

#include <tensormsg/api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    TMSG_LOG_NONE = 0,  /* the default: the library prints nothing */
    TMSG_LOG_ERROR = 1, /* something was lost, a message or a peer */
    TMSG_LOG_WARN = 2,  /* something was refused, or took a slow path */
    TMSG_LOG_INFO = 3,  /* connections made and ended */
    TMSG_LOG_DEBUG = 4  /* every message */
} tmsg_log_level_t;

/* Receives one line, without newline. Called on the thread that logs, one call
 * at a time. It must not call the library and must not block. These threads
 * log: those that call the library, those of the library that drive a worker,
 * and one that looks after peers that do not hang up. The last may log for 250
 * ms after tmsg_worker_destroy().
 *
 * Lines that come when the program exits go to standard error. If this function
 * uses something that ends with main(), call tmsg_log_set(level, NULL, NULL)
 * before: afterwards the function is not called any more. */
typedef void (*tmsg_log_fn)(void *arg, tmsg_log_level_t level,
                            const char *line);

/* Peers and strangers can cause some lines as often as they like. Of each kind
 * of such lines ten are written in 10 s. Further ones are counted, and a line
 * says how many there were, and from which peers: "412 connections from
 * 127.0.0.1 did not speak tensormsg in the last 10 s". A thread that drives a
 * worker writes that line after the 10 s, at the latest in
 * tmsg_worker_destroy(). Counts that are left when the process ends go to
 * standard error. Lines of level DEBUG are all written. */

/* Sends lines of `level` and of more severe levels to `fn`; fn NULL means
 * standard error. It holds for the process. Without this call the variable
 * TENSORMSG_LOG (none, error, warn, info, debug) decides, read once.
 * Thread-safe. */
TMSG_API void tmsg_log_set(tmsg_log_level_t level, tmsg_log_fn fn, void *arg);

/* Sends UCX's own lines to `fn`: those that UCX_LOG_LEVEL allows, by default
 * its warnings and errors. Of each source file of UCX ten are written in 10 s.
 * fn NULL means standard error, as without this call. Lines that end the
 * process go to standard error in any case. Nothing comes if UCX_LOG_FILE is
 * set, or if another part of the process takes UCX's lines.
 *
 * It holds for the process. `fn` is as for tmsg_log_set(), but UCX calls it,
 * perhaps with locks of its own held. Output of UCX while a log function runs
 * in the same thread goes to standard error. Thread-safe. */
TMSG_API void tmsg_log_set_ucx(tmsg_log_fn fn, void *arg);

#ifdef __cplusplus
}
#endif

#endif
