/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/utf8.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Length of the sequence that `lead` begins, 0 if it begins none, and the
 * range that its second byte must lie in (RFC 3629, section 4). */
static size_t sequence(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
        return 2;
    }
    if (lead >= 0xe0 && lead <= 0xef) {
        *low = lead == 0xe0 ? 0xa0 : 0x80;
        *high = lead == 0xed ? 0x9f : 0xbf;
        return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        *low = lead == 0xf0 ? 0x90 : 0x80;
        *high = lead == 0xf4 ? 0x8f : 0xbf;
        return 4;
    }
    return 0;
}

/* Length of the character at `at`, 0 if there is none. */
static size_t character(const uint8_t *at, const uint8_t *end)
{
    uint8_t low, high;
    size_t length;

    if (*at < 0x80) {
        return 1;
    }
    length = sequence(*at, &low, &high);
    if (length == 0 || (size_t)(end - at) < length || at[1] < low ||
        at[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return length;
}

/* Whether eight characters of ASCII begin at `at`. */
static bool is_ascii(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return (word & 0x8080808080808080) == 0;
}

/* The same of a whole text, the last eight with some once more. */
static bool is_all_ascii(const uint8_t *at, size_t bytes)
{
    const uint8_t *last;

    if (bytes < sizeof(uint64_t)) {
        return false; /* it is not asked */
    }
    last = at + bytes - sizeof(uint64_t);
    while (at < last && is_ascii(at)) {
        at += sizeof(uint64_t);
    }
    return at >= last && is_ascii(last);
}

bool tmsg_utf8_valid(const char *text, size_t bytes)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t left = bytes;

    if (is_all_ascii(at, bytes)) {
        return true;
    }

    while (left > 0) {
        size_t length;

        if (left >= sizeof(uint64_t) && is_ascii(at)) {
            at += sizeof(uint64_t);
            left -= sizeof(uint64_t);
            continue;
        }
        length = character(at, at + left);
        if (length == 0) {
            return false;
        }
        at += length;
        left -= length;
    }
    return true;
}

static bool is_control(const uint8_t *at)
{
    return *at < 0x20 || *at == 0x7f || (*at == 0xc2 && at[1] < 0xa0);
}

/* Whether eight characters that can be printed, of ASCII, begin at `at`: each
 * byte is below 0x7f, so that 1 more sets no top bit, and from 0x20 on, so that
 * 0x20 less borrows from none. */
static bool is_printed(const uint8_t *at)
{
    const uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return ((word | (word + ones) | (word - 0x20 * ones)) & tops) == 0;
}

void tmsg_utf8_scrub(char *text)
{
    uint8_t *at = (uint8_t *)text;
    const uint8_t *end = at + strlen(text);

    while (at < end) {
        bool eight = end - at >= (ptrdiff_t)sizeof(uint64_t) && is_printed(at);
        size_t length = eight ? sizeof(uint64_t) : character(at, end);

        if (length == 0 || is_control(at)) {
            *at = '?';
            length = 1;
        }
        at += length;
    }
}
