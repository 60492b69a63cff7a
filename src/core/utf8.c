/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/utf8.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the length of the sequence that `lead` begins, 0 if it begins none.
 * *low and *high get the range of the second byte (RFC 3629, section 4). */
static size_t sequence_bytes(uint8_t lead, uint8_t *low, uint8_t *high)
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

/* Returns the length of the character at `at`, 0 if there is none. */
static size_t character_bytes(const uint8_t *at, const uint8_t *end)
{
    uint8_t low, high;
    size_t length;

    if (*at < 0x80) {
        return 1;
    }
    length = sequence_bytes(*at, &low, &high);
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

size_t tmsg_utf8_character(const char *at, size_t left)
{
    return character_bytes((const uint8_t *)at, (const uint8_t *)at + left);
}

/* Returns whether eight ASCII characters begin at `at`. */
static bool is_ascii(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return (word & 0x8080808080808080) == 0;
}

/* Returns whether a whole text is ASCII. The last eight bytes may look at some
 * once more. */
static bool is_all_ascii(const uint8_t *at, size_t bytes)
{
    const uint8_t *last;

    if (bytes < sizeof(uint64_t)) {
        return false; /* shorter texts are not asked */
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
        length = character_bytes(at, at + left);
        if (length == 0) {
            return false;
        }
        at += length;
        left -= length;
    }
    return true;
}
