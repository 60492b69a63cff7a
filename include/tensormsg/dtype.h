/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/dtype.h - element types, as DLPack 1.x names them.
 *
 * A dtype is a code, a number of bits and a number of lanes, and has a name.
 *
 *     tmsg_dtype_parse("float32", &dtype);
 *     tmsg_dtype_check(dtype);
 *     tmsg_dtype_format(dtype, name, sizeof(name));
 */
#ifndef TENSORMSG_DTYPE_H
#define TENSORMSG_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values of DLDataTypeCode in dlpack.h 1.1. */
typedef enum {
    TMSG_DTYPE_INT = 0,
    TMSG_DTYPE_UINT = 1,
    TMSG_DTYPE_FLOAT = 2,
    TMSG_DTYPE_OPAQUE = 3,
    TMSG_DTYPE_BFLOAT = 4,
    TMSG_DTYPE_COMPLEX = 5, /* bits counts both halves: 64 is 2 x float32 */
    TMSG_DTYPE_BOOL = 6,    /* bits is 8: one byte an element */
    TMSG_DTYPE_FLOAT8_E3M4 = 7,
    TMSG_DTYPE_FLOAT8_E4M3 = 8,
    TMSG_DTYPE_FLOAT8_E4M3B11FNUZ = 9,
    TMSG_DTYPE_FLOAT8_E4M3FN = 10,
    TMSG_DTYPE_FLOAT8_E4M3FNUZ = 11,
    TMSG_DTYPE_FLOAT8_E5M2 = 12,
    TMSG_DTYPE_FLOAT8_E5M2FNUZ = 13,
    TMSG_DTYPE_FLOAT8_E8M0FNU = 14,
    TMSG_DTYPE_FLOAT6_E2M3FN = 15,
    TMSG_DTYPE_FLOAT6_E3M2FN = 16,
    TMSG_DTYPE_FLOAT4_E2M1FN = 17
} tmsg_dtype_code_t;

/* DLDataType: `lanes` elements of `bits` bits; lanes is 1 for a plain scalar.
 * Types below 8 bits are packed: a tensor of n elements takes ceil(n * bits *
 * lanes / 8) bytes. */
typedef struct tmsg_dtype {
    uint8_t code; /* tmsg_dtype_code_t */
    uint8_t bits;
    uint16_t lanes;
} tmsg_dtype_t;

/* The functions here keep no state. Any thread may call them. */

/* Bytes that hold any name written by tmsg_dtype_format(), NUL included. */
enum { TMSG_DTYPE_NAME_MAX = 32 };

/* Checks that the code is in the list, that it can have this width, and that
 * lanes is not 0. The widths are: float 16, 32, 64; bfloat 16; complex 32, 64,
 * 128; bool 8; int and uint 1, 2, 4, 8, 16, 32, 64; opaque multiples of 8; the
 * float8/6/4 kinds 8, 6, 4.
 * Errors:
 *   UNSUPPORTED - it is no such dtype */
TMSG_API tmsg_status_t tmsg_dtype_check(tmsg_dtype_t dtype);

/* Writes the name, as numpy has it if numpy has that dtype: "float32", "uint8",
 * "bool", "complex64", "bfloat16", "float8_e4m3fn", "float4_e2m1fn", with "x4"
 * after it for 4 lanes. A dtype that is not in the list is written as
 * "dtype(code,bits)". Writes at most name_bytes, always NUL-terminated, and
 * returns `name`. */
TMSG_API const char *tmsg_dtype_format(tmsg_dtype_t dtype, char *name,
                                       size_t name_bytes);

/* Reads what tmsg_dtype_format() writes.
 * Errors:
 *   INVALID_PARAM - the text is no dtype; the error names it */
TMSG_API tmsg_status_t tmsg_dtype_parse(const char *name,
                                        tmsg_dtype_t *dtype_p);

#ifdef __cplusplus
}
#endif

#endif
