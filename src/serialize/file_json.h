/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_json.h - the JSON of a file's header, before cJSON sees it. */
#ifndef TMSG_SERIALIZE_FILE_JSON_H
#define TMSG_SERIALIZE_FILE_JSON_H

#include <cjson/cJSON.h>

#include "serialize/file.h"

/* Parses a safetensors header: one object, then nothing but spaces. Refuses
 * what cJSON would let pass (control characters, numbers that are not plain
 * integers, NUL in strings, which it cuts) and what would cost too much (depth
 * and number of values). On TMSG_OK *root_p is freed with cJSON_Delete().
 * Errors: MALFORMED, UNSUPPORTED, LIMIT_EXCEEDED, NO_MEMORY. */
tmsg_status_t tmsg_file_parse_json(const tmsg_file_where_t *where,
                                   const char *text, size_t bytes,
                                   cJSON **root_p);

#endif
