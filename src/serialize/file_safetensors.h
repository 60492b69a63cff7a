/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_safetensors.h - what reading and writing share. */
#ifndef TMSG_SERIALIZE_FILE_SAFETENSORS_H
#define TMSG_SERIALIZE_FILE_SAFETENSORS_H

#include "serialize/file.h"

#define TMSG_SAFETENSORS_HEADER_MAX 100000000u /* as the original has it */
#define TMSG_SAFETENSORS_METADATA "__metadata__"

/* The format's name for a dtype, NULL where it has none. */
const char *tmsg_safetensors_name(tmsg_dtype_t dtype);
bool tmsg_safetensors_dtype(const char *name, tmsg_dtype_t *dtype_p);

/* Whether a reserved metadata key holds a number, which a file has as text. */
bool tmsg_safetensors_is_i64(const char *key);

tmsg_status_t tmsg_safetensors_save(tmsg_file_output_t *output,
                                    const tmsg_map_t *map);
tmsg_status_t tmsg_safetensors_check(tmsg_file_where_t *where,
                                     const tmsg_map_t *map);

#endif
