/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <string.h>

#include <tensormsg/dtype.h>

#include "core/tensor.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct {
    const char *name;
    tmsg_dtype_t dtype;
    uint32_t bytes; /* of one element */
} rows[] = {
    {"int1", {TMSG_DTYPE_INT, 1, 1}, 1},
    {"int2", {TMSG_DTYPE_INT, 2, 1}, 1},
    {"int4", {TMSG_DTYPE_INT, 4, 1}, 1},
    {"int8", {TMSG_DTYPE_INT, 8, 1}, 1},
    {"int16", {TMSG_DTYPE_INT, 16, 1}, 2},
    {"int32", {TMSG_DTYPE_INT, 32, 1}, 4},
    {"int64", {TMSG_DTYPE_INT, 64, 1}, 8},
    {"uint1", {TMSG_DTYPE_UINT, 1, 1}, 1},
    {"uint2", {TMSG_DTYPE_UINT, 2, 1}, 1},
    {"uint4", {TMSG_DTYPE_UINT, 4, 1}, 1},
    {"uint8", {TMSG_DTYPE_UINT, 8, 1}, 1},
    {"uint16", {TMSG_DTYPE_UINT, 16, 1}, 2},
    {"uint32", {TMSG_DTYPE_UINT, 32, 1}, 4},
    {"uint64", {TMSG_DTYPE_UINT, 64, 1}, 8},
    {"float16", {TMSG_DTYPE_FLOAT, 16, 1}, 2},
    {"float32", {TMSG_DTYPE_FLOAT, 32, 1}, 4},
    {"float64", {TMSG_DTYPE_FLOAT, 64, 1}, 8},
    {"opaque8", {TMSG_DTYPE_OPAQUE, 8, 1}, 1},
    {"opaque24", {TMSG_DTYPE_OPAQUE, 24, 1}, 3},
    {"opaque64", {TMSG_DTYPE_OPAQUE, 64, 1}, 8},
    {"opaque128", {TMSG_DTYPE_OPAQUE, 128, 1}, 16},
    {"opaque248", {TMSG_DTYPE_OPAQUE, 248, 1}, 31},
    {"bfloat16", {TMSG_DTYPE_BFLOAT, 16, 1}, 2},
    {"complex32", {TMSG_DTYPE_COMPLEX, 32, 1}, 4},
    {"complex64", {TMSG_DTYPE_COMPLEX, 64, 1}, 8},
    {"complex128", {TMSG_DTYPE_COMPLEX, 128, 1}, 16},
    {"bool", {TMSG_DTYPE_BOOL, 8, 1}, 1},
    {"float8_e3m4", {TMSG_DTYPE_FLOAT8_E3M4, 8, 1}, 1},
    {"float8_e4m3", {TMSG_DTYPE_FLOAT8_E4M3, 8, 1}, 1},
    {"float8_e4m3b11fnuz", {TMSG_DTYPE_FLOAT8_E4M3B11FNUZ, 8, 1}, 1},
    {"float8_e4m3fn", {TMSG_DTYPE_FLOAT8_E4M3FN, 8, 1}, 1},
    {"float8_e4m3fnuz", {TMSG_DTYPE_FLOAT8_E4M3FNUZ, 8, 1}, 1},
    {"float8_e5m2", {TMSG_DTYPE_FLOAT8_E5M2, 8, 1}, 1},
    {"float8_e5m2fnuz", {TMSG_DTYPE_FLOAT8_E5M2FNUZ, 8, 1}, 1},
    {"float8_e8m0fnu", {TMSG_DTYPE_FLOAT8_E8M0FNU, 8, 1}, 1},
    {"float6_e2m3fn", {TMSG_DTYPE_FLOAT6_E2M3FN, 6, 1}, 1},
    {"float6_e3m2fn", {TMSG_DTYPE_FLOAT6_E3M2FN, 6, 1}, 1},
    {"float4_e2m1fn", {TMSG_DTYPE_FLOAT4_E2M1FN, 4, 1}, 1},
    {"float32x4", {TMSG_DTYPE_FLOAT, 32, 4}, 16},
    {"uint4x2", {TMSG_DTYPE_UINT, 4, 2}, 1},
    {"int1x9", {TMSG_DTYPE_INT, 1, 9}, 2},
    {"float6_e3m2fnx4", {TMSG_DTYPE_FLOAT6_E3M2FN, 6, 4}, 3},
    {"complex128x65535", {TMSG_DTYPE_COMPLEX, 128, 65535}, 16 * 65535},
    {"float8_e4m3b11fnuzx65535",
     {TMSG_DTYPE_FLOAT8_E4M3B11FNUZ, 8, 65535},
     65535},
};

Test(dtype, has_numpys_names)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        char name[TMSG_DTYPE_NAME_MAX];
        tmsg_dtype_t parsed = {99, 99, 99};
        const tmsg_dtype_t *dtype = &rows[i].dtype;
        uint32_t bytes = tmsg_dtype_bytes(*dtype);
        tmsg_status_t status;

        cr_expect(tmsg_dtype_format(*dtype, name, sizeof(name)) == name);
        cr_expect_str_eq(name, rows[i].name, "'%s', not '%s'", name,
                         rows[i].name);
        status = tmsg_dtype_parse(rows[i].name, &parsed);
        cr_expect_eq(status, TMSG_OK, "%s: %s", rows[i].name,
                     tmsg_error_message());
        cr_expect(parsed.code == dtype->code && parsed.bits == dtype->bits &&
                      parsed.lanes == dtype->lanes,
                  "%s: parsed as {%u, %u, %u}", rows[i].name, parsed.code,
                  parsed.bits, parsed.lanes);
        cr_expect_eq(bytes, rows[i].bytes, "%s: %u bytes, not %u", rows[i].name,
                     bytes, rows[i].bytes);
    }
}

/* The list in dtype.h, as the header words it. */
static bool is_listed(unsigned code, unsigned bits)
{
    switch (code) {
    case TMSG_DTYPE_FLOAT:
        return bits == 16 || bits == 32 || bits == 64;
    case TMSG_DTYPE_BFLOAT:
        return bits == 16;
    case TMSG_DTYPE_COMPLEX:
        return bits == 32 || bits == 64 || bits == 128;
    case TMSG_DTYPE_BOOL:
        return bits == 8;
    case TMSG_DTYPE_INT:
    case TMSG_DTYPE_UINT:
        return bits > 0 && bits <= 64 && (bits & (bits - 1)) == 0;
    case TMSG_DTYPE_OPAQUE:
        return bits > 0 && bits % 8 == 0;
    case TMSG_DTYPE_FLOAT6_E2M3FN:
    case TMSG_DTYPE_FLOAT6_E3M2FN:
        return bits == 6;
    case TMSG_DTYPE_FLOAT4_E2M1FN:
        return bits == 4;
    default:
        return code >= TMSG_DTYPE_FLOAT8_E3M4 &&
               code <= TMSG_DTYPE_FLOAT8_E8M0FNU && bits == 8;
    }
}

static void expect_round_trip(tmsg_dtype_t dtype)
{
    char name[TMSG_DTYPE_NAME_MAX];
    tmsg_dtype_t parsed = {99, 99, 99};
    tmsg_status_t status;

    tmsg_dtype_format(dtype, name, sizeof(name));
    status = tmsg_dtype_parse(name, &parsed);
    cr_expect(status == TMSG_OK && parsed.code == dtype.code &&
                  parsed.bits == dtype.bits && parsed.lanes == dtype.lanes,
              "{%u, %u, %u} is '%s', which is {%u, %u, %u} (%s)", dtype.code,
              dtype.bits, dtype.lanes, name, parsed.code, parsed.bits,
              parsed.lanes, tmsg_status_name(status));
}

/* All 2^16 codes and widths. */
Test(dtype, knows_the_list_and_nothing_else)
{
    static const uint16_t lanes[] = {1, 2, 4, 10, 65535};
    unsigned known = 0;

    for (unsigned i = 0; i < 1u << 16; i++) {
        tmsg_dtype_t dtype = {(uint8_t)(i >> 8), (uint8_t)i, 1};
        tmsg_status_t expected =
            is_listed(i >> 8, i & 255) ? TMSG_OK : TMSG_ERR_UNSUPPORTED;

        for (size_t j = 0; j < COUNT(lanes); j++) {
            tmsg_status_t status;

            dtype.lanes = lanes[j];
            status = tmsg_dtype_check(dtype);
            if (status != expected) {
                cr_expect(false, "{%u, %u, %u}: %s, not %s", dtype.code,
                          dtype.bits, dtype.lanes, tmsg_status_name(status),
                          tmsg_status_name(expected));
            }
            if (expected == TMSG_OK) {
                expect_round_trip(dtype);
            }
        }
        known += expected == TMSG_OK;
    }
    cr_expect_eq(known, 14 + 3 + 31 + 1 + 3 + 1 + 8 + 3, "%u", known);
}

Test(dtype, says_what_is_wrong)
{
    static const struct {
        tmsg_dtype_t dtype;
        const char *name, *message;
    } bad[] = {
        {{TMSG_DTYPE_FLOAT, 32, 0}, "float32x0", "dtype has 0 lanes"},
        {{TMSG_DTYPE_FLOAT, 128, 1},
         "dtype(2,128)",
         "unknown dtype (code 2, bits 128)"},
        {{TMSG_DTYPE_FLOAT, 0, 1},
         "dtype(2,0)",
         "unknown dtype (code 2, bits 0)"},
        {{TMSG_DTYPE_INT, 24, 2},
         "dtype(0,24)x2",
         "unknown dtype (code 0, bits 24)"},
        {{TMSG_DTYPE_OPAQUE, 12, 1},
         "dtype(3,12)",
         "unknown dtype (code 3, bits 12)"},
        {{TMSG_DTYPE_BOOL, 1, 1},
         "dtype(6,1)",
         "unknown dtype (code 6, bits 1)"},
        {{255, 255, 65535},
         "dtype(255,255)x65535",
         "unknown dtype (code 255, bits 255)"},
    };

    for (size_t i = 0; i < COUNT(bad); i++) {
        char name[TMSG_DTYPE_NAME_MAX];
        tmsg_status_t status = tmsg_dtype_check(bad[i].dtype);

        tmsg_dtype_format(bad[i].dtype, name, sizeof(name));
        cr_expect_eq(status, TMSG_ERR_UNSUPPORTED, "%s: %s", bad[i].name,
                     tmsg_status_name(status));
        cr_expect_str_eq(name, bad[i].name, "'%s', not '%s'", name,
                         bad[i].name);
        cr_expect_str_eq(tmsg_error_message(), bad[i].message, "'%s', not '%s'",
                         tmsg_error_message(), bad[i].message);
    }
}

Test(dtype, parses_no_other_names)
{
    static const char *const bad[] = {
        "",
        "int",
        "int3",
        "int128",
        "INT8",
        " int8",
        "int8 ",
        "int8\n",
        "int08",
        "float",
        "float8",
        "float128",
        "<f4",
        "f4",
        "half",
        "bfloat",
        "bfloat32",
        "complex",
        "complex16",
        "complex256",
        "bool8",
        "bool1",
        "boolx",
        "str",
        "object",
        "dtype(2,32)",
        "float32x",
        "float32x0",
        "float32x01",
        "float32x-1",
        "float32x+1",
        "float32x 1",
        "float32x4x",
        "float32x4x4",
        "float32X4",
        "float32x65536",
        "opaque",
        "opaque0",
        "opaque7",
        "opaque12",
        "opaque256",
        "opaque264",
        "opaque08",
        "opaque-8",
        "opaquex8",
        "opaque8x0",
        "float8_e5m3",
        "float8_e4m3fnu",
        "float32x18446744073709551617",
        "opaque18446744073709551624",
    };

    for (size_t i = 0; i < COUNT(bad); i++) {
        tmsg_dtype_t dtype = {99, 98, 97};
        tmsg_status_t status = tmsg_dtype_parse(bad[i], &dtype);

        cr_expect_eq(status, TMSG_ERR_INVALID_PARAM, "'%s': %s, {%u, %u, %u}",
                     bad[i], tmsg_status_name(status), dtype.code, dtype.bits,
                     dtype.lanes);
        cr_expect(dtype.code == 99 && dtype.bits == 98 && dtype.lanes == 97,
                  "'%s': the output was touched", bad[i]);
        cr_expect(
            strstr(tmsg_error_message(),
                   "' is not a dtype: write float32 or uint8, for example") !=
                NULL,
            "'%s': '%s'", bad[i], tmsg_error_message());
    }
}

Test(dtype, format_stays_inside_its_buffer)
{
    static const tmsg_dtype_t dtype = {TMSG_DTYPE_FLOAT8_E4M3FN, 8, 12};
    const char *whole = "float8_e4m3fnx12";

    for (size_t bytes = 1; bytes <= strlen(whole) + 1; bytes++) {
        char name[TMSG_DTYPE_NAME_MAX];

        memset(name, '#', sizeof(name));
        tmsg_dtype_format(dtype, name, bytes);
        cr_expect_eq(strlen(name), bytes - 1, "%zu bytes: '%s'", bytes, name);
        cr_expect(strncmp(name, whole, bytes - 1) == 0, "'%s'", name);
        cr_expect_eq(name[bytes], '#', "%zu bytes: wrote beyond", bytes);
    }
}
