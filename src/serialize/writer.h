/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/writer.h - writing the msgpack of a body.
 *
 * Always the shortest form there is, so that bodies are the bytes that
 * msgpack-c's packer makes. That one asks for each byte or two by a callback,
 * and is asked for all of a body twice; this is written where it goes. */
#ifndef TMSG_SERIALIZE_WRITER_H
#define TMSG_SERIALIZE_WRITER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/tensor.h"

#define TMSG_PUT_NUMBER_MOST 9 /* the longest integer */
#define TMSG_PUT_COUNT_MOST 5  /* what goes before what has a count */

/* Each puts its value at `to` and returns what follows. */
uint8_t *tmsg_put_wide(uint8_t *to, uint64_t number);
uint8_t *tmsg_put_negative(uint8_t *to, int64_t number);
uint8_t *tmsg_put_double(uint8_t *to, double number);
uint8_t *tmsg_put_array(uint8_t *to, size_t count);
uint8_t *tmsg_put_map(uint8_t *to, size_t count);
uint8_t *tmsg_put_text(uint8_t *to, size_t bytes);   /* the bytes follow */
uint8_t *tmsg_put_binary(uint8_t *to, size_t bytes); /* the bytes follow */

static inline uint8_t *tmsg_put_unsigned(uint8_t *to, uint64_t number)
{
    if (number >= 0x80) {
        return tmsg_put_wide(to, number);
    }
    *to = (uint8_t)number;
    return to + 1;
}

static inline uint8_t *tmsg_put_integer(uint8_t *to, int64_t number)
{
    return number < 0 ? tmsg_put_negative(to, number)
                      : tmsg_put_unsigned(to, (uint64_t)number);
}

/* How many bytes those take. */
static inline size_t tmsg_put_unsigned_bytes(uint64_t number)
{
    return number < 0x80          ? 1
           : number <= UINT8_MAX  ? 2
           : number <= UINT16_MAX ? 3
           : number <= UINT32_MAX ? 5
                                  : 9;
}

static inline size_t tmsg_put_array_bytes(size_t count)
{
    return count < 16 ? 1 : count <= UINT16_MAX ? 3 : 5;
}

static inline size_t tmsg_put_text_bytes(size_t bytes)
{
    return bytes < 32            ? 1
           : bytes <= UINT8_MAX  ? 2
           : bytes <= UINT16_MAX ? 3
                                 : 5;
}

/* The most that is put at once: two sets of extents, and what a tensor has
 * beside them and its name. */
#define TMSG_WRITER_ASIDE                                                      \
    (2 * TMSG_NDIM_MAX * TMSG_PUT_NUMBER_MOST + 16 * TMSG_PUT_NUMBER_MOST)

/* Where a body goes. Beyond the bound it is only counted. */
typedef struct {
    uint8_t *buffer;
    size_t bound;
    size_t used;
    uint8_t aside[TMSG_WRITER_ASIDE];
} tmsg_writer_t;

static inline size_t tmsg_writer_left(const tmsg_writer_t *writer)
{
    return writer->used < writer->bound ? writer->bound - writer->used : 0;
}

/* Where to put the next bytes, `most` at most. */
static inline uint8_t *tmsg_writer_begin(tmsg_writer_t *writer, size_t most)
{
    return tmsg_writer_left(writer) < most ? writer->aside
                                           : writer->buffer + writer->used;
}

/* They are put, from there to `to`. */
static inline void tmsg_writer_end(tmsg_writer_t *writer, const uint8_t *began,
                                   const uint8_t *to)
{
    size_t bytes = (size_t)(to - began);

    if (began == writer->aside && bytes <= tmsg_writer_left(writer)) {
        memcpy(writer->buffer + writer->used, began, bytes);
    }
    writer->used += bytes;
}

/* Bytes as they are. */
static inline void tmsg_writer_data(tmsg_writer_t *writer, const void *data,
                                    size_t bytes)
{
    if (bytes > 0 && bytes <= tmsg_writer_left(writer)) {
        memcpy(writer->buffer + writer->used, data, bytes);
    }
    writer->used += bytes;
}

#endif
