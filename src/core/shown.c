/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/shown.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/shown_ranges.h"
#include "core/utf8.h"

#define UNICODE_LAST 0x10ffff
#define DOTS "..."
#define DOTS_BYTES (sizeof(DOTS) - 1)

bool tmsg_shown_hides(uint32_t code)
{
    size_t low = 0;
    size_t high = sizeof(tmsg_shown_ranges) / sizeof(tmsg_shown_ranges[0]);

    if (code >= 0x20 && code < 0x7f) {
        return false;
    }
    if (code > UNICODE_LAST) {
        return true;
    }
    while (low < high) {
        size_t middle = (low + high) / 2;

        if (code > tmsg_shown_ranges[middle].last) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return code >= tmsg_shown_ranges[low].first;
}

size_t tmsg_shown_read(const char *at, size_t left, uint32_t *code_p)
{
    const uint8_t *bytes = (const uint8_t *)at;
    size_t length = tmsg_utf8_character(at, left);

    if (length == 0) {
        *code_p = TMSG_SHOWN_BYTE | *bytes;
        return 1;
    }
    *code_p = length == 1 ? *bytes : *bytes & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        *code_p = *code_p << 6 | (bytes[i] & 0x3f);
    }
    return length;
}

size_t tmsg_shown_escape(char to[TMSG_SHOWN_ESCAPE], uint32_t code)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t value = code & ~TMSG_SHOWN_BYTE;
    size_t count = value < 0x100 ? 2 : value < 0x10000 ? 4 : 8;

    to[0] = '\\';
    to[1] = "xuU"[count / 4];
    for (size_t i = 0; i < count; i++) {
        to[2 + i] = digits[value >> 4 * (count - 1 - i) & 0xf];
    }
    to[2 + count] = '\0';
    return 2 + count;
}

/* Returns whether eight printable ASCII characters begin at `at`. Each byte
 * must be below 0x7f, so that adding 1 sets no top bit, and 0x20 or more, so
 * that subtracting 0x20 borrows from none. */
static bool is_printed(const char *at)
{
    const uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return ((word | (word + ones) | (word - 0x20 * ones)) & tops) == 0;
}

/* Returns the length of the piece at `at`: a character, or several that are
 * shown as they are in `most` bytes. *shown_p is its length when it is shown.
 */
static size_t read_piece(const char *at, size_t left, size_t most,
                         size_t *shown_p)
{
    char escape[TMSG_SHOWN_ESCAPE];
    uint32_t code;
    size_t length;

    if (left >= sizeof(uint64_t) && most >= sizeof(uint64_t) &&
        is_printed(at)) {
        *shown_p = sizeof(uint64_t);
        return sizeof(uint64_t);
    }
    length = tmsg_shown_read(at, left, &code);
    *shown_p =
        tmsg_shown_hides(code) ? tmsg_shown_escape(escape, code) : length;
    return length;
}

/* Returns how many of the bytes are shown in `most` bytes. */
static size_t fitting(const char *text, size_t bytes, size_t most,
                      size_t *shown_p)
{
    size_t used = 0, shown = 0;

    while (used < bytes) {
        size_t more;
        size_t length =
            read_piece(text + used, bytes - used, most - shown, &more);

        if (more > most - shown) {
            break;
        }
        used += length;
        shown += more;
    }
    *shown_p = shown;
    return used;
}

/* Returns the length of a cut text without a character at its end that is not
 * whole. */
static size_t without_part(const char *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        uint8_t lead = (uint8_t)text[bytes - back];

        if (lead >= 0xc0) {
            size_t whole = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;

            return back < whole ? bytes - back : bytes;
        }
    }
    return bytes;
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* Returns the length of a cut text without an escape at its end that is not
 * whole. */
static size_t without_half_escape(const char *text, size_t bytes)
{
    for (size_t back = 1; back < TMSG_SHOWN_ESCAPE - 1 && back <= bytes;
         back++) {
        const char *at = text + bytes - back;

        if (*at == '\\') {
            size_t whole = back == 1      ? 2
                           : at[1] == 'x' ? 4
                           : at[1] == 'u' ? 6
                           : at[1] == 'U' ? 10
                                          : 0;

            return back < whole ? bytes - back : bytes;
        }
        if (!is_hex(*at) && *at != 'x' && *at != 'u' && *at != 'U') {
            break;
        }
    }
    return bytes;
}

size_t tmsg_shown_write(char *to, const char *from, size_t bytes)
{
    const char *begin = to;

    while (bytes > 0) {
        char escape[TMSG_SHOWN_ESCAPE];
        uint32_t code;
        size_t length = tmsg_shown_read(from, bytes, &code);

        if (tmsg_shown_hides(code)) {
            size_t more = tmsg_shown_escape(escape, code);

            memcpy(to, escape, more);
            to += more;
        } else {
            memmove(to, from, length);
            to += length;
        }
        from += length;
        bytes -= length;
    }
    return (size_t)(to - begin);
}

size_t tmsg_shown_cut(const char *text, size_t most)
{
    size_t bytes = strnlen(text, most + 1);

    return bytes <= most ? bytes
                         : without_half_escape(text, without_part(text, most));
}

size_t tmsg_shown_fit(char *text, size_t room, bool cut)
{
    size_t most = room - 1;
    size_t bytes = strlen(text);
    size_t shown, kept;

    if (cut) {
        bytes = without_half_escape(text, without_part(text, bytes));
    }
    kept = fitting(text, bytes, most, &shown);
    if (cut || kept < bytes) {
        cut = most >= DOTS_BYTES;
        kept = fitting(text, bytes, cut ? most - DOTS_BYTES : most, &shown);
        kept = without_half_escape(text, kept);
        (void)fitting(text, kept, most, &shown);
    }
    if (shown > kept) {
        char *from = text + most - kept;

        memmove(from, text, kept);
        (void)tmsg_shown_write(text, from, kept);
    }
    strcpy(text + shown, cut ? DOTS : "");
    return shown + (cut ? DOTS_BYTES : 0);
}

void tmsg_shown_format(char *text, size_t room, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(text, room, format, args);
    va_end(args);
    if (length < 0) {
        *text = '\0';
    }
    (void)tmsg_shown_fit(text, room, length >= 0 && (size_t)length >= room);
}

tmsg_shown_t tmsg_shown_short(const char *text)
{
    tmsg_shown_t shown;

    tmsg_shown_format(shown.text, sizeof(shown.text), "%s", text);
    return shown;
}

const char *tmsg_shown_bad_name(const char *name, size_t most)
{
    size_t bytes = strlen(name);

    if (bytes == 0) {
        return "the file name is empty";
    }
    if (strchr(name, '/') != NULL) {
        return "the file name would leave the folder";
    }
    if (*name == '.') {
        return "the file name begins with a dot";
    }
    if (*name == '-') {
        return "the file name begins with '-', as options do";
    }
    if (bytes > most) {
        return "the file name is too long";
    }
    for (size_t i = 0; i < bytes;) {
        uint32_t code;

        i += tmsg_shown_read(name + i, bytes - i, &code);
        if (tmsg_shown_hides(code)) {
            return "the file name has control characters, or other invisible "
                   "ones";
        }
    }
    return NULL;
}
