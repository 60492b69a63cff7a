/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON of a safetensors header from anyone: what cJSON would let pass, and
 * what would cost too much. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "serialize/file_json.h"
#include "support/must.h"

static const tmsg_file_where_t where = {.path = "x.safetensors"};

/* From a buffer of just its size, for ASan's sake. */
static tmsg_status_t parse(const char *text, size_t bytes)
{
    char *exact = malloc(bytes == 0 ? 1 : bytes);
    cJSON *root = NULL;
    tmsg_status_t status;

    memcpy(exact, text, bytes);
    status = tmsg_file_parse_json(&where, exact, bytes, &root);
    cr_expect_eq(status == TMSG_OK, root != NULL);
    cJSON_Delete(root);
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
        cr_expect_eq(parse(good[i], strlen(good[i])), TMSG_OK, "%s: %s",
                     good[i], tmsg_error_message());
    }
}

static const struct {
    const char *text;
    tmsg_status_t status;
    const char *words;
} bad[] = {
    {"", TMSG_ERR_MALFORMED, "header byte 0: is not '{'"},
    {"[]", TMSG_ERR_MALFORMED, "is not '{'"},
    {"{\"a\":1", TMSG_ERR_MALFORMED, "is no JSON"},
    {"{\"a\":0", TMSG_ERR_MALFORMED, "is no JSON"},
    {"{\"a\":-", TMSG_ERR_MALFORMED, "header byte 6: '-' without a number"},
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
    {"{]", TMSG_ERR_MALFORMED, "is no JSON"},
    {"{,}", TMSG_ERR_MALFORMED, "is no JSON"},
    {"{} {}", TMSG_ERR_MALFORMED, "something follows the JSON object"},
};

Test(file_json, says_what_is_wrong_and_where)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        tmsg_status_t status = parse(bad[i].text, strlen(bad[i].text));

        cr_expect_eq(status, bad[i].status, "%s: %s", bad[i].text,
                     tmsg_status_name(status));
        must_say(tmsg_error_message(), bad[i].words);
        must_say(tmsg_error_message(), "x.safetensors: ");
    }
}

/* At 64 bytes of memory and more for each of them. */
Test(file_json, refuses_more_than_16_million_values)
{
    size_t bytes = (16 << 20) + 100;
    char *text = malloc(bytes);

    memset(text, ',', bytes);
    text[0] = '{';
    cr_expect_eq(parse(text, bytes), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_error_message(), "more than 16777216 values");
    free(text);
}
