/* SPDX-License-Identifier: BSD-3-Clause */
/* core/tensor.h - descriptors as the other rooms see them. */
#ifndef TMSG_CORE_TENSOR_H
#define TMSG_CORE_TENSOR_H

#include <stdbool.h>

#include <tensormsg/tensor.h>

#define TMSG_NDIM_MAX 64

static inline bool tmsg_dtype_is(tmsg_dtype_t a, tmsg_dtype_t b)
{
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* These two check a descriptor as tmsg_tensor_check() does:
 * tmsg_tensor_check_data() with its data, tmsg_tensor_check_shape() without.
 * *bytes_p gets the bytes that the elements take packed. */
tmsg_status_t tmsg_tensor_check_data(const tmsg_tensor_t *tensor,
                                     uint64_t *bytes_p);
tmsg_status_t tmsg_tensor_check_shape(const tmsg_tensor_t *tensor,
                                      uint64_t *bytes_p);

/* Returns whether the elements fill their memory from `data` upwards, without
 * gap or overlap, in some order of the dimensions: C order, Fortran order or
 * any other permutation. Of a broadcast tensor each element counts once. Such a
 * tensor is sent as it lies, with its strides. */
bool tmsg_tensor_is_dense(const tmsg_tensor_t *tensor);

/* Returns whether a dimension of 2 or more has stride 0, and there are
 * elements. */
bool tmsg_tensor_is_broadcast(const tmsg_tensor_t *tensor);

/* Measures the span of a tensor that was checked. *elements_p is the number of
 * elements from the lowest in memory to the highest, with what lies in between.
 * *before_p is how many of these come before the tensor's first. Both are 0 if
 * the tensor has no elements. */
void tmsg_tensor_span(const tmsg_tensor_t *tensor, int64_t *elements_p,
                      int64_t *before_p);

/* Returns the tensor with extent 1 where it is broadcast, so that it has each
 * element once. The result uses `shape`, which has room for TMSG_NDIM_MAX. The
 * tensor must have strides. */
tmsg_tensor_t tmsg_tensor_once(const tmsg_tensor_t *tensor, int64_t *shape);

/* These two convert between the bytes of a checked tensor packed and the bytes
 * of its elements once each. */
uint64_t tmsg_tensor_bytes_once(const tmsg_tensor_t *tensor, uint64_t bytes);
uint64_t tmsg_tensor_bytes_out(const tmsg_tensor_t *tensor, uint64_t once);

/* Checks whether a tensor can be packed. Errors: UNSUPPORTED (packing would
 * have to pick elements that, with their lanes, are not whole bytes). */
tmsg_status_t tmsg_tensor_check_packable(const tmsg_tensor_t *tensor);

/* Does what tmsg_tensor_check_packable() does, and checks that the CPU reads
 * the memory. Errors: UNSUPPORTED. */
tmsg_status_t tmsg_tensor_check_pack(const tmsg_tensor_t *tensor);

/* Writes bytes `offset` to `offset + bytes` of those that tmsg_tensor_pack()
 * writes. The tensor must be one that tmsg_tensor_pack() takes: nothing is
 * checked. */
void tmsg_tensor_pack_part(const tmsg_tensor_t *tensor, uint64_t offset,
                           uint64_t bytes, void *buffer);

/* Returns how many bytes a part has at least if all parts together are to be
 * packed as fast as the whole; 0: any number will do. The tensor is checked,
 * and has elements. */
uint64_t tmsg_tensor_pack_well(const tmsg_tensor_t *tensor);

/* Returns the bytes of one element with its lanes, rounded up to a whole
 * byte. */
uint32_t tmsg_dtype_bytes(tmsg_dtype_t dtype);

#endif
