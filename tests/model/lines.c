/* SPDX-License-Identifier: BSD-3-Clause */
#include "lines.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/must.h"

void say(const char *format, ...)
{
    char line[1024];
    va_list args;
    int bytes;

    va_start(args, format);
    bytes = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    line[bytes++] = '\n';
    must_eq(write(STDOUT_FILENO, line, (size_t)bytes), bytes);
}

bool lines_hear(void (*obey)(const char *line))
{
    static char text[65536];
    static size_t used;
    struct pollfd fd = {STDIN_FILENO, POLLIN, 0};
    char *line = text, *end;
    ssize_t bytes;

    if (poll(&fd, 1, 0) == 0) {
        return false;
    }
    bytes = read(STDIN_FILENO, text + used, sizeof(text) - used);
    if (bytes <= 0) {
        _exit(0);
    }
    used += (size_t)bytes;
    while ((end = memchr(line, '\n', used - (size_t)(line - text))) != NULL) {
        *end = '\0';
        obey(line);
        line = end + 1;
    }
    used -= (size_t)(line - text);
    memmove(text, line, used);
    return true;
}
