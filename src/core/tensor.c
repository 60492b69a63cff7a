/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/tensor.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

/* Computes the packed bytes of a shape. */
static tmsg_status_t count_bytes(const tmsg_tensor_t *tensor, uint64_t *bytes_p)
{
    uint64_t bits = (uint64_t)tensor->dtype.bits * tensor->dtype.lanes;
    bool empty = false, overflow = false;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        int64_t extent = tensor->shape[i];

        if (extent < 0) {
            return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                  "shape[%d] is negative (%lld)", i,
                                  (long long)extent);
        }
        empty |= extent == 0;
        if (__builtin_mul_overflow(bits, (uint64_t)extent, &bits) ||
            bits > INT64_MAX) {
            overflow = true; /* a later extent of 0 makes the tensor empty */
        }
    }
    if (overflow && !empty) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "shape product overflows 63 bits");
    }
    *bytes_p = empty ? 0 : (bits + 7) / 8;
    return TMSG_OK;
}

tmsg_status_t tmsg_tensor_bytes(const tmsg_tensor_t *tensor, uint64_t *bytes_p)
{
    uint64_t bytes;
    tmsg_status_t status;

    if (tensor == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "tensor is NULL");
    }
    status = tmsg_dtype_check(tensor->dtype);
    if (status != TMSG_OK) {
        return status;
    }
    if (tensor->ndim < 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "ndim is negative (%d)",
                              tensor->ndim);
    }
    if (tensor->ndim > TMSG_NDIM_MAX) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "ndim %d exceeds %d",
                              tensor->ndim, TMSG_NDIM_MAX);
    }
    if (tensor->ndim > 0 && tensor->shape == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "shape is NULL");
    }
    return count_bytes(tensor, bytes_p == NULL ? &bytes : bytes_p);
}

/* Checks that the bytes from the lowest element to the end of the highest fit
 * into 63 bits, so that no offset inside can overflow. */
static tmsg_status_t check_span(const tmsg_tensor_t *tensor)
{
    const int64_t most = INT64_MAX / tmsg_dtype_bytes(tensor->dtype);
    int64_t lowest = 0, highest = 0, span;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        int64_t reach;
        bool overflow = __builtin_mul_overflow(tensor->shape[i] - 1,
                                               tensor->strides[i], &reach);
        int64_t *end = reach < 0 ? &lowest : &highest;

        overflow = overflow || __builtin_add_overflow(*end, reach, end) ||
                   __builtin_sub_overflow(highest, lowest, &span);
        if (overflow || span >= most) {
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

tmsg_status_t tmsg_tensor_check_data(const tmsg_tensor_t *tensor,
                                     uint64_t *bytes_p)
{
    uint64_t bytes;
    tmsg_status_t status = tmsg_tensor_check_shape(tensor, &bytes);

    if (status != TMSG_OK) {
        return status;
    }
    if (bytes != 0 && tensor->data == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "data is NULL but the shape has %llu bytes",
                              (unsigned long long)bytes);
    }
    *bytes_p = bytes;
    return TMSG_OK;
}

tmsg_status_t tmsg_tensor_check(const tmsg_tensor_t *tensor)
{
    uint64_t bytes;

    return tmsg_tensor_check_data(tensor, &bytes);
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
        left += tensor->shape[i] != 1 && tensor->strides[i] != 0;
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

bool tmsg_tensor_is_broadcast(const tmsg_tensor_t *tensor)
{
    if (tensor->strides == NULL || is_empty(tensor)) {
        return false;
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] > 1 && tensor->strides[i] == 0) {
            return true;
        }
    }
    return false;
}

void tmsg_tensor_span(const tmsg_tensor_t *tensor, int64_t *elements_p,
                      int64_t *before_p)
{
    bool empty = is_empty(tensor);
    int64_t lowest = 0, highest = 0, step = 1;

    for (int32_t i = tensor->ndim; !empty && i-- > 0;) {
        int64_t stride = tensor->strides == NULL ? step : tensor->strides[i];
        int64_t reach = (tensor->shape[i] - 1) * stride;

        *(reach < 0 ? &lowest : &highest) += reach;
        step *= tensor->shape[i];
    }
    *elements_p = empty ? 0 : highest - lowest + 1;
    *before_p = -lowest;
}

tmsg_tensor_t tmsg_tensor_once(const tmsg_tensor_t *tensor, int64_t *shape)
{
    tmsg_tensor_t once = *tensor;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        shape[i] = tensor->strides[i] == 0 ? 1 : tensor->shape[i];
    }
    once.shape = shape;
    return once;
}

/* Returns how often each element lies in a tensor that is not empty. */
static uint64_t broadcast_times(const tmsg_tensor_t *tensor)
{
    uint64_t product = 1;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        product *= tensor->strides[i] == 0 ? (uint64_t)tensor->shape[i] : 1;
    }
    return product;
}

uint64_t tmsg_tensor_bytes_once(const tmsg_tensor_t *tensor, uint64_t bytes)
{
    return tensor->strides == NULL || bytes == 0
               ? bytes
               : bytes / broadcast_times(tensor);
}

uint64_t tmsg_tensor_bytes_out(const tmsg_tensor_t *tensor, uint64_t once)
{
    return tensor->strides == NULL || once == 0
               ? once
               : once * broadcast_times(tensor);
}

tmsg_status_t tmsg_tensor_check_packable(const tmsg_tensor_t *tensor)
{
    uint32_t bits = (uint32_t)tensor->dtype.bits * tensor->dtype.lanes;

    if (bits % 8 != 0 && !tmsg_tensor_is_contiguous(tensor)) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "strides are not supported for elements of %u bits", bits);
    }
    return TMSG_OK;
}

#define TILE_ROWS 64
#define TILE_COLUMNS 8

/* Describes a strided tensor as a nest of loops, innermost first. Extents of 1
 * are left out, and dimensions that follow each other evenly are one. Each step
 * copies a run of bytes that lie together. */
typedef struct {
    size_t run;
    int32_t ndim;
    int64_t shape[TMSG_NDIM_MAX];
    int64_t steps[TMSG_NDIM_MAX];   /* steps in bytes */
    uint64_t packed[TMSG_NDIM_MAX]; /* bytes that one step packs */
} nest_t;

static void nest_make(const tmsg_tensor_t *tensor, nest_t *nest)
{
    int64_t element = tmsg_dtype_bytes(tensor->dtype);

    nest->run = (size_t)element;
    nest->ndim = 0;
    nest->steps[1] = 0;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        int64_t extent = tensor->shape[i], step, last;

        if (extent == 1) {
            continue;
        }
        step = tensor->strides[i] * element;
        last = nest->ndim - 1;
        if (last < 0 && step == (int64_t)nest->run) {
            nest->run *= (size_t)extent;
        } else if (last >= 0 && step == nest->steps[last] * nest->shape[last]) {
            nest->shape[last] *= extent;
        } else {
            nest->shape[nest->ndim] = extent;
            nest->steps[nest->ndim++] = step;
        }
    }
    nest->packed[0] = nest->run;
    for (int32_t i = 1; i < nest->ndim; i++) {
        nest->packed[i] = nest->packed[i - 1] * (uint64_t)nest->shape[i - 1];
    }
}

/* Returns whether the rows of a nest lie nearer to each other than the
 * columns. */
static inline bool nest_is_tiled(const nest_t *nest)
{
    return llabs(nest->steps[1]) < llabs(nest->steps[0]);
}

/* Copies rows and columns of the two innermost dimensions. If the rows lie
 * nearer to each other than the columns, they are copied by tiles, so that a
 * cache line is used before it is gone. */
static inline __attribute__((always_inline)) uint8_t *
copy_tiles(const nest_t *nest, int64_t rows, int64_t columns,
           const uint8_t *from, uint8_t *to, size_t run)
{
    int64_t row_step = nest->steps[1], column_step = nest->steps[0];
    bool tiled = nest_is_tiled(nest);
    int64_t high = tiled ? TILE_ROWS : 1;
    int64_t wide = tiled ? TILE_COLUMNS : columns;

    for (int64_t top = 0; top < rows; top += high) {
        int64_t bottom = rows - top < high ? rows : top + high;

        for (int64_t left = 0; left < columns; left += wide) {
            int64_t width = columns - left < wide ? columns - left : wide;

            for (int64_t row = top; row < bottom; row++) {
                const uint8_t *source =
                    from + row * row_step + left * column_step;
                uint8_t *target = to + (size_t)(row * columns + left) * run;

                for (int64_t i = 0; i < width; i++) {
                    memcpy(target + (size_t)i * run, source + i * column_step,
                           run);
                }
            }
        }
    }
    return to + (size_t)(rows * columns) * run;
}

/* A constant length makes each memcpy() one or two instructions. */
static uint8_t *copy_plane(const nest_t *nest, int64_t rows, int64_t columns,
                           const uint8_t *from, uint8_t *to)
{
    switch (nest->run) {
    case 1:
        return copy_tiles(nest, rows, columns, from, to, 1);
    case 2:
        return copy_tiles(nest, rows, columns, from, to, 2);
    case 3:
        return copy_tiles(nest, rows, columns, from, to, 3);
    case 4:
        return copy_tiles(nest, rows, columns, from, to, 4);
    case 8:
        return copy_tiles(nest, rows, columns, from, to, 8);
    case 12:
        return copy_tiles(nest, rows, columns, from, to, 12);
    case 16:
        return copy_tiles(nest, rows, columns, from, to, 16);
    default:
        return copy_tiles(nest, rows, columns, from, to, nest->run);
    }
}

/* Copies `count` steps of a dimension, with everything inside them. */
static uint8_t *copy_steps(const nest_t *nest, int32_t dimension, int64_t count,
                           const uint8_t *from, uint8_t *to)
{
    if (dimension == 0) {
        return copy_plane(nest, 1, count, from, to);
    }
    if (dimension == 1) {
        return copy_plane(nest, count, nest->shape[0], from, to);
    }
    for (int64_t i = 0; i < count; i++) {
        to = copy_steps(nest, dimension - 1, nest->shape[dimension - 1],
                        from + i * nest->steps[dimension], to);
    }
    return to;
}

/* Copies `bytes` of what a dimension packs to, after the first `skip`: the rest
 * of a step, whole steps, and the beginning of a step. */
static uint8_t *copy_part(const nest_t *nest, int32_t dimension,
                          const uint8_t *from, uint64_t skip, uint64_t bytes,
                          uint8_t *to)
{
    uint64_t packed, rest;
    int64_t at, step, whole;

    if (dimension < 0) {
        memcpy(to, from + skip, bytes);
        return to + bytes;
    }
    packed = nest->packed[dimension];
    step = nest->steps[dimension];
    at = (int64_t)(skip / packed);
    skip %= packed;
    if (skip > 0) {
        rest = packed - skip < bytes ? packed - skip : bytes;
        to = copy_part(nest, dimension - 1, from + at * step, skip, rest, to);
        bytes -= rest;
        at++;
    }
    whole = (int64_t)(bytes / packed);
    if (whole > 0) {
        to = copy_steps(nest, dimension, whole, from + at * step, to);
        at += whole;
    }
    rest = bytes % packed;
    return rest == 0
               ? to
               : copy_part(nest, dimension - 1, from + at * step, 0, rest, to);
}

void tmsg_tensor_pack_part(const tmsg_tensor_t *tensor, uint64_t offset,
                           uint64_t bytes, void *buffer)
{
    nest_t nest;

    if (bytes == 0) {
        return;
    }
    if (tmsg_tensor_is_contiguous(tensor)) {
        memcpy(buffer, (const uint8_t *)tensor->data + offset, bytes);
        return;
    }
    nest_make(tensor, &nest);
    copy_part(&nest, nest.ndim - 1, tensor->data, offset, bytes, buffer);
}

/* A part of few rows would leave most of each cache line that it reads to the
 * parts behind it. */
uint64_t tmsg_tensor_pack_well(const tmsg_tensor_t *tensor)
{
    nest_t nest;

    if (tmsg_tensor_is_contiguous(tensor)) {
        return 0;
    }
    nest_make(tensor, &nest);
    return nest.ndim > 1 && nest_is_tiled(&nest) ? TILE_ROWS * nest.packed[1]
                                                 : 0;
}

tmsg_status_t tmsg_tensor_check_pack(const tmsg_tensor_t *tensor)
{
    if (tensor->device.type != TMSG_DEVICE_CPU &&
        tensor->device.type != TMSG_DEVICE_CUDA_HOST) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "device type %d is not readable by the CPU",
                              tensor->device.type);
    }
    return tmsg_tensor_check_packable(tensor);
}

tmsg_status_t tmsg_tensor_pack(const tmsg_tensor_t *tensor, void *buffer)
{
    uint64_t bytes = 0;
    tmsg_status_t status = tmsg_tensor_check_data(tensor, &bytes);

    if (status != TMSG_OK || bytes == 0) {
        return status;
    }
    if (buffer == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "buffer is NULL");
    }
    status = tmsg_tensor_check_pack(tensor);
    if (status == TMSG_OK) {
        tmsg_tensor_pack_part(tensor, 0, bytes, buffer);
    }
    return status;
}
