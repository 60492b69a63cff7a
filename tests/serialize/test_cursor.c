/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "serialize/cursor.h"
#include "support/golden_listing.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static tmsg_cursor_t cursor_over(const uint8_t *bytes, size_t size)
{
    return (tmsg_cursor_t){.at = bytes, .end = bytes + size};
}

/* Every format of msgpack's table, at both ends of its range. */
Test(cursor, reads_every_form)
{
    static const struct {
        const char *hex;
        tmsg_value_type_t type;
        int64_t integer; /* or boolean */
        uint32_t count;
    } rows[] = {
        {"c0", TMSG_VALUE_NIL, 0, 0},
        {"c2", TMSG_VALUE_BOOL, 0, 0},
        {"c3", TMSG_VALUE_BOOL, 1, 0},
        {"00", TMSG_VALUE_INTEGER, 0, 0},
        {"7f", TMSG_VALUE_INTEGER, 127, 0},
        {"ff", TMSG_VALUE_INTEGER, -1, 0},
        {"e0", TMSG_VALUE_INTEGER, -32, 0},
        {"cc ff", TMSG_VALUE_INTEGER, 255, 0},
        {"cd ff fe", TMSG_VALUE_INTEGER, 65534, 0},
        {"ce ff ff ff fe", TMSG_VALUE_INTEGER, 4294967294, 0},
        {"cf 7f ff ff ff ff ff ff ff", TMSG_VALUE_INTEGER, INT64_MAX, 0},
        {"cf 80 00 00 00 00 00 00 00", TMSG_VALUE_OTHER, 0, 0},
        {"d0 80", TMSG_VALUE_INTEGER, -128, 0},
        {"d1 80 01", TMSG_VALUE_INTEGER, -32767, 0},
        {"d2 ff ff ff fe", TMSG_VALUE_INTEGER, -2, 0},
        {"d3 80 00 00 00 00 00 00 00", TMSG_VALUE_INTEGER, INT64_MIN, 0},
        {"a0", TMSG_VALUE_STRING, 0, 0},
        {"a2 61 62", TMSG_VALUE_STRING, 0, 2},
        {"d9 01 61", TMSG_VALUE_STRING, 0, 1},
        {"da 00 01 61", TMSG_VALUE_STRING, 0, 1},
        {"db 00 00 00 01 61", TMSG_VALUE_STRING, 0, 1},
        {"c4 01 61", TMSG_VALUE_BINARY, 0, 1},
        {"c5 00 01 61", TMSG_VALUE_BINARY, 0, 1},
        {"c6 00 00 00 00", TMSG_VALUE_BINARY, 0, 0},
        {"d4 05 00", TMSG_VALUE_OTHER, 0, 2},
        {"d5 05 00 00", TMSG_VALUE_OTHER, 0, 3},
        {"d6 ff 00 00 00 00", TMSG_VALUE_OTHER, 0, 5},
        {"d7 05 00 00 00 00 00 00 00 00", TMSG_VALUE_OTHER, 0, 9},
        {"c7 00 05", TMSG_VALUE_OTHER, 0, 1},
        {"c8 00 01 05 00", TMSG_VALUE_OTHER, 0, 2},
        {"c9 00 00 00 01 05 00", TMSG_VALUE_OTHER, 0, 2},
        {"90", TMSG_VALUE_ARRAY, 0, 0},
        {"dc 00 00", TMSG_VALUE_ARRAY, 0, 0},
        {"dd 00 00 00 00", TMSG_VALUE_ARRAY, 0, 0},
        {"80", TMSG_VALUE_MAP, 0, 0},
        {"de 00 00", TMSG_VALUE_MAP, 0, 0},
        {"df 00 00 00 00", TMSG_VALUE_MAP, 0, 0},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t size;
        uint8_t *bytes = golden_unhex(rows[i].hex, &size);
        tmsg_cursor_t cursor = cursor_over(bytes, size);
        tmsg_value_t value = tmsg_cursor_value(&cursor);
        int64_t integer = value.type == TMSG_VALUE_BOOL      ? value.boolean
                          : value.type == TMSG_VALUE_INTEGER ? value.integer
                                                             : 0;

        cr_expect_null(cursor.error, "%s: %s", rows[i].hex, cursor.error);
        cr_expect_eq(cursor.at, cursor.end, "%s: bytes are left", rows[i].hex);
        cr_expect_eq(value.type, rows[i].type, "%s: type %d, not %d",
                     rows[i].hex, value.type, rows[i].type);
        cr_expect_eq(integer, rows[i].integer, "%s: %ld, not %ld", rows[i].hex,
                     integer, rows[i].integer);
        cr_expect_eq(value.count, rows[i].count, "%s: count %u, not %u",
                     rows[i].hex, value.count, rows[i].count);
        for (size_t cut = 0; cut < size; cut++) {
            cursor = cursor_over(bytes, cut);
            (void)tmsg_cursor_value(&cursor);
            cr_expect_not_null(cursor.error, "%s cut at %zu was taken",
                               rows[i].hex, cut);
        }
        free(bytes);
    }
}

Test(cursor, reads_floats)
{
    const uint8_t bytes[] = {0xca, 0xbf, 0xc0, 0,    0,    0xcb, 0x3f,
                             0xb9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a};
    tmsg_cursor_t cursor = cursor_over(bytes, sizeof(bytes));

    cr_expect_eq(tmsg_cursor_value(&cursor).number, -1.5);
    cr_expect_eq(tmsg_cursor_value(&cursor).number, 0.1);
    cr_expect_null(cursor.error);
}

Test(cursor, keeps_its_first_error)
{
    const uint8_t bytes[] = {0x90, 0x01, 0xa1, 'x'};
    tmsg_cursor_t cursor = cursor_over(bytes, sizeof(bytes));
    size_t size = 9;

    cr_expect_eq(tmsg_cursor_integer(&cursor), 0);
    cr_expect_str_eq(cursor.error, "is not an integer of 63 bits");
    cr_expect_str_eq(tmsg_cursor_string(&cursor, &size), "");
    cr_expect_eq(size, 0);
    cr_expect_eq(tmsg_cursor_array(&cursor), 0);
    cr_expect_eq(tmsg_cursor_map(&cursor), 0);
    tmsg_cursor_skip(&cursor);
    cr_expect_str_eq(cursor.error, "is not an integer of 63 bits");
    cr_expect_eq(cursor.at, cursor.end);
}

Test(cursor, believes_no_count_beyond_its_bytes)
{
    static const char *const rows[] = {
        "91",
        "dc 00 02 00",
        "dd ff ff ff ff 00 00",
        "81 00",
        "de 00 01 00",
        "df 80 00 00 00 00 00",
        "df ff ff ff ff 00 00 00 00",
        "a1",
        "c4 02 00",
        "db ff ff ff ff",
        "c9 ff ff ff ff 05",
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t size;
        uint8_t *bytes = golden_unhex(rows[i], &size);
        tmsg_cursor_t cursor = cursor_over(bytes, size);

        (void)tmsg_cursor_value(&cursor);
        cr_expect_not_null(cursor.error, "%s was taken", rows[i]);
        free(bytes);
    }
}

Test(cursor, skips_one_value_whole)
{
    static const char *const rows[] = {
        "00",
        "90",
        "93 90 80 c0",
        "82 01 91 02 a1 78 d4 00 00",
        "91 91 91 91 91 91 91 91 91 91 91 91 91 91 91 91 00",
        "81 00 81 00 81 00 92 81 00 90 01",
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t size;
        uint8_t *bytes = golden_unhex(rows[i], &size);
        tmsg_cursor_t cursor = cursor_over(bytes, size);

        tmsg_cursor_skip(&cursor);
        cr_expect_null(cursor.error, "%s: %s", rows[i], cursor.error);
        cr_expect_eq(cursor.at, cursor.end, "%s: bytes are left", rows[i]);
        free(bytes);
    }
}

Test(cursor, skips_no_deeper_than_16)
{
    const uint8_t bytes[18] = {[0 ... 16] = 0x91};
    tmsg_cursor_t cursor = cursor_over(bytes, sizeof(bytes));

    tmsg_cursor_skip(&cursor);
    cr_expect_str_eq(cursor.error, "nests too deeply");
}
