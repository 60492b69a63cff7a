/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/must.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void die(const char *format, ...)
{
    char line[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    fprintf(stderr, "%s\n", line);
    abort();
}

void must_status(const char *file, int line, const char *call,
                 tmsg_status_t got, tmsg_status_t wanted)
{
    if (got != wanted) {
        die("%s:%d: %s\n    gave '%s' where '%s' was wanted; last error: %s",
            file, line, call, tmsg_status_name(got), tmsg_status_name(wanted),
            tmsg_error_message());
    }
}

void must_hold(const char *file, int line, const char *words, const char *part)
{
    if (words == NULL || strstr(words, part) == NULL) {
        die("%s:%d: '%s' does not say '%s'", file, line,
            words == NULL ? "(null)" : words, part);
    }
}

void must_equal(const char *file, int line, const char *what, long long got,
                long long wanted)
{
    if (got != wanted) {
        die("%s:%d: %s is %lld, not %lld", file, line, what, got, wanted);
    }
}
