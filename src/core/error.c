/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[TMSG_ERROR_BYTES];

const char *tmsg_error_message(void) { return message; }

static void format_message(const char *format, va_list args)
{
    char text[TMSG_ERROR_BYTES]; /* args may point into message */

    vsnprintf(text, sizeof(text), format, args);
    memcpy(message, text, sizeof(message));
}

tmsg_status_t tmsg_error_set(tmsg_status_t status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    format_message(format, args);
    va_end(args);
    return status;
}

tmsg_status_t tmsg_error_errno(tmsg_status_t status, const char *format, ...)
{
    int error = errno;
    size_t used;
    va_list args;

    va_start(args, format);
    format_message(format, args);
    va_end(args);
    used = strlen(message);
    snprintf(message + used, sizeof(message) - used, ": %s", strerror(error));
    return status;
}

tmsg_status_t tmsg_error_memory(const char *what)
{
    return tmsg_error_set(TMSG_ERR_NO_MEMORY, "no memory for %s", what);
}
