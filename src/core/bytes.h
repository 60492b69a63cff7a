/* SPDX-License-Identifier: BSD-3-Clause */
/* core/bytes.h - little-endian numbers in and out of byte buffers. */
#ifndef TMSG_CORE_BYTES_H
#define TMSG_CORE_BYTES_H

#include <stdint.h>

/* Unrolled, these are one load or store each where the width is known. */

/* Writes the low `width` bytes of value, lowest first; returns what follows
 * them. */
static inline uint8_t *tmsg_put_le(uint8_t *to, uint64_t value, unsigned width)
{
#pragma GCC unroll 8
    for (unsigned i = 0; i < width; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
    return to + width;
}

static inline uint64_t tmsg_get_le(const uint8_t *from, unsigned width)
{
    uint64_t value = 0;

#pragma GCC unroll 8
    for (unsigned i = 0; i < width; i++) {
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

#endif
