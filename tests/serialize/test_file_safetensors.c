/* SPDX-License-Identifier: BSD-3-Clause */
#include "test_file_tools.h"

#include <math.h>
#include <time.h>

#include "support/locales.h"

TestSuite(file_safetensors, .init = make_scratch, .fini = drop_scratch);

static char file_bytes[1 << 16];

/* Length, header, then so many bytes 1, 2, 3, ... */
static const char *make(const char *header, size_t header_bytes,
                        size_t data_bytes)
{
    uint64_t length = header_bytes;

    memcpy(file_bytes, &length, 8);
    memcpy(file_bytes + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++) {
        file_bytes[8 + header_bytes + i] = (char)(i + 1);
    }
    return write_scratch("x.safetensors", file_bytes,
                         8 + header_bytes + data_bytes);
}

static const char *make_text(const char *header, size_t data_bytes)
{
    return make(header, strlen(header), data_bytes);
}

static const struct {
    const char *name, *header;
    size_t data_bytes;
    tmsg_status_t status;
    const char *words;
} bad[] = {
    {"empty header", "", 0, TMSG_ERR_MALFORMED, "is not '{'"},
    {"an array", "[]", 0, TMSG_ERR_MALFORMED, "is not '{'"},
    {"space first", " {}", 0, TMSG_ERR_MALFORMED, "is not '{'"},
    {"open object", "{", 0, TMSG_ERR_MALFORMED, "not JSON"},
    {"open string", "{\"a", 0, TMSG_ERR_MALFORMED, "a string does not end"},
    {"string ends in an escape", "{\"a\\", 0, TMSG_ERR_MALFORMED,
     "a string does not end"},
    {"trailing garbage", "{}x", 0, TMSG_ERR_MALFORMED, "something follows"},
    {"two objects", "{}{}", 0, TMSG_ERR_MALFORMED, "something follows"},
    {"newline as padding", "{}\n", 0, TMSG_ERR_MALFORMED, "something follows"},
    {"closes too much", "{}}", 0, TMSG_ERR_MALFORMED, "closes nothing"},
    {"not UTF-8", "{\"\xff\":{}}", 0, TMSG_ERR_MALFORMED, "not UTF-8"},
    {"control character", "{\"a\n\":{}}", 0, TMSG_ERR_MALFORMED,
     "control character"},
    {"NUL in a name", "{\"a\\u0000b\":{}}", 0, TMSG_ERR_UNSUPPORTED,
     "NUL in a string"},
    {"lone surrogate", "{\"\\ud800\":{}}", 0, TMSG_ERR_MALFORMED, "JSON"},
    {"unknown escape", "{\"\\x\":{}}", 0, TMSG_ERR_MALFORMED, "JSON"},
    {"too deep", "{\"a\":{\"shape\":[[1]]}}", 0, TMSG_ERR_MALFORMED,
     "nested too deep"},
    {"exponent", "{\"a\":{\"shape\":[1e3]}}", 0, TMSG_ERR_MALFORMED,
     "not an integer"},
    {"large exponent", "{\"a\":{\"shape\":[1E3]}}", 0, TMSG_ERR_MALFORMED,
     "not an integer"},
    {"fraction", "{\"a\":{\"shape\":[1.5]}}", 0, TMSG_ERR_MALFORMED,
     "not an integer"},
    {"only a sign", "{\"a\":{\"shape\":[-]}}", 0, TMSG_ERR_MALFORMED,
     "'-' without a number"},
    {"a sign and a letter", "{\"a\":{\"shape\":[-x]}}", 0, TMSG_ERR_MALFORMED,
     "'-' without a number"},
    {"leading 0", "{\"a\":{\"shape\":[01]}}", 0, TMSG_ERR_MALFORMED,
     "begins with 0"},
    {"offset too few",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
     TMSG_ERR_MALFORMED, ""},
    {"offsets no array",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":7}}", 1,
     TMSG_ERR_MALFORMED, ""},
    {"frame empty", "{\"__metadata__\":{\"tensormsg.frame\":\"\"}}", 0,
     TMSG_ERR_MALFORMED, "is not a 64-bit integer"},
    {"frame too large",
     "{\"__metadata__\":{\"tensormsg.frame\":\"9223372036854775808\"}}", 0,
     TMSG_ERR_MALFORMED, "is not a 64-bit integer"},
    {"entry not an object", "{\"a\":1}", 0, TMSG_ERR_MALFORMED,
     "tensor 'a': is not an object"},
    {"null", "{\"a\":null}", 0, TMSG_ERR_MALFORMED, "neither"},
    {"empty name",
     "{\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
     TMSG_ERR_UNSUPPORTED, "must have a name"},
    {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "tensor 'a': no dtype"},
    {"no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "no shape"},
    {"no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1,
     TMSG_ERR_MALFORMED, "no data_offsets"},
    {"dtype twice",
     "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],"
     "\"data_offsets\":[0,1]}}",
     1, TMSG_ERR_MALFORMED, "dtype occurs twice"},
    {"unknown field",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],"
     "\"strides\":[1]}}",
     1, TMSG_ERR_UNSUPPORTED, "unknown field 'strides'"},
    {"dtype a number",
     "{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "dtype is not a string"},
    {"unknown dtype",
     "{\"a\":{\"dtype\":\"U7\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_UNSUPPORTED, "unknown dtype 'U7'"},
    {"shape a number",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "shape is not an array"},
    {"shape of strings",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "shape[0] is not a number"},
    {"negative extent",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2,-1],\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "shape[1] is negative (-1)"},
    {"fraction",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "not an integer"},
    {"exponent",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1e3],\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "not an integer"},
    {"octal",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[01],\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "begins with 0"},
    {"minus alone",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[-],\"data_offsets\":[0,1]}}", 1,
     TMSG_ERR_MALFORMED, "'-' without"},
    {"extent of 2^53 + 1",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[9007199254740993],"
     "\"data_offsets\":[0,1]}}",
     1, TMSG_ERR_MALFORMED, "take 9007199254740993 bytes"},
    {"extent of 2^63",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775808],"
     "\"data_offsets\":[0,1]}}",
     1, TMSG_ERR_LIMIT_EXCEEDED, "shape[0] is 2^63 or more"},
    {"product overflows",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],"
     "\"data_offsets\":[0,1]}}",
     1, TMSG_ERR_LIMIT_EXCEEDED, "overflows"},
    {"one offset",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1,
     TMSG_ERR_MALFORMED, "not an array of two"},
    {"three offsets",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1,
     TMSG_ERR_MALFORMED, "not an array of two"},
    {"offset of 2^60",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
     "\"data_offsets\":[0,1152921504606846976]}}",
     1, TMSG_ERR_MALFORMED, "[0, 1152921504606846976] reach beyond"},
    {"offset of 2^64",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
     "\"data_offsets\":[0,18446744073709551616]}}",
     1, TMSG_ERR_LIMIT_EXCEEDED, "data_offsets[1] is 2^63 or more"},
    {"offsets run backwards",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}", 8,
     TMSG_ERR_MALFORMED, "tensor 'a': data_offsets [8, 4] run backwards"},
    {"offsets out of range",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7,
     TMSG_ERR_MALFORMED,
     "data_offsets [0, 8] reach beyond the 7 bytes of data"},
    {"offsets too near",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,7]}}", 7,
     TMSG_ERR_MALFORMED, "dtype and shape take 8 bytes"},
    {"overlap",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
     7, TMSG_ERR_MALFORMED,
     "tensor 'b': data_offsets [3, 7] overlap those of 'a'"},
    {"same data twice",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, TMSG_ERR_MALFORMED, "overlap"},
    {"hole in front",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
     TMSG_ERR_MALFORMED, "leave a hole of 1 bytes"},
    {"hole between",
     "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     4, TMSG_ERR_MALFORMED,
     "tensor 'b': data_offsets [3, 4] leave a hole of 2"},
    {"hole at the end",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 3,
     TMSG_ERR_MALFORMED, "the last 2 bytes belong to no tensor"},
    {"empty tensor beyond the data",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[9,9]}}", 3,
     TMSG_ERR_MALFORMED, "reach beyond"},
    {"name twice",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, TMSG_ERR_MALFORMED, "tensor 'a': the name occurs twice"},
    {"name twice, once escaped",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, TMSG_ERR_MALFORMED, "tensor 'a': the name occurs twice"},
    {"half a byte",
     "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
     TMSG_ERR_MALFORMED, "do not fill whole bytes"},
    {"metadata a string", "{\"__metadata__\":\"x\"}", 0, TMSG_ERR_MALFORMED,
     "__metadata__ is not an object"},
    {"metadata twice, once escaped",
     "{\"__metadata__\":{},\"\\u005f_metadata__\":{}}", 0, TMSG_ERR_MALFORMED,
     "__metadata__ occurs twice"},
    {"metadata key twice, once escaped",
     "{\"__metadata__\":{\"k\":\"\",\"\\u006b\":\"\"}}", 0, TMSG_ERR_MALFORMED,
     "__metadata__ 'k': the key occurs twice"},
    {"metadata of bytes",
     "{\"__metadata__\":{\"tensormsg.ucxx.header\":\"x\"}}", 0,
     TMSG_ERR_MALFORMED,
     "__metadata__ 'tensormsg.ucxx.header': is a key of bytes"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0,
     TMSG_ERR_MALFORMED, "__metadata__ occurs twice"},
    {"metadata of numbers", "{\"__metadata__\":{\"k\":1}}", 0,
     TMSG_ERR_MALFORMED, "__metadata__ 'k': is not a string"},
    {"metadata key twice", "{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", 0,
     TMSG_ERR_MALFORMED, "__metadata__ 'k': the key occurs twice"},
    {"metadata with an empty key", "{\"__metadata__\":{\"\":\"\"}}", 0,
     TMSG_ERR_LIMIT_EXCEEDED, "the key has 0 bytes"},
    {"extent -0",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[-0],\"data_offsets\":[0,0]}}", 0,
     TMSG_ERR_MALFORMED, "begins with -0"},
    {"offset -0",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-0,1]}}", 1,
     TMSG_ERR_MALFORMED, "begins with -0"},
    {"frame with a sign", "{\"__metadata__\":{\"tensormsg.frame\":\"+7\"}}", 0,
     TMSG_ERR_MALFORMED, "is not a 64-bit integer"},
    {"frame with a blank", "{\"__metadata__\":{\"tensormsg.frame\":\" +7\"}}",
     0, TMSG_ERR_MALFORMED, "is not a 64-bit integer"},
    {"frame only a sign", "{\"__metadata__\":{\"tensormsg.frame\":\"-\"}}", 0,
     TMSG_ERR_MALFORMED, "is not a 64-bit integer"},
    {"frame behind the digits",
     "{\"__metadata__\":{\"tensormsg.frame\":\":\"}}", 0, TMSG_ERR_MALFORMED,
     "is not a 64-bit integer"},
    {"frame no number", "{\"__metadata__\":{\"tensormsg.frame\":\"12x\"}}", 0,
     TMSG_ERR_MALFORMED, "is not a 64-bit integer"},
};

Test(file_safetensors, refuses_bad_headers)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        expect_refused(bad[i].name, make_text(bad[i].header, bad[i].data_bytes),
                       bad[i].status, bad[i].words);
    }
}

Test(file_safetensors, refuses_bad_lengths)
{
    static const struct {
        const char *name;
        uint64_t length;
        size_t file_bytes;
        tmsg_status_t status;
        const char *words;
    } rows[] = {
        {"no file content", 0, 0, TMSG_ERR_MALFORMED, "is empty"},
        {"half a length", 0, 7, TMSG_ERR_MALFORMED, "7 bytes are too few"},
        {"2^60", 1ULL << 60, 64, TMSG_ERR_LIMIT_EXCEEDED,
         "header of 1152921504606846976 bytes"},
        {"2^64 - 1", UINT64_MAX, 64, TMSG_ERR_LIMIT_EXCEEDED,
         "header of 18446744073709551615 bytes"},
        {"over 100 MB", 100000001, 64, TMSG_ERR_LIMIT_EXCEEDED,
         "at most 100000000"},
        {"beyond the file", 57, 64, TMSG_ERR_MALFORMED,
         "header of 57 bytes in a file of 64"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char bytes[64] = {0};

        memcpy(bytes, &rows[i].length, 8);
        memset(bytes + 8, '{', 56);
        expect_refused(
            rows[i].name,
            write_scratch("x.safetensors", bytes, rows[i].file_bytes),
            rows[i].status, rows[i].words);
    }
}

Test(file_safetensors, refuses_NUL_bytes_in_the_header)
{
    expect_refused("inside", make("{\"a\0b\":{}}", 10, 0), TMSG_ERR_MALFORMED,
                   "header byte 3: control character");
    expect_refused("as padding", make("{}\0", 3, 0), TMSG_ERR_MALFORMED,
                   "header byte 2");
}

Test(file_safetensors, refuses_65_dimensions)
{
    char header[512] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1";

    for (int i = 0; i < 64; i++) {
        strcat(header, ",1");
    }
    strcat(header, "],\"data_offsets\":[0,1]}}");
    expect_refused("65", make_text(header, 1), TMSG_ERR_LIMIT_EXCEEDED,
                   "tensor 'a': ndim 65 exceeds 64");
}

Test(file_safetensors, refuses_a_name_of_4097_bytes)
{
    char header[8192] = "{\"";

    memset(header + 2, 'n', 4097);
    strcat(header,
           "\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}");
    expect_refused("4097", make_text(header, 1), TMSG_ERR_LIMIT_EXCEEDED,
                   "the name has 4097 bytes, at most 4096");
}

Test(file_safetensors, names_no_control_characters_in_errors)
{
    expect_refused("escape",
                   make_text("{\"\\u001b[2J\\n\":{\"dtype\":\"U8\"}}", 0),
                   TMSG_ERR_MALFORMED, "tensor '\\x1b[2J\\x0a': no shape");
}

/* {format's name, ours, bits} */
static const struct {
    const char *name, *dtype;
    unsigned bits;
} dtypes[] = {
    {"BOOL", "bool", 8},
    {"U8", "uint8", 8},
    {"U16", "uint16", 16},
    {"U32", "uint32", 32},
    {"U64", "uint64", 64},
    {"I8", "int8", 8},
    {"I16", "int16", 16},
    {"I32", "int32", 32},
    {"I64", "int64", 64},
    {"F16", "float16", 16},
    {"F32", "float32", 32},
    {"F64", "float64", 64},
    {"BF16", "bfloat16", 16},
    {"C64", "complex64", 64},
    {"F8_E4M3", "float8_e4m3fn", 8},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", 8},
    {"F8_E5M2", "float8_e5m2", 8},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", 8},
    {"F8_E8M0", "float8_e8m0fnu", 8},
    {"F6_E2M3", "float6_e2m3fn", 6},
    {"F6_E3M2", "float6_e3m2fn", 6},
    {"F4", "float4_e2m1fn", 4},
};

#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

Test(file_safetensors, round_trips_every_dtype_and_rank)
{
    static const struct {
        const char *text;
        unsigned elements;
    } shapes[] = {{"[]", 1}, {"[4]", 4}, {"[2,3,4]", 24}, {"[2,0,4]", 0}};

    for (size_t i = 0; i < DTYPES * 4; i++) {
        unsigned bits = dtypes[i / 4].bits * shapes[i % 4].elements;
        char header[256];
        const char *path, *copy = scratch_path("copy.safetensors");
        tmsg_map_t *map;
        size_t bytes, copy_bytes;
        char *was, *is;

        if (bits % 8 != 0) {
            continue; /* a scalar of 4 or 6 bits */
        }
        snprintf(header, sizeof(header),
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":"
                 "[0,%u]}}",
                 dtypes[i / 4].name, shapes[i % 4].text, bits / 8);
        while (strlen(header) % 8 != 0) {
            strcat(header, " ");
        }
        path = make_text(header, bits / 8);
        map = load_ok(path);
        expect_tensor(map, "a", dtypes[i / 4].dtype, bits / 8,
                      file_bytes + 8 + strlen(header));
        save_ok(map, copy);
        was = read_scratch(path, &bytes);
        is = read_scratch(copy, &copy_bytes);
        cr_expect(bytes == copy_bytes && memcmp(was, is, bytes) == 0,
                  "%s was %s", is + 8, was + 8);
        free(was);
        free(is);
        tmsg_map_destroy(map);
    }
}

Test(file_safetensors, keeps_the_order_of_the_header)
{
    static const char *const names[] = {"z", "\xc3\xa9", "a"};
    tmsg_map_t *map = load_ok(make_text(
        "{\"z\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},"
        "\"\\u00e9\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}  ",
        3));

    cr_assert_eq(tmsg_map_size(map), 3);
    for (size_t i = 0; i < 3; i++) {
        const char *name;

        tmsg_map_at(map, i, &name, NULL);
        cr_expect_str_eq(name, names[i]);
    }
    expect_tensor(map, "z", "uint8", 1, "\3");
    expect_tensor(map, "a", "uint8", 2, "\1\2");
    tmsg_map_destroy(map);
}

Test(file_safetensors, aligns_small_tensors)
{
    tmsg_map_t *map = load_ok(make_text(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[1,9]}}",
        9));
    tmsg_tensor_t tensor;

    tmsg_map_find(map, "b", &tensor);
    cr_expect_eq((uintptr_t)tensor.data % 8, 0, "%p", tensor.data);
    expect_tensor(map, "b", "float64", 8, "\2\3\4\5\6\7\10\11");
    tmsg_map_destroy(map);
}

Test(file_safetensors, keeps_metadata)
{
    const char *path = scratch_path("m.safetensors"), *text;
    const tmsg_meta_t nul = {
        .type = TMSG_META_TYPE_STRING, .data = "a\0b", .bytes = 3};
    int64_t frame = 0;
    tmsg_map_t *map;
    size_t bytes;
    char *file;

    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    tmsg_map_set_string(map, "title", "na\xc3\xafve \"\n");
    tmsg_map_set_i64(map, TMSG_META_FRAME, INT64_MIN);
    tmsg_map_set_f64(map, "half", 0.5);
    tmsg_map_set_bool(map, "yes", 1);
    tmsg_map_set_bool(map, "no", 0);
    tmsg_map_set_bytes(map, "blob", "\1\2", 2);
    cr_assert_eq(tmsg_map_set_meta(map, "blob with NUL", &nul), TMSG_OK);
    tmsg_map_set_string(map, TMSG_META_FILE_NAME, "other.npz");
    save_ok(map, path);
    tmsg_map_destroy(map);

    file = read_scratch(path, &bytes);
    cr_expect_null(strstr(file + 8, "tensormsg.file"), "%s", file + 8);
    cr_expect_null(strstr(file + 8, "blob"), "%s", file + 8);
    free(file);

    map = load_ok(path);
    cr_expect_eq(tmsg_map_get_i64(map, TMSG_META_FRAME, &frame), TMSG_OK);
    cr_expect_eq(frame, INT64_MIN);
    cr_expect_eq(tmsg_map_get_string(map, "title", &text), TMSG_OK);
    cr_expect_str_eq(text, "na\xc3\xafve \"\n");
    cr_expect_eq(tmsg_map_get_string(map, "half", &text), TMSG_OK);
    cr_expect_str_eq(text, "0.5");
    cr_expect_eq(tmsg_map_get_string(map, "yes", &text), TMSG_OK);
    cr_expect_str_eq(text, "true");
    cr_expect_eq(tmsg_map_get_string(map, "no", &text), TMSG_OK);
    cr_expect_str_eq(text, "false");
    cr_expect_eq(tmsg_map_get_string(map, TMSG_META_FILE_NAME, &text), TMSG_OK);
    cr_expect_str_eq(text, "m.safetensors");
    cr_expect_eq(tmsg_map_get_string(map, TMSG_META_FILE_FORMAT, &text),
                 TMSG_OK);
    cr_expect_str_eq(text, "safetensors");
    tmsg_map_destroy(map);
}

/* A reader in another locale takes "3,25" for two numbers, or none. */
/* What is said of a file is said of this one, whoever wrote it. */
Test(file_safetensors, keeps_no_name_of_another_file)
{
    const char *text;
    tmsg_map_t *map = load_ok(
        make_text("{\"__metadata__\":{\"tensormsg.file.name\":\"other.npz\","
                  "\"tensormsg.file.format\":\"npz\"}}",
                  0));

    cr_expect_eq(tmsg_map_meta_size(map), 2);
    cr_expect_eq(tmsg_map_get_string(map, TMSG_META_FILE_NAME, &text), TMSG_OK);
    cr_expect_str_eq(text, "x.safetensors");
    cr_expect_eq(tmsg_map_get_string(map, TMSG_META_FILE_FORMAT, &text),
                 TMSG_OK);
    cr_expect_str_eq(text, "safetensors");
    tmsg_map_destroy(map);
}

Test(file_safetensors, f64_are_text_with_a_point_in_every_locale)
{
    static const struct {
        const char *key;
        double value;
        const char *text;
    } rows[] = {
        {"a", 3.25, "3.25"},
        {"b", 0.1, "0.1"},
        {"c", -7, "-7.0"},
        {"d", 1e300, "1e+300"},
        {"e", (double)NAN, "NaN"},
        {"f", -(double)INFINITY, "-Infinity"},
        {"g", 1.0 / 3, "0.3333333333333333"},
    };
    const char *path = scratch_path("locale.safetensors"), *text = NULL;
    tmsg_map_t *map;

    locale_enter("de_DE", ",");
    cr_assert_eq(tmsg_map_create(&map), TMSG_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tmsg_map_set_f64(map, rows[i].key, rows[i].value);
    }
    save_ok(map, path);
    tmsg_map_destroy(map);
    map = load_ok(path);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_expect_eq(tmsg_map_get_string(map, rows[i].key, &text), TMSG_OK);
        cr_expect_str_eq(text, rows[i].text, "%s: '%s'", rows[i].key, text);
    }
    tmsg_map_destroy(map);
}

/* Keys of 4096 bytes at most, 64 MiB of all. */
Test(file_safetensors, refuses_too_much_metadata)
{
    static const size_t keys[] = {4097, 1}, values[] = {0, 64 << 20};
    static const char *const words[] = {"not 1 to 4096", "at most 67108864"};

    for (size_t i = 0; i < 2; i++) {
        uint64_t bytes = keys[i] + values[i];
        char *file = malloc(bytes + 64), *at;

        at = stpcpy(file + 8, "{\"__metadata__\":{\"");
        memset(at, 'k', keys[i]);
        at = stpcpy(at + keys[i], "\":\"");
        memset(at, 'v', values[i]);
        at = stpcpy(at + values[i], "\"}}");
        bytes = (uint64_t)(at - file) - 8;
        memcpy(file, &bytes, 8);
        expect_refused("much metadata",
                       write_scratch("m.safetensors", file, bytes + 8),
                       TMSG_ERR_LIMIT_EXCEEDED, words[i]);
        free(file);
    }
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Linear in the number of tensors: cJSON's look-ups would make it hours. */
Test(file_safetensors, loads_100000_tensors)
{
    const int64_t shape[] = {2, 2};
    float data[4] = {1, 2, 3, 4};
    tmsg_dtype_t dtype = {TMSG_DTYPE_FLOAT, 32, 1};
    const char *path = scratch_path("many.safetensors");
    tmsg_map_t *map = map_of("first", dtype, 2, shape, NULL, data);
    double start;

    add_copies(map, "layer.weight.", 100000);
    save_ok(map, path);
    tmsg_map_destroy(map);
    start = seconds();
    map = load_ok(path);
    cr_expect_lt(seconds() - start, 10.0, "%.1f s", seconds() - start);
    cr_expect_eq(tmsg_map_size(map), 100000);
    expect_tensor(map, "layer.weight.99999", "float32", 16, data);
    tmsg_map_destroy(map);
}

Test(file_safetensors, refuses_to_save_what_it_cannot_hold)
{
    const int64_t shape[] = {3};
    uint8_t data[64] = {0};
    const char *path = scratch_path("y.safetensors");
    static const struct {
        const char *name;
        tmsg_dtype_t dtype;
        const char *words;
    } rows[] = {
        {"c",
         {TMSG_DTYPE_COMPLEX, 128, 1},
         "tensor 'c': a .safetensors file cannot hold complex128; .npz and "
         ".npy can"},
        {"i",
         {TMSG_DTYPE_INT, 4, 1},
         "cannot hold int4; no other file format can either"},
        {"l", {TMSG_DTYPE_FLOAT, 32, 4}, "cannot hold float32x4"},
        {"f", {TMSG_DTYPE_FLOAT4_E2M1FN, 4, 1}, "do not fill whole bytes"},
        {"__metadata__", {TMSG_DTYPE_UINT, 8, 1}, "keeps that name"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tmsg_map_t *map =
            map_of(rows[i].name, rows[i].dtype, 1, shape, NULL, data);

        expect_save_refused(map, path, TMSG_ERR_UNSUPPORTED, rows[i].words);
        tmsg_map_destroy(map);
    }
}

Test(file_safetensors, packs_strided_tensors)
{
    const int64_t shape[] = {3, 2}, strides[] = {-2, 1}, fortran[] = {1, 3};
    int16_t data[] = {1, 2, 3, 4, 5, 6};
    const int16_t flipped[] = {5, 6, 3, 4, 1, 2};
    const int16_t transposed[] = {1, 4, 2, 5, 3, 6};
    tmsg_dtype_t dtype = {TMSG_DTYPE_INT, 16, 1};
    const char *path = scratch_path("s.safetensors");
    tmsg_map_t *map = map_of("flip", dtype, 2, shape, strides, data + 4);
    tmsg_tensor_t tensor;

    tmsg_map_find(map, "flip", &tensor);
    tensor.data = data;
    tensor.strides = fortran;
    tmsg_map_add(map, "fortran", &tensor, NULL);
    save_ok(map, path);
    tmsg_map_destroy(map);
    map = load_ok(path);
    expect_tensor(map, "flip", "int16", sizeof(data), flipped);
    expect_tensor(map, "fortran", "int16", sizeof(data), transposed);
    tmsg_map_destroy(map);
}

/* Larger than the buffer that packing goes through. */
Test(file_safetensors, packs_large_strided_tensors)
{
    const int64_t shape[] = {700, 600, 3}, strides[] = {1, 700 * 3, 700};
    size_t count = 700 * 600 * 3;
    tmsg_dtype_t dtype = {TMSG_DTYPE_UINT, 32, 1};
    uint32_t *data = malloc(count * 4), *packed = malloc(count * 4);
    tmsg_map_t *map;

    for (size_t i = 0; i < count; i++) {
        data[i] = (uint32_t)(i * 2654435761u);
    }
    map = map_of("a", dtype, 3, shape, strides, data);
    save_ok(map, scratch_path("l.safetensors"));
    tmsg_map_destroy(map);
    for (size_t i = 0; i < count; i++) {
        packed[i] = data[i / 1800 + i / 3 % 600 * 2100 + i % 3 * 700];
    }
    map = load_ok(scratch_path("l.safetensors"));
    expect_tensor(map, "a", "uint32", count * 4, packed);
    tmsg_map_destroy(map);
    free(data);
    free(packed);
}

/* The package safetensors writes torch's float4_e2m1fn_x2 in the same way. */
Test(file_safetensors, lanes_are_elements_of_the_last_dimension)
{
    static const struct {
        tmsg_dtype_t dtype;
        const char *loaded, *header;
        int32_t ndim;
        int64_t shape[2], last;
        uint64_t bytes;
    } rows[] = {
        {{TMSG_DTYPE_FLOAT4_E2M1FN, 4, 2},
         "float4_e2m1fn",
         "\"dtype\":\"F4\",\"shape\":[2,6],\"data_offsets\":[0,6]",
         2,
         {2, 3},
         6,
         6},
        {{TMSG_DTYPE_FLOAT4_E2M1FN, 4, 2},
         "float4_e2m1fn",
         "\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]",
         0,
         {0, 0},
         2,
         1},
        {{TMSG_DTYPE_FLOAT4_E2M1FN, 4, 1},
         "float4_e2m1fn",
         "\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[0,3]",
         2,
         {2, 3},
         3,
         3},
        {{TMSG_DTYPE_FLOAT6_E2M3FN, 6, 4},
         "float6_e2m3fn",
         "\"dtype\":\"F6_E2M3\",\"shape\":[2,12],\"data_offsets\":[0,18]",
         2,
         {2, 3},
         12,
         18},
        {{TMSG_DTYPE_FLOAT6_E3M2FN, 6, 2},
         "float6_e3m2fn",
         "\"dtype\":\"F6_E3M2\",\"shape\":[2,4],\"data_offsets\":[0,6]",
         2,
         {2, 2},
         4,
         6},
        {{TMSG_DTYPE_FLOAT6_E3M2FN, 6, 2},
         "float6_e3m2fn",
         "\"dtype\":\"F6_E3M2\",\"shape\":[4,0],\"data_offsets\":[0,0]",
         2,
         {4, 0},
         0,
         0},
    };
    uint8_t data[18];

    for (uint8_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 37 + 1);
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *path = scratch_path("x2.safetensors");
        tmsg_map_t *map =
            map_of("a", rows[i].dtype, rows[i].ndim, rows[i].shape, NULL, data);
        tmsg_tensor_t tensor;
        size_t bytes;
        char *file;

        save_ok(map, path);
        tmsg_map_destroy(map);
        file = read_scratch(path, &bytes);
        cr_expect_not_null(strstr(file + 8, rows[i].header), "%s", file + 8);
        free(file);
        map = load_ok(path);
        expect_tensor(map, "a", rows[i].loaded, rows[i].bytes, data);
        tmsg_map_find(map, "a", &tensor);
        cr_expect_eq(tensor.dtype.lanes, 1);
        cr_expect_eq(tensor.shape[tensor.ndim - 1], rows[i].last);
        tmsg_map_destroy(map);
    }
}

/* Pairs are whole bytes, so strided ones can be packed. */
Test(file_safetensors, packs_strided_pairs)
{
    const int64_t shape[] = {2, 3}, strides[] = {1, 2};
    uint8_t data[] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66};
    const uint8_t packed[] = {0x11, 0x33, 0x55, 0x22, 0x44, 0x66};
    const tmsg_dtype_t dtype = {TMSG_DTYPE_FLOAT4_E2M1FN, 4, 2};
    tmsg_map_t *map = map_of("a", dtype, 2, shape, strides, data);

    save_ok(map, scratch_path("s.safetensors"));
    tmsg_map_destroy(map);
    map = load_ok(scratch_path("s.safetensors"));
    expect_tensor(map, "a", "float4_e2m1fn", sizeof(packed), packed);
    tmsg_map_destroy(map);
}

Test(file_safetensors, refuses_lanes_that_it_cannot_say)
{
    static const int64_t shape[] = {3}, vast[] = {0, INT64_MAX};
    static const struct {
        tmsg_dtype_t dtype;
        const char *file;
        int32_t ndim;
        const int64_t *shape;
        tmsg_status_t status;
        const char *words;
    } rows[] = {
        {{TMSG_DTYPE_FLOAT4_E2M1FN, 4, 3},
         "x.safetensors",
         1,
         shape,
         TMSG_ERR_UNSUPPORTED,
         "elements of 4 bits do not fill whole bytes"},
        {{TMSG_DTYPE_FLOAT8_E4M3FN, 8, 2},
         "x.safetensors",
         1,
         shape,
         TMSG_ERR_UNSUPPORTED,
         "float8_e4m3fnx2; no other file format can"},
        {{TMSG_DTYPE_FLOAT, 32, 4},
         "x.npz",
         1,
         shape,
         TMSG_ERR_UNSUPPORTED,
         "float32x4; no other file format can"},
        {{TMSG_DTYPE_FLOAT4_E2M1FN, 4, 2},
         "x.npz",
         1,
         shape,
         TMSG_ERR_UNSUPPORTED,
         "float4_e2m1fnx2; .safetensors can"},
        {{TMSG_DTYPE_FLOAT6_E2M3FN, 6, 4},
         "x.npy",
         1,
         shape,
         TMSG_ERR_UNSUPPORTED,
         "float6_e2m3fnx4; .safetensors can"},
        {{TMSG_DTYPE_FLOAT4_E2M1FN, 4, 2},
         "x.safetensors",
         2,
         vast,
         TMSG_ERR_LIMIT_EXCEEDED,
         "times 2 lanes, overflows"},
    };
    uint8_t data[64] = {0};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tmsg_map_t *map =
            map_of("a", rows[i].dtype, rows[i].ndim, rows[i].shape, NULL, data);

        expect_save_refused(map, scratch_path(rows[i].file), rows[i].status,
                            rows[i].words);
        tmsg_map_destroy(map);
    }
}
