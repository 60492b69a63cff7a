/* SPDX-License-Identifier: BSD-3-Clause */
#include <tensormsg/dtype.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/tensor.h"

typedef struct {
    const char *name;
    uint8_t code;
    uint8_t bits;
} named_t;

/* Lists every scalar type that DLPack has, under its name in numpy or
 * ml_dtypes. "opaque" and its bits are not in the table. */
static const named_t named[] = {
    {"int1", TMSG_DTYPE_INT, 1},
    {"int2", TMSG_DTYPE_INT, 2},
    {"int4", TMSG_DTYPE_INT, 4},
    {"int8", TMSG_DTYPE_INT, 8},
    {"int16", TMSG_DTYPE_INT, 16},
    {"int32", TMSG_DTYPE_INT, 32},
    {"int64", TMSG_DTYPE_INT, 64},
    {"uint1", TMSG_DTYPE_UINT, 1},
    {"uint2", TMSG_DTYPE_UINT, 2},
    {"uint4", TMSG_DTYPE_UINT, 4},
    {"uint8", TMSG_DTYPE_UINT, 8},
    {"uint16", TMSG_DTYPE_UINT, 16},
    {"uint32", TMSG_DTYPE_UINT, 32},
    {"uint64", TMSG_DTYPE_UINT, 64},
    {"float16", TMSG_DTYPE_FLOAT, 16},
    {"float32", TMSG_DTYPE_FLOAT, 32},
    {"float64", TMSG_DTYPE_FLOAT, 64},
    {"bfloat16", TMSG_DTYPE_BFLOAT, 16},
    {"complex32", TMSG_DTYPE_COMPLEX, 32},
    {"complex64", TMSG_DTYPE_COMPLEX, 64},
    {"complex128", TMSG_DTYPE_COMPLEX, 128},
    {"bool", TMSG_DTYPE_BOOL, 8},
    {"float8_e3m4", TMSG_DTYPE_FLOAT8_E3M4, 8},
    {"float8_e4m3", TMSG_DTYPE_FLOAT8_E4M3, 8},
    {"float8_e4m3b11fnuz", TMSG_DTYPE_FLOAT8_E4M3B11FNUZ, 8},
    {"float8_e4m3fn", TMSG_DTYPE_FLOAT8_E4M3FN, 8},
    {"float8_e4m3fnuz", TMSG_DTYPE_FLOAT8_E4M3FNUZ, 8},
    {"float8_e5m2", TMSG_DTYPE_FLOAT8_E5M2, 8},
    {"float8_e5m2fnuz", TMSG_DTYPE_FLOAT8_E5M2FNUZ, 8},
    {"float8_e8m0fnu", TMSG_DTYPE_FLOAT8_E8M0FNU, 8},
    {"float6_e2m3fn", TMSG_DTYPE_FLOAT6_E2M3FN, 6},
    {"float6_e3m2fn", TMSG_DTYPE_FLOAT6_E3M2FN, 6},
    {"float4_e2m1fn", TMSG_DTYPE_FLOAT4_E2M1FN, 4},
};

#define NAMED_COUNT (sizeof(named) / sizeof(named[0]))

#define OPAQUE "opaque"

static const named_t *find_dtype(tmsg_dtype_t dtype)
{
    for (size_t i = 0; i < NAMED_COUNT; i++) {
        if (named[i].code == dtype.code && named[i].bits == dtype.bits) {
            return &named[i];
        }
    }
    return NULL;
}

/* Returns whether a dtype exists. The common ones need no search: this is asked
 * of every tensor. */
static bool dtype_exists(tmsg_dtype_t dtype)
{
    switch (dtype.code) {
    case TMSG_DTYPE_INT:
    case TMSG_DTYPE_UINT:
        return dtype.bits == 1 || dtype.bits == 2 || dtype.bits == 4 ||
               dtype.bits == 8 || dtype.bits == 16 || dtype.bits == 32 ||
               dtype.bits == 64;
    case TMSG_DTYPE_FLOAT:
        return dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64;
    case TMSG_DTYPE_OPAQUE:
        return dtype.bits > 0 && dtype.bits % 8 == 0;
    default:
        return find_dtype(dtype) != NULL;
    }
}

tmsg_status_t tmsg_dtype_check(tmsg_dtype_t dtype)
{
    if (dtype.lanes == 0) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED, "dtype has 0 lanes");
    }
    if (!dtype_exists(dtype)) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "unknown dtype (code %u, bits %u)", dtype.code,
                              dtype.bits);
    }
    return TMSG_OK;
}

const char *tmsg_dtype_format(tmsg_dtype_t dtype, char *name, size_t name_bytes)
{
    const named_t *known = find_dtype(dtype);
    int used;

    if (known != NULL) {
        used = snprintf(name, name_bytes, "%s", known->name);
    } else if (dtype.code == TMSG_DTYPE_OPAQUE && dtype_exists(dtype)) {
        used = snprintf(name, name_bytes, OPAQUE "%u", dtype.bits);
    } else {
        used =
            snprintf(name, name_bytes, "dtype(%u,%u)", dtype.code, dtype.bits);
    }
    if (dtype.lanes != 1 && used > 0 && (size_t)used < name_bytes) {
        snprintf(name + used, name_bytes - (size_t)used, "x%u", dtype.lanes);
    }
    return name;
}

/* Parses what follows a dtype's name: "x4", or nothing. */
static bool parse_lanes(const char *text, uint16_t *lanes_p)
{
    char *end;
    unsigned long lanes;

    if (*text == '\0') {
        *lanes_p = 1;
        return true;
    }
    if (text[0] != 'x' || text[1] < '1' || text[1] > '9') {
        return false;
    }
    lanes = strtoul(text + 1, &end, 10);
    *lanes_p = (uint16_t)lanes;
    return *end == '\0' && lanes <= UINT16_MAX;
}

/* Parses "opaque24", with lanes behind it or without. */
static bool parse_opaque(const char *name, tmsg_dtype_t *dtype_p)
{
    const char *digits = name + strlen(OPAQUE);
    tmsg_dtype_t dtype = {TMSG_DTYPE_OPAQUE, 0, 1};
    unsigned long bits;
    char *end;

    if (strncmp(name, OPAQUE, strlen(OPAQUE)) != 0 || *digits < '1' ||
        *digits > '9') {
        return false;
    }
    bits = strtoul(digits, &end, 10);
    dtype.bits = (uint8_t)bits;
    if (bits > UINT8_MAX || !dtype_exists(dtype) ||
        !parse_lanes(end, &dtype.lanes)) {
        return false;
    }
    *dtype_p = dtype;
    return true;
}

tmsg_status_t tmsg_dtype_parse(const char *name, tmsg_dtype_t *dtype_p)
{
    uint16_t lanes;

    for (size_t i = 0; i < NAMED_COUNT; i++) {
        size_t length = strlen(named[i].name);

        if (strncmp(name, named[i].name, length) == 0 &&
            parse_lanes(name + length, &lanes)) {
            *dtype_p = (tmsg_dtype_t){named[i].code, named[i].bits, lanes};
            return TMSG_OK;
        }
    }
    if (parse_opaque(name, dtype_p)) {
        return TMSG_OK;
    }
    return tmsg_error_set(
        TMSG_ERR_INVALID_PARAM,
        "'%s' is not a dtype: write float32 or uint8, for example",
        tmsg_error_name(name, strlen(name)).text);
}

uint32_t tmsg_dtype_bytes(tmsg_dtype_t dtype)
{
    return ((uint32_t)dtype.bits * dtype.lanes + 7) / 8;
}
