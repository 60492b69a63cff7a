/* SPDX-License-Identifier: BSD-3-Clause */
#include "tool.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "progress.h"

#define NS_PER_MS 1000000ULL

/* These characters are invisible and change how others look. The control
 * characters are U+0001 to U+001f and U+007f to U+009f. Most of the others are
 * of Unicode's class Cf: they turn the direction of writing, have no width, or
 * are tags. The joiners U+200c and U+200d are not in the list, because some
 * scripts need them. */
static const struct {
    unsigned first, last;
} hidden[] = {
    {0x01, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},
    {0x180e, 0x180e}, {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e},
    {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
};

static bool is_hidden(unsigned code)
{
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        if (code >= hidden[i].first && code <= hidden[i].last) {
            return true;
        }
    }
    return false;
}

/* Stores the character at `at`, and returns its length in bytes. A byte that is
 * not valid UTF-8 counts as one '?'. Only paths contain such bytes. */
static size_t decode_utf8(const unsigned char *at, unsigned *code_p)
{
    size_t length = *at < 0xc2 ? 1 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
    unsigned code = length == 1 ? *at : *at & (0x7fu >> length);

    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            *code_p = '?';
            return 1;
        }
        code = code << 6 | (at[i] & 0x3f);
    }
    *code_p = *at >= 0x80 && length == 1 ? '?' : code;
    return length;
}

void put_text(FILE *stream, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    while (*at != '\0') {
        unsigned code;
        size_t length = decode_utf8(at, &code);

        if (is_hidden(code)) {
            fprintf(stream, code < 0x100 ? "\\x%02x" : "\\u%04x", code);
        } else {
            fwrite(at, 1, length, stream);
        }
        at += length;
    }
}

/* Hidden characters occur only within strings, where JSON allows \u. Line ends
 * and tabs occur only outside of strings. */
void put_json(FILE *stream, const char *json)
{
    const unsigned char *at = (const unsigned char *)json;

    while (*at != '\0') {
        unsigned code;
        size_t length = decode_utf8(at, &code);

        if (code < 0x20 || !is_hidden(code)) {
            fwrite(at, 1, length, stream);
        } else if (code < 0x10000) {
            fprintf(stream, "\\u%04x", code);
        } else {
            fprintf(stream, "\\u%04x\\u%04x", 0xd800 + (code - 0x10000) / 0x400,
                    0xdc00 + (code - 0x10000) % 0x400);
        }
        at += length;
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
