/* SPDX-License-Identifier: BSD-3-Clause */
/* Signatures: what they are read from, and what they let through. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

#include "support/must.h"
#include "support/own_code_alloc.h"
#include "support/seeded_maps.h"

#define COUNT(rows) (sizeof(rows) / sizeof(*(rows)))

TestSuite(signature, .init = watched_alloc_start);

/* Adds "x=uint8[2,3]" to a map, or "@k=i64" to its metadata. */
static void put(tmsg_map_t *map, const char *word)
{
    static char data[16];
    char name[64], type[32];
    const char *at = strchr(word, '=') + 1;
    int64_t shape[64];
    tmsg_tensor_t tensor = {
        .data = data, .device = {TMSG_DEVICE_CPU, 0}, .shape = shape};

    snprintf(name, sizeof(name), "%.*s", (int)(at - 1 - word), word);
    if (*name == '@') {
        const tmsg_meta_t value = {.type = *at == 'b'   ? TMSG_META_TYPE_BOOL
                                           : *at == 'i' ? TMSG_META_TYPE_I64
                                                        : TMSG_META_TYPE_STRING,
                                   .data = ""};

        must(tmsg_map_set_meta(map, name + 1, &value));
        return;
    }
    snprintf(type, sizeof(type), "%.*s", (int)strcspn(at, "["), at);
    must(tmsg_dtype_parse(type, &tensor.dtype));
    at = strchr(at, '[') + 1;
    while (*at != ']') {
        char *end;

        shape[tensor.ndim++] = strtoll(at, &end, 10);
        at = *end == ',' ? end + 1 : end;
    }
    must(tmsg_map_add(map, name, &tensor, NULL));
}

/* A map of "x=uint8[2,3] y=float32[]". */
static tmsg_map_t *make(const char *words)
{
    char copy[512], *rest = copy;
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    snprintf(copy, sizeof(copy), "%s", words);
    for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        put(map, word);
    }
    return map;
}

Test(signature, texts_are_printed_as_they_are_read)
{
    static const struct {
        const char *text;
        const char *printed; /* NULL: the same */
    } rows[] = {
        {"()", NULL},
        {"(...)", NULL},
        {"() -> ()", NULL},
        {"(...) -> (...)", "(...)"},
        {"(image: uint8[b,h,w,3]) -> (scores: float32[b,1000])", NULL},
        {"(x: float32[])", NULL},
        {"(x: *[...])", NULL},
        {"(x?: int4[2,*,n], ...)", NULL},
        {"(x: uint8[...,h,w,3], y: uint8[3,...])", NULL},
        {"(x: float32x4[0,9223372036854775807])", NULL},
        {"(x: opaque24[n])", NULL},
        {"(@k: i64, @flag?: bool, @any: *)", NULL},
        {"(@k:i64,x:uint8[n]) -> (@s:string,@b:bytes,@f:f64)",
         "(x: uint8[n], @k: i64) -> (@s: string, @b: bytes, @f: f64)"},
        {" \n( x ?\t: uint8 [ n , 2 ] ,\r\n ... )->( ) ",
         "(x?: uint8[n,2], ...) -> ()"},
        {"(\"x\": uint8[])", "(x: uint8[])"},
        {"(layers.0/weight-1: uint8[])", NULL},
        {"(\"a b\": uint8[], \"\\\"\\\\\": uint8[])", NULL},
        {"(\"\xc3\xbc\": uint8[])", NULL},
        {"(\"\\u00fc\\ud83d\\ude00\\n\": uint8[])",
         "(\"\xc3\xbc\xf0\x9f\x98\x80\\u000a\": uint8[])"},
        {"(@tensormsg.sequence: i64)", NULL},
        {"(3d: uint8[])", NULL},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_signature_t *signature;
        char *text;

        must(tmsg_signature_parse(rows[i].text, &signature));
        must(tmsg_signature_to_text(signature, &text));
        cr_assert(
            eq(str, text,
               (char *)(rows[i].printed ? rows[i].printed : rows[i].text)));
        tmsg_string_free(text);
        tmsg_signature_destroy(signature);
    }
}

Test(signature, errors_say_where_and_what)
{
    static const struct {
        const char *text;
        const char *message;
    } rows[] = {
        {"", "line 1, column 1: '(' is missing at the end"},
        {"x", "column 1: 'x' where '(' must be"},
        {"(", "column 2: a name is missing at the end"},
        {"(x", "column 3: ':' or '?' is missing at the end"},
        {"(x?", "column 4: ':' is missing at the end"},
        {"(x:", "column 4: a dtype is missing at the end"},
        {"(x: uint8", "'[' and the extents (of a scalar: '[]') is missing"},
        {"(x: uint8)", "column 10: ')' where '[' and the extents"},
        {"(x: flaot32[])", "column 5: 'flaot32' is not a dtype: write float32 "
                           "or uint8, for example"},
        {"(x: float33[])",
         "'float33' is not a dtype: write float32 or uint8, for example"},
        {"(x: float32x0[])",
         "'float32x0' is not a dtype: write float32 or uint8, for example"},
        {"(x: a_dtype_of_more_than_all_these_letters[])", "is not a dtype"},
        {"(x: uint8[n)", "column 12: ')' where ',' or ']' must be"},
        {"(x: uint8[n,])", "column 13: ']' where an extent must be"},
        {"(x: uint8[,n])", "column 11: ',' where an extent must be"},
        {"(x: uint8[-1])", "column 11: '-' where an extent must be"},
        {"(x: uint8[1.5])", "column 12: '.' where ',' or ']' must be"},
        {"(x: uint8[03])", "column 11: an extent that begins with 0"},
        {"(x: uint8[3b])", "column 11: a symbol does not begin with a digit"},
        {"(x: uint8[9223372036854775808])", "an extent beyond 2^63 - 1"},
        {"(x: uint8[99999999999999999999])", "an extent beyond 2^63 - 1"},
        {"(x: uint8[..., n, ...])", "column 19: '...' occurs twice"},
        {"(x: uint8[])x", "column 13: 'x' where '->' or the end must be"},
        {"() -> () ()", "column 10: '(' where the end must be"},
        {"() ->", "column 6: '(' is missing at the end"},
        {"(x: uint8[] y: uint8[])", "column 13: 'y' where ',' or ')' must"},
        {"(x: uint8[],)", "column 13: ')' where a name must be"},
        {"(..., x: uint8[])", "nothing comes behind '...'"},
        {"(x: uint8[], x: int8[])", "column 14: tensor \"x\" occurs twice"},
        {"(x: uint8[],\n \"x\": int8[])", "line 2, column 2: tensor \"x\""},
        {"(@k: i64, @k: f64)", "metadata \"k\" occurs twice"},
        {"(@k: int64)", "column 6: not a type of metadata"},
        {"(@k: i64[])", "column 9: '[' where ',' or ')' must be"},
        {"(@k: )", "column 6: ')' where a type of metadata must be"},
        {"(@tensormsg.x: i64)", "\"tensormsg.x\" is not a key of the library"},
        {"(@tensormsg.sequence: f64)", "is a key of another type"},
        {"(\"x: uint8[])", "column 2: a quote that does not end"},
        {"(\"\": uint8[])", "column 2: the name is empty"},
        {"(\"\\q\": uint8[])", "an escape that JSON does not have"},
        {"(\"\\", "an escape that JSON does not have"},
        {"(\"\\u12\": uint8[])", "\\u of no character"},
        {"(\"\\u0000\": uint8[])", "\\u of no character"},
        {"(\"\\ud800x\": uint8[])", "\\u of no character"},
        {"(\"\\ud800\\u0041\": uint8[])", "\\u of no character"},
        {"(\"\\udc00\": uint8[])", "\\u of no character"},
        {"(\"\n\": uint8[])", "a control character within quotes"},
        {"(\"\xff\": uint8[])", "the name is not UTF-8"},
        {"(\xc3\xbc: uint8[])", "column 2: '\xc3\xbc' where a name must be"},
        {"(\"\xc3\xbc\xc3\xbc\": x[])",
         "column 8: 'x' is not a dtype: write float32 or uint8, for example"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_signature_t *signature = NULL;

        must_be(tmsg_signature_parse(rows[i].text, &signature),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), rows[i].message);
        must_say(tmsg_error_message(), "signature, line ");
        must_true(signature == NULL);
    }
}

/* "(" and `count` times `item`, where %zu is which, with commas, and `end`. */
static char *repeat(const char *start, const char *item, size_t count,
                    const char *end)
{
    char *text = malloc(count * 24 + 100), *to = text;

    to += sprintf(to, "%s", start);
    for (size_t i = 0; i < count; i++) {
        to += sprintf(to, "%s", i == 0 ? "" : ",");
        for (const char *c = item; *c != '\0'; c++) {
            to += *c == '#' ? sprintf(to, "%zu", i) : sprintf(to, "%c", *c);
        }
    }
    strcpy(to, end);
    return text;
}

Test(signature, bounds_hold)
{
    static const struct {
        const char *start, *item;
        size_t most;
        const char *end, *message;
    } rows[] = {
        {"(x: uint8[", "1", 64, "])", "more than 64 dimensions"},
        {"(x: uint8[...,", "1", 64, "])", "more than 64 dimensions"},
        {"(x: uint8[", "s#", 64, "])", "more than 64"},
        {"(", "t#: uint8[]", 1024, ")", "more than 1024"},
        {"(", "@k#: i64", 1024, ")", "more than 1024"},
        {"(...) -> (", "t#: uint8[]", 1024, ")", "more than 1024"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        for (size_t more = 0; more < 2; more++) {
            tmsg_signature_t *signature = NULL;
            char *text = repeat(rows[i].start, rows[i].item,
                                rows[i].most + more, rows[i].end);

            must_be(tmsg_signature_parse(text, &signature),
                    more ? TMSG_ERR_LIMIT_EXCEEDED : TMSG_OK);
            if (more) {
                must_say(tmsg_error_message(), rows[i].message);
            }
            tmsg_signature_destroy(signature);
            free(text);
        }
    }
}

Test(signature, symbols_names_and_texts_have_a_length)
{
    static const struct {
        size_t bytes;
        const char *format, *message; /* NULL: it is taken */
    } rows[] = {
        {64, "(x: uint8[%s])", NULL},
        {65, "(x: uint8[%s])", "a symbol of more than 64 bytes"},
        {4096, "(%s: uint8[])", NULL},
        {4097, "(%s: uint8[])", "the name has more than 4096 bytes"},
        {TMSG_SIGNATURE_TEXT_MAX, "%s", "line 1, column 1"},
        {TMSG_SIGNATURE_TEXT_MAX + 1, "%s", "more than 65536 bytes"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        char *word = malloc(rows[i].bytes + 1);
        char *text = malloc(rows[i].bytes + 100);
        tmsg_signature_t *signature = NULL;
        tmsg_status_t status;

        memset(word, 'a', rows[i].bytes);
        word[rows[i].bytes] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        sprintf(text, rows[i].format, word);
#pragma GCC diagnostic pop
        status = tmsg_signature_parse(text, &signature);
        must_true((status == TMSG_OK) == (rows[i].message == NULL));
        if (rows[i].message != NULL) {
            must_say(tmsg_error_message(), rows[i].message);
        }
        tmsg_signature_destroy(signature);
        free(text);
        free(word);
    }
}

#define IMAGE "(image: uint8[b,h,w,3])"

Test(signature, inputs_are_checked)
{
    static const struct {
        const char *signature, *map;
        const char *message; /* NULL: it is taken */
    } rows[] = {
        {IMAGE, "image=uint8[1,480,640,3]", NULL},
        {IMAGE, "image=float32[1,480,640,3]",
         "\"image\" is float32[1,480,640,3]: the method takes uint8[b,h,w,3]"},
        {IMAGE, "image=uint8[1,480,640,4]", "\"image\" is uint8[1,480,640,4]"},
        {IMAGE, "image=uint8[480,640,3]", "\"image\" is uint8[480,640,3]: "},
        {IMAGE, "image=uint8[]", "\"image\" is uint8[]: "},
        {IMAGE, "image=uint8x2[1,480,640,3]", "is uint8x2[1,480,640,3]: "},
        {IMAGE, "image=uint8[0,0,0,3]", NULL},
        {IMAGE, "", "\"image\" is missing: the method takes uint8[b,h,w,3]"},
        {IMAGE, "image=uint8[1,1,1,3] mask=uint8[1]",
         "\"mask\" is not among what the method takes"},
        {IMAGE, "image=uint8[1,1,1,3] @k=i64",
         "metadata \"k\" is not among what the method takes"},
        {IMAGE, "image=uint8[1,1,1,3] @tensormsg.sequence=i64", NULL},
        {"()", "", NULL},
        {"()", "x=int8[1]", "\"x\" is not among"},
        {"(...)", "x=int8[1] @k=i64", NULL},
        {"(a: int8[n], ...)", "x=int8[1] a=int8[2]", NULL},
        {"(a: int8[n], ...)", "x=int8[1]", "\"a\" is missing"},
        {"(a?: int8[n], b: int8[n])", "b=int8[1]", NULL},
        {"(a?: int8[n], b: int8[n])", "b=int8[1] a=int8[1]", NULL},
        {"(a?: int8[n], b: int8[n])", "b=int8[1] a=int8[2]",
         "\"b\" is int8[1]: the method takes int8[n], and n is 2 in \"a\""},
        {"(a: int8[n,n])", "a=int8[3,3]", NULL},
        {"(a: int8[n,n])", "a=int8[3,4]",
         "\"a\" is int8[3,4]: the method takes int8[n,n], and n is 3 in \"a\""},
        {"(a: int8[n], b: int8[n])", "a=int8[0] b=int8[1]", "n is 0 in \"a\""},
        {"(a: float32[])", "a=float32[]", NULL},
        {"(a: float32[])", "a=float32[1]", "takes float32[]"},
        {"(a: float32[0])", "a=float32[0]", NULL},
        {"(a: float32[*,2])", "a=float32[9,2]", NULL},
        {"(a: float32[*,2])", "a=float32[9,3]", "takes float32[*,2]"},
        {"(a: float32[*,2])", "a=float32[2]", "takes float32[*,2]"},
        {"(a: *[...])", "a=float4_e2m1fn[3]", NULL},
        {"(a: *[2])", "a=int8[3]", "takes *[2]"},
        {"(a: int8[...])", "a=int8[]", NULL},
        {"(a: int8[...])", "a=int8[1,2,3]", NULL},
        {"(a: int8[...,h,3])", "a=int8[3]", "takes int8[...,h,3]"},
        {"(a: int8[...,h,3])", "a=int8[7,3]", NULL},
        {"(a: int8[...,h,3])", "a=int8[9,9,7,3]", NULL},
        {"(a: int8[...,h,3])", "a=int8[9,9,3,7]", "takes int8[...,h,3]"},
        {"(a: int8[n,...,n])", "a=int8[4,1,2,4]", NULL},
        {"(a: int8[n,...,n])", "a=int8[4,1,2,5]", "n is 4 in \"a\""},
        {"(a: int8[n,...,n])", "a=int8[4]", "takes int8[n,...,n]"},
        {"(@k: i64)", "@k=i64", NULL},
        {"(@k: i64)", "", "metadata \"k\" is missing: the method takes i64"},
        {"(@k: i64)", "@k=string",
         "metadata \"k\" is string: the method takes i64"},
        {"(@k: *)", "@k=bool", NULL},
        {"(@k?: i64)", "", NULL},
        {"(@k?: i64)", "@k=bool", "metadata \"k\" is bool"},
        {"(@k?: i64, ...)", "@j=bool x=int8[1]", NULL},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *map = make(rows[i].map);
        tmsg_signature_t *signature;

        must(tmsg_signature_parse(rows[i].signature, &signature));
        if (rows[i].message == NULL) {
            must(tmsg_signature_check_inputs(signature, map));
        } else {
            must_be(tmsg_signature_check_inputs(signature, map),
                    TMSG_ERR_INVALID_PARAM);
            must_say(tmsg_error_message(), rows[i].message);
        }
        tmsg_signature_destroy(signature);
        tmsg_map_destroy(map);
    }
}

Test(signature, outputs_have_the_extents_of_the_inputs)
{
    static const struct {
        const char *signature, *inputs, *map;
        const char *message; /* NULL: it is given */
    } rows[] = {
        {"(x: int8[b,n]) -> (y: int8[b])", "x=int8[2,3]", "y=int8[2]", NULL},
        {"(x: int8[b,n]) -> (y: int8[b])", "x=int8[2,3]", "y=int8[3]",
         "\"y\" is int8[3]: the method gives int8[b], and b is 2 in \"x\""},
        {"(x: int8[b,n]) -> (y: int8[b])", NULL, "y=int8[3]", NULL},
        {"(x: int8[b]) -> (y: int8[c], z: int8[c])", "x=int8[2]",
         "y=int8[7] z=int8[7]", NULL},
        {"(x: int8[b]) -> (y: int8[c], z: int8[c])", "x=int8[2]",
         "y=int8[7] z=int8[8]", "gives int8[c], and c is 7 in \"y\""},
        {"(x: int8[b]) -> (y: int8[c])", "x=int8[2]", "",
         "\"y\" is missing: the method gives int8[c]"},
        {"(x: int8[b]) -> (y: int8[c])", "x=int8[2]", "y=int8[1] z=int8[1]",
         "\"z\" is not among what the method gives"},
        {"(x: int8[b])", "x=int8[2]", "z=int8[1] @k=i64", NULL},
        {"(x: int8[b]) -> ()", "x=int8[2]", "", NULL},
        {"(x: int8[b]) -> ()", "x=int8[2]", "@k=i64", "metadata \"k\" is not"},
        {"(x?: int8[b]) -> (y: int8[b])", "", "y=int8[9]", NULL},
        {"(x: int8[b]) -> (y: int8[b])", "x=int16[2]", "y=int8[2]",
         "\"x\" is int16[2]: the method takes int8[b]"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        tmsg_map_t *inputs =
            rows[i].inputs == NULL ? NULL : make(rows[i].inputs);
        tmsg_map_t *map = make(rows[i].map);
        tmsg_signature_t *signature;

        must(tmsg_signature_parse(rows[i].signature, &signature));
        if (rows[i].message == NULL) {
            must(tmsg_signature_check_outputs(signature, inputs, map));
        } else {
            must_be(tmsg_signature_check_outputs(signature, inputs, map),
                    TMSG_ERR_INVALID_PARAM);
            must_say(tmsg_error_message(), rows[i].message);
        }
        tmsg_signature_destroy(signature);
        tmsg_map_destroy(inputs);
        tmsg_map_destroy(map);
    }
}

Test(signature, every_dtype_fits_itself_alone)
{
    static const char *const shapes[] = {"[]", "[0]", "[3]", "[2,0,5]"};

    for (size_t i = 0; i < sample_dtype_count; i++) {
        char dtype[TMSG_DTYPE_NAME_MAX], text[100];
        tmsg_signature_t *signature;

        tmsg_dtype_format(sample_dtypes[i], dtype, sizeof(dtype));
        snprintf(text, sizeof(text), "(x: %s[...])", dtype);
        must(tmsg_signature_parse(text, &signature));
        for (size_t j = 0; j < sample_dtype_count; j++) {
            char word[100], other[TMSG_DTYPE_NAME_MAX];
            tmsg_map_t *map;

            tmsg_dtype_format(sample_dtypes[j], other, sizeof(other));
            snprintf(word, sizeof(word), "x=%s%s", other,
                     shapes[(i + j) % COUNT(shapes)]);
            map = make(word);
            must_be(tmsg_signature_check_inputs(signature, map),
                    i == j ? TMSG_OK : TMSG_ERR_INVALID_PARAM);
            tmsg_map_destroy(map);
        }
        tmsg_signature_destroy(signature);
    }
}

Test(signature, long_names_and_shapes_are_cut_in_errors)
{
    char name[300], text[400], word[400] = "";
    tmsg_signature_t *signature;
    tmsg_map_t *map;

    memset(name, 'n', 290);
    name[290] = '\0';
    snprintf(text, sizeof(text), "(%.40s: uint8[%.60s,b,c])", name, name);
    snprintf(word, sizeof(word),
             "%.40s=uint8[1000000000,0,1000000000,1000000000,1000000000,1]",
             name);
    must(tmsg_signature_parse(text, &signature));
    map = make(word);
    must_be(tmsg_signature_check_inputs(signature, map),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "is uint8[1000000000,0,1000000000");
    must_say(tmsg_error_message(), "...: the method takes uint8[...");
    must_true(strlen(tmsg_error_message()) < 199);
    tmsg_signature_destroy(signature);
    tmsg_map_destroy(map);
}

Test(signature, may_be_made_out_of_parts)
{
    tmsg_signature_t *signature;
    char *text;

    must(tmsg_signature_create(&signature));
    must(tmsg_signature_to_text(signature, &text));
    cr_assert(eq(str, text, (char *)"() -> ()"));
    tmsg_string_free(text);
    must(tmsg_signature_add_tensor(signature, TMSG_SIGNATURE_INPUTS, "a b",
                                   "uint8[b, 3]", 0));
    must(tmsg_signature_add_tensor(signature, TMSG_SIGNATURE_INPUTS, "c",
                                   "*[...]", TMSG_SIGNATURE_OPTIONAL));
    must(tmsg_signature_add_meta(signature, TMSG_SIGNATURE_OUTPUTS, "k",
                                 TMSG_META_TYPE_F64, TMSG_SIGNATURE_OPTIONAL));
    must(tmsg_signature_add_meta(signature, TMSG_SIGNATURE_OUTPUTS, "l", 0, 0));
    must(tmsg_signature_allow_further(signature, TMSG_SIGNATURE_OUTPUTS));
    must(tmsg_signature_to_text(signature, &text));
    cr_assert(eq(str, text,
                 (char *)"(\"a b\": uint8[b,3], c?: *[...]) -> "
                         "(@k?: f64, @l: *, ...)"));
    tmsg_string_free(text);
    tmsg_signature_destroy(signature);
}

Test(signature, parts_that_are_wrong_change_nothing)
{
    const tmsg_signature_side_t in = TMSG_SIGNATURE_INPUTS;
    tmsg_signature_t *signature;
    char *text;

    must(tmsg_signature_create(&signature));
    must(tmsg_signature_add_tensor(signature, in, "x", "uint8[b]", 0));
    must_be(tmsg_signature_add_tensor(signature, in, "x", "uint8[c]", 0),
            TMSG_ERR_ALREADY_EXISTS);
    must_be(tmsg_signature_add_tensor(signature, in, "y", "uint8[c,", 0),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "type, line 1, column 9: an extent");
    must_be(tmsg_signature_add_tensor(signature, in, "y", "uint8[] x", 0),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "'x' where the end must be");
    must_be(tmsg_signature_add_tensor(signature, in, "", "uint8[]", 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_add_tensor(signature, in, NULL, "uint8[]", 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_add_tensor(signature, in, "y", NULL, 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_add_tensor(signature, in, "y", "uint8[]", 2),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_add_tensor(signature, (tmsg_signature_side_t)2, "y",
                                      "uint8[]", 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_add_tensor(NULL, in, "y", "uint8[]", 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_add_meta(signature, in, "k", 6, 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_add_meta(signature, in, "k", -1, 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_add_meta(signature, in, TMSG_META_FRAME,
                                    TMSG_META_TYPE_BOOL, 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_allow_further(NULL, in), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_parse(NULL, &signature), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_check_inputs(signature, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_check_outputs(NULL, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_to_text(NULL, &text), TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_signature_to_json(NULL, &text), TMSG_ERR_INVALID_PARAM);
    must(tmsg_signature_to_text(signature, &text));
    cr_assert(eq(str, text, (char *)"(x: uint8[b]) -> ()"));
    tmsg_string_free(text);
    tmsg_signature_destroy(signature);
}

Test(signature, one_whose_text_would_be_too_long_is_not_printed)
{
    char name[4000];
    tmsg_signature_t *signature;
    char *text = NULL;

    must(tmsg_signature_create(&signature));
    for (int i = 0; i < 20; i++) {
        memset(name, 'a' + i, sizeof(name));
        name[sizeof(name) - 1] = '\0';
        must(tmsg_signature_add_tensor(signature, TMSG_SIGNATURE_INPUTS, name,
                                       "uint8[]", 0));
    }
    must_be(tmsg_signature_to_text(signature, &text), TMSG_ERR_LIMIT_EXCEEDED);
    must_true(text == NULL);
    tmsg_signature_destroy(signature);
}

Test(signature, is_json_too)
{
    tmsg_signature_t *signature;
    char *json;

    must(tmsg_signature_parse("(x?: int8[b,*,...,3], @k: i64) -> (...)",
                              &signature));
    must(tmsg_signature_to_json(signature, &json));
    for (char *c = json, *to = json;; c++) {
        if (*c != ' ' && *c != '\n' && *c != '\t') {
            *to++ = *c;
        }
        if (*c == '\0') {
            break;
        }
    }
    cr_assert(
        eq(str, json,
           (char *)"{\"inputs\":{\"tensors\":[{\"name\":\"x\",\"dtype\":"
                   "\"int8\",\"shape\":[\"b\",\"*\",\"...\",3],\"optional\":"
                   "true}],\"metadata\":[{\"key\":\"k\",\"type\":\"i64\","
                   "\"optional\":false}],\"further\":false},\"outputs\":{"
                   "\"tensors\":[],\"metadata\":[],\"further\":true}}"));
    tmsg_string_free(json);
    tmsg_signature_destroy(signature);
}

/* Signatures of many tensors, whose names are looked up in a table. */
Test(signature, of_many_tensors_finds_each_in_any_order)
{
    char *text = repeat("(", "t#: uint8[n]", 500, ")");
    tmsg_signature_t *signature;
    tmsg_map_t *map;
    char word[40];

    must(tmsg_signature_parse(text, &signature));
    must(tmsg_map_create(&map));
    for (int i = 500; i-- > 1;) {
        snprintf(word, sizeof(word), "t%d=uint8[5]", i);
        put(map, word);
    }
    must_be(tmsg_signature_check_inputs(signature, map),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "\"t0\" is missing");
    put(map, "t0=uint8[5]");
    must(tmsg_signature_check_inputs(signature, map));
    for (int i = 0; i < 40; i++) {
        snprintf(word, sizeof(word), "@k%d=i64", i);
        put(map, word);
    }
    must_be(tmsg_signature_check_inputs(signature, map),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "metadata \"k0\" is not among");
    tmsg_map_destroy(map);
    tmsg_signature_destroy(signature);
    free(text);
}

Test(signature, a_check_allocates_nothing)
{
    tmsg_signature_t *signature;
    tmsg_map_t *map = make("x=uint8[2,3] y=float32[2] @k=i64");

    must(tmsg_signature_parse("(x: uint8[b,n], y: float32[b], @k: i64) -> "
                              "(x: uint8[b,n], y: float32[b], @k: i64)",
                              &signature));
    watched_alloc_arm(1);
    must(tmsg_signature_check_inputs(signature, map));
    must(tmsg_signature_check_outputs(signature, map, map));
    must_true(watched_alloc_disarm() == 0);
    tmsg_map_destroy(map);
    tmsg_signature_destroy(signature);
}

/* Whether all went well. */
static bool use(void)
{
    tmsg_signature_t *signature = NULL;
    char *text = NULL, *json = NULL;
    tmsg_status_t status = tmsg_signature_parse(
        "(a: uint8[b,c], \"b b\": *[], c: int8[d], d: int8[], e: int8[], "
        "f: int8[], g: int8[], h: int8[], i: int8[], @k: i64) -> (a: int8[b])",
        &signature);

    if (status == TMSG_OK) {
        status = tmsg_signature_add_tensor(signature, TMSG_SIGNATURE_OUTPUTS,
                                           "z", "uint8[y]", 0);
    }
    if (status == TMSG_OK) {
        status = tmsg_signature_to_text(signature, &text);
    }
    if (status == TMSG_OK) {
        status = tmsg_signature_to_json(signature, &json);
    }
    must_true(status == TMSG_OK || status == TMSG_ERR_NO_MEMORY);
    tmsg_string_free(text);
    tmsg_string_free(json);
    tmsg_signature_destroy(signature);
    return status == TMSG_OK;
}

Test(signature, survives_each_allocation_that_fails)
{
    unsigned long n = 0;
    size_t live;
    bool ok;

    must_true(use());
    live = watched_alloc_live();
    do {
        watched_alloc_arm(++n);
        ok = use();
        must_eq(watched_alloc_live(), live);
    } while (watched_alloc_disarm() != 0 || !ok);
    must_true(n > 20);
}
