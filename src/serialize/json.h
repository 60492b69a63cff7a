/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/json.h - building JSON to look at. Whatever cannot be allocated
 * makes the function give NULL (or false); what was built until then is
 * freed. */
#ifndef TMSG_SERIALIZE_JSON_H
#define TMSG_SERIALIZE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include <tensormsg/map.h>

/* Appends `item` to an object under `key`, or with key NULL to an array. An
 * item that cannot be appended is freed; `item` may be NULL. */
bool tmsg_json_add(cJSON *parent, const char *key, cJSON *item);

/* A number, or the same digits as a string beyond 2^53, from where a double
 * does not hold every integer. */
cJSON *tmsg_json_integer(int64_t value);
cJSON *tmsg_json_unsigned(uint64_t value);

#define TMSG_JSON_F64_BYTES 64

/* The fewest digits that read back as the same value, with a point whatever the
 * locale, or "NaN", "Infinity", "-Infinity". Returns `text` or a literal. */
const char *tmsg_json_f64(double value, char text[TMSG_JSON_F64_BYTES]);

cJSON *tmsg_json_base64(const void *data, size_t bytes);

/* Adds "tensors", or "metadata", of a map to an object. */
bool tmsg_json_add_tensors(cJSON *object, const tmsg_map_t *map);
bool tmsg_json_add_metadata(cJSON *object, const tmsg_map_t *map);

/* Prints `object` for tmsg_string_free() and frees it. `complete` says whether
 * all went well up to here. Errors: NO_MEMORY. */
tmsg_status_t tmsg_json_finish(cJSON *object, bool complete, char **json_p);

#endif
