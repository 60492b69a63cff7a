/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/tensor.h"

#include <stdint.h>
#include <string.h>

#include "core/error.h"

/* Elements and packed bytes of a shape whose extents are not negative. */
static tmsg_status_t count(const tmsg_tensor_t *tensor, uint64_t *bytes_p)
{
    uint64_t bits = (uint64_t)tensor->dtype.bits * tensor->dtype.lanes;
    bool empty = false;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        empty = empty || tensor->shape[i] == 0;
    }
    if (empty) {
        *bytes_p = 0;
        return TMSG_OK;
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (__builtin_mul_overflow(bits, (uint64_t)tensor->shape[i], &bits) ||
            bits > INT64_MAX) {
            return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                  "shape product overflows 63 bits");
        }
    }
    *bytes_p = (bits + 7) / 8;
    return TMSG_OK;
}

tmsg_status_t tmsg_tensor_bytes(const tmsg_tensor_t *tensor, uint64_t *bytes_p)
{
    tmsg_status_t status = tmsg_dtype_check(tensor->dtype);

    if (status != TMSG_OK) {
        return status;
    }
    if (tensor->ndim < 0 || tensor->ndim > TMSG_NDIM_MAX) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "ndim %d exceeds %d",
                              tensor->ndim, TMSG_NDIM_MAX);
    }
    if (tensor->ndim > 0 && tensor->shape == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "shape is NULL");
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0) {
            return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                  "shape[%d] is negative (%lld)", i,
                                  (long long)tensor->shape[i]);
        }
    }
    return count(tensor, bytes_p);
}

/* The farthest element must be reachable by a 63-bit byte offset. */
static tmsg_status_t check_span(const tmsg_tensor_t *tensor)
{
    int64_t lowest = 0, highest = 0;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        int64_t reach;
        bool overflow = __builtin_mul_overflow(tensor->shape[i] - 1,
                                               tensor->strides[i], &reach);
        int64_t *end = reach < 0 ? &lowest : &highest;

        overflow = overflow || __builtin_add_overflow(*end, reach, end);
        if (overflow || *end > INT64_MAX / (1 << 20) ||
            *end < INT64_MIN / (1 << 20)) {
            return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                  "strides[%d] %lld: the span overflows", i,
                                  (long long)tensor->strides[i]);
        }
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_tensor_check_shape(const tmsg_tensor_t *tensor,
                                      uint64_t *bytes_p)
{
    uint64_t bytes;
    tmsg_status_t status = tmsg_tensor_bytes(tensor, &bytes);

    if (status == TMSG_OK && tensor->strides != NULL && bytes != 0) {
        status = check_span(tensor);
    }
    if (status == TMSG_OK) {
        *bytes_p = bytes;
    }
    return status;
}

tmsg_status_t tmsg_tensor_check(const tmsg_tensor_t *tensor)
{
    uint64_t bytes;
    tmsg_status_t status = tmsg_tensor_check_shape(tensor, &bytes);

    if (status == TMSG_OK && bytes != 0 && tensor->data == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "data is NULL but the shape has %llu bytes",
                              (unsigned long long)bytes);
    }
    return status;
}

static bool is_empty(const tmsg_tensor_t *tensor)
{
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] == 0) {
            return true;
        }
    }
    return false;
}

int tmsg_tensor_is_contiguous(const tmsg_tensor_t *tensor)
{
    int64_t expected = 1;

    if (tensor->strides == NULL || is_empty(tensor)) {
        return 1;
    }
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != expected) {
            return 0;
        }
        expected *= tensor->shape[i];
    }
    return 1;
}

bool tmsg_tensor_is_dense(const tmsg_tensor_t *tensor)
{
    uint64_t placed = 0; /* dimensions that have found their place */
    int64_t expected = 1;
    int32_t left = 0;

    if (tmsg_tensor_is_contiguous(tensor)) {
        return true;
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        left += tensor->shape[i] != 1;
    }
    for (; left > 0; left--) {
        int32_t i = 0;

        while (i < tensor->ndim &&
               (tensor->shape[i] == 1 || (placed & (1ULL << i)) ||
                tensor->strides[i] != expected)) {
            i++;
        }
        if (i == tensor->ndim) {
            return false;
        }
        placed |= 1ULL << i;
        expected *= tensor->shape[i];
    }
    return true;
}

/* A loop nest over a strided tensor, the innermost run copied at once. */
typedef struct {
    const int64_t *shape;
    const int64_t *strides;
    int32_t outer;    /* dimensions that are stepped through */
    size_t element;   /* bytes */
    size_t run_bytes; /* what the inner dimensions hold in one piece */
} walk_t;

static uint8_t *copy_dimension(const walk_t *walk, int32_t dimension,
                               const uint8_t *from, uint8_t *to)
{
    int64_t step;

    if (dimension == walk->outer) {
        memcpy(to, from, walk->run_bytes);
        return to + walk->run_bytes;
    }
    step = walk->strides[dimension] * (int64_t)walk->element;
    if (dimension + 1 == walk->outer && walk->run_bytes == walk->element) {
        for (int64_t i = 0; i < walk->shape[dimension]; i++) {
            memcpy(to, from + i * step, walk->element);
            to += walk->element;
        }
        return to;
    }
    for (int64_t i = 0; i < walk->shape[dimension]; i++) {
        to = copy_dimension(walk, dimension + 1, from + i * step, to);
    }
    return to;
}

tmsg_status_t tmsg_tensor_pack(const tmsg_tensor_t *tensor, void *buffer)
{
    uint64_t bytes;
    int64_t run = 1;
    walk_t walk;
    tmsg_status_t status = tmsg_tensor_check(tensor);

    if (status == TMSG_OK) {
        status = tmsg_tensor_bytes(tensor, &bytes);
    }
    if (status != TMSG_OK || bytes == 0) {
        return status;
    }
    if (tensor->device.type != TMSG_DEVICE_CPU &&
        tensor->device.type != TMSG_DEVICE_CUDA_HOST) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "device type %d is not readable by the CPU",
                              tensor->device.type);
    }
    if (tmsg_tensor_is_contiguous(tensor)) {
        memcpy(buffer, tensor->data, bytes);
        return TMSG_OK;
    }
    if ((uint32_t)tensor->dtype.bits * tensor->dtype.lanes % 8 != 0) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "strides with elements of %u bits",
                              tensor->dtype.bits);
    }
    walk = (walk_t){tensor->shape, tensor->strides, tensor->ndim,
                    tmsg_dtype_bytes(tensor->dtype), 0};
    while (walk.outer > 0 && (tensor->shape[walk.outer - 1] == 1 ||
                              tensor->strides[walk.outer - 1] == run)) {
        run *= tensor->shape[--walk.outer];
    }
    walk.run_bytes = (size_t)run * walk.element;
    copy_dimension(&walk, 0, tensor->data, buffer);
    return TMSG_OK;
}
