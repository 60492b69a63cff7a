/* SPDX-License-Identifier: BSD-3-Clause */
/* older/pack.h - writes msgpack, each value in its shortest form.
 * FROZEN, see frozen.h */
#ifndef TMSG_TESTS_OLDER_PACK_H
#define TMSG_TESTS_OLDER_PACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* `to` NULL only counts. */
typedef struct {
    uint8_t *to;
    size_t bytes;
} pack_t;

static inline void pack_raw(pack_t *pack, const void *data, size_t bytes)
{
    if (pack->to != NULL && bytes > 0) {
        memcpy(pack->to + pack->bytes, data, bytes);
    }
    pack->bytes += bytes;
}

/* A first byte and a big-endian number behind it. */
static inline void pack_number(pack_t *pack, uint8_t first, uint64_t value,
                               unsigned width)
{
    pack_raw(pack, &first, 1);
    while (width > 0) {
        uint8_t byte = (uint8_t)(value >> (8 * --width));

        pack_raw(pack, &byte, 1);
    }
}

static inline void pack_integer(pack_t *pack, int64_t value)
{
    uint64_t bits = (uint64_t)value;

    if (value >= -32 && value < 128) {
        pack_number(pack, (uint8_t)value, 0, 0);
    } else if (value < 0) {
        unsigned log = value >= INT8_MIN    ? 0
                       : value >= INT16_MIN ? 1
                       : value >= INT32_MIN ? 2
                                            : 3;

        pack_number(pack, (uint8_t)(0xd0 + log), bits, 1u << log);
    } else {
        unsigned log = bits <= UINT8_MAX    ? 0
                       : bits <= UINT16_MAX ? 1
                       : bits <= UINT32_MAX ? 2
                                            : 3;

        pack_number(pack, (uint8_t)(0xcc + log), bits, 1u << log);
    }
}

static inline void pack_array(pack_t *pack, size_t count)
{
    if (count < 16) {
        pack_number(pack, (uint8_t)(0x90 | count), 0, 0);
    } else if (count <= UINT16_MAX) {
        pack_number(pack, 0xdc, count, 2);
    } else {
        pack_number(pack, 0xdd, count, 4);
    }
}

static inline void pack_map(pack_t *pack, size_t count)
{
    if (count < 16) {
        pack_number(pack, (uint8_t)(0x80 | count), 0, 0);
    } else {
        pack_number(pack, 0xde, count, 2);
    }
}

static inline void pack_string(pack_t *pack, const char *text, size_t bytes)
{
    if (bytes < 32) {
        pack_number(pack, (uint8_t)(0xa0 | bytes), 0, 0);
    } else if (bytes <= UINT8_MAX) {
        pack_number(pack, 0xd9, bytes, 1);
    } else {
        pack_number(pack, 0xda, bytes, 2);
    }
    pack_raw(pack, text, bytes);
}

#endif
