/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_npy.h - the header of a .npy file, which is also a member of
 * a .npz. See numpy.lib.format, "Format Version 1.0" and following. */
#ifndef TMSG_SERIALIZE_FILE_NPY_H
#define TMSG_SERIALIZE_FILE_NPY_H

#include "core/tensor.h"
#include "serialize/file.h"

#define TMSG_NPY_PREFIX_BYTES 12 /* of version 2 and later; v1 has 10 */

/* numpy.load() refuses more, too. The prefix comes on top. */
#define TMSG_NPY_HEADER_MAX 10000u

/* Bytes that any header we write fits in. */
#define TMSG_NPY_HEADER_BYTES 1600

typedef struct {
    tmsg_dtype_t dtype;
    bool swap;    /* the data are big-endian */
    bool fortran; /* the first dimension turns fastest */
    int32_t ndim;
    int64_t shape[TMSG_NDIM_MAX];
    int64_t strides[TMSG_NDIM_MAX]; /* of Fortran order */
    uint64_t header_bytes;          /* prefix included */
    uint64_t data_bytes;
} tmsg_npy_t;

/* Reads magic, version and length: how many bytes the header has in all, at
 * most TMSG_NPY_PREFIX_BYTES + TMSG_NPY_HEADER_MAX. `bytes` counts those at
 * `data`; a file shorter than TMSG_NPY_PREFIX_BYTES is MALFORMED. */
tmsg_status_t tmsg_npy_read_prefix(const tmsg_file_where_t *where,
                                   const uint8_t *data, uint64_t bytes,
                                   uint64_t *header_bytes_p);

/* Reads the whole header. Errors: MALFORMED, UNSUPPORTED (a dtype by its
 * name), LIMIT_EXCEEDED. */
tmsg_status_t tmsg_npy_read_header(const tmsg_file_where_t *where,
                                   const uint8_t *header, uint64_t header_bytes,
                                   tmsg_npy_t *npy);

/* Whether numpy could make an array of that shape, empty ones included. Errors:
 * LIMIT_EXCEEDED. */
tmsg_status_t tmsg_npy_check_extents(const tmsg_file_where_t *where,
                                     const tmsg_tensor_t *tensor);

/* Adds the tensor that the header describes. */
tmsg_status_t tmsg_npy_add(tmsg_file_input_t *input, const char *name,
                           tmsg_npy_t *npy, void *data, void *memory);

/* Reads numpy's name of a dtype ("<f4"). *swap_p: it is big-endian. */
tmsg_status_t tmsg_npy_read_dtype(const tmsg_file_where_t *where,
                                  const char *text, tmsg_dtype_t *dtype_p,
                                  bool *swap_p);

/* The reverse; false where numpy has no name for it. */
bool tmsg_npy_dtype_name(tmsg_dtype_t dtype, char name[8]);

/* The tensor as a file has it: where that is Fortran order, without strides,
 * for then its elements are written as they lie. */
tmsg_tensor_t tmsg_npy_as_written(const tmsg_tensor_t *tensor);

/* Writes the header of a tensor, byte for byte as numpy does, and returns how
 * many bytes it has. */
size_t tmsg_npy_format_header(const tmsg_tensor_t *tensor,
                              char header[TMSG_NPY_HEADER_BYTES]);

bool tmsg_npy_holds(tmsg_dtype_t dtype);

#endif
