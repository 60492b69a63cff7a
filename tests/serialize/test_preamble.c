/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/endpoint.h>

#include "serialize/header.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

Test(preamble, round_trips)
{
    const tmsg_preamble_t sent = {.kind = 250,
                                  .flags = TMSG_HEADER_ACKED,
                                  .channel = 0xfedc,
                                  .message_id = 0xfedcba98,
                                  .endpoint_id = 0x76543210,
                                  .sequence = 0x89abcdef,
                                  .body_bytes = 0,
                                  .payload_bytes = 0xfedcba9876543210,
                                  .policy = TMSG_POLICY_STRICT};
    uint8_t bytes[TMSG_PREAMBLE_BYTES];
    tmsg_preamble_t got;

    tmsg_preamble_encode(&sent, bytes);
    cr_assert_eq(tmsg_preamble_decode(bytes, sizeof(bytes), &got), TMSG_OK);
    cr_expect_eq(got.version, TMSG_WIRE_VERSION);
    cr_expect_eq(got.bytes, TMSG_PREAMBLE_BYTES);
    cr_expect_eq(got.kind, sent.kind);
    cr_expect_eq(got.flags, sent.flags);
    cr_expect_eq(got.channel, sent.channel);
    cr_expect_eq(got.message_id, sent.message_id);
    cr_expect_eq(got.endpoint_id, sent.endpoint_id);
    cr_expect_eq(got.sequence, sent.sequence);
    cr_expect_eq(got.body_bytes, sent.body_bytes);
    cr_expect_eq(got.payload_bytes, sent.payload_bytes);
    cr_expect_eq(got.policy, sent.policy);
}

Test(preamble, is_little_endian_byte_for_byte)
{
    static const uint8_t expected[] = {
        'T',  'M',  0,    33,   1,    2,    0x34, 0x12, 0x78, 0x56, 0x34,
        0x12, 0x02, 0,    0,    0,    0xef, 0xcd, 0xab, 0x89, 0x10, 0,
        0,    0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1};
    const tmsg_preamble_t preamble = {.version = 9, /* ours is written */
                                      .bytes = 9,
                                      .kind = 1,
                                      .flags = TMSG_HEADER_ACKED,
                                      .channel = 0x1234,
                                      .message_id = 0x12345678,
                                      .endpoint_id = 2,
                                      .sequence = 0x89abcdef,
                                      .body_bytes = 16,
                                      .payload_bytes = 0x1122334455667788,
                                      .policy = 1};
    uint8_t bytes[TMSG_PREAMBLE_BYTES];

    tmsg_preamble_encode(&preamble, bytes);
    cr_expect_arr_eq(bytes, expected, sizeof(expected));
}

Test(preamble, of_an_older_writer_has_the_default_policy)
{
    uint8_t bytes[TMSG_PREAMBLE_SHORT + 1] = "TM\0\x20\1";
    tmsg_preamble_t got;

    bytes[TMSG_PREAMBLE_SHORT] = TMSG_POLICY_STRICT; /* not of the preamble */
    cr_assert_eq(tmsg_preamble_decode(bytes, sizeof(bytes), &got), TMSG_OK);
    cr_expect_eq(got.bytes, TMSG_PREAMBLE_SHORT);
    cr_expect_eq(got.policy, TMSG_POLICY_HOST_FALLBACK);
}

Test(preamble, of_a_newer_writer_is_skipped_to_its_length)
{
    uint8_t bytes[255 + 3] = "TM\0\xff\1\xf0";
    tmsg_preamble_t got;

    memset(bytes + TMSG_PREAMBLE_BYTES, 0xff, sizeof(bytes) - 33);
    bytes[20] = 3; /* the body */
    cr_assert_eq(tmsg_preamble_decode(bytes, sizeof(bytes), &got), TMSG_OK);
    cr_expect_eq(got.bytes, 255);
    cr_expect_eq(got.body_bytes, 3);
}

Test(preamble, says_what_is_wrong)
{
    static const struct {
        size_t at;
        uint8_t byte;
        size_t bytes;
        tmsg_status_t status;
        const char *message;
    } rows[] = {
        {0, 'T', 0, TMSG_ERR_MALFORMED, "preamble: ends after 0 bytes"},
        {0, 'T', 3, TMSG_ERR_MALFORMED, "preamble: ends after 3 bytes"},
        {0, 't', 40, TMSG_ERR_MALFORMED, "preamble: magic 0x744d is not 'TM'"},
        {1, 0, 40, TMSG_ERR_MALFORMED, "preamble: magic 0x5400 is not 'TM'"},
        {2, 1, 40, TMSG_ERR_INCOMPATIBLE,
         "preamble: the peer's wire version is 1, this side's is 0"},
        {2, 255, 4, TMSG_ERR_INCOMPATIBLE,
         "preamble: the peer's wire version is 255, this side's is 0"},
        {3, 31, 40, TMSG_ERR_MALFORMED, "preamble: length 31 is below 32"},
        {3, 41, 40, TMSG_ERR_MALFORMED, "preamble: ends after 40 of 41 bytes"},
        {3, 33, 32, TMSG_ERR_MALFORMED, "preamble: ends after 32 of 33 bytes"},
        {5, 0xfe, 40, TMSG_ERR_UNSUPPORTED,
         "preamble: flags 0x04 are not known here"},
        {32, 2, 40, TMSG_ERR_UNSUPPORTED,
         "preamble: policy 2 is not known here"},
        {20, 8, 40, TMSG_ERR_MALFORMED,
         "preamble: a body of 8 bytes in 7 bytes of header"},
        {23, 255, 40, TMSG_ERR_MALFORMED,
         "preamble: a body of 4278190080 bytes in 7 bytes of header"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        uint8_t bytes[40] = "TM\0\x21\1";
        uint8_t *exact = malloc(rows[i].bytes);
        tmsg_preamble_t got = {.kind = 99};
        tmsg_status_t status;

        bytes[rows[i].at] = rows[i].byte;
        memcpy(exact, bytes, rows[i].bytes);
        status = tmsg_preamble_decode(exact, rows[i].bytes, &got);
        cr_expect_eq(status, rows[i].status, "row %zu: %s", i,
                     tmsg_status_name(status));
        cr_expect_str_eq(tmsg_error_message(), rows[i].message);
        cr_expect_eq(got.kind, 99, "the output was touched");
        free(exact);
    }
}

Test(preamble, wants_a_spilled_body_in_the_padded_payload)
{
    static const struct {
        uint8_t body;
        uint8_t payload;
        tmsg_status_t status;
    } rows[] = {
        {0, 0, TMSG_OK},    {1, 63, TMSG_ERR_MALFORMED},
        {1, 64, TMSG_OK},   {64, 64, TMSG_OK},
        {64, 127, TMSG_OK}, {65, 127, TMSG_ERR_MALFORMED},
        {65, 128, TMSG_OK},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        uint8_t bytes[33] = "TM\0\x21\1\1";
        tmsg_preamble_t got;

        bytes[20] = rows[i].body;
        bytes[24] = rows[i].payload;
        cr_expect_eq(tmsg_preamble_decode(bytes, sizeof(bytes), &got),
                     rows[i].status, "row %zu", i);
    }
}

enum { ALL = TMSG_PREAMBLE_BYTES };

/* A message that is refused ends the endpoint that it names, if any. */
Test(preamble, names_its_endpoint_even_where_it_is_refused)
{
    static const struct {
        const char *row;
        size_t at, bytes; /* the byte that differs; how many there are */
        uint8_t byte;
        bool names;
    } rows[] = {
        {"as it should be", 0, ALL, 'T', true},
        {"an unknown flag", 5, ALL, 0x04, true},
        {"an unknown policy", 32, ALL, 7, true},
        {"a body beyond the header", 20, ALL, 200, true},
        {"another magic", 1, ALL, 'm', false},
        {"another version", 2, ALL, 1, false},
        {"too short", 3, ALL, 31, false},
        {"longer than it is", 3, ALL, 255, false},
        {"cut off", 0, 20, 'T', false},
        {"nothing", 0, 0, 'T', false},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        const tmsg_preamble_t preamble = {.endpoint_id = 0x12345678};
        uint8_t bytes[TMSG_PREAMBLE_BYTES];
        uint32_t id = 77;

        tmsg_preamble_encode(&preamble, bytes);
        bytes[rows[i].at] = rows[i].byte;
        cr_expect(eq(int, tmsg_preamble_names(bytes, rows[i].bytes, &id),
                     rows[i].names),
                  "%s", rows[i].row);
        cr_expect(eq(u32, id, rows[i].names ? 0x12345678 : 77), "%s",
                  rows[i].row);
    }
}
