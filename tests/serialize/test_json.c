/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include <tensormsg/json.h>
#include <tensormsg/meta.h>

#include "support/failing_alloc.h"
#include "support/golden_listing.h"
#include "support/locales.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static tmsg_map_t *new_map(void)
{
    tmsg_map_t *map;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    return map;
}

static char *to_json(const tmsg_map_t *map)
{
    char *text = NULL;

    cr_assert_eq(tmsg_map_to_json(map, &text), TMSG_OK);
    return text;
}

/* A tensor, and a value of each type. */
static tmsg_map_t *small_map(void)
{
    static const int64_t shape[] = {2, 3}, strides[] = {1, 2};
    static uint8_t data[32];
    tmsg_tensor_t tensor = {
        data,   {TMSG_DEVICE_CUDA, 3}, {TMSG_DTYPE_FLOAT, 32, 1}, 2, shape,
        strides};
    tmsg_map_t *map = new_map();

    cr_assert_eq(tmsg_map_add(map, "a \"b\"", &tensor, NULL), TMSG_OK);
    tensor = (tmsg_tensor_t){data, {77, 0}, {TMSG_DTYPE_BOOL, 8, 4}, 0, 0, 0};
    cr_assert_eq(tmsg_map_add(map, "s", &tensor, NULL), TMSG_OK);
    tmsg_map_set_bool(map, "yes", 1);
    tmsg_map_set_i64(map, TMSG_META_FRAME, -5);
    tmsg_map_set_f64(map, "f", 2);
    tmsg_map_set_string(map, "text", "\xc3\xa9\n");
    tmsg_map_set_bytes(map, "bytes", "\xff", 1);
    return map;
}

Test(json, refuses_a_null_map)
{
    char *text = NULL;

    cr_expect_eq(tmsg_map_to_json(NULL, &text), TMSG_ERR_INVALID_PARAM);
    cr_expect_null(text);
}

Test(json, shows_a_map_a_row_a_tensor)
{
    static const char expected[] =
        "{\n"
        "\t\"tensors\":\t[\n"
        "\t\t{\"name\":\"a \\\"b\\\"\",\"dtype\":\"float32\",\"shape\":[2,3],"
        "\"strides\":[1,2],\"device\":\"cuda:3\",\"bytes\":24}, \n"
        "\t\t{\"name\":\"s\",\"dtype\":\"boolx4\",\"shape\":[],"
        "\"device\":\"device(77):0\",\"bytes\":4}],\n"
        "\t\"metadata\":\t{\n"
        "\t\t\"yes\":\t{\"bool\":true},\n"
        "\t\t\"tensormsg.frame\":\t{\"i64\":-5},\n"
        "\t\t\"f\":\t{\"f64\":2.0},\n"
        "\t\t\"text\":\t{\"string\":\"\xc3\xa9\\n\"},\n"
        "\t\t\"bytes\":\t{\"bytes\":\"/w==\"}\n"
        "\t}\n"
        "}";
    tmsg_map_t *map = small_map();
    char *text = to_json(map);

    cr_expect_str_eq(text, expected);
    tmsg_string_free(text);
    tmsg_map_destroy(map);
}

Test(json, shows_an_empty_map)
{
    tmsg_map_t *map = new_map();
    char *text = to_json(map);

    cr_expect_str_eq(text,
                     "{\n\t\"tensors\":\t[],\n\t\"metadata\":\t{\n\t}\n}");
    tmsg_string_free(text);
    tmsg_map_destroy(map);
}

Test(json, integers_are_exact)
{
    static const struct {
        int64_t value;
        const char *text;
    } rows[] = {
        {0, "{\"i64\":0}"},
        {-1, "{\"i64\":-1}"},
        {9007199254740991, "{\"i64\":9007199254740991}"},
        {9007199254740992, "{\"i64\":9007199254740992}"},
        {9007199254740993, "{\"i64\":\"9007199254740993\"}"},
        {-9007199254740992, "{\"i64\":-9007199254740992}"},
        {-9007199254740993, "{\"i64\":\"-9007199254740993\"}"},
        {INT64_MAX, "{\"i64\":\"9223372036854775807\"}"},
        {INT64_MIN, "{\"i64\":\"-9223372036854775808\"}"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = new_map();
        char *text;

        tmsg_map_set_i64(map, "k", rows[i].value);
        text = to_json(map);
        cr_expect(strstr(text, rows[i].text) != NULL, "%s not in %s",
                  rows[i].text, text);
        tmsg_string_free(text);
        tmsg_map_destroy(map);
    }
}

/* The payload's length, of a kind of message that is not known. */
Test(json, unsigned_integers_are_exact)
{
    static const struct {
        uint8_t top; /* byte of the payload's length */
        const char *text;
    } rows[] = {
        {0x00, "\"payload_bytes\":\t0"},
        {0x7f, "\"payload_bytes\":\t\"9151314442816847872\""},
        {0x80, "\"payload_bytes\":\t\"9223372036854775808\""},
        {0xff, "\"payload_bytes\":\t\"18374686479671623680\""},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        uint8_t header[33] = {
            [0] = 'T', [1] = 'M', [3] = 32, [4] = 200, [20] = 1};
        char *text;

        header[31] = rows[i].top;
        cr_assert_eq(tmsg_header_to_json(header, 33, &text), TMSG_OK, "%s",
                     tmsg_error_message());
        cr_expect(strstr(text, rows[i].text) != NULL, "%s not in %s",
                  rows[i].text, text);
        tmsg_string_free(text);
    }
}

static void expect_number(double value, const char *expected)
{
    tmsg_map_t *map = new_map();
    char *text, needle[64];

    tmsg_map_set_f64(map, "k", value);
    text = to_json(map);
    snprintf(needle, sizeof(needle), "{\"f64\":%s}", expected);
    cr_expect(strstr(text, needle) != NULL, "%s not in %s", needle, text);
    tmsg_string_free(text);
    tmsg_map_destroy(map);
}

Test(json, numbers_are_exact)
{
    expect_number(0.1, "0.1");
    expect_number(-0.0, "-0.0");
    expect_number(1e300, "1e+300");
    expect_number(5e-324, "4.94065645841247e-324");
    expect_number(0.1 + 0.2, "0.30000000000000004");
    expect_number(1.7976931348623157e308, "1.7976931348623157e+308");
    expect_number((double)NAN, "\"NaN\"");
    expect_number((double)INFINITY, "\"Infinity\"");
    expect_number(-(double)INFINITY, "\"-Infinity\"");
}

Test(json, numbers_have_a_point_in_every_locale)
{
    static const char *const locales[][2] = {{"de_DE", ","},
                                             {"ps_AF", "\xd9\xab"}};

    for (size_t i = 0; i < COUNT(locales); i++) {
        locale_enter(locales[i][0], locales[i][1]);
        expect_number(0.25, "0.25");
        expect_number(-1e300, "-1e+300");
        expect_number(3, "3.0");
    }
}

Test(json, strings_may_hold_nul)
{
    const tmsg_meta_t value = {
        .type = TMSG_META_TYPE_STRING, .data = "\"\0\\\xc3\xa9\t", .bytes = 6};
    tmsg_map_t *map = new_map();
    char *text;

    cr_assert_eq(tmsg_map_set_meta(map, "k", &value), TMSG_OK);
    text = to_json(map);
    cr_expect(strstr(text, "{\"string\":\"\\u0022\\u0000\\u005c\xc3\xa9\\u0009"
                           "\"}") != NULL,
              "%s", text);
    tmsg_string_free(text);
    tmsg_map_destroy(map);
}

Test(json, of_headers_is_as_frozen)
{
    golden_t cases[GOLDEN_CASES_MAX];
    size_t count = golden_load("v0/valid", cases);

    cr_assert_gt(count, 0);
    for (size_t i = 0; i < count; i++) {
        char *path, *text = NULL, *frozen;
        cJSON *ours, *expected;

        cr_assert_gt(asprintf(&path, "%s.json", cases[i].path), 0);
        frozen = golden_read(path);
        cr_assert_eq(tmsg_header_to_json(cases[i].bytes, cases[i].size, &text),
                     TMSG_OK, "%s: %s", path, tmsg_error_message());
        ours = cJSON_Parse(text);
        expected = cJSON_Parse(frozen);
        cr_assert_not_null(ours, "%s: %s", path, text);
        cr_assert_not_null(expected, "%s", path);
        cr_expect(cJSON_Compare(ours, expected, 1), "%s: %s", path, text);
        cJSON_Delete(ours);
        cJSON_Delete(expected);
        free(frozen);
        free(path);
        tmsg_string_free(text);
    }
    golden_free(cases, count);
}

Test(json, of_bad_headers_is_refused_as_frozen)
{
    static const struct {
        const char *name;
        tmsg_status_t status;
    } errors[] = {
        {"MALFORMED", TMSG_ERR_MALFORMED},
        {"UNSUPPORTED", TMSG_ERR_UNSUPPORTED},
        {"LIMIT_EXCEEDED", TMSG_ERR_LIMIT_EXCEEDED},
        {"INCOMPATIBLE", TMSG_ERR_INCOMPATIBLE},
    };
    golden_t cases[GOLDEN_CASES_MAX];
    size_t count = golden_load("v0/invalid", cases);

    cr_assert_gt(count, 0);
    for (size_t i = 0; i < count; i++) {
        char untouched[] = "", *text = untouched;
        tmsg_status_t expected = TMSG_OK, status;

        for (size_t j = 0; j < COUNT(errors); j++) {
            if (strcmp(cases[i].remark, errors[j].name) == 0) {
                expected = errors[j].status;
            }
        }
        cr_assert_neq(expected, TMSG_OK, "%s", cases[i].remark);
        status = tmsg_header_to_json(cases[i].bytes, cases[i].size, &text);
        cr_expect_eq(status, expected, "%s: %s, %s", cases[i].path,
                     tmsg_status_name(status), tmsg_error_message());
        cr_expect_eq(text, untouched, "the output was touched");
    }
    golden_free(cases, count);
}

Test(json, leaves_nothing_behind_when_memory_runs_out)
{
    golden_t cases[GOLDEN_CASES_MAX];
    size_t count = golden_load("v0/valid", cases);

    for (size_t i = 0; i < count; i++) {
        bool failed = true;

        for (unsigned long n = 1; failed; n++) {
            char *text = NULL;
            tmsg_status_t status;

            failing_alloc_arm(n);
            status = tmsg_header_to_json(cases[i].bytes, cases[i].size, &text);
            failed = failing_alloc_disarm();
            cr_assert_eq(status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK,
                         "%s, allocation %lu: %s", cases[i].path, n,
                         tmsg_status_name(status));
            cr_assert_eq(text == NULL, failed);
            tmsg_string_free(text);
        }
    }
    golden_free(cases, count);
}

Test(json, of_maps_leaves_nothing_behind_when_memory_runs_out)
{
    tmsg_map_t *map = small_map();
    bool failed = true;

    for (unsigned long n = 1; failed; n++) {
        char *text = NULL;
        tmsg_status_t status;

        failing_alloc_arm(n);
        status = tmsg_map_to_json(map, &text);
        failed = failing_alloc_disarm();
        cr_assert_eq(status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK,
                     "allocation %lu: %s", n, tmsg_status_name(status));
        cr_assert_eq(text == NULL, failed);
        tmsg_string_free(text);
    }
    tmsg_map_destroy(map);
}
