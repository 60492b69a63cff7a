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

/* Frees a string that the library gave. From any thread. NULL is allowed. */
TMSG_API void tmsg_string_free(char *text);

/* Writes names, dtypes, shapes, strides, devices, bytes and metadata, in
 * insertion order, as docs/reference/json.md shows; not the tensor data. The
 * bytes of a broadcast tensor are those of each element once. A metadata value
 * is an object whose one key is its type: {"i64":7}. Integers beyond 2^53 are
 * strings. Floats that are not finite are "NaN", "Infinity" or "-Infinity".
 * Bytes are base64. *json_p is freed with tmsg_string_free(). One thread at a
 * time may read the map.
 * Errors:
 *   INVALID_PARAM - map is NULL
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_map_to_json(const tmsg_map_t *map, char **json_p);

/* Does the same for the bytes of a message header as they travelled
 * (docs/wire/wire-format.md), with the fields of its preamble. Nothing in
 * `header` is trusted. From any thread.
 * Errors:
 *   MALFORMED
 *   LIMIT_EXCEEDED
 *   UNSUPPORTED
 *   INCOMPATIBLE
 *   NO_MEMORY */
TMSG_API tmsg_status_t tmsg_header_to_json(const void *header,
                                           size_t header_bytes, char **json_p);

#ifdef __cplusplus
}
#endif

#endif
