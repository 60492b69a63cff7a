/* SPDX-License-Identifier: BSD-3-Clause */
/* core/error.h - how a failing call leaves its words behind. */
#ifndef TMSG_CORE_ERROR_H
#define TMSG_CORE_ERROR_H

#include <tensormsg/status.h>

#define TMSG_ERROR_BYTES 512 /* longest message, NUL included */

/* Formats this thread's error message and returns `status`, so that a failure
 * is one line: return tmsg_error_set(TMSG_ERR_..., "tensor '%s': ...", name).
 * The arguments may point into the current message. */
tmsg_status_t tmsg_error_set(tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for IO, with errno's text appended: "bind /run/x: No such file". */
tmsg_status_t tmsg_error_errno(tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* NO_MEMORY, with what could not be had. */
tmsg_status_t tmsg_error_memory(const char *what);

#endif
