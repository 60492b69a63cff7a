/* SPDX-License-Identifier: BSD-3-Clause */
/* What is written is held against msgpack-c's packer, byte by byte. */
#include <criterion/criterion.h>

#include <math.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/writer.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MOST (1u << 20)

/* Around every length that has a form of its own. */
static const size_t counts[] = {0,   1,   15,  16,    17,    31,    32,
                                33,  127, 128, 254,   255,   256,   257,
                                511, 512, 999, 65534, 65535, 65536, 65537};

static msgpack_sbuffer theirs;
static msgpack_packer packer;

static void open_packer(void)
{
    msgpack_sbuffer_init(&theirs);
    msgpack_packer_init(&packer, &theirs, msgpack_sbuffer_write);
}

static void same(const uint8_t *ours, const uint8_t *end, const char *what,
                 double of)
{
    size_t bytes = (size_t)(end - ours);

    cr_expect_eq(bytes, theirs.size, "%s of %g: %zu bytes, not %zu", what, of,
                 bytes, theirs.size);
    cr_expect(bytes == theirs.size && memcmp(ours, theirs.data, bytes) == 0,
              "%s of %g: other bytes", what, of);
    msgpack_sbuffer_clear(&theirs);
}

Test(writer, integers_are_as_short_as_they_can_be)
{
    uint8_t ours[TMSG_PUT_NUMBER_MOST];

    open_packer();
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int64_t by = -33; by <= 33; by++) {
            uint64_t number = (UINT64_C(1) << bit) + (uint64_t)by;
            int64_t negative = (int64_t)(0 - number);

            msgpack_pack_uint64(&packer, number);
            cr_expect_eq(tmsg_put_unsigned_bytes(number), theirs.size);
            same(ours, tmsg_put_unsigned(ours, number), "unsigned",
                 (double)number);
            msgpack_pack_int64(&packer, (int64_t)number);
            same(ours, tmsg_put_integer(ours, (int64_t)number), "integer",
                 (double)(int64_t)number);
            msgpack_pack_int64(&packer, negative);
            same(ours, tmsg_put_integer(ours, negative), "integer",
                 (double)negative);
        }
    }
    msgpack_sbuffer_destroy(&theirs);
}

Test(writer, numbers_with_a_point)
{
    static const double numbers[] = {0,   -0.0, 1.5,      -2.25,
                                     NAN, 1e-9, INFINITY, -INFINITY};
    uint8_t ours[TMSG_PUT_NUMBER_MOST];

    open_packer();
    for (size_t i = 0; i < COUNT(numbers); i++) {
        msgpack_pack_double(&packer, numbers[i]);
        same(ours, tmsg_put_double(ours, numbers[i]), "double", numbers[i]);
    }
    msgpack_sbuffer_destroy(&theirs);
}

Test(writer, heads_of_all_lengths)
{
    uint8_t ours[TMSG_PUT_COUNT_MOST];

    open_packer();
    for (size_t i = 0; i < COUNT(counts); i++) {
        size_t count = counts[i];

        msgpack_pack_array(&packer, count);
        cr_expect_eq(tmsg_put_array_bytes(count), theirs.size);
        same(ours, tmsg_put_array(ours, count), "array", (double)count);
        msgpack_pack_map(&packer, count);
        same(ours, tmsg_put_map(ours, count), "map", (double)count);
        msgpack_pack_str(&packer, count);
        cr_expect_eq(tmsg_put_text_bytes(count), theirs.size);
        same(ours, tmsg_put_text(ours, count), "text", (double)count);
        msgpack_pack_bin(&packer, count);
        same(ours, tmsg_put_binary(ours, count), "binary", (double)count);
    }
    msgpack_sbuffer_destroy(&theirs);
}

/* Numbers and data in turns, with `most` asked for where a number takes less.
 * Returns how many bytes there are. */
static size_t write_some(tmsg_writer_t *writer, size_t most)
{
    for (uint64_t i = 0; i < 40; i++) {
        uint8_t *began = tmsg_writer_begin(writer, most);

        tmsg_writer_end(writer, began, tmsg_put_unsigned(began, i * i * i));
        tmsg_writer_data(writer, "some names, some of them long", i % 30);
    }
    return writer->used;
}

Test(writer, nothing_is_written_beyond_the_bound)
{
    tmsg_writer_t writer;
    uint8_t *whole = malloc(MOST);
    size_t needed;

    writer.buffer = whole;
    writer.bound = MOST;
    writer.used = 0;
    needed = write_some(&writer, TMSG_WRITER_ASIDE);
    for (size_t bound = 0; bound <= needed + 1; bound++) {
        uint8_t *buffer = malloc(bound); /* which a sanitizer looks after */

        writer.buffer = bound == 0 ? NULL : buffer;
        writer.bound = bound;
        writer.used = 0;
        cr_assert_eq(write_some(&writer, bound % 2 == 0 ? TMSG_WRITER_ASIDE
                                                        : TMSG_PUT_NUMBER_MOST),
                     needed);
        if (bound >= needed) {
            cr_expect(memcmp(buffer, whole, needed) == 0,
                      "a bound of %zu, %zu needed: other bytes", bound, needed);
        }
        free(buffer);
    }
    free(whole);
}
