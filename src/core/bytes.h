/* SPDX-License-Identifier: BSD-3-Clause */
/* core/bytes.h - little-endian numbers in byte buffers; copies, comparisons and
 * zeros of a few bytes. */
#ifndef TMSG_CORE_BYTES_H
#define TMSG_CORE_BYTES_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* These functions are one load or store each where the width is known. For
 * single bytes, compilers write long code when two numbers lie side by side. */

/* Writes the low `width` bytes of value, lowest first. Returns the address
 * behind them. */
static inline uint8_t *tmsg_put_le(uint8_t *to, uint64_t value, unsigned width)
{
    uint64_t bytes = htole64(value);

    memcpy(to, &bytes, width);
    return to + width;
}

static inline uint64_t tmsg_get_le(const uint8_t *from, unsigned width)
{
    uint64_t bytes = 0;

    memcpy(&bytes, from, width);
    return le64toh(bytes);
}

/* Returns whether a few bytes are the same. It mostly costs less than a call of
 * memcmp(). */
static inline bool tmsg_is_same(const void *one, const void *other,
                                size_t bytes)
{
    const uint8_t *a = one, *b = other;
    size_t i = 0;

    if (bytes < 4) {
        while (i < bytes && a[i] == b[i]) {
            i++;
        }
        return i == bytes;
    }
    if (bytes < 8) {
        return tmsg_get_le(a, 4) == tmsg_get_le(b, 4) &&
               tmsg_get_le(a + bytes - 4, 4) == tmsg_get_le(b + bytes - 4, 4);
    }
    while (i + 8 < bytes && tmsg_get_le(a + i, 8) == tmsg_get_le(b + i, 8)) {
        i += 8;
    }
    return i + 8 >= bytes &&
           tmsg_get_le(a + bytes - 8, 8) == tmsg_get_le(b + bytes - 8, 8);
}

/* Copies what is mostly a small tensor, for which a call of memcpy() costs more
 * than the moves. */
static inline void tmsg_copy_small(uint8_t *to, const uint8_t *from,
                                   size_t bytes)
{
    if (bytes < 32 || bytes > 64) {
        if (bytes == 16) {
            memcpy(to, from, 16);
        } else {
            memcpy(to, from, bytes);
        }
        return;
    }
    memcpy(to, from, 16);
    memcpy(to + 16, from + 16, 16);
    memcpy(to + bytes - 32, from + bytes - 32, 16);
    memcpy(to + bytes - 16, from + bytes - 16, 16);
}

/* Sets bytes to zero, with a length that is hidden from the compiler. If gcc
 * knew the length, it would write `rep stos`, which takes longer to begin than
 * memset() takes in all. */
static inline void tmsg_zero(void *to, size_t bytes)
{
    __asm__("" : "+r"(bytes));
    memset(to, 0, bytes);
}

#endif
