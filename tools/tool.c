/* SPDX-License-Identifier: BSD-3-Clause */
#include "tool.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "progress.h"

#define NS_PER_MS 1000000ULL

/* UCX took the old stream when it was loaded. */
void keep_stdout(void)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "w");

    if (stream == NULL || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        if (stream != NULL) {
            fclose(stream);
        } else if (fd >= 0) {
            close(fd);
        }
        return; /* the one or the other is closed: there is nothing to mix */
    }
    stdout = stream;
}

void put_text(FILE *stream, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c == 0x7f) {
            fprintf(stream, "\\x%02x", *c);
        } else if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) {
            c++; /* U+0080 to U+009f are control characters as well */
            fprintf(stream, "\\x%02x", *c);
        } else {
            putc(*c, stream);
        }
    }
}

void complain(const char *format, ...)
{
    char line[1400];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    progress_clear();
    flockfile(stderr);
    fputs("tensormsg: ", stderr);
    put_text(stderr, line);
    putc('\n', stderr);
    funlockfile(stderr);
}

const char *format_bytes(uint64_t bytes, char *text)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes / 1000;
    size_t unit = 0;

    while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1000;
        unit++;
    }
    if (bytes < 1000) {
        snprintf(text, BYTES_TEXT, "%" PRIu64 " B", bytes);
    } else {
        snprintf(text, BYTES_TEXT, "%.3g %s", value, units[unit]);
    }
    return text;
}

int parse_seconds(const char *text, struct argp_state *state)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end != '\0' || !(seconds > 0) || seconds > 1e6) {
        argp_error(state, "'%s' is not a number of seconds above 0", text);
    }
    return seconds < 0.001 ? 1 : (int)(seconds * 1000);
}

unsigned parse_count(const char *text, struct argp_state *state)
{
    char *end;
    unsigned long count = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0' || count < 1 ||
        count > UINT_MAX) {
        argp_error(state, "'%s' is not a number of 1 or more", text);
    }
    return (unsigned)count;
}

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

int ms_until(uint64_t deadline_ns)
{
    uint64_t now = now_ns();
    uint64_t left;

    if (now >= deadline_ns) {
        return 0;
    }
    left = (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return left > INT_MAX ? INT_MAX : (int)left;
}
