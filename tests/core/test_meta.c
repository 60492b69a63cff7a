/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/map.h"
#include "core/map_struct.h"
#include "support/failing_alloc.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TIMES 100000

static char longest[4096 + 2]; /* 'k' x 4096 and 4097 */

static tmsg_map_t *new_map(void)
{
    tmsg_map_t *map = NULL;

    memset(longest, 'k', 4096);
    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    return map;
}

static const char *numbered(const char *stem, size_t number)
{
    static char key[64];

    snprintf(key, sizeof(key), "%s.%zu", stem, number);
    return key;
}

/* One text for a value of any type. */
static const char *text_of(const tmsg_meta_t *value)
{
    static char text[256];

    switch (value->type) {
    case TMSG_META_TYPE_BOOL:
        snprintf(text, sizeof(text), "bool %d", value->boolean);
        break;
    case TMSG_META_TYPE_I64:
        snprintf(text, sizeof(text), "i64 %ld", value->i64);
        break;
    case TMSG_META_TYPE_F64:
        snprintf(text, sizeof(text), "f64 %a", value->f64);
        break;
    default:
        snprintf(text, sizeof(text), "%s %zu '%.*s'",
                 value->type == TMSG_META_TYPE_STRING ? "string" : "bytes",
                 value->bytes, (int)value->bytes, value->data);
    }
    return text;
}

static void expect_value(const tmsg_map_t *map, const char *key,
                         const char *expected)
{
    tmsg_meta_t value = {0};
    tmsg_status_t status = tmsg_map_get_meta(map, key, &value);

    cr_expect_eq(status, TMSG_OK, "%s: %s", key, tmsg_error_message());
    cr_expect_str_eq(text_of(&value), expected, "%s: '%s', not '%s'", key,
                     text_of(&value), expected);
    cr_expect(value.type != TMSG_META_TYPE_STRING ||
                  value.data[value.bytes] == '\0',
              "%s: no NUL behind the string", key);
}

/* "key=value " of all, in order. */
static const char *all_of(const tmsg_map_t *map)
{
    static char all[4096];
    size_t used = 0;

    all[0] = '\0';
    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        const char *key = NULL;
        tmsg_meta_t value = {0};

        cr_assert_eq(tmsg_map_meta_at(map, i, &key, &value), TMSG_OK);
        used += (size_t)snprintf(all + used, sizeof(all) - used, "%s=%s ", key,
                                 text_of(&value));
    }
    return all;
}

Test(meta, begins_empty)
{
    tmsg_map_t *map = new_map();
    tmsg_meta_t value = {.i64 = 77};
    const char *key = "untouched", *text = key;
    int64_t i64 = 77;
    double f64 = 77;

    cr_expect_eq(tmsg_map_meta_size(map), 0);
    cr_expect_eq(tmsg_map_meta_at(map, 0, &key, &value), TMSG_ERR_NOT_FOUND);
    cr_expect_str_eq(tmsg_error_message(),
                     "key index 0 is out of range: the map has 0 keys", "'%s'",
                     tmsg_error_message());
    cr_expect_eq(tmsg_map_get_meta(map, "k", &value), TMSG_ERR_NOT_FOUND);
    cr_expect_str_eq(tmsg_error_message(), "no key 'k' in the metadata", "'%s'",
                     tmsg_error_message());
    cr_expect_eq(tmsg_map_get_i64(map, "k", &i64), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_get_f64(map, "k", &f64), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_get_string(map, "k", &text), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_remove_meta(map, "k"), TMSG_ERR_NOT_FOUND);
    cr_expect_eq(tmsg_map_get_meta(map, NULL, &value), TMSG_ERR_INVALID_PARAM);
    cr_expect_str_eq(tmsg_error_message(), "key is NULL", "'%s'",
                     tmsg_error_message());
    cr_expect_eq(tmsg_map_get_i64(map, NULL, &i64), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_remove_meta(map, NULL), TMSG_ERR_INVALID_PARAM);
    cr_expect(i64 == 77 && f64 == 77 && text == key && value.i64 == 77,
              "an output was touched");
    cr_expect_str_eq(key, "untouched", "'%s'", key);
    tmsg_map_destroy(map);
}

Test(meta, keeps_every_type)
{
    static const int64_t whole[] = {0, 1, -1, INT64_MAX, INT64_MIN, 1LL << 53};
    static const double real[] = {0.0,     -0.0,     1.5,       DBL_MAX,
                                  DBL_MIN, INFINITY, -INFINITY, 4.9e-324};
    static const char *const texts[] = {"", "a", "m\xc3\xa4rz",
                                        "two\nlines\t\x01", longest};
    static const unsigned char octets[] = {0, 1, 0xff, 0xc0, 0x80, 0};
    tmsg_map_t *map = new_map();
    tmsg_meta_t value;
    const char *text;
    double f64;
    int64_t i64;

    for (size_t i = 0; i < COUNT(whole); i++) {
        cr_assert_eq(tmsg_map_set_i64(map, "i64", whole[i]), TMSG_OK);
        cr_assert_eq(tmsg_map_get_i64(map, "i64", &i64), TMSG_OK);
        cr_expect_eq(i64, whole[i], "%ld, not %ld", i64, whole[i]);
    }
    for (size_t i = 0; i < COUNT(real); i++) {
        cr_assert_eq(tmsg_map_set_f64(map, "f64", real[i]), TMSG_OK);
        cr_assert_eq(tmsg_map_get_f64(map, "f64", &f64), TMSG_OK);
        cr_expect(memcmp(&f64, &real[i], 8) == 0, "%a, not %a", f64, real[i]);
    }
    cr_assert_eq(tmsg_map_set_f64(map, "f64", NAN), TMSG_OK);
    cr_assert_eq(tmsg_map_get_f64(map, "f64", &f64), TMSG_OK);
    cr_expect(isnan(f64), "%a", f64);
    for (size_t i = 0; i < COUNT(texts); i++) {
        cr_assert_eq(tmsg_map_set_string(map, "text", texts[i]), TMSG_OK);
        cr_assert_eq(tmsg_map_get_string(map, "text", &text), TMSG_OK);
        cr_expect_str_eq(text, texts[i]);
        cr_assert_eq(tmsg_map_get_meta(map, "text", &value), TMSG_OK);
        cr_expect_eq(value.bytes, strlen(texts[i]), "%zu", value.bytes);
    }
    for (int boolean = -1; boolean <= 2; boolean++) {
        cr_assert_eq(tmsg_map_set_bool(map, "bool", boolean), TMSG_OK);
        expect_value(map, "bool", boolean ? "bool 1" : "bool 0");
    }
    cr_assert_eq(tmsg_map_set_bytes(map, "bytes", octets, sizeof(octets)),
                 TMSG_OK);
    cr_assert_eq(tmsg_map_get_meta(map, "bytes", &value), TMSG_OK);
    cr_expect_eq(value.type, TMSG_META_TYPE_BYTES, "%d", value.type);
    cr_expect(value.bytes == 6 && memcmp(value.data, octets, 6) == 0);
    cr_assert_eq(tmsg_map_set_bytes(map, "bytes", NULL, 0), TMSG_OK);
    expect_value(map, "bytes", "bytes 0 ''");
    tmsg_map_destroy(map);
}

/* set_meta takes the field that the type names, and a string with NULs. */
Test(meta, takes_the_field_that_the_type_names)
{
    tmsg_map_t *map = new_map();
    tmsg_meta_t value = {0, 5, -6, 0.5, "a\0b", 3};
    static const char *const expected[] = {NULL, "bool 1", "i64 -6",
                                           "f64 0x1p-1"};

    for (value.type = TMSG_META_TYPE_BOOL; value.type <= TMSG_META_TYPE_F64;
         value.type++) {
        tmsg_meta_t found;

        cr_assert_eq(tmsg_map_set_meta(map, "k", &value), TMSG_OK);
        expect_value(map, "k", expected[value.type]);
        cr_assert_eq(tmsg_map_get_meta(map, "k", &found), TMSG_OK);
        cr_expect(found.data == NULL && found.bytes == 0,
                  "type %d borrowed what it does not own", value.type);
    }
    for (; value.type <= TMSG_META_TYPE_BYTES; value.type++) {
        tmsg_meta_t found;

        cr_assert_eq(tmsg_map_set_meta(map, "k", &value), TMSG_OK);
        cr_assert_eq(tmsg_map_get_meta(map, "k", &found), TMSG_OK);
        cr_expect(found.bytes == 3 && memcmp(found.data, "a\0b", 4) == 0 &&
                      found.data != value.data,
                  "type %d: %zu bytes", found.type, found.bytes);
        cr_expect(found.boolean == 0 && found.i64 == 0 && found.f64 == 0);
    }
    tmsg_map_destroy(map);
}

Test(meta, a_key_keeps_its_place_whatever_its_value)
{
    tmsg_map_t *map = new_map();

    tmsg_map_set_i64(map, "zebra", 1);
    tmsg_map_set_string(map, "a", "text");
    tmsg_map_set_bool(map, "m", 0);
    tmsg_map_set_bytes(map, "zebra", "xy", 2);
    tmsg_map_set_i64(map, "a", 4);
    tmsg_map_set_string(map, "m", "");
    cr_expect_str_eq(all_of(map), "zebra=bytes 2 'xy' a=i64 4 m=string 0 '' ",
                     "'%s'", all_of(map));
    cr_expect_eq(tmsg_map_remove_meta(map, "a"), TMSG_OK);
    cr_expect_eq(tmsg_map_remove_meta(map, "a"), TMSG_ERR_NOT_FOUND);
    tmsg_map_set_i64(map, "a", 5);
    cr_expect_str_eq(all_of(map), "zebra=bytes 2 'xy' m=string 0 '' a=i64 5 ",
                     "'%s'", all_of(map));
    tmsg_map_destroy(map);
}

Test(meta, lives_beside_tensors_of_the_same_name)
{
    tmsg_map_t *map = new_map();
    static float number;
    tmsg_tensor_t tensor = {&number, {1, 0}, {2, 32, 1}, 0, NULL, NULL};

    cr_assert_eq(tmsg_map_add(map, "x", &tensor, NULL), TMSG_OK);
    cr_assert_eq(tmsg_map_set_i64(map, "x", 3), TMSG_OK);
    cr_expect_eq(tmsg_map_remove(map, "x"), TMSG_OK);
    expect_value(map, "x", "i64 3");
    cr_expect_eq(tmsg_map_size(map), 0);
    tmsg_map_destroy(map);
}

Test(meta, takes_what_points_into_itself)
{
    tmsg_map_t *map = new_map();
    const char *text, *key;
    tmsg_meta_t value;

    cr_assert_eq(tmsg_map_set_string(map, "first", "some text"), TMSG_OK);
    for (int i = 0; i < 1000; i++) {
        cr_assert_eq(tmsg_map_get_string(map, "first", &text), TMSG_OK);
        cr_assert_eq(tmsg_map_set_string(map, "second", text + 5), TMSG_OK);
        cr_assert_eq(tmsg_map_meta_at(map, 0, &key, &value), TMSG_OK);
        cr_assert_eq(tmsg_map_set_meta(map, key, &value), TMSG_OK);
    }
    cr_expect_str_eq(all_of(map),
                     "first=string 9 'some text' second=string 4 'text' ",
                     "'%s'", all_of(map));
    cr_assert_eq(tmsg_map_meta_at(map, 0, &key, &value), TMSG_OK);
    cr_expect_eq(tmsg_map_remove_meta(map, key), TMSG_OK);
    cr_expect_str_eq(all_of(map), "second=string 4 'text' ", "'%s'",
                     all_of(map));
    tmsg_map_destroy(map);
}

#define I64 ((tmsg_meta_t){.type = TMSG_META_TYPE_I64, .i64 = 9})
#define STRING(text, n)                                                        \
    ((tmsg_meta_t){.type = TMSG_META_TYPE_STRING, .data = (text), .bytes = (n)})
#define BYTES(octets, n)                                                       \
    ((tmsg_meta_t){                                                            \
        .type = TMSG_META_TYPE_BYTES, .data = (octets), .bytes = (n)})

/* Everything that is refused: nothing changes, and the message names the key.
 */
Test(meta, refuses_bad_keys_and_values)
{
    const struct {
        const char *key;
        tmsg_meta_t value;
        tmsg_status_t status;
        const char *message; /* how it begins */
    } rows[] = {
        {NULL, I64, TMSG_ERR_INVALID_PARAM, "key is NULL"},
        {"", I64, TMSG_ERR_INVALID_PARAM, "key is empty"},
        {longest, I64, TMSG_ERR_LIMIT_EXCEEDED, "key 'kkkk"},
        {"k\xff", I64, TMSG_ERR_INVALID_PARAM, "key 'k\\xff' is not UTF-8"},
        {"k", {.type = 0}, TMSG_ERR_INVALID_PARAM, "key 'k': unknown type 0"},
        {"k", {.type = 6}, TMSG_ERR_INVALID_PARAM, "key 'k': unknown type 6"},
        {"k", {.type = -1}, TMSG_ERR_INVALID_PARAM, "key 'k': unknown type -1"},
        {"k", STRING("a\xff", 2), TMSG_ERR_INVALID_PARAM,
         "key 'k': the string is not UTF-8"},
        {"k", STRING("a\xc3\xa4", 2), TMSG_ERR_INVALID_PARAM,
         "key 'k': the string is not UTF-8"},
        {"k", STRING("\xed\xa0\x80", 3), TMSG_ERR_INVALID_PARAM,
         "key 'k': the string is not UTF-8"},
        {"k", STRING(NULL, 1), TMSG_ERR_INVALID_PARAM, "key 'k': data is NULL"},
        {"k", BYTES(NULL, 7), TMSG_ERR_INVALID_PARAM, "key 'k': data is NULL"},
        {"k", BYTES("", SIZE_MAX), TMSG_ERR_NO_MEMORY,
         "no memory for a metadata value"},
        {"there", BYTES("", SIZE_MAX - 1), TMSG_ERR_NO_MEMORY,
         "no memory for a metadata value"},
        {"there", STRING("\xff", 1), TMSG_ERR_INVALID_PARAM,
         "key 'there': the string is not UTF-8"},
        {"tensormsg.", I64, TMSG_ERR_INVALID_PARAM,
         "key 'tensormsg.': the prefix 'tensormsg.' is reserved"},
        {"tensormsg.mine", I64, TMSG_ERR_INVALID_PARAM,
         "key 'tensormsg.mine': the prefix 'tensormsg.' is reserved"},
        {"tensormsg.frames", I64, TMSG_ERR_INVALID_PARAM,
         "key 'tensormsg.frames': the prefix 'tensormsg.' is reserved"},
    };
    tmsg_map_t *map = new_map();

    longest[4096] = 'k';
    tmsg_map_set_string(map, "there", "value");
    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_status_t status =
            tmsg_map_set_meta(map, rows[i].key, &rows[i].value);
        const char *message = tmsg_error_message();

        cr_expect_eq(status, rows[i].status, "%s: %s, not %s", rows[i].message,
                     tmsg_status_name(status),
                     tmsg_status_name(rows[i].status));
        cr_expect(strncmp(message, rows[i].message, strlen(rows[i].message)) ==
                      0,
                  "'%s', not '%s'", message, rows[i].message);
        cr_expect_str_eq(all_of(map), "there=string 5 'value' ", "%s: '%s'",
                         rows[i].message, all_of(map));
    }
    cr_expect_eq(tmsg_map_set_string(map, "k", NULL), TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_set_bytes(map, "k", NULL, 1), TMSG_ERR_INVALID_PARAM);
    longest[4096] = '\0';
    cr_expect_eq(tmsg_map_set_i64(map, longest, 1), TMSG_OK, "%s",
                 tmsg_error_message());
    cr_expect_eq(tmsg_map_set_i64(map, "tensormsg", 1), TMSG_OK, "%s",
                 tmsg_error_message());
    tmsg_map_destroy(map);
}

Test(meta, reserved_keys_have_their_types)
{
    static const struct {
        const char *key;
        int32_t type;
    } rows[] = {
        {"tensormsg.sequence", TMSG_META_TYPE_I64},
        {"tensormsg.frame", TMSG_META_TYPE_I64},
        {"tensormsg.time.acquired_ns", TMSG_META_TYPE_I64},
        {"tensormsg.time.published_ns", TMSG_META_TYPE_I64},
        {"tensormsg.trace.parent", TMSG_META_TYPE_STRING},
        {"tensormsg.trace.state", TMSG_META_TYPE_STRING},
        {"tensormsg.file.name", TMSG_META_TYPE_STRING},
        {"tensormsg.file.format", TMSG_META_TYPE_STRING},
        {"tensormsg.ucxx.header", TMSG_META_TYPE_BYTES},
    };
    tmsg_map_t *map = new_map(), *peers = new_map();

    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int32_t type = TMSG_META_TYPE_BOOL; type <= TMSG_META_TYPE_BYTES;
             type++) {
            tmsg_meta_t value = {type, 1, 1, 1, "1", 1};
            tmsg_status_t status = tmsg_map_set_meta(map, rows[i].key, &value);
            tmsg_status_t expected =
                type == rows[i].type ? TMSG_OK : TMSG_ERR_INVALID_PARAM;

            cr_expect_eq(status, expected, "%s of type %d: %s", rows[i].key,
                         type, tmsg_status_name(status));
            cr_expect(status == TMSG_OK ||
                          strstr(tmsg_error_message(), rows[i].key) != NULL,
                      "'%s'", tmsg_error_message());
            status = tmsg_map_append_meta(peers, rows[i].key,
                                          strlen(rows[i].key), &value);
            cr_expect_eq(status, expected, "a peer's %s of type %d: %s",
                         rows[i].key, type, tmsg_status_name(status));
            tmsg_map_remove_meta(peers, rows[i].key);
        }
    }
    tmsg_map_destroy(peers);
    cr_expect_eq(tmsg_map_meta_size(map), COUNT(rows), "%zu",
                 tmsg_map_meta_size(map));
    tmsg_map_destroy(map);
}

Test(meta, shorthands_want_their_type)
{
    tmsg_map_t *map = new_map();
    const char *text = "untouched";
    int64_t i64 = 77;
    double f64 = 77;

    tmsg_map_set_i64(map, "i64", 1);
    tmsg_map_set_f64(map, "f64", 1);
    tmsg_map_set_bytes(map, "bytes", "x", 1);
    cr_expect_eq(tmsg_map_get_i64(map, "f64", &i64), TMSG_ERR_INVALID_PARAM);
    cr_expect_str_eq(tmsg_error_message(), "key 'f64' holds f64, not i64",
                     "'%s'", tmsg_error_message());
    cr_expect_eq(tmsg_map_get_f64(map, "i64", &f64), TMSG_ERR_INVALID_PARAM);
    cr_expect_str_eq(tmsg_error_message(), "key 'i64' holds i64, not f64",
                     "'%s'", tmsg_error_message());
    cr_expect_eq(tmsg_map_get_string(map, "bytes", &text),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_str_eq(tmsg_error_message(),
                     "key 'bytes' holds bytes, not string", "'%s'",
                     tmsg_error_message());
    cr_expect(i64 == 77 && f64 == 77, "an output was touched");
    cr_expect_str_eq(text, "untouched", "'%s'", text);
    tmsg_map_destroy(map);
}

Test(meta, shorthands_of_bool_and_bytes_read_back_what_was_set)
{
    tmsg_map_t *map = new_map();
    const void *data = map;
    int boolean = 77;
    size_t bytes = 77;

    tmsg_map_set_bool(map, "no", 0);
    tmsg_map_set_bool(map, "yes", 5);
    tmsg_map_set_bytes(map, "bytes", "a\0b", 3);
    tmsg_map_set_bytes(map, "none", NULL, 0);
    cr_expect_eq(tmsg_map_get_bool(map, "bytes", &boolean),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect_eq(tmsg_map_get_bytes(map, "yes", &data, &bytes),
                 TMSG_ERR_INVALID_PARAM);
    cr_expect(boolean == 77 && data == map && bytes == 77, "touched");
    cr_expect_eq(tmsg_map_get_bool(map, "no", &boolean), TMSG_OK);
    cr_expect_eq(boolean, 0, "%d", boolean);
    cr_expect_eq(tmsg_map_get_bool(map, "yes", &boolean), TMSG_OK);
    cr_expect_eq(boolean, 1, "%d", boolean);
    cr_expect_eq(tmsg_map_get_bytes(map, "bytes", &data, &bytes), TMSG_OK);
    cr_expect(bytes == 3 && memcmp(data, "a\0b", 3) == 0, "%zu", bytes);
    cr_expect_eq(tmsg_map_get_bytes(map, "none", &data, &bytes), TMSG_OK);
    cr_expect_eq(bytes, 0, "%zu", bytes);
    tmsg_map_destroy(map);
}

/* "a.npz\0../x" would be "a.npz" to one who looks and another file to one who
 * does not. */
Test(meta, get_string_refuses_a_string_with_a_nul)
{
    static const tmsg_meta_t value = {
        .type = TMSG_META_TYPE_STRING, .data = "a\0b", .bytes = 3};
    const char *text = "untouched";
    tmsg_map_t *map = new_map();

    cr_assert_eq(tmsg_map_set_meta(map, "k", &value), TMSG_OK);
    cr_expect_eq(tmsg_map_get_string(map, "k", &text), TMSG_ERR_INVALID_PARAM);
    cr_expect_str_eq(tmsg_error_message(), "key 'k': the string holds a NUL",
                     "'%s'", tmsg_error_message());
    cr_expect_str_eq(text, "untouched", "'%s'", text);
    tmsg_map_destroy(map);
}

Test(meta, outputs_may_be_null)
{
    tmsg_map_t *map = new_map();

    tmsg_map_set_bool(map, "bool", 1);
    tmsg_map_set_i64(map, "i64", 1);
    tmsg_map_set_f64(map, "f64", 1);
    tmsg_map_set_string(map, "string", "x");
    tmsg_map_set_bytes(map, "bytes", "x", 1);
    cr_expect_eq(tmsg_map_get_meta(map, "i64", NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_get_bool(map, "bool", NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_get_i64(map, "i64", NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_get_f64(map, "f64", NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_get_string(map, "string", NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_get_bytes(map, "bytes", NULL, NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_meta_at(map, 4, NULL, NULL), TMSG_OK);
    cr_expect_eq(tmsg_map_meta_at(map, 5, NULL, NULL), TMSG_ERR_NOT_FOUND);
    tmsg_map_destroy(map);
}

Test(meta, refuses_a_null_map_and_a_null_value)
{
    static const tmsg_meta_t value = {.type = TMSG_META_TYPE_I64};
    tmsg_map_t *map = new_map();
    const tmsg_status_t refused[] = {
        tmsg_map_set_meta(map, "k", NULL),
        tmsg_map_set_meta(NULL, "k", &value),
        tmsg_map_set_bool(NULL, "k", 1),
        tmsg_map_get_meta(NULL, "k", NULL),
        tmsg_map_get_bool(NULL, "k", NULL),
        tmsg_map_get_bytes(NULL, "k", NULL, NULL),
        tmsg_map_meta_at(NULL, 0, NULL, NULL),
        tmsg_map_remove_meta(NULL, "k"),
    };

    for (size_t i = 0; i < COUNT(refused); i++) {
        cr_expect_eq(refused[i], TMSG_ERR_INVALID_PARAM, "%zu: %s", i,
                     tmsg_status_name(refused[i]));
    }
    cr_expect_eq(tmsg_map_meta_size(NULL), 0);
    tmsg_map_destroy(map);
}

/* A key that is set for every frame, the map never cleared. */
Test(meta, setting_a_key_anew_does_not_pile_up)
{
    static const char *const texts[] = {"", "1", "frame-000123.png",
                                        "a text of more than thirty-two bytes",
                                        longest};
    tmsg_map_t *map = new_map();
    static float number;
    tmsg_tensor_t tensor = {&number, {1, 0}, {2, 32, 1}, 0, NULL, NULL};

    cr_assert_eq(tmsg_map_add(map, "x", &tensor, NULL), TMSG_OK);
    cr_assert_eq(tmsg_map_set_string(map, "kept", "for ever"), TMSG_OK);
    for (size_t i = 0; i < COUNT(texts); i++) {
        size_t most = 0, bound = 3 * (4096 + strlen(texts[i]) + 64);

        for (int j = 0; j < TIMES; j++) {
            cr_assert_eq(tmsg_map_set_string(map, "k", texts[i]), TMSG_OK);
            most = map->arena.used > most ? map->arena.used : most;
        }
        cr_expect_lt(most, bound, "%zu bytes a value: %zu, not below %zu",
                     strlen(texts[i]), most, bound);
        for (int j = 0; j < TIMES; j++) {
            cr_assert_eq(tmsg_map_set_i64(map, "comes and goes", j), TMSG_OK);
            cr_assert_eq(tmsg_map_remove_meta(map, "comes and goes"), TMSG_OK);
            most = map->arena.used > most ? map->arena.used : most;
        }
        cr_expect_lt(most, bound, "%zu bytes a value: %zu, not below %zu",
                     strlen(texts[i]), most, bound);
    }
    expect_value(map, "kept", "string 8 'for ever'");
    cr_expect_eq(tmsg_map_find(map, "x", NULL), TMSG_OK);
    tmsg_map_destroy(map);
}

Test(meta, holds_many_keys)
{
    enum { KEYS = 20000 };
    tmsg_map_t *map = new_map();
    int64_t found;

    for (int i = 0; i < KEYS; i++) {
        cr_assert_eq(tmsg_map_set_i64(map, numbered("k", (size_t)i), i),
                     TMSG_OK);
    }
    for (int i = 0; i < KEYS; i += 1000) {
        cr_assert_eq(tmsg_map_remove_meta(map, numbered("k", (size_t)i)),
                     TMSG_OK);
    }
    for (int i = 0; i < KEYS; i++) {
        tmsg_status_t expected = i % 1000 ? TMSG_OK : TMSG_ERR_NOT_FOUND;
        tmsg_status_t status =
            tmsg_map_get_i64(map, numbered("k", (size_t)i), &found);

        cr_assert_eq(status, expected, "%d: %s", i, tmsg_status_name(status));
        cr_assert(status != TMSG_OK || found == i, "%d: %ld", i, found);
    }
    tmsg_map_destroy(map);
}

/* For a decoder: lengths, and reserved keys that a newer writer may know. */
Test(meta, append_checks_what_comes_from_a_peer)
{
    const struct {
        const char *key;
        size_t key_bytes;
        tmsg_meta_t value;
        tmsg_status_t status;
        const char *message;
    } rows[] = {
        {"abc", 3, I64, TMSG_OK, ""},
        {"abcd", 2, STRING("x\0y", 3), TMSG_OK, ""},
        {"tensormsg.new", 13, I64, TMSG_OK, ""},
        {"abc", 3, I64, TMSG_ERR_ALREADY_EXISTS,
         "the map has a key 'abc' already"},
        {"ab", 2, I64, TMSG_ERR_ALREADY_EXISTS,
         "the map has a key 'ab' already"},
        {"", 0, I64, TMSG_ERR_INVALID_PARAM,
         "metadata 3: key is not UTF-8 without NUL"},
        {"a\0b", 3, I64, TMSG_ERR_INVALID_PARAM,
         "metadata 3: key is not UTF-8 without NUL"},
        {"a\xc3", 2, I64, TMSG_ERR_INVALID_PARAM,
         "metadata 3: key is not UTF-8 without NUL"},
        {"keys", 3, STRING("\xff", 1), TMSG_ERR_INVALID_PARAM,
         "key 'key': the string is not UTF-8"},
        {"k\n",
         2,
         {.type = 6},
         TMSG_ERR_INVALID_PARAM,
         "key 'k\\x0a': unknown type 6"},
    };
    tmsg_map_t *map = new_map();

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_status_t status = tmsg_map_append_meta(
            map, rows[i].key, rows[i].key_bytes, &rows[i].value);

        cr_expect_eq(status, rows[i].status, "row %zu: %s, not %s", i,
                     tmsg_status_name(status),
                     tmsg_status_name(rows[i].status));
        cr_expect(status == TMSG_OK ||
                      strcmp(tmsg_error_message(), rows[i].message) == 0,
                  "row %zu: '%s', not '%s'", i, tmsg_error_message(),
                  rows[i].message);
    }
    cr_expect_eq(tmsg_map_meta_size(map), 3, "%zu", tmsg_map_meta_size(map));
    cr_expect_eq(tmsg_map_meta_entries(map)[1].key_bytes, 2);
    expect_value(map, "tensormsg.new", "i64 9");
    tmsg_map_destroy(map);
}

/* Sets twenty keys, then each anew with a longer value. A call that fails
 * leaves all as it was and is made again. */
static void set_all(tmsg_map_t *map, unsigned long n)
{
    static char text[512];

    for (size_t i = 0; i < 400; i++) {
        size_t size = tmsg_map_meta_size(map);
        tmsg_status_t status;

        memset(text, 'v', sizeof(text));
        text[i % 40 + i / 4] = '\0';
        status = tmsg_map_set_string(map, numbered("k", i % 40), text);
        if (status != TMSG_OK) {
            tmsg_meta_t value = {0};
            bool old = i >= 40;

            failing_alloc_disarm();
            cr_expect_eq(status, TMSG_ERR_NO_MEMORY, "allocation %lu: %s", n,
                         tmsg_status_name(status));
            cr_expect_eq(tmsg_map_meta_size(map), size,
                         "allocation %lu: %zu keys", n,
                         tmsg_map_meta_size(map));
            status = tmsg_map_get_meta(map, numbered("k", i % 40), &value);
            cr_expect_eq(status, old ? TMSG_OK : TMSG_ERR_NOT_FOUND,
                         "allocation %lu: %s", n, tmsg_status_name(status));
            cr_expect(!old || value.bytes == i % 40 + (i - 40) / 4,
                      "allocation %lu: %zu bytes", n, value.bytes);
            status = tmsg_map_set_string(map, numbered("k", i % 40), text);
            cr_assert_eq(status, TMSG_OK, "allocation %lu: %s", n,
                         tmsg_error_message());
        }
    }
}

Test(meta, survives_every_failed_allocation)
{
    bool more = true;
    unsigned long failures = 0;

    for (unsigned long n = 1; more; n++) {
        tmsg_map_t *map = new_map();

        failing_alloc_arm(n);
        set_all(map, n);
        more = failing_alloc_left == 0;
        failing_alloc_disarm();
        failures += more;
        for (size_t i = 0; i < 40; i++) {
            tmsg_meta_t value = {0};

            cr_expect_eq(tmsg_map_get_meta(map, numbered("k", i), &value),
                         TMSG_OK, "allocation %lu, key %zu", n, i);
            cr_expect_eq(value.bytes, i + (360 + i) / 4,
                         "allocation %lu, key %zu: %zu bytes", n, i,
                         value.bytes);
        }
        tmsg_map_destroy(map);
    }
    cr_expect_gt(failures, 8, "only %lu allocations failed", failures);
}
