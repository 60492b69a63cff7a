/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg/meta.h - typed keys and values that travel beside the tensors.
 *
 * Metadata belongs to a map and travels with it.
 *
 *     tmsg_map_set_i64(map, TMSG_META_FRAME, 7);
 *     tmsg_map_set_string(map, "model", "small");
 *     tmsg_map_get_i64(received, TMSG_META_FRAME, &frame);
 *     tmsg_map_get_string(received, "model", &text);
 */
#ifndef TENSORMSG_META_H
#define TENSORMSG_META_H

#include <stddef.h>
#include <stdint.h>

#include <tensormsg/map.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reserved keys, with the type each must have. The prefix "tensormsg." is the
 * library's: setting any other key that begins with it is INVALID_PARAM. */
#define TMSG_META_SEQUENCE "tensormsg.sequence"           /* i64 */
#define TMSG_META_FRAME "tensormsg.frame"                 /* i64 */
#define TMSG_META_ACQUIRED "tensormsg.time.acquired_ns"   /* i64, Unix time */
#define TMSG_META_PUBLISHED "tensormsg.time.published_ns" /* i64, likewise */
#define TMSG_META_TRACE_PARENT "tensormsg.trace.parent"   /* string, W3C */
#define TMSG_META_TRACE_STATE "tensormsg.trace.state"     /* string, W3C */
#define TMSG_META_FILE_NAME "tensormsg.file.name"         /* string */
#define TMSG_META_FILE_FORMAT "tensormsg.file.format"     /* string */
#define TMSG_META_UCXX_HEADER "tensormsg.ucxx.header"     /* bytes */
#define TMSG_META_OFFER_EPOCH "tensormsg.offer.epoch"     /* i64, offer.h */
#define TMSG_META_OFFER_VERSION "tensormsg.offer.version" /* i64 */

typedef enum {
    TMSG_META_TYPE_BOOL = 1,
    TMSG_META_TYPE_I64 = 2,
    TMSG_META_TYPE_F64 = 3,
    TMSG_META_TYPE_STRING = 4, /* UTF-8, may hold NUL bytes */
    TMSG_META_TYPE_BYTES = 5
} tmsg_meta_type_t;

/* One value. `type` says which of the fields counts. */
typedef struct tmsg_meta {
    int32_t type;     /* tmsg_meta_type_t */
    int32_t boolean;  /* BOOL: 0 or 1 */
    int64_t i64;      /* I64 */
    double f64;       /* F64 */
    const char *data; /* STRING, BYTES; a STRING has a NUL after it */
    size_t bytes;     /* STRING, BYTES: without that NUL */
} tmsg_meta_t;

/* Sets `key` to a copy of *value. A key that exists keeps its place and gets
 * the new value, of any type.
 * Errors:
 *   INVALID_PARAM - a NULL; a key or string that is not UTF-8; an empty key;
 *     the wrong type for a reserved key
 *   LIMIT_EXCEEDED - the key has more than 4096 bytes
 *   NO_MEMORY
 *   BUSY - the map is being sent */
TMSG_API tmsg_status_t tmsg_map_set_meta(tmsg_map_t *map, const char *key,
                                         const tmsg_meta_t *value);

/* Do the same, one function for each type. `text` is NUL-terminated. */
TMSG_API tmsg_status_t tmsg_map_set_bool(tmsg_map_t *map, const char *key,
                                         int boolean);
TMSG_API tmsg_status_t tmsg_map_set_i64(tmsg_map_t *map, const char *key,
                                        int64_t i64);
TMSG_API tmsg_status_t tmsg_map_set_f64(tmsg_map_t *map, const char *key,
                                        double f64);
TMSG_API tmsg_status_t tmsg_map_set_string(tmsg_map_t *map, const char *key,
                                           const char *text);
TMSG_API tmsg_status_t tmsg_map_set_bytes(tmsg_map_t *map, const char *key,
                                          const void *data, size_t bytes);

/* Finds a value. The memory of *value_p belongs to the map and lives until
 * the map next changes, also under another key. Here and below an output may be
 * NULL, to ask whether there is such a key.
 * Errors:
 *   NOT_FOUND - there is no such key
 *   INVALID_PARAM - map or key is NULL */
TMSG_API tmsg_status_t tmsg_map_get_meta(const tmsg_map_t *map, const char *key,
                                         tmsg_meta_t *value_p);

/* Find a value of one type. Their memory lives as long as for
 * tmsg_map_get_meta(). A string that holds a NUL is no C string: these refuse
 * it, and tmsg_map_get_meta() gives it.
 * Errors:
 *   NOT_FOUND - there is no such key
 *   INVALID_PARAM - map or key is NULL; the value has another type; a NUL in
 *     the string */
TMSG_API tmsg_status_t tmsg_map_get_bool(const tmsg_map_t *map, const char *key,
                                         int *boolean_p);
TMSG_API tmsg_status_t tmsg_map_get_i64(const tmsg_map_t *map, const char *key,
                                        int64_t *i64_p);
TMSG_API tmsg_status_t tmsg_map_get_f64(const tmsg_map_t *map, const char *key,
                                        double *f64_p);
TMSG_API tmsg_status_t tmsg_map_get_string(const tmsg_map_t *map,
                                           const char *key,
                                           const char **text_p);
TMSG_API tmsg_status_t tmsg_map_get_bytes(const tmsg_map_t *map,
                                          const char *key, const void **data_p,
                                          size_t *bytes_p);

/* Return the number of keys (0 if map is NULL), and give the one at `index` in
 * the order in which they were first set.
 * Errors:
 *   NOT_FOUND - the index is out of range
 *   INVALID_PARAM - map is NULL */
TMSG_API size_t tmsg_map_meta_size(const tmsg_map_t *map);
TMSG_API tmsg_status_t tmsg_map_meta_at(const tmsg_map_t *map, size_t index,
                                        const char **key_p,
                                        tmsg_meta_t *value_p);

/* Removes a key.
 * Errors:
 *   NOT_FOUND - there is no such key
 *   INVALID_PARAM - map or key is NULL
 *   BUSY - the map is being sent */
TMSG_API tmsg_status_t tmsg_map_remove_meta(tmsg_map_t *map, const char *key);

#ifdef __cplusplus
}
#endif

#endif
