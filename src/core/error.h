/* SPDX-License-Identifier: BSD-3-Clause */
/* core/error.h - how a failing call leaves its words behind. */
#ifndef TMSG_CORE_ERROR_H
#define TMSG_CORE_ERROR_H

#include <stddef.h>

#include <tensormsg/status.h>

#define TMSG_ERROR_BYTES 512 /* longest message, NUL included */
#define TMSG_ERROR_NAME_BYTES 64

/* Formats this thread's error message and returns `status`, so that a failure
 * is one line: return tmsg_error_set(TMSG_ERR_..., "tensor '%s': ...", name).
 * The arguments may point into the current message, and may be a peer's: the
 * message is one line of UTF-8 whatever they hold, and ends in "..." where it
 * was cut. */
tmsg_status_t tmsg_error_set(tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same of texts one behind the other, which costs a tenth: for what is said
 * to who polls, again and again. */
tmsg_status_t tmsg_error_join(tmsg_status_t status, const char *const *texts,
                              size_t count);

/* tmsg_error_set() for IO, with errno's text appended: "bind /run/x: No such
 * file". Out of descriptors it is LIMIT_EXCEEDED, and the limit is named. */
tmsg_status_t tmsg_error_errno(tmsg_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct {
    char text[TMSG_ERROR_NAME_BYTES + sizeof("...")];
} tmsg_error_name_t;

/* A name as an error or a log line quotes it, which keeps it from pushing the
 * rest out: "..." in place of what is longer than TMSG_ERROR_NAME_BYTES, never
 * half a character, '?' for NUL. What else cannot be shown is left to
 * tmsg_error_set() and tmsg_log(). To be used within one expression:
 * tmsg_error_set(..., "tensor '%s': ...", tmsg_error_name(name, bytes).text) */
tmsg_error_name_t tmsg_error_name(const char *name, size_t name_bytes);

/* NO_MEMORY, with what could not be had. */
tmsg_status_t tmsg_error_memory(const char *what);

#endif
