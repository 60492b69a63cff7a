/* SPDX-License-Identifier: BSD-3-Clause */
#include "test_file_tools.h"

TestSuite(file_npy, .init = make_scratch, .fini = drop_scratch);

static char file_bytes[1 << 17];

/* A .npy of that version with the bytes 1, 2, 3, ... as data. */
static const char *make_npy(int major, const char *header, size_t data_bytes)
{
    size_t length = strlen(header), prefix = major == 1 ? 10 : 12;

    memcpy(file_bytes, "\x93NUMPY", 6);
    file_bytes[6] = (char)major;
    file_bytes[7] = 0;
    for (size_t i = 8; i < prefix; i++) {
        file_bytes[i] = (char)(length >> 8 * (i - 8));
    }
    memcpy(file_bytes + prefix, header, length);
    for (size_t i = 0; i < data_bytes; i++) {
        file_bytes[prefix + length + i] = (char)(i + 1);
    }
    return write_scratch("x.npy", file_bytes, prefix + length + data_bytes);
}

#define F4_3 "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"
#define DESCR(text)                                                            \
    "{'descr': " text ", 'fortran_order': False, 'shape': (1,), }"
#define SHAPE(text)                                                            \
    "{'descr': '|u1', 'fortran_order': False, 'shape': " text ", }"

static const struct {
    const char *name, *header;
    size_t data_bytes;
    tmsg_status_t status;
    const char *words;
} bad[] = {
    {"truncated", F4_3, 11, TMSG_ERR_MALFORMED,
     "truncated: dtype and shape take 12 bytes, 11 follow"},
    {"no data", F4_3, 0, TMSG_ERR_MALFORMED, "truncated"},
    {"too long", F4_3, 13, TMSG_ERR_MALFORMED, "too long"},
    {"empty header", "  ", 0, TMSG_ERR_MALFORMED, "is not a dictionary"},
    {"a list", "[1,2,3]", 0, TMSG_ERR_MALFORMED, "is not a dictionary"},
    {"an expression", "__import__('os').system('true')", 0, TMSG_ERR_MALFORMED,
     "is not a dictionary"},
    {"nothing in it", "{}  ", 0, TMSG_ERR_MALFORMED, "a field is missing"},
    {"no descr", "{'fortran_order': False, 'shape': (1,)}", 1,
     TMSG_ERR_MALFORMED, "a field is missing"},
    {"open", "{'descr': '<f4', ", 0, TMSG_ERR_MALFORMED, "not a dictionary of"},
    {"field twice",
     "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': "
     "(1,)}",
     1, TMSG_ERR_MALFORMED, "'descr' occurs twice"},
    {"unknown field",
     "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), 'x': 1}", 1,
     TMSG_ERR_MALFORMED, "'x' is unknown"},
    {"no comma", "{'descr': '|u1' 'fortran_order': False, 'shape': (1,)}", 1,
     TMSG_ERR_MALFORMED, "not a dictionary of"},
    {"spaces to the end", "{   ", 0, TMSG_ERR_MALFORMED, "not a dictionary of"},
    {"key without quotes", "{descr: '|u1'}", 0, TMSG_ERR_MALFORMED,
     "not a dictionary of"},
    {"something behind", F4_3 " 1", 12, TMSG_ERR_MALFORMED,
     "something follows"},
    {"fortran_order a number",
     "{'descr': '|u1', 'fortran_order': 0, 'shape': (1,)}", 1,
     TMSG_ERR_MALFORMED, "neither True nor False"},
    {"descr a number", DESCR("4"), 4, TMSG_ERR_MALFORMED,
     "descr is not a short string"},
    {"descr with an escape", DESCR("'<\\x664'"), 4, TMSG_ERR_MALFORMED,
     "descr is not a short string"},
    {"descr of 64 bytes",
     DESCR(
         "'0123456789012345678901234567890123456789012345678901234567890123'"),
     4, TMSG_ERR_MALFORMED, "descr is not a short string"},
    {"ends before descr", "{'descr': ", 4, TMSG_ERR_MALFORMED,
     "descr is not a short string"},
    {"key without a colon", "{'descr' '|u1'}", 1, TMSG_ERR_MALFORMED, ""},
    {"key a number", "{1: 2}", 1, TMSG_ERR_MALFORMED, ""},
    {"descr endless", "{'descr': '<f4, }", 4, TMSG_ERR_MALFORMED,
     "descr is not a short string"},
    {"descr empty", DESCR("''"), 4, TMSG_ERR_MALFORMED, "unknown dtype ''"},
    {"descr unknown", DESCR("'<q4'"), 4, TMSG_ERR_MALFORMED,
     "unknown dtype '<q4'"},
    {"descr of an unknown size", DESCR("'<f5'"), 5, TMSG_ERR_MALFORMED,
     "unknown dtype '<f5'"},
    {"size with a tail", DESCR("'<f4x4'"), 16, TMSG_ERR_MALFORMED,
     "unknown dtype"},
    {"size overflows", DESCR("'<f18446744073709551620'"), 4, TMSG_ERR_MALFORMED,
     "unknown dtype"},
    {"lanes", DESCR("'float32x4'"), 16, TMSG_ERR_MALFORMED, "unknown dtype"},
    {"dtype that only we name", DESCR("'opaque16'"), 2, TMSG_ERR_MALFORMED,
     "unknown dtype 'opaque16'"},
    {"dtype that only ml_dtypes names", DESCR("'bfloat16'"), 2,
     TMSG_ERR_MALFORMED, "unknown dtype 'bfloat16'"},
    {"a word with a byte order", DESCR("'<float32'"), 4, TMSG_ERR_MALFORMED,
     "unknown dtype '<float32'"},
    {"a size of the machine's", DESCR("'l'"), 8, TMSG_ERR_MALFORMED,
     "unknown dtype 'l'"},
    {"object", DESCR("'|O'"), 8, TMSG_ERR_UNSUPPORTED,
     "dtype '|O' is not supported: Python objects"},
    {"object with a size", DESCR("'|O8'"), 8, TMSG_ERR_UNSUPPORTED,
     "Python objects"},
    {"byte string", DESCR("'|S3'"), 3, TMSG_ERR_UNSUPPORTED, "byte strings"},
    {"string", DESCR("'<U3'"), 12, TMSG_ERR_UNSUPPORTED, "'<U3'"},
    {"date", DESCR("'<M8[ns]'"), 8, TMSG_ERR_UNSUPPORTED, "datetime64"},
    {"time difference", DESCR("'<m8[s]'"), 8, TMSG_ERR_UNSUPPORTED,
     "timedelta64"},
    {"longdouble", DESCR("'<f16'"), 16, TMSG_ERR_UNSUPPORTED, "longdouble"},
    {"longdouble of i386", DESCR("'<f12'"), 12, TMSG_ERR_UNSUPPORTED,
     "longdouble"},
    {"clongdouble", DESCR("'<c32'"), 32, TMSG_ERR_UNSUPPORTED, "clongdouble"},
    {"void of 3 bytes", DESCR("'|V3'"), 3, TMSG_ERR_UNSUPPORTED,
     "void type of that size"},
    {"structured", DESCR("[('a', '<i4')]"), 4, TMSG_ERR_UNSUPPORTED,
     "structured"},
    {"subarray", DESCR("('<i4', (2,))"), 8, TMSG_ERR_UNSUPPORTED, "structured"},
    {"shape a list", SHAPE("[1]"), 1, TMSG_ERR_MALFORMED,
     "shape is not a tuple"},
    {"shape a number", SHAPE("1"), 1, TMSG_ERR_MALFORMED,
     "shape is not a tuple"},
    {"shape in brackets", SHAPE("(1)"), 1, TMSG_ERR_MALFORMED,
     "shape is not a tuple"},
    {"shape open", "{'descr': '|u1', 'fortran_order': False, 'shape': (1,", 1,
     TMSG_ERR_MALFORMED, "not a tuple of integers"},
    {"negative", SHAPE("(-1,)"), 1, TMSG_ERR_MALFORMED, "negative extent"},
    {"two commas", SHAPE("(1,,2)"), 2, TMSG_ERR_MALFORMED,
     "not a tuple of integers"},
    {"only a comma", SHAPE("(,)"), 1, TMSG_ERR_MALFORMED,
     "not a tuple of integers"},
    {"no comma between", SHAPE("(1 2)"), 2, TMSG_ERR_MALFORMED,
     "not a tuple of integers"},
    {"octal", SHAPE("(01,)"), 1, TMSG_ERR_MALFORMED, "not a tuple of integers"},
    {"float", SHAPE("(1.0,)"), 1, TMSG_ERR_MALFORMED,
     "not a tuple of integers"},
    {"2^63", SHAPE("(9223372036854775808,)"), 1, TMSG_ERR_LIMIT_EXCEEDED,
     "overflows"},
    {"20 digits", SHAPE("(99999999999999999999,)"), 1, TMSG_ERR_LIMIT_EXCEEDED,
     "overflows"},
    {"ends in an extent",
     "{'descr': '|u1', 'fortran_order': False, 'shape': (3", 1,
     TMSG_ERR_MALFORMED, "not a tuple of integers"},
    {"product overflows", SHAPE("(4294967296, 4294967296)"), 1,
     TMSG_ERR_LIMIT_EXCEEDED, "overflows"},
    {"product of an empty one overflows", SHAPE("(0, 4611686018427387904, 4)"),
     0, TMSG_ERR_LIMIT_EXCEEDED, "overflow 63 bits"},
    {"its other order", SHAPE("(4294967296, 4294967296, 0)"), 0,
     TMSG_ERR_LIMIT_EXCEEDED, "overflow 63 bits"},
    {"65 dimensions",
     SHAPE("(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
           "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
           "1)"),
     1, TMSG_ERR_LIMIT_EXCEEDED, "ndim exceeds 64"},
};

Test(file_npy, refuses_bad_headers)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        for (int major = 1; major <= 3; major++) {
            expect_refused(bad[i].name,
                           make_npy(major, bad[i].header, bad[i].data_bytes),
                           bad[i].status, bad[i].words);
        }
    }
}

/* As numpy.load() does: 10,000 bytes without the prefix. */
Test(file_npy, refuses_NUL_bytes_in_the_header)
{
    static const char between[] = "\x93NUMPY\1\0\x14\0{'descr'\0: '|u1', } ";
    static const char within[] = "\x93NUMPY\1\0\x14\0{'des\0cr': '|u1',}  ";

    expect_refused("between",
                   write_scratch("x.npy", between, sizeof(between) - 1),
                   TMSG_ERR_MALFORMED, ".npy header: ");
    expect_refused("within", write_scratch("x.npy", within, sizeof(within) - 1),
                   TMSG_ERR_MALFORMED, ".npy header: ");
}

Test(file_npy, reads_headers_of_10000_bytes_and_no_more)
{
    static char header[10002];

    memset(header, ' ', sizeof(header) - 1);
    memcpy(header, F4_3, strlen(F4_3));
    for (int major = 1; major <= 3; major++) {
        header[10000] = ' ';
        expect_refused("10001", make_npy(major, header, 12),
                       TMSG_ERR_LIMIT_EXCEEDED,
                       "header of 10001 bytes, at most 10000");
        header[10000] = '\0';
        tmsg_map_destroy(load_ok(make_npy(major, header, 12)));
    }
}

/* What numpy could not load is not written, either. */
Test(file_npy, empty_shapes_beyond_63_bits_are_not_saved)
{
    static const int64_t shape[] = {0, 1LL << 62, 4};
    const tmsg_dtype_t uint8 = {TMSG_DTYPE_UINT, 8, 1};
    tmsg_map_t *map = map_of("a", uint8, 3, shape, NULL, NULL);

    expect_save_refused(map, scratch_path("e.npy"), TMSG_ERR_LIMIT_EXCEEDED,
                        "overflow 63 bits");
    expect_save_refused(map, scratch_path("e.npz"), TMSG_ERR_LIMIT_EXCEEDED,
                        "tensor 'a': shape: the extents");
    tmsg_map_destroy(map);
}

Test(file_npy, refuses_bad_prefixes)
{
    static const struct {
        const char *name, *bytes;
        size_t count;
        tmsg_status_t status;
        const char *words;
    } rows[] = {
        {"nothing", "", 0, TMSG_ERR_MALFORMED, "is empty"},
        {"only the magic", "\x93NUMPY", 6, TMSG_ERR_MALFORMED,
         "6 bytes are too few"},
        {"no length", "\x93NUMPY\1\0\0\0\0", 11, TMSG_ERR_MALFORMED,
         "11 bytes are too few"},
        {"other magic", "\x93NUMPX\1\0\x10\0{}", 12, TMSG_ERR_MALFORMED,
         "wrong magic"},
        {"a zip", "PK\3\4\0\0\0\0\0\0\0\0", 12, TMSG_ERR_MALFORMED,
         "wrong magic"},
        {"version 0", "\x93NUMPY\0\0\2\0{}", 12, TMSG_ERR_UNSUPPORTED,
         "version 0.0"},
        {"version 4", "\x93NUMPY\4\0\2\0{}", 12, TMSG_ERR_UNSUPPORTED,
         "version 4.0"},
        {"version 1.1", "\x93NUMPY\1\1\2\0{}", 12, TMSG_ERR_UNSUPPORTED,
         "version 1.1"},
        {"no header", "\x93NUMPY\1\0\0\0{}", 12, TMSG_ERR_MALFORMED,
         "header of 0 bytes"},
        {"header beyond the file", "\x93NUMPY\1\0\3\0{}", 12,
         TMSG_ERR_MALFORMED, "header of 13 bytes in a file of 12"},
        {"header of 4 GiB", "\x93NUMPY\2\0\xff\xff\xff\xff", 12,
         TMSG_ERR_LIMIT_EXCEEDED, "header of 4294967295 bytes"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        expect_refused(rows[i].name,
                       write_scratch("x.npy", rows[i].bytes, rows[i].count),
                       rows[i].status, rows[i].words);
    }
}

static const struct {
    const char *descr, *dtype, *saved;
    size_t bytes;
} dtypes[] = {
    {"|b1", "bool", "|b1", 1},
    {"|i1", "int8", "|i1", 1},
    {"<i2", "int16", "<i2", 2},
    {"<i4", "int32", "<i4", 4},
    {"<i8", "int64", "<i8", 8},
    {"|u1", "uint8", "|u1", 1},
    {"<u2", "uint16", "<u2", 2},
    {"<u4", "uint32", "<u4", 4},
    {"<u8", "uint64", "<u8", 8},
    {"<f2", "float16", "<f2", 2},
    {"<f4", "float32", "<f4", 4},
    {"<f8", "float64", "<f8", 8},
    {"<c8", "complex64", "<c8", 8},
    {"<c16", "complex128", "<c16", 16},
    {"=f4", "float32", "<f4", 4},
    {"f4", "float32", "<f4", 4},
    {"float32", "float32", "<f4", 4},
    {">i1", "int8", "|i1", 1},
    {"<V2", "bfloat16", "<V2", 2}, /* ml_dtypes.bfloat16 */
    {"?", "bool", "|b1", 1},
    {"|?", "bool", "|b1", 1},
    {"b", "int8", "|i1", 1},
    {"B", "uint8", "|u1", 1},
    {"<f", "float32", "<f4", 4},
    {"d", "float64", "<f8", 8},
    {"=D", "complex128", "<c16", 16},
    {"bool", "bool", "|b1", 1},
    {"uint16", "uint16", "<u2", 2},
    {"<f1", "float8_e5m2", "<f1", 1}, /* ml_dtypes.float8_e5m2 */
    {"<V1", "opaque8", "|V1", 1},     /* its other small types */
    {"|V1", "opaque8", "|V1", 1},
    {"|V2", "opaque16", "|V2", 2},
    {"|V16", "opaque128", "|V16", 16},
};

Test(file_npy, round_trips_every_dtype_and_rank)
{
    static const struct {
        const char *text;
        size_t elements;
    } shapes[] = {{"()", 1}, {"(4,)", 4}, {"(2, 3, 4)", 24}, {"(2, 0, 4)", 0}};

    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]) * 4; i++) {
        size_t bytes = dtypes[i / 4].bytes * shapes[i % 4].elements;
        char header[256], want[256];
        const char *path = scratch_path("copy.npy");
        size_t copy_bytes;
        tmsg_map_t *map;
        char *copy;

        snprintf(header, sizeof(header),
                 "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n",
                 dtypes[i / 4].descr, shapes[i % 4].text);
        snprintf(want, sizeof(want),
                 "{'descr': '%s', 'fortran_order': False, 'shape': %s, } ",
                 dtypes[i / 4].saved, shapes[i % 4].text);
        map = load_ok(make_npy(1, header, bytes));
        expect_tensor(map, "array", dtypes[i / 4].dtype, bytes,
                      file_bytes + 10 + strlen(header));
        save_ok(map, path);
        tmsg_map_destroy(map);
        copy = read_scratch(path, &copy_bytes);
        cr_expect(strncmp(copy + 10, want, strlen(want)) == 0, "%s, not %s",
                  copy + 10, want);
        cr_assert_eq(copy_bytes, 128 + bytes);
        cr_expect_arr_eq(copy + 128, file_bytes + 10 + strlen(header), bytes);
        free(copy);
    }
}

Test(file_npy, turns_big_endian)
{
    static const struct {
        const char *descr, *dtype, *data;
        size_t bytes;
    } rows[] = {
        {">i2", "int16", "\2\1\4\3", 4},
        {">f4", "float32", "\4\3\2\1\10\7\6\5", 8},
        {">c8", "complex64", "\4\3\2\1\10\7\6\5\14\13\12\11\20\17\16\15", 16},
        {">h", "int16", "\2\1\4\3", 4},
        {">V2", "bfloat16", "\2\1\4\3", 4},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char header[128];
        tmsg_map_t *map;

        snprintf(header, sizeof(header),
                 "{'descr': '%s', 'fortran_order': False, 'shape': (2,)}",
                 rows[i].descr);
        map = load_ok(make_npy(1, header, rows[i].bytes));
        expect_tensor(map, "array", rows[i].dtype, rows[i].bytes, rows[i].data);
        tmsg_map_destroy(map);
    }
}

Test(file_npy, reads_what_old_writers_wrote)
{
    static const char *const headers[] = {
        "{'shape': (3L, 2L), 'fortran_order': False, 'descr': '|u1'}",
        "{\"descr\":\"|u1\",\"fortran_order\":False,\"shape\":(3,2)}",
        " { 'descr' : '|u1' , 'fortran_order' : False , 'shape' : ( 3 , 2 , "
        ") , } \n",
    };

    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        for (int major = 1; major <= 3; major++) {
            tmsg_map_t *map = load_ok(make_npy(major, headers[i], 6));

            expect_tensor(map, "array", "uint8", 6, "\1\2\3\4\5\6");
            tmsg_map_destroy(map);
        }
    }
}

Test(file_npy, keeps_fortran_order)
{
    tmsg_map_t *map = load_ok(make_npy(
        1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", 6));
    const char *path = scratch_path("f.npy");
    tmsg_tensor_t tensor;
    size_t bytes;
    char *copy;

    expect_tensor(map, "array", "uint8", 6, "\1\3\5\2\4\6");
    tmsg_map_find(map, "array", &tensor);
    cr_assert_not_null(tensor.strides);
    cr_expect_eq(tensor.strides[0], 1);
    cr_expect_eq(tensor.strides[1], 2);
    save_ok(map, path);
    tmsg_map_destroy(map);
    copy = read_scratch(path, &bytes);
    cr_expect_not_null(strstr(copy + 10, "'fortran_order': True"), "%s",
                       copy + 10);
    cr_expect_arr_eq(copy + bytes - 6, "\1\2\3\4\5\6", 6);
    free(copy);
}

/* Strides where the extent is 1 mean nothing. */
Test(file_npy, keeps_fortran_order_around_extents_of_1)
{
    const int64_t shape[] = {2, 1, 3}, strides[] = {1, 77, 2};
    uint8_t data[] = {0, 1, 2, 3, 4, 5};
    tmsg_map_t *map = map_of("array", (tmsg_dtype_t){TMSG_DTYPE_UINT, 8, 1}, 3,
                             shape, strides, data);
    const char *path = scratch_path("f.npy");
    size_t bytes;
    char *copy;

    save_ok(map, path);
    tmsg_map_destroy(map);
    copy = read_scratch(path, &bytes);
    cr_expect_not_null(strstr(copy + 10, "'fortran_order': True"), "%s",
                       copy + 10);
    cr_expect_arr_eq(copy + bytes - 6, data, 6);
    free(copy);
}

Test(file_npy, packs_other_strides_in_C_order)
{
    const int64_t shape[] = {2, 2, 2}, strides[] = {1, 4, 2};
    uint8_t data[] = {0, 1, 2, 3, 4, 5, 6, 7};
    tmsg_dtype_t dtype = {TMSG_DTYPE_UINT, 8, 1};
    tmsg_map_t *map = map_of("a", dtype, 3, shape, strides, data);

    save_ok(map, scratch_path("p.npy"));
    tmsg_map_destroy(map);
    map = load_ok(scratch_path("p.npy"));
    expect_tensor(map, "array", "uint8", 8, "\0\2\4\6\1\3\5\7");
    tmsg_map_destroy(map);
}

Test(file_npy, holds_64_dimensions)
{
    int64_t shape[64];
    uint8_t data[2] = {1, 2};
    tmsg_dtype_t dtype = {TMSG_DTYPE_UINT, 8, 1};
    tmsg_tensor_t tensor;
    tmsg_map_t *map;

    for (int i = 0; i < 64; i++) {
        shape[i] = i == 40 ? 2 : 1;
    }
    map = map_of("a", dtype, 64, shape, NULL, data);
    save_ok(map, scratch_path("d.npy"));
    tmsg_map_destroy(map);
    map = load_ok(scratch_path("d.npy"));
    tmsg_map_find(map, "array", &tensor);
    cr_expect_eq(tensor.ndim, 64);
    cr_expect_eq(tensor.shape[40], 2);
    tmsg_map_destroy(map);
}

Test(file_npy, refuses_to_save_what_it_cannot_hold)
{
    const int64_t shape[] = {4};
    uint8_t data[64] = {0};
    const char *path = scratch_path("y.npy");
    tmsg_dtype_t e4m3 = {TMSG_DTYPE_FLOAT8_E4M3FN, 8, 1};
    tmsg_dtype_t uint8 = {TMSG_DTYPE_UINT, 8, 1};
    tmsg_map_t *map = map_of("a", e4m3, 1, shape, NULL, data);
    tmsg_tensor_t tensor;

    expect_save_refused(map, path, TMSG_ERR_UNSUPPORTED,
                        "tensor 'a': a .npy file cannot hold float8_e4m3fn; "
                        ".safetensors can");
    tmsg_map_destroy(map);

    map = map_of("a", uint8, 1, shape, NULL, data);
    tmsg_map_find(map, "a", &tensor);
    tmsg_map_add(map, "b", &tensor, NULL);
    expect_save_refused(map, path, TMSG_ERR_UNSUPPORTED,
                        "a .npy file holds one tensor, not 2; .npz and "
                        ".safetensors hold many");
    tmsg_map_clear(map);
    expect_save_refused(map, path, TMSG_ERR_UNSUPPORTED, "one tensor, not 0");
    tmsg_map_destroy(map);
}
