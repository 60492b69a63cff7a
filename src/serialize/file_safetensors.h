/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_safetensors.h - what reading and writing share. */
#ifndef TMSG_SERIALIZE_FILE_SAFETENSORS_H
#define TMSG_SERIALIZE_FILE_SAFETENSORS_H

#include "core/tensor.h"
#include "serialize/file.h"
#include "serialize/file_json.h"

#define TMSG_SAFETENSORS_HEADER_MAX 100000000u /* as the original has it */
#define TMSG_SAFETENSORS_METADATA "__metadata__"

/* The format's name for a dtype, NULL where it has none. */
const char *tmsg_safetensors_name(tmsg_dtype_t dtype);
bool tmsg_safetensors_dtype(const tmsg_file_json_t *name,
                            tmsg_dtype_t *dtype_p);

/* Whether the format has the dtype. It has no lanes; lanes of less than a byte
 * become elements of the last dimension, so that torch's float4_e2m1fn_x2,
 * which is float4_e2m1fn with 2 lanes, doubles its extent. */
bool tmsg_safetensors_holds(tmsg_dtype_t dtype);

/* Describes a tensor as a file does: one lane, no strides. Uses `shape` if the
 * tensor has lanes. Errors: LIMIT_EXCEEDED (an extent). */
tmsg_status_t tmsg_safetensors_as_written(const tmsg_file_where_t *where,
                                          const tmsg_tensor_t *tensor,
                                          int64_t shape[TMSG_NDIM_MAX],
                                          tmsg_tensor_t *written);

/* The entry of one tensor in a header. */
typedef struct {
    tmsg_dtype_t dtype;
    int32_t ndim;
    int64_t shape[TMSG_NDIM_MAX];
    uint64_t begin, end; /* data_offsets */
} tmsg_safetensors_entry_t;

/* Reads and checks an entry. Errors: MALFORMED, UNSUPPORTED, LIMIT_EXCEEDED. */
tmsg_status_t tmsg_safetensors_read_entry(const tmsg_file_where_t *where,
                                          const tmsg_file_json_t *json,
                                          uint64_t data_bytes,
                                          tmsg_safetensors_entry_t *entry);

/* Elements of 4 or 6 bits may leave the last byte half empty, which the format
 * does not allow. */
bool tmsg_safetensors_fills_bytes(const tmsg_tensor_t *tensor);

/* Whether a metadata key is about a file, and so not kept in one: it would be
 * about the file that this one once was. */
bool tmsg_safetensors_is_of_file(const char *key);

/* Holds the size of __metadata__ to the limits: the number of keys, and the
 * bytes of keys and values. Errors: LIMIT_EXCEEDED. */
tmsg_status_t tmsg_safetensors_check_amount(const tmsg_file_where_t *where,
                                            uint64_t keys, uint64_t bytes,
                                            const tmsg_limits_t *limits);

/* Formats the header of a map's file as text, freed with free(). Errors:
 * NO_MEMORY, LIMIT_EXCEEDED (TMSG_SAFETENSORS_HEADER_MAX). */
tmsg_status_t tmsg_safetensors_header(const tmsg_file_where_t *where,
                                      const tmsg_map_t *map, char **text_p);

tmsg_status_t tmsg_safetensors_save(tmsg_file_output_t *output,
                                    const tmsg_map_t *map);
tmsg_status_t tmsg_safetensors_check(tmsg_file_where_t *where,
                                     const tmsg_map_t *map,
                                     const tmsg_limits_t *limits);

#endif
