/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON that people write: what cJSON alone would let pass. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_read.h"
#include "support/failing_alloc.h"
#include "support/must.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static tmsg_json_reader_t reader(void)
{
    return (tmsg_json_reader_t){"the test", "it", TMSG_OK};
}

static cJSON *parse(const char *text)
{
    tmsg_json_reader_t read = reader();
    cJSON *root = tmsg_json_parse(&read, text);

    must(read.status);
    return root;
}

Test(json_read, finds_every_nul)
{
    static const struct {
        const char *text;
        long at; /* -1: there is none */
    } rows[] = {
        {"", -1},
        {"\\", -1},
        {"\\u000", -1},
        {"\\u0001", -1},
        {"\\u00000", 0},
        {"{\"a\\u0000b\":1}", 3},
        {"{\"a\":\"\\u0000\"}", 6},
        {"{\"\\\"\\u0000\":1}", 4},
        {"{\"\\\\u0000\":1}", -1}, /* a backslash, and u0000 */
        {"{\"\\\\\\u0000\":1}", 4},
        {"{\"\\\\\\\\u0000\":1}", -1},
        {"{\"\\u0010\\u0000\":1}", 8},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t bytes = strlen(rows[i].text);
        char *exact = malloc(bytes == 0 ? 1 : bytes); /* for ASan's sake */
        const char *nul;

        memcpy(exact, rows[i].text, bytes);
        nul = tmsg_json_find_nul(exact, bytes);
        cr_expect_eq(nul == NULL ? -1 : nul - exact, rows[i].at, "%s: %ld",
                     rows[i].text, nul == NULL ? -1 : (long)(nul - exact));
        free(exact);
    }
}

Test(json_read, a_string_that_would_be_cut_is_refused_with_its_line)
{
    tmsg_json_reader_t read = reader();
    cJSON *root;

    cr_expect_null(
        tmsg_json_parse(&read, "{\"a\": 1,\n\"version\\u0000x\": 1}"));
    must_be(read.status, TMSG_ERR_INVALID_PARAM);
    cr_expect_str_eq(tmsg_error_message(),
                     "it: line 2: a string holds \\u0000");
    root = parse("{\"a\\\\u0000\": 1}");
    cr_expect_str_eq(root->child->string, "a\\u0000");
    cJSON_Delete(root);
}

/* {"k0":0,"k1":0,...}, with what follows the last. */
static char *keys(size_t count, const char *last)
{
    char *text = malloc(count * 16 + strlen(last) + 3);
    char *at = text;

    *at++ = '{';
    for (size_t i = 0; i < count; i++) {
        at += sprintf(at, "\"k%zu\":0,", i);
    }
    sprintf(at, "%s}", last);
    return text;
}

Test(json_read, a_key_that_comes_twice_is_named)
{
    static const struct {
        size_t others;
        const char *last, *words;
    } rows[] = {
        {0, "", NULL},
        {0, "\"k\":0", NULL},
        {0, "\"\":0,\"\":1", "it: '' occurs twice"},
        {1, "\"k\":0", NULL},
        {7, "\"k0\":0", "it: 'k0' occurs twice"},
        {8, "\"k7\":0", "it: 'k7' occurs twice"},
        {9, "\"k\":0", NULL},
        {9, "\"K0\":0", NULL},
        {9, "\"k8\":0,\"k0\":0", "it: 'k8' occurs twice"},
        {1000, "\"k\\u0030\":0", "it: 'k0' occurs twice"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_json_reader_t read = reader();
        char *text = keys(rows[i].others, rows[i].last);
        cJSON *root = parse(text);

        cr_expect_eq(tmsg_json_check_object(&read, root), rows[i].words == NULL,
                     "%s", text);
        must_be(read.status,
                rows[i].words == NULL ? TMSG_OK : TMSG_ERR_INVALID_PARAM);
        if (rows[i].words != NULL) {
            cr_expect_str_eq(tmsg_error_message(), rows[i].words);
        }
        cJSON_Delete(root);
        free(text);
    }
}

/* Compared each with each they take minutes. */
Test(json_read, many_keys_take_no_more_time_than_they_must, .timeout = 20)
{
    tmsg_json_reader_t read = reader();
    char *text = keys(200000, "\"k0\":0");
    cJSON *root = parse(text);

    cr_expect(!tmsg_json_check_object(&read, root));
    cr_expect_str_eq(tmsg_error_message(), "it: 'k0' occurs twice");
    cJSON_Delete(root);
    free(text);
}

Test(json_read, a_check_without_memory_says_so)
{
    char *text = keys(20, "\"k\":0");
    cJSON *root = parse(text);
    bool failed = true;
    unsigned long n = 0;

    while (failed) {
        tmsg_json_reader_t read = reader();
        bool holds;

        failing_alloc_arm(++n);
        holds = tmsg_json_check_object(&read, root);
        failed = failing_alloc_disarm();
        cr_expect_eq(holds, !failed);
        must_be(read.status, failed ? TMSG_ERR_NO_MEMORY : TMSG_OK);
    }
    cr_expect(n > 2, "%lu", n);
    cJSON_Delete(root);
    free(text);
}
