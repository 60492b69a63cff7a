/* SPDX-License-Identifier: BSD-3-Clause */
#include "tool.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/shown.h"
#include "output.h"
#include "progress.h"

#define NS_PER_MS 1000000ULL

void put_text(FILE *stream, const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        char escape[TMSG_SHOWN_ESCAPE];
        uint32_t code;
        size_t length = tmsg_shown_read(text, left, &code);

        if (tmsg_shown_hides(code)) {
            fwrite(escape, 1, tmsg_shown_escape(escape, code), stream);
        } else {
            fwrite(text, 1, length, stream);
        }
        text += length;
        left -= length;
    }
}

/* JSON has no escape for a byte that is not UTF-8: U+FFFD replaces it. */
static void put_json_escape(FILE *stream, uint32_t code)
{
    if (code & TMSG_SHOWN_BYTE) {
        fputs("\\ufffd", stream);
    } else if (code < 0x10000) {
        fprintf(stream, "\\u%04x", code);
    } else {
        fprintf(stream, "\\u%04x\\u%04x", 0xd800 + (code - 0x10000) / 0x400,
                0xdc00 + (code - 0x10000) % 0x400);
    }
}

/* Hidden characters occur only within strings, where JSON allows \u. Line ends
 * and tabs occur only outside of strings. */
void put_json(FILE *stream, const char *json)
{
    size_t left = strlen(json);

    while (left > 0) {
        uint32_t code;
        size_t length = tmsg_shown_read(json, left, &code);

        if (code < 0x20 || !tmsg_shown_hides(code)) {
            fwrite(json, 1, length, stream);
        } else {
            put_json_escape(stream, code);
        }
        json += length;
        left -= length;
    }
}

void complain(const char *format, ...)
{
    char line[1400];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (length < 0) {
        return;
    }
    (void)tmsg_shown_fit(line, sizeof(line), (size_t)length >= sizeof(line));
    if (!output_await_room(STDERR_FILENO)) {
        return;
    }
    progress_clear();
    flockfile(stderr);
    fputs("tensormsg: ", stderr);
    fputs(line, stderr);
    putc('\n', stderr);
    funlockfile(stderr);
}

bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);

    return length >= tail && strcmp(path + length - tail, ending) == 0;
}

const char *plural(size_t count) { return count == 1 ? "" : "s"; }

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
