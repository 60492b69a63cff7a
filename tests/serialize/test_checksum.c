/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/json.h>

#include "core/bytes.h"
#include "core/limits.h"
#include "core/map.h"
#include "serialize/checksum.h"
#include "support/failing_alloc.h"
#include "support/golden_listing.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const tmsg_checksum_t *xxh3(void)
{
    const tmsg_checksum_t *checksum;

    cr_assert_eq(tmsg_checksum_find(TMSG_CHECKSUM_XXH3, &checksum), TMSG_OK);
    return checksum;
}

static tmsg_map_t *map_of(unsigned tensors)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    for (unsigned i = 0; i < tensors; i++) {
        const int64_t shape[] = {(int64_t)i};
        char name[] = {letters[i], '\0'};
        tmsg_tensor_t tensor = {(void *)(uintptr_t)letters,
                                {TMSG_DEVICE_CPU, 0},
                                {TMSG_DTYPE_UINT, 8, 1},
                                1,
                                shape,
                                NULL};

        cr_assert_eq(tmsg_map_add(map, name, &tensor, NULL), TMSG_OK);
    }
    return map;
}

Test(checksum, finds_algorithms_by_number)
{
    const tmsg_checksum_t *checksum = NULL;

    cr_assert_eq(tmsg_checksum_find(1, &checksum), TMSG_OK);
    cr_expect_str_eq(checksum->name, "xxh3_64");
    cr_expect_eq(tmsg_checksum_mask(), 1u << 1);
    for (int64_t number = -1; number < 256; number++) {
        bool known = tmsg_checksum_find(number, &checksum) == TMSG_OK;

        cr_expect_eq(known, number == 1, "%ld", (long)number);
    }
    cr_expect_eq(tmsg_checksum_find(INT64_MIN, &checksum),
                 TMSG_ERR_UNSUPPORTED);
    cr_expect_str_eq(tmsg_error_message(),
                     "checksum algorithm -9223372036854775808 is not known "
                     "here");
}

/* The published values of XXH3, seed 0. */
Test(checksum, xxh3_is_the_published_one)
{
    cr_expect_eq(xxh3()->compute(NULL, 0), 0x2d06800538d394c2u);
    cr_expect_eq(xxh3()->compute("a", 1), 0xe6c632b61e964e1fu);
}

Test(checksum, travels_with_the_body)
{
    for (unsigned tensors = 0; tensors < 20; tensors++) {
        tmsg_map_t *map = map_of(tensors), *arrived = map_of(0);
        tmsg_limits_t limits = tmsg_limits_usual();
        uint8_t values[8 * 20];
        tmsg_body_extra_t sent = {.checksum = xxh3(), .checksums = values}, got;
        size_t bytes, again;
        uint8_t *body;

        memset(values, 0xc3, sizeof(values));
        for (unsigned i = 0; i < tensors; i++) {
            tmsg_put_le(values + (size_t)8 * i, i * 0x0123456789abcdefu, 8);
        }
        cr_assert_eq(tmsg_body_encode(map, &sent, NULL, 0, &bytes), TMSG_OK);
        body = malloc(bytes);
        cr_assert_eq(tmsg_body_encode(map, &sent, body, bytes, &again),
                     TMSG_OK);
        cr_expect_eq(bytes, again);
        cr_assert_eq(tmsg_body_decode(body, bytes, &limits, arrived, &got),
                     TMSG_OK, "%s", tmsg_error_message());
        cr_expect_eq(got.checksum, xxh3());
        cr_assert_eq(got.checksum_count, tensors);
        for (unsigned i = 0; i < tensors; i++) {
            cr_expect_eq(tmsg_checksum_value(&got, i), i * 0x0123456789abcdefu);
        }
        free(body);
        tmsg_map_destroy(map);
        tmsg_map_destroy(arrived);
    }
}

/* They are measured before they are known. */
Test(checksum, room_does_not_depend_on_the_values)
{
    tmsg_map_t *map = map_of(3);
    tmsg_body_extra_t unknown = {.checksum = xxh3()};
    size_t without, with;

    cr_assert_eq(tmsg_body_encode(map, NULL, NULL, 0, &without), TMSG_OK);
    cr_assert_eq(tmsg_body_encode(map, &unknown, NULL, 0, &with), TMSG_OK);
    cr_expect_eq(with, without + 1 + 2 + 2 + 3 * 8);
    tmsg_map_destroy(map);
}

#define TENSOR "95 a1 61 00 08 01 90"
#define VALUE "01 02 03 04 05 06 07 08"

Test(checksum, in_a_body_is_held_to_its_form)
{
    static const struct {
        const char *body;
        tmsg_status_t status;
        const char *message;
    } rows[] = {
        {"81 fe 92 01 c4 00", TMSG_OK, ""},
        {"82 01 91 " TENSOR " fe 92 01 c4 08 " VALUE, TMSG_OK, ""},
        {"82 fe 92 01 c4 08 " VALUE " 01 91 " TENSOR, TMSG_OK, ""},
        {"82 01 90 d1 ff fe dc 00 02 d3 00 00 00 00 00 00 00 01 c6 00 00 00 00",
         TMSG_OK, ""},
        {"82 01 91 " TENSOR " fe 92 01 c4 00", TMSG_ERR_MALFORMED,
         "body: 0 checksums for 1 tensors"},
        {"82 01 90 fe 92 01 c4 08 " VALUE, TMSG_ERR_MALFORMED,
         "body: 1 checksums for 0 tensors"},
        {"81 fe 92 01 c4 08 " VALUE, TMSG_ERR_MALFORMED,
         "body: 1 checksums for 0 tensors"},
        {"82 01 91 " TENSOR " fe 92 01 c4 07 01 02 03 04 05 06 07",
         TMSG_ERR_MALFORMED, "body: checksums are not a bin of xxh3_64 values"},
        {"81 fe 92 01 a0", TMSG_ERR_MALFORMED,
         "body: checksums are not a bin of xxh3_64 values"},
        {"81 fe 92 01 90", TMSG_ERR_MALFORMED,
         "body: checksums are not a bin of xxh3_64 values"},
        {"81 fe 90", TMSG_ERR_MALFORMED,
         "body: checksums are not an algorithm and values"},
        {"81 fe 91 01", TMSG_ERR_MALFORMED,
         "body: checksums are not an algorithm and values"},
        {"81 fe 93 01 c4 00 00", TMSG_ERR_MALFORMED,
         "body: checksums are not an algorithm and values"},
        {"81 fe 80", TMSG_ERR_MALFORMED, "body: checksums is not an array"},
        {"81 fe 92 c0 c4 00", TMSG_ERR_MALFORMED,
         "body: checksums is not an integer of 63 bits"},
        {"81 fe 92 01", TMSG_ERR_MALFORMED,
         "body: checksums counts more elements than there are bytes"},
        {"81 fe 92 01 c4", TMSG_ERR_MALFORMED, "body: checksums ends early"},
        {"81 fe 92 01 c6 ff ff ff ff", TMSG_ERR_MALFORMED,
         "body: checksums ends early"},
        {"81 fe 92 01 c4 08 01 02", TMSG_ERR_MALFORMED,
         "body: checksums ends early"},
        {"82 fe 92 01 c4 00 fe 92 01 c4 00", TMSG_ERR_MALFORMED,
         "body: key -2 occurs twice"},
        {"81 fe 92 00 c4 00", TMSG_ERR_UNSUPPORTED,
         "body: checksum algorithm 0 is not known here"},
        {"81 fe 92 02 c4 00", TMSG_ERR_UNSUPPORTED,
         "body: checksum algorithm 2 is not known here"},
        {"81 fe 92 cd 01 01 90", TMSG_ERR_UNSUPPORTED,
         "body: checksum algorithm 257 is not known here"},
        {"81 f8 00", TMSG_ERR_UNSUPPORTED, "body: key -8 is not known here"},
        {"81 f7 00", TMSG_ERR_UNSUPPORTED, "body: key -9 is not known here"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_limits_t limits = tmsg_limits_usual();
        tmsg_map_t *map = map_of(0);
        tmsg_body_extra_t extra = {0};
        size_t bytes;
        uint8_t *body = golden_unhex(rows[i].body, &bytes);
        tmsg_status_t status =
            tmsg_body_decode(body, bytes, &limits, map, &extra);

        cr_expect_eq(status, rows[i].status, "%s: %s", rows[i].body,
                     tmsg_status_name(status));
        if (rows[i].status != TMSG_OK) {
            cr_expect_str_eq(tmsg_error_message(), rows[i].message);
            cr_expect_eq(tmsg_map_size(map), 0);
        }
        free(body);
        tmsg_map_destroy(map);
    }
}

Test(checksum, is_unsupported_by_a_reader_that_wants_a_map_alone)
{
    static const uint8_t body[] = {0x81, 0xfe, 0x92, 1, 0xc4, 0};
    tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_map_t *map = map_of(0);

    cr_expect_eq(tmsg_body_decode(body, sizeof(body), &limits, map, NULL),
                 TMSG_ERR_UNSUPPORTED);
    cr_expect_str_eq(tmsg_error_message(), "body: key -2 is not known here");
    tmsg_map_destroy(map);
}

Test(checksum, verifies_each_tensor_by_name)
{
    tmsg_map_t *map = map_of(20);
    uint8_t values[8 * 20];
    tmsg_body_extra_t extra = {.checksum = xxh3(),
                               .checksums = values,
                               .checksum_count = 20},
                      none = {0};

    for (size_t i = 0; i < 20; i++) {
        const tmsg_map_entry_t *entry = &tmsg_map_entries(map)[i];

        tmsg_put_le(values + 8 * i,
                    xxh3()->compute(entry->tensor.data, entry->bytes), 8);
    }
    cr_expect_eq(tmsg_checksum_verify(map, &none, NULL, NULL), TMSG_OK);
    cr_expect_eq(tmsg_checksum_verify(map, &extra, NULL, NULL), TMSG_OK);
    for (size_t at = 0; at < sizeof(values); at++) {
        char wanted[32];

        snprintf(wanted, sizeof(wanted), "tensor %zu '%c': xxh3_64 is ", at / 8,
                 (char)('a' + at / 8));
        values[at] ^= 0x10;
        cr_expect_eq(tmsg_checksum_verify(map, &extra, NULL, NULL),
                     TMSG_ERR_CORRUPT);
        cr_expect_eq(strncmp(tmsg_error_message(), wanted, strlen(wanted)), 0,
                     "%s: '%s'", wanted, tmsg_error_message());
        values[at] ^= 0x10;
    }
    values[7] = 0;
    tmsg_checksum_verify(map, &extra, NULL, NULL);
    cr_expect_str_eq(tmsg_error_message(),
                     "tensor 0 'a': xxh3_64 is 2d06800538d394c2, its sender's "
                     "0006800538d394c2");
    tmsg_map_destroy(map);
}

/* Of a message that refers to a schema the tensors come later. */
Test(checksum, counts_are_compared_with_a_map_from_elsewhere)
{
    tmsg_map_t *map = map_of(2);
    tmsg_body_extra_t extra = {0};

    cr_expect_eq(tmsg_checksum_check_count(map, &extra), TMSG_OK);
    extra.checksum = xxh3();
    cr_expect_eq(tmsg_checksum_check_count(map, &extra), TMSG_ERR_MALFORMED);
    extra.checksum_count = 2;
    cr_expect_eq(tmsg_checksum_check_count(map, &extra), TMSG_OK);
    tmsg_map_destroy(map);
}

Test(checksum, shows_in_json_and_survives_every_failed_allocation)
{
    size_t bytes;
    uint8_t *header =
        golden_unhex("54 4d 00 20 01 00 00 00  07 00 00 00 02 00 00 00"
                     "05 00 00 00 17 00 00 00  01 00 00 00 00 00 00 00"
                     "82 01 91 " TENSOR " fe 92 01 c4 08 " VALUE,
                     &bytes);
    bool failed = true;

    for (unsigned long n = 1; failed; n++) {
        char *json = NULL;
        tmsg_status_t status;

        failing_alloc_arm(n);
        status = tmsg_header_to_json(header, bytes, &json);
        failed = failing_alloc_disarm();
        cr_expect_eq(status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK,
                     "allocation %lu: %s", n, tmsg_status_name(status));
        if (!failed) {
            cr_expect(strstr(json, "\"0807060504030201\"") != NULL, "%s", json);
            cr_expect(strstr(json, "\"xxh3_64\"") != NULL, "%s", json);
        }
        tmsg_string_free(json);
        cr_assert_lt(n, 1000);
    }
    free(header);
}
