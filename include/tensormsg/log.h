/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/log.h - where the library's log lines go. */
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

/* Receives one line, without newline. Called from whichever thread logs, one
 * call at a time; it must not call the library and must not block. */
typedef void (*tmsg_log_fn)(void *arg, tmsg_log_level_t level,
                            const char *line);

/* Sends lines of `level` and graver to `fn`; fn NULL means standard error.
 * Holds for the process. Without this call the variable TENSORMSG_LOG (none,
 * error, warn, info, debug) decides, read once. Thread-safe. */
TMSG_API void tmsg_log_set(tmsg_log_level_t level, tmsg_log_fn fn, void *arg);

#ifdef __cplusplus
}
#endif

#endif
