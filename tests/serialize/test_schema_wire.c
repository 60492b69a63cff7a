/* SPDX-License-Identifier: BSD-3-Clause */
#include "test_schema_tools.h"

#define X "01 91 95 a1 78 02 20 01 92 02 03 "
#define FORTRAN "01 91 96 a1 78 02 20 01 92 02 03 81 01 92 01 02 "
#define OUT_OF_ORDER "varying extents are out of order"

Test(schema, body_is_checked)
{
    static const struct {
        const char *hex;
        const char *message; /* NULL: it is taken */
    } rows[] = {
        {"82 " X "03 92 00 00", NULL},
        {"82 " X "03 93 cc ff cc ff 92 00 01", NULL},
        {"82 " X "03 93 00 00 90", NULL},
        {"82 " X "03 94 00 00 91 01 c0", NULL},
        {"82 03 93 00 00 91 01 " X, NULL},
        {"82 " FORTRAN "03 92 00 00", NULL},
        {"82 " X "03 90",
         "definition of a schema: not a slot and a generation"},
        {"82 " X "03 91 00",
         "definition of a schema: not a slot and a generation"},
        {"81 ff 91 00", "reference of a schema: not a slot and a generation"},
        {"82 " X "03 00", "schema is not an array"},
        {"82 " X "03 92 a0 00", "schema is not an integer of 63 bits"},
        {"82 " X "03 92 00 a0", "schema is not an integer of 63 bits"},
        {"82 " X "03 92 ff 00",
         "definition of a schema: the slot is out of range"},
        {"82 " X "03 92 cd 01 00 00",
         "definition of a schema: the slot is out of range"},
        {"81 ff 92 00 cd 01 00",
         "reference of a schema: the generation is out of range"},
        {"81 ff 92 00 ff",
         "reference of a schema: the generation is out of range"},
        {"82 " X "03 93 00 00 00", "schema is not an array"},
        {"82 " X "03 93 00 00 91 a0", "schema is not an integer of 63 bits"},
        {"82 " X "03 93 00 00 92 01", "schema counts more elements than there "
                                      "are bytes"},
        {"82 " X "03 93 00 00 92 01 00",
         "definition of a schema: " OUT_OF_ORDER},
        {"82 " X "03 93 00 00 92 01 01",
         "definition of a schema: " OUT_OF_ORDER},
        {"82 " X "03 93 00 00 91 ff", "definition of a schema: " OUT_OF_ORDER},
        {"82 " X "03 93 00 00 91 02",
         "definition of a schema: there are fewer extents than it says"},
        {"82 " FORTRAN "03 93 00 00 91 00",
         "definition of a schema: an extent of a tensor with strides varies"},
        {"82 " X "ff 92 00 00", "a reference to a schema beside tensors"},
        {"82 03 92 00 00 ff 92 00 00",
         "a reference to a schema beside a definition"},
        {"81 03 92 00 00", "definition of a schema without tensors"},
        {"82 ff 92 00 00 ff 92 00 00", "key -1 occurs twice"},
        {"83 " X "03 92 00 00 03 92 00 00", "key 3 occurs twice"},
        {"81 ff 93 00 00", "schema counts more elements than there are bytes"},
        {"81 ff 94 00 00 90 c1", "schema holds a byte that msgpack never uses"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_body_extra_t extra = {0};
        tmsg_map_t *map = new_map();
        uint8_t *body;
        tmsg_status_t status = decode(rows[i].hex, map, &extra, &body);

        cr_expect_eq(status, rows[i].message ? TMSG_ERR_MALFORMED : TMSG_OK,
                     "row %zu: %s", i, tmsg_error_message());
        if (rows[i].message != NULL) {
            cr_expect_str_eq(tmsg_error_message() + strlen("body: "),
                             rows[i].message, "row %zu: %s", i,
                             tmsg_error_message());
        }
        tmsg_map_destroy(map);
        free(body);
    }
}

Test(schema, has_too_many_extents_from_257_on)
{
    uint8_t body[1024] = {0x81, 0xff, 0x93, 0, 0, 0xdc, 1, 0};
    const tmsg_limits_t limits = tmsg_limits_usual();

    for (size_t more = 0; more < 2; more++) {
        tmsg_body_extra_t extra = {0};
        tmsg_map_t *map = new_map();

        body[7] = (uint8_t)more;
        cr_expect_eq(
            tmsg_body_decode(body, 8 + 256 + more, &limits, map, &extra),
            more ? TMSG_ERR_MALFORMED : TMSG_OK);
        tmsg_map_destroy(map);
    }
    cr_expect_str_eq(tmsg_error_message(),
                     "body: reference of a schema: more than 256 extents");
}

Test(schema, means_nothing_to_a_reader_that_keeps_none)
{
    const tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_map_t *map = new_map();
    size_t bytes;
    uint8_t *body = golden_unhex("82 " X "03 a5 77 72 6f 6e 67", &bytes);

    cr_expect_eq(tmsg_body_decode(body, bytes, &limits, map, NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_size(map), 1);
    free(body);
    tmsg_map_clear(map);
    body = golden_unhex("81 ff 92 00 00", &bytes);
    cr_expect_eq(tmsg_body_decode(body, bytes, &limits, map, NULL),
                 TMSG_ERR_UNSUPPORTED);
    free(body);
    tmsg_map_destroy(map);
}

/* What broke behind a definition does not keep it from being answered. */
Test(schema, definition_is_known_of_a_body_that_is_refused)
{
    tmsg_body_extra_t extra = {0};
    tmsg_map_t *map = new_map();
    uint8_t *body;

    cr_expect_eq(decode("82 03 92 05 06 01 91 95 a0", map, &extra, &body),
                 TMSG_ERR_MALFORMED);
    cr_expect_eq(extra.schema.form, TMSG_SCHEMA_DEFINES);
    cr_expect_eq(extra.schema.slot, 5);
    cr_expect_eq(extra.schema.generation, 6);
    cr_expect_eq(tmsg_map_size(map), 0);
    tmsg_map_destroy(map);
    free(body);
}

/* An answer to it would be one that its sender does not wait for. */
Test(schema, definition_of_no_slot_is_none)
{
    static const char *const rows[] = {
        "82 03 90 01 90",       "82 03 91 05 01 90",
        "82 03 92 a0 00 01 90", "82 03 92 05",
        "82 03 92 05 a0 01 90", "82 03 92 cd 01 00 00 01 90",
        "82 03 92 05 ff 01",
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_body_extra_t extra = {0};
        tmsg_map_t *map = new_map();
        uint8_t *body;

        cr_expect_eq(decode(rows[i], map, &extra, &body), TMSG_ERR_MALFORMED);
        cr_expect_eq(extra.schema.form, TMSG_SCHEMA_NONE, "row %zu", i);
        tmsg_map_destroy(map);
        free(body);
    }
}
