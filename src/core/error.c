/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/shown.h"

static _Thread_local char message[TMSG_ERROR_BYTES];

const char *tmsg_error_message(void) { return message; }

/* Makes a text the message. `length` is the length that it was to have. A
 * caller that polls sets one text again and again: equal to the message, it
 * needs no further change. */
static void set_message(char *text, size_t length)
{
    if (length < TMSG_ERROR_BYTES && strcmp(text, message) == 0) {
        return;
    }
    (void)tmsg_shown_fit(text, TMSG_ERROR_BYTES, length >= TMSG_ERROR_BYTES);
    strcpy(message, text);
}

static void format_message(const char *format, va_list args)
{
    char text[TMSG_ERROR_BYTES]; /* args may point into message */
    int length = vsnprintf(text, sizeof(text), format, args);

    if (length < 0) {
        strcpy(message, "(no message)");
    } else {
        set_message(text, (size_t)length);
    }
}

tmsg_status_t tmsg_error_set(tmsg_status_t status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    format_message(format, args);
    va_end(args);
    return status;
}

tmsg_status_t tmsg_error_join(tmsg_status_t status, const char *const *texts,
                              size_t count)
{
    char text[TMSG_ERROR_BYTES];
    size_t length = 0;

    for (size_t i = 0; i < count && length < sizeof(text); i++) {
        size_t bytes = strnlen(texts[i], sizeof(text) - length);

        memcpy(text + length, texts[i], bytes);
        length += bytes;
    }
    text[length < sizeof(text) ? length : sizeof(text) - 1] = '\0';
    set_message(text, length);
    return status;
}

/* Adds to the message that there are no more descriptors. */
static tmsg_status_t no_descriptor(int error)
{
    struct rlimit limit = {0, 0};

    if (error == EMFILE) {
        getrlimit(RLIMIT_NOFILE, &limit);
        return tmsg_error_set(
            TMSG_ERR_LIMIT_EXCEEDED,
            "%s: this process has reached its limit of %llu open descriptors "
            "(RLIMIT_NOFILE, ulimit -n)",
            message, (unsigned long long)limit.rlim_cur);
    }
    return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                          "%s: the system has reached its limit of open "
                          "descriptors (fs.file-max)",
                          message);
}

tmsg_status_t tmsg_error_errno(tmsg_status_t status, const char *format, ...)
{
    int error = errno;
    va_list args;

    va_start(args, format);
    format_message(format, args);
    va_end(args);
    if (error == EMFILE || error == ENFILE) {
        return no_descriptor(error);
    }
    return tmsg_error_set(status, "%s: %s", message, strerror(error));
}

tmsg_error_name_t tmsg_error_name(const char *name, size_t name_bytes)
{
    tmsg_error_name_t shown = {""};
    size_t bytes = name_bytes;

    if (bytes > TMSG_ERROR_NAME_BYTES) {
        bytes = TMSG_ERROR_NAME_BYTES;
        while (bytes > 0 && ((unsigned char)name[bytes] & 0xc0) == 0x80) {
            bytes--; /* goes back to the begin of the character */
        }
        strcpy(shown.text + bytes, "...");
    }
    for (size_t i = 0; i < bytes; i++) {
        shown.text[i] = name[i] == '\0' ? '?' : name[i];
    }
    return shown;
}

tmsg_status_t tmsg_error_memory(const char *what)
{
    return tmsg_error_set(TMSG_ERR_NO_MEMORY, "no memory for %s", what);
}
