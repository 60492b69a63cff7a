/* SPDX-License-Identifier: BSD-3-Clause */
/* Preambles of calls and streams, byte by byte. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "serialize/call.h"
#include "serialize/header.h"
#include "support/must.h"

typedef struct {
    const char *what;
    uint8_t kind;
    tmsg_call_head_t head;
    uint8_t bytes[80]; /* from 33 on, behind the policy */
    size_t length;
} row_t;

#define ID 0x0000000700000003u
#define ID_BYTES 3, 0, 0, 0, 7, 0, 0, 0

static const row_t rows[] = {
    {"a request",
     16,
     {.type = 1, .id = ID, .left_us = 0x0102, .text = "sum", .text_bytes = 3},
     {1, 0, 3, 0, 0, 0, 0, ID_BYTES, 2, 1, 0, 0, 0, 0, 0, 0, 's', 'u', 'm'},
     26},
    {"a reply",
     16,
     {.type = 2,
      .flags = 1,
      .status = -2,
      .id = ID,
      .code = -3,
      .text = "no",
      .text_bytes = 2},
     {2, 1, 2, 0xfe, 0xff, 0xff, 0xff, ID_BYTES, 0xfd, 0xff, 0xff, 0xff, 0, 0,
      0, 0, 'n', 'o'},
     25},
    {"OPEN",
     18,
     {.type = 3, .id = ID, .left_us = 0x0102, .text = "sum", .text_bytes = 3},
     {3, 0, 3, 0, 0, 0, 0, ID_BYTES, 2, 1, 0, 0, 0, 0, 0, 0, 's', 'u', 'm'},
     26},
    {"ITEM",
     18,
     {.type = 4, .id = ID, .text = ""},
     {4, 0, 0, 0, 0, 0, 0, ID_BYTES, 0, 0, 0, 0, 0, 0, 0, 0},
     23},
    {"FINISH",
     18,
     {.type = 5, .id = ID, .text = ""},
     {5, 0, 0, 0, 0, 0, 0, ID_BYTES, 0, 0, 0, 0, 0, 0, 0, 0},
     23},
    {"END",
     18,
     {.type = 6,
      .status = -2,
      .id = ID,
      .code = 7,
      .text = "no",
      .text_bytes = 2},
     {6, 0, 2, 0xfe, 0xff, 0xff, 0xff, ID_BYTES, 7, 0, 0, 0, 0, 0, 0, 0, 'n',
      'o'},
     25},
    {"CANCEL",
     19,
     {.type = 7, .stream = 1025, .id = ID, .text = ""},
     {7, 0, 0, 0, 0, 0, 0, ID_BYTES, 0, 0, 0, 0, 1, 4, 0, 0},
     23},
    {"OVER",
     19,
     {.type = 8,
      .flags = 1,
      .stream = 1026,
      .status = -2,
      .id = ID,
      .code = -1,
      .text = "no",
      .text_bytes = 2},
     {8, 1, 2, 0xfe, 0xff, 0xff, 0xff, ID_BYTES, 0xff, 0xff, 0xff, 0xff, 2, 4,
      0, 0, 'n', 'o'},
     25},
};

Test(call, bytes_of_each_type)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const tmsg_preamble_t preamble = {.kind = rows[i].kind};
        tmsg_call_head_t read;
        uint8_t bytes[256];
        size_t length = tmsg_call_preamble_bytes(&rows[i].head);

        memset(bytes, 0xee, sizeof(bytes));
        tmsg_preamble_encode(&preamble, bytes);
        tmsg_call_encode(&rows[i].head, bytes);
        cr_assert(eq(sz, length, 33 + rows[i].length), "%s", rows[i].what);
        cr_assert(eq(u8, bytes[3], length), "%s", rows[i].what);
        cr_assert(eq(u8, bytes[4], rows[i].kind), "%s", rows[i].what);
        for (size_t at = 0; at < rows[i].length; at++) {
            cr_assert(eq(u8, bytes[33 + at], rows[i].bytes[at]), "%s, byte %zu",
                      rows[i].what, 33 + at);
        }
        must(tmsg_call_decode(bytes, length, &read));
        cr_assert(eq(u8, read.type, rows[i].head.type));
        cr_assert(eq(u8, read.flags, rows[i].head.flags));
        cr_assert(eq(u16, read.stream, rows[i].head.stream));
        cr_assert(eq(i32, read.status, rows[i].head.status));
        cr_assert(eq(i32, read.code, rows[i].head.code));
        cr_assert(eq(u64, read.id, rows[i].head.id));
        cr_assert(eq(u64, read.left_us, rows[i].head.left_us));
        cr_assert(eq(sz, read.text_bytes, rows[i].head.text_bytes));
        must_eq(memcmp(read.text, rows[i].head.text, read.text_bytes), 0);
    }
}

Test(call, types_that_are_none)
{
    tmsg_call_head_t read;

    for (unsigned type = 0; type < 256; type++) {
        uint8_t bytes[TMSG_CALL_BYTES] = {0};

        bytes[33] = (uint8_t)type;
        must_be(tmsg_call_decode(bytes, sizeof(bytes), &read),
                type >= 1 && type <= 8 ? TMSG_OK : TMSG_ERR_UNSUPPORTED);
    }
}
