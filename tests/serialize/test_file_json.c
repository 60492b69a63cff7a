/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON of a safetensors header from anyone, and what is read of it. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/file_json.h"
#include "support/must.h"

static const tmsg_file_where_t where = {.path = "x.safetensors"};

/* Counts all values below a container. */
static unsigned walk_all(const tmsg_file_json_t *container)
{
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(container);
    unsigned count = 0;

    while (tmsg_file_json_next(&walk)) {
        char type = tmsg_file_json_type(&walk.value);

        count += 1 + (type == '{' || type == '[' ? walk_all(&walk.value) : 0);
    }
    return count;
}

/* From a buffer of just its size, for ASan's sake. */
static tmsg_status_t scan(const char *text, size_t bytes)
{
    char *exact = malloc(bytes == 0 ? 1 : bytes);
    tmsg_file_json_t root = {NULL, 0};
    tmsg_status_t status;

    memcpy(exact, text, bytes);
    status = tmsg_file_json_scan(&where, exact, bytes, &root);
    cr_expect_eq(status == TMSG_OK, root.text != NULL);
    if (status == TMSG_OK) {
        walk_all(&root);
    }
    free(exact);
    return status;
}

Test(file_json, takes_what_the_format_allows)
{
    static const char *const good[] = {
        "{}",
        "{}        ",
        "{\"a\":{\"shape\":[0,1,23456]}}",
        "{ \"a\" :\t{\n\"b\"\r: [ ] } } ",
        "{\"a\":-1}",
        "{\"a\\\\\":\"\\u0061\\\"\"}",
        "{\"a\\\\u0000\":1}", /* a backslash, and u0000 */
        "{\"\xe6\x97\xa5\":\"\x7f\"}",
    };

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        cr_expect_eq(scan(good[i], strlen(good[i])), TMSG_OK, "%s: %s", good[i],
                     tmsg_error_message());
    }
}

static const struct {
    const char *text;
    tmsg_status_t status;
    const char *words;
} bad[] = {
    {"", TMSG_ERR_MALFORMED, "header byte 0: is not '{'"},
    {"[]", TMSG_ERR_MALFORMED, "is not '{'"},
    {"{\"a\":1", TMSG_ERR_MALFORMED, "no ',' or '}'"},
    {"{\"a\":0", TMSG_ERR_MALFORMED, "is not JSON"},
    {"{\"a\":-", TMSG_ERR_MALFORMED, "header byte 6: '-' without a number"},
    {"{\"a\"", TMSG_ERR_MALFORMED, "no ':'"},
    {"{\"a\" 1}", TMSG_ERR_MALFORMED, "no ':'"},
    {"{\"a\":", TMSG_ERR_MALFORMED, "header byte 5: is not JSON: it ends"},
    {"{\"a\":1,}", TMSG_ERR_MALFORMED, "no key"},
    {"{\"a\":1 \"b\":2}", TMSG_ERR_MALFORMED, "no ',' or '}'"},
    {"{\"a\":[1,]}", TMSG_ERR_MALFORMED, "neither a string nor an integer"},
    {"{\"a\":[1 2]}", TMSG_ERR_MALFORMED, "no ',' or ']'"},
    {"{\"a\":[1}", TMSG_ERR_MALFORMED, "no ',' or ']'"},
    {"{1:1}", TMSG_ERR_MALFORMED, "no key"},
    {"{\"a\":-:", TMSG_ERR_MALFORMED, "'-' without a number"},
    {"{\"a\":-/", TMSG_ERR_MALFORMED, "'-' without a number"},
    {"{\"a\":-0", TMSG_ERR_MALFORMED, "begins with -0"},
    {"{\"a\":00", TMSG_ERR_MALFORMED, "begins with 0"},
    {"{\"a\":09", TMSG_ERR_MALFORMED, "begins with 0"},
    {"{\"a\":0.5}", TMSG_ERR_MALFORMED, "not an integer"},
    {"{\"a\":1e5}", TMSG_ERR_MALFORMED, "not an integer"},
    {"{\"a\":1E5}", TMSG_ERR_MALFORMED, "not an integer"},
    {"{\"a\":true}", TMSG_ERR_MALFORMED, "neither a string nor an integer"},
    {"{\"a\":+1}", TMSG_ERR_MALFORMED, "neither a string nor an integer"},
    {"{\"a", TMSG_ERR_MALFORMED, "a string does not end"},
    {"{\"a\\", TMSG_ERR_MALFORMED, "a string does not end"},
    {"{\"\\u000", TMSG_ERR_MALFORMED, "a string does not end"},
    {"{\"\\u0000\":1}", TMSG_ERR_UNSUPPORTED, "header byte 2: NUL in a string"},
    {"{\"\x1f\":1}", TMSG_ERR_MALFORMED, "control character"},
    {"{\"\xff\":1}", TMSG_ERR_MALFORMED, "not UTF-8"},
    {"{\"a\":[[[[", TMSG_ERR_MALFORMED, "nested too deep"},
    {"{}]", TMSG_ERR_MALFORMED, "a bracket closes nothing"},
    {"{]", TMSG_ERR_MALFORMED, "is not JSON"},
    {"{,}", TMSG_ERR_MALFORMED, "is not JSON"},
    {"{}x", TMSG_ERR_MALFORMED, "something follows the JSON object"},
    {"{}\t", TMSG_ERR_MALFORMED, "something follows the JSON object"},
    {"{\"\\x\":1}", TMSG_ERR_MALFORMED, "header byte 2: an escape that JSON"},
    {"{\"\\u12g4\":1}", TMSG_ERR_MALFORMED,
     "an escape that JSON does not have"},
    {"{\"\\u123\":1}", TMSG_ERR_MALFORMED, "an escape that JSON does not have"},
    {"{\"\\ud800\":1}", TMSG_ERR_MALFORMED,
     "an escape that JSON does not have"},
    {"{\"\\udc00\":1}", TMSG_ERR_MALFORMED,
     "an escape that JSON does not have"},
    {"{\"\\ud800\\u0041\":1}", TMSG_ERR_MALFORMED, "an escape that JSON"},
    {"{\"\\ud800\\n\":1}", TMSG_ERR_MALFORMED,
     "an escape that JSON does not have"},
    {"{\"\\ud800\\\":1}", TMSG_ERR_MALFORMED, "a string does not end"},
    {"{} {}", TMSG_ERR_MALFORMED, "something follows the JSON object"},
};

Test(file_json, says_what_is_wrong_and_where)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tmsg_status_t status = scan(bad[i].text, strlen(bad[i].text));

        cr_expect_eq(status, bad[i].status, "%s: %s", bad[i].text,
                     tmsg_status_name(status));
        must_say(tmsg_error_message(), bad[i].words);
        must_say(tmsg_error_message(), "x.safetensors: ");
    }
}

/* Brackets and commas in strings must not count. */
Test(file_json, walks_what_is_there_in_order)
{
    static const char text[] = "{ \"a\" : [ 1 , -2,3 ],\n\"]}\\\"\":\"[{\" ,"
                               "\"c\":{\"d\":[],\"e\":{}},\"f\":77}  ";
    static const char *const keys[] = {"a", "]}\"", "c", "f"};
    static const char *const values[] = {"[ 1 , -2,3 ]", "\"[{\"",
                                         "{\"d\":[],\"e\":{}}", "77"};
    tmsg_file_json_walk_t walk;
    tmsg_file_json_t root;
    size_t i = 0;

    cr_assert_eq(tmsg_file_json_scan(&where, text, strlen(text), &root),
                 TMSG_OK, "%s", tmsg_error_message());
    cr_expect_eq(root.bytes, strlen(text) - 2);
    cr_expect_eq(tmsg_file_json_count(&root), 4);
    cr_expect_eq(walk_all(&root), 9);
    walk = tmsg_file_json_walk(&root);
    for (; tmsg_file_json_next(&walk); i++) {
        tmsg_file_json_t again = tmsg_file_json_at(walk.key.text);

        cr_assert_lt(i, 4);
        cr_expect(tmsg_file_json_string_is(&walk.key, keys[i]));
        cr_expect_eq(again.bytes, walk.key.bytes);
        cr_expect_eq(walk.value.bytes, strlen(values[i]));
        cr_expect_eq(memcmp(walk.value.text, values[i], strlen(values[i])), 0);
        cr_expect_eq(tmsg_file_json_type(&walk.value), "[\"{i"[i]);
    }
    cr_expect_eq(i, 4);
    cr_expect_not(tmsg_file_json_next(&walk), "nor does it begin anew");
}

static tmsg_file_json_t string_of(const char *text)
{
    return (tmsg_file_json_t){text, strlen(text)};
}

/* cJSON must read the same text from each. */
Test(file_json, resolves_escapes)
{
    static const char *const strings[] = {
        "\"\"",
        "\"plain\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"a\\u0041\\u00e9\\u65e5\\uFFFFz\"",
        "\"\\ud83d\\ude00\\uD800\\uDC00\\udbff\\udfff\"",
        "\"\\u007f\\u0080\\u07ff\\u0800\\ud7ff\\ue000\\u0001\"",
        "\"\xe6\x97\xa5\\u65e5\"",
    };

    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        tmsg_file_json_t string = string_of(strings[i]);
        cJSON *other = cJSON_Parse(strings[i]);
        char text[64];

        cr_assert_not_null(other, "%s", strings[i]);
        tmsg_file_json_copy_string(&string, text);
        cr_expect_str_eq(text, other->valuestring, "%s", strings[i]);
        cr_expect_eq(tmsg_file_json_string_bytes(&string),
                     strlen(other->valuestring), "%s", strings[i]);
        cr_expect(tmsg_file_json_string_is(&string, other->valuestring));
        cJSON_Delete(other);
    }
}

Test(file_json, compares_texts_and_not_spellings)
{
    static const struct {
        const char *a, *b;
        int order;
    } rows[] = {
        {"\"\"", "\"\"", 0},
        {"\"a\"", "\"\\u0061\"", 0},
        {"\"ab\\u0063d\"", "\"\\u0061bcd\"", 0},
        {"\"\\u00e9\"", "\"\xc3\xa9\"", 0},
        {"\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"", 0},
        {"\"\\/\"", "\"/\"", 0},
        {"\"a\"", "\"ab\"", -1},
        {"\"a\\u0062\"", "\"a\"", 1},
        {"\"\\u0061\"", "\"b\"", -1},
        {"\"\xc3\xa9\"", "\"z\"", 1},
        {"\"\"", "\"a\"", -1},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int there = tmsg_file_json_compare(rows[i].a, rows[i].b);
        int back = tmsg_file_json_compare(rows[i].b, rows[i].a);

        cr_expect_eq((there > 0) - (there < 0), rows[i].order, "%s %s: %d",
                     rows[i].a, rows[i].b, there);
        cr_expect_eq((back > 0) - (back < 0), -rows[i].order, "%s %s: %d",
                     rows[i].b, rows[i].a, back);
    }
    cr_expect_not(
        tmsg_file_json_string_is(&(tmsg_file_json_t){"\"ab\"", 4}, "a"));
    cr_expect_not(
        tmsg_file_json_string_is(&(tmsg_file_json_t){"\"a\"", 3}, "ab"));
    cr_expect_not(
        tmsg_file_json_string_is(&(tmsg_file_json_t){"\"b\"", 3}, "a"));
}

Test(file_json, reads_every_extent_there_is)
{
    static const struct {
        const char *text;
        bool fits;
        int64_t extent;
    } rows[] = {
        {"0", true, 0},
        {"9007199254740993", true, 9007199254740993}, /* 2^53 + 1 */
        {"9223372036854775807", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"18446744073709551616", false, 0},
        {"99999999999999999999999999", false, 0},
        {"-1", false, 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tmsg_file_json_t number = string_of(rows[i].text);
        int64_t extent = -1;

        cr_expect_eq(tmsg_file_json_read_extent(&number, &extent), rows[i].fits,
                     "%s", rows[i].text);
        cr_expect(!rows[i].fits || extent == rows[i].extent, "%s: %lld",
                  rows[i].text, (long long)extent);
    }
}
