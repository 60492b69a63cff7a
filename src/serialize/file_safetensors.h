/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_safetensors.h - declares what reader and writer of
 * .safetensors files share. */
#ifndef TMSG_SERIALIZE_FILE_SAFETENSORS_H
#define TMSG_SERIALIZE_FILE_SAFETENSORS_H

#include "core/tensor.h"
#include "serialize/file.h"
#include "serialize/file_json.h"

#define TMSG_SAFETENSORS_HEADER_MAX                                            \
    100000000u /* limit of the reference implementation, too */
#define TMSG_SAFETENSORS_METADATA "__metadata__"

/* tmsg_safetensors_name() returns the format's name for a dtype, or NULL if it
 * has none; lanes are ignored. tmsg_safetensors_dtype() finds the dtype of a
 * name, and returns false if the name is unknown. */
const char *tmsg_safetensors_name(tmsg_dtype_t dtype);
bool tmsg_safetensors_dtype(const tmsg_file_json_t *name,
                            tmsg_dtype_t *dtype_p);

/* Returns whether the format can store the dtype. The format has no lanes.
 * Lanes of less than a byte become elements of the last dimension. torch's
 * float4_e2m1fn_x2, for example, is float4_e2m1fn with 2 lanes; its last extent
 * is doubled. */
bool tmsg_safetensors_holds(tmsg_dtype_t dtype);

/* Fills *written with the tensor as a file describes it: one lane, no strides.
 * If the tensor has lanes, written->shape is `shape`, which the caller
 * provides. Errors: LIMIT_EXCEEDED (an extent). */
tmsg_status_t tmsg_safetensors_as_written(const tmsg_file_where_t *where,
                                          const tmsg_tensor_t *tensor,
                                          int64_t shape[TMSG_NDIM_MAX],
                                          tmsg_tensor_t *written);

/* Holds the entry of one tensor in a header. */
typedef struct {
    tmsg_dtype_t dtype;
    int32_t ndim;
    int64_t shape[TMSG_NDIM_MAX];
    uint64_t begin, end; /* data_offsets: from the first byte of data on */
} tmsg_safetensors_entry_t;

/* Reads and checks an entry. `data_bytes` is the size of the data in the file.
 * Errors: MALFORMED, UNSUPPORTED, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_safetensors_read_entry(const tmsg_file_where_t *where,
                                          const tmsg_file_json_t *json,
                                          uint64_t data_bytes,
                                          tmsg_safetensors_entry_t *entry);

/* Returns whether the tensor's elements fill whole bytes. Elements of 4 or 6
 * bits may leave the last byte half empty, which the format does not allow. */
bool tmsg_safetensors_fills_bytes(const tmsg_tensor_t *tensor);

/* Returns whether a metadata key describes a file. Such keys are not stored in
 * a file, because they describe the file from which the map was loaded. */
bool tmsg_safetensors_is_of_file(const char *key);

/* Checks the size of __metadata__ against the limits. `keys` is the number of
 * keys; `bytes` is the size of all keys and values. Errors: LIMIT_EXCEEDED. */
tmsg_status_t tmsg_safetensors_check_amount(const tmsg_file_where_t *where,
                                            uint64_t keys, uint64_t bytes,
                                            const tmsg_limits_t *limits);

/* Formats the header of a map's file as text. The caller frees *text_p with
 * free(). Errors: NO_MEMORY, LIMIT_EXCEEDED (TMSG_SAFETENSORS_HEADER_MAX). */
tmsg_status_t tmsg_safetensors_header(const tmsg_file_where_t *where,
                                      const tmsg_map_t *map, char **text_p);

tmsg_status_t tmsg_safetensors_save(tmsg_file_output_t *output,
                                    const tmsg_map_t *map);
tmsg_status_t tmsg_safetensors_check(tmsg_file_where_t *where,
                                     const tmsg_map_t *map,
                                     const tmsg_limits_t *limits);

#endif
