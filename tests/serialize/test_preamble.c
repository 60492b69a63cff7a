/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "serialize/header.h"

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

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
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
