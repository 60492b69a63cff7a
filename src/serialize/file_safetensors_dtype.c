/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/file_safetensors.h"

#include <string.h>

static const struct {
    const char *name;
    tmsg_dtype_t dtype;
} dtypes[] = {
    {"BOOL", {TMSG_DTYPE_BOOL, 8, 1}},
    {"U8", {TMSG_DTYPE_UINT, 8, 1}},
    {"U16", {TMSG_DTYPE_UINT, 16, 1}},
    {"U32", {TMSG_DTYPE_UINT, 32, 1}},
    {"U64", {TMSG_DTYPE_UINT, 64, 1}},
    {"I8", {TMSG_DTYPE_INT, 8, 1}},
    {"I16", {TMSG_DTYPE_INT, 16, 1}},
    {"I32", {TMSG_DTYPE_INT, 32, 1}},
    {"I64", {TMSG_DTYPE_INT, 64, 1}},
    {"F16", {TMSG_DTYPE_FLOAT, 16, 1}},
    {"F32", {TMSG_DTYPE_FLOAT, 32, 1}},
    {"F64", {TMSG_DTYPE_FLOAT, 64, 1}},
    {"BF16", {TMSG_DTYPE_BFLOAT, 16, 1}},
    {"C64", {TMSG_DTYPE_COMPLEX, 64, 1}},
    {"F8_E4M3", {TMSG_DTYPE_FLOAT8_E4M3FN, 8, 1}},
    {"F8_E4M3FNUZ", {TMSG_DTYPE_FLOAT8_E4M3FNUZ, 8, 1}},
    {"F8_E5M2", {TMSG_DTYPE_FLOAT8_E5M2, 8, 1}},
    {"F8_E5M2FNUZ", {TMSG_DTYPE_FLOAT8_E5M2FNUZ, 8, 1}},
    {"F8_E8M0", {TMSG_DTYPE_FLOAT8_E8M0FNU, 8, 1}},
    {"F6_E2M3", {TMSG_DTYPE_FLOAT6_E2M3FN, 6, 1}},
    {"F6_E3M2", {TMSG_DTYPE_FLOAT6_E3M2FN, 6, 1}},
    {"F4", {TMSG_DTYPE_FLOAT4_E2M1FN, 4, 1}},
};

#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

const char *tmsg_safetensors_name(tmsg_dtype_t dtype)
{
    for (size_t i = 0; i < DTYPES; i++) {
        if (dtypes[i].dtype.code == dtype.code &&
            dtypes[i].dtype.bits == dtype.bits) {
            return dtypes[i].name;
        }
    }
    return NULL;
}

bool tmsg_safetensors_holds(tmsg_dtype_t dtype)
{
    return tmsg_safetensors_name(dtype) != NULL &&
           (dtype.lanes == 1 || dtype.bits < 8);
}

bool tmsg_safetensors_dtype(const tmsg_file_json_t *name, tmsg_dtype_t *dtype_p)
{
    for (size_t i = 0; i < DTYPES; i++) {
        if (tmsg_file_json_string_is(name, dtypes[i].name)) {
            *dtype_p = dtypes[i].dtype;
            return true;
        }
    }
    return false;
}

bool tmsg_safetensors_fills_bytes(const tmsg_tensor_t *tensor)
{
    uint64_t bits = tensor->dtype.bits;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        bits *= (uint64_t)tensor->shape[i]; /* an overflow keeps bits % 8 */
    }
    return bits % 8 == 0;
}

tmsg_status_t tmsg_safetensors_as_written(const tmsg_file_where_t *where,
                                          const tmsg_tensor_t *tensor,
                                          int64_t shape[TMSG_NDIM_MAX],
                                          tmsg_tensor_t *written)
{
    int64_t *last = &shape[tensor->ndim > 0 ? tensor->ndim - 1 : 0];

    *written = *tensor;
    written->strides = NULL;
    if (tensor->dtype.lanes == 1) {
        return TMSG_OK;
    }
    *last = 1;
    if (tensor->ndim > 0) {
        memcpy(shape, tensor->shape, (size_t)tensor->ndim * sizeof(*shape));
    }
    if (__builtin_mul_overflow(*last, tensor->dtype.lanes, last)) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              "the last extent, times %u lanes, overflows 63 "
                              "bits",
                              tensor->dtype.lanes);
    }
    written->dtype.lanes = 1;
    written->ndim += tensor->ndim == 0;
    written->shape = shape;
    return TMSG_OK;
}
