/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/writer.h - writes the msgpack of a body directly to its
 * destination.
 *
 * msgpack-c's packer calls a callback for each byte or two. Its template can be
 * compiled for other kinds of output. Here the output is a pointer to the next
 * byte: tmsg_put_array(&to, 3), tmsg_put_int64(&to, -1) and so on write the
 * value at `to` and move `to` behind it. */
#ifndef TMSG_SERIALIZE_WRITER_H
#define TMSG_SERIALIZE_WRITER_H

#include <msgpack.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/tensor.h"

static inline int tmsg_put_bytes(uint8_t **to, const void *data, size_t bytes)
{
    if (bytes > 0) { /* `data` may be NULL if there are no bytes */
        memcpy(*to, data, bytes);
        *to += bytes;
    }
    return 0;
}

/* The template's function for timestamps, which nobody calls, is written for
 * msgpack-c's own packer. */
#define msgpack_pack_ext(to, bytes, type) ((void)(to))

/* These functions are inlined, so that `to` stays in a register. */
#define msgpack_pack_inline_func(name)                                         \
    __attribute__((always_inline)) static inline int tmsg_put##name
#define msgpack_pack_user uint8_t **
#define msgpack_pack_append_buffer(to, data, bytes)                            \
    return tmsg_put_bytes(to, data, bytes)
#include <msgpack/pack_template.h>

/* The next functions only count the bytes of a value: tmsg_count_array(&bytes,
 * 3) and so on. */
static inline int tmsg_count_bytes(size_t *bytes_p, size_t bytes)
{
    *bytes_p += bytes;
    return 0;
}

#define msgpack_pack_inline_func(name)                                         \
    __attribute__((always_inline)) static inline int tmsg_count##name
#define msgpack_pack_user size_t *
#define msgpack_pack_append_buffer(bytes_p, data, bytes)                       \
    return ((void)(data), tmsg_count_bytes(bytes_p, bytes))
#include <msgpack/pack_template.h>

#define TMSG_PUT_NUMBER_MOST 9 /* most bytes of an integer */
#define TMSG_PUT_COUNT_MOST 5  /* most bytes of a length or count */

/* At most so many bytes are written at once: two sets of extents, and the other
 * fields of a tensor without its name. */
#define TMSG_WRITER_ASIDE                                                      \
    (2 * TMSG_NDIM_MAX * TMSG_PUT_NUMBER_MOST + 16 * TMSG_PUT_NUMBER_MOST)

/* Describes the output of a body. Bytes beyond `bound` are only counted. */
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

/* Returns where to write the next bytes, `most` at most. That is `aside` if the
 * buffer has no room for `most` bytes. */
static inline uint8_t *tmsg_writer_begin(tmsg_writer_t *writer, size_t most)
{
    return tmsg_writer_left(writer) < most ? writer->aside
                                           : writer->buffer + writer->used;
}

/* Ends what tmsg_writer_begin() began at `began`; the bytes end at `to`. Copies
 * them from `aside` if they fit into the buffer after all. */
static inline void tmsg_writer_end(tmsg_writer_t *writer, const uint8_t *began,
                                   const uint8_t *to)
{
    size_t bytes = (size_t)(to - began);

    if (began == writer->aside && bytes <= tmsg_writer_left(writer)) {
        memcpy(writer->buffer + writer->used, began, bytes);
    }
    writer->used += bytes;
}

/* Writes bytes unchanged if they fit, and counts them. */
static inline void tmsg_writer_data(tmsg_writer_t *writer, const void *data,
                                    size_t bytes)
{
    if (bytes > 0 && bytes <= tmsg_writer_left(writer)) {
        memcpy(writer->buffer + writer->used, data, bytes);
    }
    writer->used += bytes;
}

/* The third expansion of msgpack-c's template writes the values outside
 * tensors: tmsg_write_array(writer, 3) and so on. Its output is the writer
 * itself. */
#define msgpack_pack_inline_func(name) static inline int tmsg_write##name
#define msgpack_pack_user tmsg_writer_t *
#define msgpack_pack_append_buffer(writer, data, bytes)                        \
    return (tmsg_writer_data(writer, data, bytes), 0)
#include <msgpack/pack_template.h>

#undef msgpack_pack_ext

#endif
