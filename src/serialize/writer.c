/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/writer.h"

/* A mark and the number behind it, big-endian. */
static uint8_t *put(uint8_t *to, uint8_t mark, uint64_t number, unsigned width)
{
    *to++ = mark;
    while (width > 0) {
        *to++ = (uint8_t)(number >> (8 * --width));
    }
    return to;
}

uint8_t *tmsg_put_wide(uint8_t *to, uint64_t number)
{
    if (number <= UINT8_MAX) {
        return put(to, 0xcc, number, 1);
    }
    if (number <= UINT16_MAX) {
        return put(to, 0xcd, number, 2);
    }
    if (number <= UINT32_MAX) {
        return put(to, 0xce, number, 4);
    }
    return put(to, 0xcf, number, 8);
}

uint8_t *tmsg_put_negative(uint8_t *to, int64_t number)
{
    uint64_t bits = (uint64_t)number;

    if (number >= -32) {
        *to = (uint8_t)bits;
        return to + 1;
    }
    if (number >= INT8_MIN) {
        return put(to, 0xd0, bits, 1);
    }
    if (number >= INT16_MIN) {
        return put(to, 0xd1, bits, 2);
    }
    if (number >= INT32_MIN) {
        return put(to, 0xd2, bits, 4);
    }
    return put(to, 0xd3, bits, 8);
}

uint8_t *tmsg_put_double(uint8_t *to, double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof(bits));
    return put(to, 0xcb, bits, sizeof(bits));
}

/* The count of what is neither short nor, where there is such a form, of less
 * than 256: `mark` is that of 16 bits, the next one that of 32. */
static uint8_t *put_count(uint8_t *to, uint8_t mark, size_t count)
{
    return count <= UINT16_MAX ? put(to, mark, count, 2)
                               : put(to, (uint8_t)(mark + 1), count, 4);
}

uint8_t *tmsg_put_array(uint8_t *to, size_t count)
{
    if (count < 16) {
        *to = (uint8_t)(0x90 | count);
        return to + 1;
    }
    return put_count(to, 0xdc, count);
}

uint8_t *tmsg_put_map(uint8_t *to, size_t count)
{
    if (count < 16) {
        *to = (uint8_t)(0x80 | count);
        return to + 1;
    }
    return put_count(to, 0xde, count);
}

uint8_t *tmsg_put_text(uint8_t *to, size_t bytes)
{
    if (bytes < 32) {
        *to = (uint8_t)(0xa0 | bytes);
        return to + 1;
    }
    return bytes <= UINT8_MAX ? put(to, 0xd9, bytes, 1)
                              : put_count(to, 0xda, bytes);
}

uint8_t *tmsg_put_binary(uint8_t *to, size_t bytes)
{
    return bytes <= UINT8_MAX ? put(to, 0xc4, bytes, 1)
                              : put_count(to, 0xc5, bytes);
}
