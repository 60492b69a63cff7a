/* SPDX-License-Identifier: BSD-3-Clause */
/* A header and a payload that may lie about each other. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/header.h"
#include "support/must.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

Test(payload, a_spilled_body_takes_its_bytes_padded_to_64)
{
    static const struct {
        uint8_t flags;
        uint32_t body;
        uint64_t spill;
    } rows[] = {
        {0, 100, 0},
        {TMSG_HEADER_ACKED, 100, 0},
        {TMSG_HEADER_SPILLED, 0, 0},
        {TMSG_HEADER_SPILLED, 1, 64},
        {TMSG_HEADER_SPILLED, 64, 64},
        {TMSG_HEADER_SPILLED | TMSG_HEADER_ACKED, 65, 128},
        {TMSG_HEADER_SPILLED, UINT32_MAX, (uint64_t)1 << 32},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        const tmsg_preamble_t head = {.flags = rows[i].flags,
                                      .body_bytes = rows[i].body};

        cr_expect(eq(u64, tmsg_payload_spill(&head), rows[i].spill), "row %zu",
                  i);
    }
}

Test(payload, is_refused_before_it_is_read)
{
    static const struct {
        tmsg_preamble_t head;
        uint64_t bytes; /* that came */
        tmsg_status_t status;
        const char *error;
    } rows[] = {
        {{.payload_bytes = 0}, 0, TMSG_OK, NULL},
        {{.payload_bytes = 1000}, 1000, TMSG_OK, NULL},
        {{.payload_bytes = 999},
         1000,
         TMSG_ERR_MALFORMED,
         "payload of 1000 bytes, the header says 999"},
        {{.payload_bytes = UINT64_MAX}, 1000, TMSG_ERR_MALFORMED, "18446744"},
        {{.payload_bytes = 1001},
         1001,
         TMSG_ERR_LIMIT_EXCEEDED,
         "payload of 1001 bytes, at most 1000"},
        {{.body_bytes = 100}, 0, TMSG_OK, NULL},
        {{.body_bytes = 101},
         0,
         TMSG_ERR_LIMIT_EXCEEDED,
         "header of 101 bytes, at most 100"},
        {{.flags = TMSG_HEADER_SPILLED, .body_bytes = 65, .payload_bytes = 128},
         128,
         TMSG_OK,
         NULL},
        {{.flags = TMSG_HEADER_SPILLED, .body_bytes = 65, .payload_bytes = 127},
         127,
         TMSG_ERR_MALFORMED,
         "payload of 127 bytes"},
        {{.flags = TMSG_HEADER_SPILLED,
          .body_bytes = 101,
          .payload_bytes = 128},
         128,
         TMSG_ERR_LIMIT_EXCEEDED,
         "header of 101 bytes"},
    };
    tmsg_limits_t limits = tmsg_limits_usual();

    limits.message_bytes = 1000;
    limits.header_bytes = 100;
    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_status_t status =
            tmsg_payload_check(&rows[i].head, rows[i].bytes, &limits);

        cr_expect(eq(int, status, rows[i].status), "row %zu", i);
        if (rows[i].error != NULL) {
            must_say(tmsg_error_message(), rows[i].error);
        }
    }
}

/* uint8[3], a gap of 13, float64[2], and one without elements: 32 bytes */
static tmsg_map_t *three(void)
{
    static const int64_t shapes[] = {3, 2, 0};
    const tmsg_tensor_t tensors[] = {
        {NULL,
         {TMSG_DEVICE_CPU, 0},
         {TMSG_DTYPE_UINT, 8, 1},
         1,
         &shapes[0],
         NULL},
        {NULL,
         {TMSG_DEVICE_CPU, 0},
         {TMSG_DTYPE_FLOAT, 64, 1},
         1,
         &shapes[1],
         NULL},
        {NULL,
         {TMSG_DEVICE_CPU, 0},
         {TMSG_DTYPE_FLOAT, 64, 1},
         1,
         &shapes[2],
         NULL},
    };
    static const char *const names[] = {"a", "b", "c"};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (size_t i = 0; i < COUNT(tensors); i++) {
        must(tmsg_map_append(map, names[i], 1, &tensors[i]));
    }
    return map;
}

Test(payload, is_filled_by_its_tensors_to_the_byte)
{
    static const struct {
        tmsg_preamble_t head;
        tmsg_status_t status;
    } rows[] = {
        {{.payload_bytes = 32}, TMSG_OK},
        {{.payload_bytes = 31}, TMSG_ERR_MALFORMED},
        {{.payload_bytes = 33}, TMSG_ERR_MALFORMED},
        {{.flags = TMSG_HEADER_SPILLED, .body_bytes = 9, .payload_bytes = 96},
         TMSG_OK},
        {{.flags = TMSG_HEADER_SPILLED, .body_bytes = 9, .payload_bytes = 32},
         TMSG_ERR_MALFORMED},
        {{.flags = TMSG_HEADER_SPILLED, .body_bytes = 9, .payload_bytes = 41},
         TMSG_ERR_MALFORMED},
    };
    tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_map_t *map = three();

    for (size_t i = 0; i < COUNT(rows); i++) {
        cr_expect(eq(int,
                     tmsg_payload_check_map(&rows[i].head, map, NULL, &limits),
                     rows[i].status),
                  "row %zu", i);
    }
    must_say(tmsg_error_message(), "the tensors take 32 bytes, the payload 41");
    limits.message_bytes = 31;
    cr_expect(eq(int, tmsg_payload_check_map(&rows[0].head, map, NULL, &limits),
                 TMSG_ERR_LIMIT_EXCEEDED));
    tmsg_map_destroy(map);
}

Test(payload, gives_each_tensor_its_place)
{
    uint8_t block[32];
    tmsg_map_t *map = three();
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    tmsg_payload_place(map, NULL);
    cr_expect(eq(ptr, entries[0].tensor.data, NULL));
    tmsg_payload_place(map, block);
    cr_expect(eq(ptr, entries[0].tensor.data, block));
    cr_expect(eq(ptr, entries[1].tensor.data, block + 16));
    cr_expect(eq(ptr, entries[2].tensor.data, block + 32));
    tmsg_map_destroy(map);
}
