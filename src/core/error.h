/* SPDX-License-Identifier: BSD-3-Clause */
/* core/error.h - how a failing call leaves its error message. */
#ifndef TMSG_CORE_ERROR_H
#define TMSG_CORE_ERROR_H

#include <stddef.h>

#include <tensormsg/status.h>

#define TMSG_ERROR_BYTES 512 /* longest message, with its NUL */
#define TMSG_ERROR_NAME_BYTES 64

/* Formats this thread's error message and returns `status`, so that a failure
 * is one line: return tmsg_error_set(TMSG_ERR_..., "tensor '%s': ...", name).
 * The arguments may point into the current message, and may come from a peer.
 * The message is shown as core/shown.h says, and ends in "..." if it was cut.
 */
tmsg_status_t tmsg_error_set(tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Works as tmsg_error_set(), with `count` texts one behind the other. It costs
 * a tenth of that, for messages that a polling caller gets again and again. */
tmsg_status_t tmsg_error_join(tmsg_status_t status, const char *const *texts,
                              size_t count);

/* Works as tmsg_error_set(), with the text of errno behind it: "bind /run/x: No
 * such file". If descriptors have run out, the status is LIMIT_EXCEEDED and the
 * message names the limit. */
tmsg_status_t tmsg_error_errno(tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct {
    char text[TMSG_ERROR_NAME_BYTES + sizeof("...")];
} tmsg_error_name_t;

/* Returns a name as an error or a log line quotes it, so that a long name does
 * not push out the rest. "..." replaces what is longer than
 * TMSG_ERROR_NAME_BYTES, no character is cut in half, and NUL becomes '?'.
 * tmsg_error_set() and tmsg_log() escape what else cannot be shown. Use the
 * result within one expression: tmsg_error_set(..., "tensor '%s': ...",
 * tmsg_error_name(name, bytes).text) */
tmsg_error_name_t tmsg_error_name(const char *name, size_t name_bytes);

/* Returns NO_MEMORY and sets a message that names what there was no memory
 * for. */
tmsg_status_t tmsg_error_memory(const char *what);

#endif
