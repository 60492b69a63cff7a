/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_npy.h - reads and writes the header of a .npy file. A member
 * of a .npz archive has the same header. See numpy.lib.format, "Format Version
 * 1.0" and following. */
#ifndef TMSG_SERIALIZE_FILE_NPY_H
#define TMSG_SERIALIZE_FILE_NPY_H

#include "core/tensor.h"
#include "serialize/file.h"

#define TMSG_NPY_PREFIX_BYTES                                                  \
    12 /* prefix of version 2 and 3; version 1 has 10 */

/* A prefix may state a length up to this limit. numpy.load() has the same
 * limit. */
#define TMSG_NPY_HEADER_MAX 10000u

/* A buffer of this size has room for any header that we write. */
#define TMSG_NPY_HEADER_BYTES 1600

typedef struct {
    tmsg_dtype_t dtype;
    bool swap;    /* whether the data are big-endian */
    bool fortran; /* whether the data are in Fortran order */
    int32_t ndim;
    int64_t shape[TMSG_NDIM_MAX];
    int64_t strides[TMSG_NDIM_MAX]; /* valid if `fortran` is true */
    uint64_t header_bytes; /* bytes of the header, including its prefix */
    uint64_t data_bytes;
} tmsg_npy_t;

/* Reads magic, version and length from `data`. *header_bytes_p is the size of
 * the whole header, at most TMSG_NPY_PREFIX_BYTES + TMSG_NPY_HEADER_MAX.
 * `bytes` is the number of bytes at `data`. Errors: MALFORMED (also if
 * `bytes` is less than TMSG_NPY_PREFIX_BYTES), UNSUPPORTED (version),
 * LIMIT_EXCEEDED. */
tmsg_status_t tmsg_npy_read_prefix(const tmsg_file_where_t *where,
                                   const uint8_t *data, uint64_t bytes,
                                   uint64_t *header_bytes_p);

/* Reads the whole header. Errors: MALFORMED, UNSUPPORTED (names the dtype),
 * LIMIT_EXCEEDED. */
tmsg_status_t tmsg_npy_read_header(const tmsg_file_where_t *where,
                                   const uint8_t *header, uint64_t header_bytes,
                                   tmsg_npy_t *npy);

/* Checks that numpy can create an array of the tensor's shape, also if the
 * array is empty. Errors: LIMIT_EXCEEDED. */
tmsg_status_t tmsg_npy_check_extents(const tmsg_file_where_t *where,
                                     const tmsg_tensor_t *tensor);

/* Adds the tensor that the header describes to input->map. `data` points to its
 * elements. If they lie in memory of their own, `memory` is that memory, and
 * the call takes ownership of it as tmsg_file_add() does. */
tmsg_status_t tmsg_npy_add(tmsg_file_input_t *input, const char *name,
                           tmsg_npy_t *npy, void *data, void *memory);

/* Parses numpy's name of a dtype, such as "<f4". *swap_p says whether the data
 * are big-endian. Errors: UNSUPPORTED, MALFORMED (unknown name). */
tmsg_status_t tmsg_npy_read_dtype(const tmsg_file_where_t *where,
                                  const char *text, tmsg_dtype_t *dtype_p,
                                  bool *swap_p);

/* Formats numpy's name of a dtype. Returns false if numpy has no name for
 * it. */
bool tmsg_npy_dtype_name(tmsg_dtype_t dtype, char name[8]);

/* Returns the tensor whose elements, in C order, are the data of the file. A
 * tensor in Fortran order is returned without strides, so that its elements are
 * written in memory order. Any other tensor is returned unchanged. */
tmsg_tensor_t tmsg_npy_as_written(const tmsg_tensor_t *tensor);

/* Writes the header of a tensor, byte for byte as numpy does. Returns the
 * number of bytes. */
size_t tmsg_npy_format_header(const tmsg_tensor_t *tensor,
                              char header[TMSG_NPY_HEADER_BYTES]);

/* Returns whether a .npy file can store the dtype. */
bool tmsg_npy_holds(tmsg_dtype_t dtype);

#endif
