/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/json.h - builds JSON that people read. A function that lacks memory
 * returns NULL or false, and frees the item that it could not append. */
#ifndef TMSG_SERIALIZE_JSON_H
#define TMSG_SERIALIZE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include <tensormsg/map.h>

/* Appends `item` to an object under `key` or, if `key` is NULL, to an array.
 * Frees `item` if it cannot be appended. Returns false then, and if `item` is
 * NULL. */
bool tmsg_json_add(cJSON *parent, const char *key, cJSON *item);

/* These two functions return a number. Beyond 2^53 a double cannot represent
 * every integer, so larger values become a string of the same digits. */
cJSON *tmsg_json_integer(int64_t value);
cJSON *tmsg_json_unsigned(uint64_t value);

/* Returns what stands before and after the digits of such a number. */
const char *tmsg_json_quote(uint64_t value);

#define TMSG_JSON_F64_BYTES 64

/* Formats a value with the fewest digits (15 to 17) that read back as the same
 * value, and with a point in any locale. NaN and infinities become "NaN",
 * "Infinity" and "-Infinity". Returns `text` or a string literal. */
const char *tmsg_json_f64(double value, char text[TMSG_JSON_F64_BYTES]);

/* Returns the base64 encoding of the data as a string. */
cJSON *tmsg_json_base64(const void *data, size_t bytes);

/* Adds the array "tensors", or the object "metadata", of a map to `object`. */
bool tmsg_json_add_tensors(cJSON *object, const tmsg_map_t *map);
bool tmsg_json_add_metadata(cJSON *object, const tmsg_map_t *map);

/* Prints `object` and frees it. `complete` is false if building it has failed.
 * The caller frees *json_p with tmsg_string_free(). Errors: NO_MEMORY (also if
 * `complete` is false). */
tmsg_status_t tmsg_json_finish(cJSON *object, bool complete, char **json_p);

#endif
