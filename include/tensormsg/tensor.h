/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/tensor.h - the descriptor of one tensor: DLPack's fields.
 *
 * A descriptor says where a tensor's data lie and what they are. It owns
 * nothing.
 *
 *     tmsg_map_find(map, "image", &tensor);
 *     tmsg_tensor_bytes(&tensor, &tensor_bytes);
 *     if (!tmsg_tensor_is_contiguous(&tensor)) {
 *         tmsg_tensor_pack(&tensor, buffer); // in C order
 *     }
 */
#ifndef TENSORMSG_TENSOR_H
#define TENSORMSG_TENSOR_H

#include <stdint.h>

#include <tensormsg/device.h>
#include <tensormsg/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The functions here keep no state. Any thread may call them, while nobody
 * changes the descriptor or what it points to. */

/* A tensor descriptor: the fields of DLTensor, without its byte offset. It owns
 * nothing: data, shape and strides belong to whoever filled it in. It never
 * grows: what else may be said of a tensor, such as the stream on which its
 * data are ready, goes into tmsg_map_add_params_t. A descriptor of zeros is a
 * 0-d tensor in C order; it still needs a dtype, a device and, as it has one
 * element, data. */
typedef struct tmsg_tensor {
    void *data;             /* first element; NULL only if 0 bytes */
    tmsg_device_t device;   /* where data lives */
    tmsg_dtype_t dtype;     /* of one element */
    int32_t ndim;           /* 0 to 64 */
    const int64_t *shape;   /* ndim extents >= 0; may be NULL if ndim is 0 */
    const int64_t *strides; /* ndim strides in elements; NULL is C order */
} tmsg_tensor_t;

/* Gives the number of bytes that the elements take when packed in C order:
 * ceil(product(shape) * bits * lanes / 8), 0 if any extent is 0. The tensor's
 * own memory may be larger, if strides leave gaps, or smaller, if strides are
 * 0. bytes_p may be NULL.
 * Errors:
 *   INVALID_PARAM - tensor is NULL, ndim is not in 0..64, an extent is
 *     negative, or there is no shape
 *   UNSUPPORTED - the dtype
 *   LIMIT_EXCEEDED - product(shape) * bits * lanes overflows 63 bits */
TMSG_API tmsg_status_t tmsg_tensor_bytes(const tmsg_tensor_t *tensor,
                                         uint64_t *bytes_p);

/* Checks everything about a descriptor that can be checked without its data:
 * dtype, ndim <= 64, shape, product, strides whose span fits in 63 bits, and a
 * data pointer if there are bytes.
 * Errors: those of tmsg_tensor_bytes(), and:
 *   INVALID_PARAM - data is NULL and there are bytes
 *   LIMIT_EXCEEDED - the span is too large */
TMSG_API tmsg_status_t tmsg_tensor_check(const tmsg_tensor_t *tensor);

/* Returns 1 if the elements lie in C order without gaps, else 0. The stride of
 * an extent of 0 or 1 does not matter. The tensor must pass
 * tmsg_tensor_check(). */
TMSG_API int tmsg_tensor_is_contiguous(const tmsg_tensor_t *tensor);

/* Copies the elements of a CPU tensor into `buffer` in C order, whatever its
 * strides. The buffer has room for tmsg_tensor_bytes(), and does not overlap
 * the data.
 * Errors: those of tmsg_tensor_check(), and:
 *   INVALID_PARAM - buffer is NULL and there are bytes
 *   UNSUPPORTED - memory that the CPU cannot read; or elements that, with their
 *     lanes, are not whole bytes, with strides that leave gaps or overlap */
TMSG_API tmsg_status_t tmsg_tensor_pack(const tmsg_tensor_t *tensor,
                                        void *buffer);

#ifdef __cplusplus
}
#endif

#endif
