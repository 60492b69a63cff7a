/* SPDX-License-Identifier: BSD-3-Clause */
/* core/tensor.h - descriptors as the other rooms see them. */
#ifndef TMSG_CORE_TENSOR_H
#define TMSG_CORE_TENSOR_H

#include <stdbool.h>

#include <tensormsg/tensor.h>

#define TMSG_NDIM_MAX 64

/* As tmsg_tensor_check(), with and without asking for data. *bytes_p gets what
 * the elements take packed. */
tmsg_status_t tmsg_tensor_check_data(const tmsg_tensor_t *tensor,
                                     uint64_t *bytes_p);
tmsg_status_t tmsg_tensor_check_shape(const tmsg_tensor_t *tensor,
                                      uint64_t *bytes_p);

/* Whether the elements fill their memory without gap or overlap in some order
 * of the dimensions, from data upwards: C order, Fortran order and every other
 * permutation; of a broadcast tensor, each element once. Such a tensor is sent
 * as it lies, with its strides. */
bool tmsg_tensor_is_dense(const tmsg_tensor_t *tensor);

/* Whether a dimension of 2 or more has stride 0, and there are elements. */
bool tmsg_tensor_is_broadcast(const tmsg_tensor_t *tensor);

/* Of a tensor that was checked: how many elements there are from the lowest in
 * memory to the highest, with what lies in between, and how many of these are
 * before its first. Both are 0 where it has none. */
void tmsg_tensor_span(const tmsg_tensor_t *tensor, int64_t *elements_p,
                      int64_t *before_p);

/* The tensor with extent 1 where it is broadcast: each element once. It uses
 * `shape`, which has room for TMSG_NDIM_MAX. */
tmsg_tensor_t tmsg_tensor_once(const tmsg_tensor_t *tensor, int64_t *shape);

/* Of a tensor that was checked: what its elements take, each once, where they
 * take `bytes` packed, and the other way round. */
uint64_t tmsg_tensor_bytes_once(const tmsg_tensor_t *tensor, uint64_t bytes);
uint64_t tmsg_tensor_bytes_out(const tmsg_tensor_t *tensor, uint64_t once);

/* UNSUPPORTED where packing would have to pick elements that, with their lanes,
 * are not whole bytes. */
tmsg_status_t tmsg_tensor_check_packable(const tmsg_tensor_t *tensor);

/* Writes bytes `offset` to `offset + bytes` of those that tmsg_tensor_pack()
 * writes, of a tensor that it takes: nothing is checked. */
void tmsg_tensor_pack_part(const tmsg_tensor_t *tensor, uint64_t offset,
                           uint64_t bytes, void *buffer);

/* Bytes of one element with its lanes, rounded up to a whole byte. */
uint32_t tmsg_dtype_bytes(tmsg_dtype_t dtype);

#endif
