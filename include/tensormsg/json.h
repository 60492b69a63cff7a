/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/json.h - a map, or a captured header, as JSON to look at.
 *
 * JSON has the names, dtypes, shapes and metadata of a map, and no tensor data.
 *
 *     tmsg_map_to_json(map, &json);
 *     puts(json);
 *     tmsg_string_free(json);
 */
#ifndef TENSORMSG_JSON_H
#define TENSORMSG_JSON_H

#include <stddef.h>

#include <tensormsg/map.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Frees a string that the library gave out. From any thread. NULL is
 * allowed. */
TMSG_API void tmsg_string_free(char *text);

/* Writes names, dtypes, shapes, strides, devices, bytes (of a broadcast tensor
 * each element's once) and metadata, not the
 * tensor data, in insertion order, as docs/reference/json.md shows. A value
 * of the metadata is an object of one key, its type: {"i64":7}. Integers beyond
 * 2^53 become strings, f64 that are not finite "NaN", "Infinity" or
 * "-Infinity", bytes base64. *json_p is freed with tmsg_string_free(). The map
 * is read as by any other call: by one thread at a time. Errors: INVALID_PARAM
 * (map is NULL), NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_map_to_json(const tmsg_map_t *map, char **json_p);

/* The same for the bytes of a message header as they travelled (docs/
 * wire-format.md), with the fields of its preamble. Nothing in `header` is
 * trusted. From any thread. Errors: MALFORMED, LIMIT_EXCEEDED, UNSUPPORTED,
 * INCOMPATIBLE, NO_MEMORY. */
TMSG_API tmsg_status_t tmsg_header_to_json(const void *header,
                                           size_t header_bytes, char **json_p);

#ifdef __cplusplus
}
#endif

#endif
