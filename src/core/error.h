/* SPDX-License-Identifier: BSD-3-Clause */
/* core/error.h - how a failing call leaves its words behind. */
#ifndef TMSG_CORE_ERROR_H
#define TMSG_CORE_ERROR_H

#include <stddef.h>

#include <tensormsg/status.h>

#define TMSG_ERROR_BYTES 512 /* longest message, NUL included */

/* Formats this thread's error message and returns `status`, so that a failure
 * is one line: return tmsg_error_set(TMSG_ERR_..., "tensor '%s': ...", name).
 * The arguments may point into the current message, and may be a peer's: the
 * message is one line of UTF-8 whatever they hold, and ends in "..." where it
 * was cut. tmsg_error_clip() keeps a name from pushing the rest out. */
tmsg_status_t tmsg_error_set(tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for IO, with errno's text appended: "bind /run/x: No such file". */
tmsg_status_t tmsg_error_errno(tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* How many of a name's bytes a message shows: "%.*s". */
int tmsg_error_clip(size_t name_bytes);

/* NO_MEMORY, with what could not be had. */
tmsg_status_t tmsg_error_memory(const char *what);

#endif
