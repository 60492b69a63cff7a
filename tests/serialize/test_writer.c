/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "serialize/writer.h"

#define MOST (1u << 20)

/* Numbers and data in turns, with `most` asked for where a number takes less.
 * Returns how many bytes there are. */
static size_t write_some(tmsg_writer_t *writer, size_t most)
{
    for (uint64_t i = 0; i < 40; i++) {
        uint8_t *began = tmsg_writer_begin(writer, most);
        uint8_t *to = began;

        tmsg_put_uint64(&to, i * i * i);
        tmsg_writer_end(writer, began, to);
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
