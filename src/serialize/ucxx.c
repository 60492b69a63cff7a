/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/ucxx.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include <tensormsg/meta.h>

#include "core/error.h"
#include "core/json_read.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/json.h"

/* A header without callback and user header has these bytes: memory type
 * (u32), flag of the callback (u8), policy (u8) and length of the user header
 * (u64). */
#define FIXED_BYTES 14
#define HAS_CALLBACK_AT 4
#define CALLBACK_BYTES (64 + 8) /* owner and id of a callback */
#define POLICY_MOST 1
#define EXACT_MAX 9007199254740992.0 /* 2^53; cJSON rounds larger numbers */

static tmsg_status_t malformed_ucxx_header(const char *why)
{
    return tmsg_error_set(TMSG_ERR_MALFORMED, "UCXX header: %s", why);
}

/* UCXX writes integers in host byte order. UCX connects only machines with the
 * same byte order, so nothing here converts them. */
size_t tmsg_ucxx_encode(const tmsg_ucxx_header_t *header, void *buffer,
                        size_t bound)
{
    size_t needed = FIXED_BYTES + header->user_bytes;
    uint64_t user_bytes = header->user_bytes;
    uint8_t *to = buffer;

    if (needed > bound) {
        return needed;
    }
    memcpy(to, &header->memory_type, 4);
    to[HAS_CALLBACK_AT] = 0;
    to[HAS_CALLBACK_AT + 1] = header->policy;
    memcpy(to + HAS_CALLBACK_AT + 2, &user_bytes, 8);
    if (user_bytes > 0) {
        memcpy(to + FIXED_BYTES, header->user, user_bytes);
    }
    return needed;
}

/* Reads the length of the user header, then the user header. */
static tmsg_status_t decode_user(const uint8_t *from, size_t left,
                                 tmsg_ucxx_header_t *header)
{
    uint64_t length;

    if (left < sizeof(length)) {
        return malformed_ucxx_header(
            "it ends inside the length of the user header");
    }
    memcpy(&length, from, sizeof(length));
    if (length > left - sizeof(length)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "UCXX header: a user header of %" PRIu64
                              " bytes, of which %zu are there",
                              length, left - sizeof(length));
    }
    header->user = from + sizeof(length);
    header->user_bytes = (size_t)length;
    return TMSG_OK;
}

tmsg_status_t tmsg_ucxx_decode(const void *bytes, size_t count,
                               tmsg_ucxx_header_t *header_p)
{
    const uint8_t *from = bytes;
    size_t at = HAS_CALLBACK_AT + 1;
    tmsg_ucxx_header_t header = {.user = NULL};
    tmsg_status_t status = TMSG_OK;

    if (count < at) {
        return malformed_ucxx_header("it ends before the flag of the callback");
    }
    if (from[HAS_CALLBACK_AT] > 1) {
        return malformed_ucxx_header(
            "the flag of the callback is neither 0 nor 1");
    }
    if (from[HAS_CALLBACK_AT] == 1) {
        at += CALLBACK_BYTES;
    }
    if (count < at) {
        return malformed_ucxx_header("it ends inside the callback");
    }
    memcpy(&header.memory_type, from, sizeof(header.memory_type));
    if (count > at) {
        header.policy = from[at++];
    }
    if (header.policy > POLICY_MOST) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "UCXX header: policy %u is neither 0 nor 1",
                              header.policy);
    }
    if (count > at) {
        status = decode_user(from + at, count - at, &header);
    }
    if (status == TMSG_OK) {
        *header_p = header;
    }
    return status;
}

/* Holds the members of a user header that describe a tensor. */
typedef struct {
    const cJSON *dtype;
    const cJSON *shape;
    const cJSON *name;
    bool twice;
} description_t;

static void note_member(const cJSON **place, const cJSON *item, bool *twice)
{
    *twice = *twice || *place != NULL;
    *place = item;
}

/* Finds the members that describe a tensor. Returns false if the user header
 * describes none. It is then the application's own, and we do not interpret
 * it. */
static bool find_description(const cJSON *root, description_t *found)
{
    const cJSON *item;

    *found = (description_t){.name = NULL};
    if (!cJSON_IsObject(root)) {
        return false;
    }
    cJSON_ArrayForEach(item, root)
    {
        if (strcmp(item->string, "dtype") == 0) {
            note_member(&found->dtype, item, &found->twice);
        } else if (strcmp(item->string, "shape") == 0) {
            note_member(&found->shape, item, &found->twice);
        } else if (strcmp(item->string, "name") == 0) {
            note_member(&found->name, item, &found->twice);
        }
    }
    return found->dtype != NULL && found->shape != NULL;
}

static tmsg_status_t read_user_extent(const cJSON *item, int32_t index,
                                      int64_t *extent_p)
{
    const char *why = NULL;

    if (!cJSON_IsNumber(item)) {
        why = "is not a number";
    } else if (item->valuedouble < 0) {
        why = "is negative";
    } else if (!(item->valuedouble < EXACT_MAX)) {
        why = "is 2^53 or more";
    } else if (item->valuedouble != (double)(int64_t)item->valuedouble) {
        why = "is not an integer";
    }
    if (why != NULL) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "user header: shape[%d] %s",
                              index, why);
    }
    *extent_p = (int64_t)item->valuedouble;
    return TMSG_OK;
}

static tmsg_status_t read_user_shape(const cJSON *array,
                                     const tmsg_limits_t *limits,
                                     int64_t *shape, int32_t *ndim_p)
{
    uint64_t most = limits->ndim < TMSG_NDIM_MAX ? limits->ndim : TMSG_NDIM_MAX;
    const cJSON *item;
    int32_t ndim = 0;
    tmsg_status_t status = TMSG_OK;

    if (!cJSON_IsArray(array)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "user header: shape is not an array");
    }
    if ((uint64_t)cJSON_GetArraySize(array) > most) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "user header: ndim %d exceeds %" PRIu64,
                              cJSON_GetArraySize(array), most);
    }
    cJSON_ArrayForEach(item, array)
    {
        if (status == TMSG_OK) {
            status = read_user_extent(item, ndim, &shape[ndim]);
        }
        ndim++;
    }
    *ndim_p = ndim;
    return status;
}

static tmsg_status_t read_dtype(const cJSON *item, tmsg_dtype_t *dtype_p)
{
    if (!cJSON_IsString(item)) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "user header: dtype is not a string");
    }
    if (tmsg_dtype_parse(item->valuestring, dtype_p) != TMSG_OK) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED, "user header: unknown dtype '%s'",
            tmsg_error_name(item->valuestring, strlen(item->valuestring)).text);
    }
    return TMSG_OK;
}

static tmsg_status_t read_user_name(const cJSON *item,
                                    const tmsg_limits_t *limits,
                                    const char **name_p)
{
    *name_p = TMSG_UCXX_NAME;
    if (item == NULL) {
        return TMSG_OK;
    }
    if (!cJSON_IsString(item) || item->valuestring[0] == '\0') {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "user header: name is not a string of one "
                              "character or more");
    }
    if (strlen(item->valuestring) > limits->name_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "user header: the name has %zu bytes, at most "
                              "%" PRIu64,
                              strlen(item->valuestring), limits->name_bytes);
    }
    *name_p = item->valuestring;
    return TMSG_OK;
}

static tmsg_status_t append_checked_tensor(tmsg_map_t *map, const char *name,
                                           const tmsg_tensor_t *tensor,
                                           uint64_t payload_bytes)
{
    uint64_t bytes;
    tmsg_status_t status = tmsg_map_append(map, name, strlen(name), tensor);

    if (status != TMSG_OK) {
        return tmsg_error_set(
            status == TMSG_ERR_INVALID_PARAM ? TMSG_ERR_MALFORMED : status,
            "user header: %s", tmsg_error_message());
    }
    bytes = tmsg_map_entries(map)[0].bytes;
    if (bytes != payload_bytes) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "user header: tensor '%s' takes %" PRIu64
                              " bytes, the message has %" PRIu64,
                              tmsg_error_name(name, strlen(name)).text, bytes,
                              payload_bytes);
    }
    return TMSG_OK;
}

static tmsg_status_t append_described(const description_t *found,
                                      uint64_t payload_bytes,
                                      const tmsg_limits_t *limits,
                                      tmsg_map_t *map)
{
    int64_t shape[TMSG_NDIM_MAX];
    tmsg_tensor_t tensor = {.device = {TMSG_DEVICE_CPU, 0}, .shape = shape};
    const char *name;
    tmsg_status_t status = TMSG_OK;

    if (found->twice) {
        status =
            tmsg_error_set(TMSG_ERR_MALFORMED,
                           "user header: dtype, shape or name occurs twice");
    }
    if (status == TMSG_OK) {
        status = read_dtype(found->dtype, &tensor.dtype);
    }
    if (status == TMSG_OK) {
        status = read_user_shape(found->shape, limits, shape, &tensor.ndim);
    }
    if (status == TMSG_OK) {
        status = read_user_name(found->name, limits, &name);
    }
    return status != TMSG_OK
               ? status
               : append_checked_tensor(map, name, &tensor, payload_bytes);
}

static tmsg_status_t append_bytes(uint64_t payload_bytes, tmsg_map_t *map)
{
    int64_t shape[] = {(int64_t)payload_bytes};
    const tmsg_tensor_t tensor = {.device = {TMSG_DEVICE_CPU, 0},
                                  .ndim = 1,
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .shape = shape};

    return append_checked_tensor(map, TMSG_UCXX_NAME, &tensor, payload_bytes);
}

/* Returns whether a user header contains NUL, escaped or not. cJSON cuts
 * strings there. */
static bool holds_nul(const char *text, size_t bytes)
{
    return memchr(text, '\0', bytes) != NULL ||
           tmsg_json_find_nul(text, bytes) != NULL;
}

/* Parses a user header. *root_p is NULL if the header as a whole is not JSON.
 * Errors: NO_MEMORY. */
static tmsg_status_t parse_user_header(const char *text, size_t bytes,
                                       cJSON **root_p)
{
    const char *end = text;

    errno = 0; /* errno alone tells cJSON's two failures apart */
    *root_p =
        bytes == 0 ? NULL : cJSON_ParseWithLengthOpts(text, bytes, &end, 0);
    if (*root_p == NULL) {
        return errno == ENOMEM ? tmsg_error_memory("a user header") : TMSG_OK;
    }
    while (end < text + bytes && strchr(" \t\r\n", *end) != NULL &&
           *end != '\0') {
        end++;
    }
    if (end < text + bytes) {
        cJSON_Delete(*root_p);
        *root_p = NULL;
    }
    return TMSG_OK;
}

static tmsg_status_t append_payload(const tmsg_ucxx_header_t *header,
                                    uint64_t payload_bytes,
                                    const tmsg_limits_t *limits,
                                    tmsg_map_t *map)
{
    cJSON *root;
    description_t found;
    tmsg_status_t status =
        parse_user_header(header->user, header->user_bytes, &root);

    if (status != TMSG_OK) {
        return status;
    }
    if (!find_description(root, &found)) {
        status = append_bytes(payload_bytes, map);
    } else if (holds_nul(header->user, header->user_bytes)) {
        status = tmsg_error_set(TMSG_ERR_MALFORMED,
                                "user header: a string holds NUL");
    } else {
        status = append_described(&found, payload_bytes, limits, map);
    }
    cJSON_Delete(root);
    return status;
}

static tmsg_status_t keep_user(const tmsg_ucxx_header_t *header,
                               const tmsg_limits_t *limits, tmsg_map_t *map)
{
    if (header->user_bytes == 0) {
        return TMSG_OK;
    }
    if (header->user_bytes > limits->metadata_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "user header of %zu bytes, at most %" PRIu64
                              " of metadata",
                              header->user_bytes, limits->metadata_bytes);
    }
    return tmsg_map_set_bytes(map, TMSG_META_UCXX_HEADER, header->user,
                              header->user_bytes);
}

tmsg_status_t tmsg_ucxx_to_map(const tmsg_ucxx_header_t *header,
                               uint64_t payload_bytes,
                               const tmsg_limits_t *limits, tmsg_map_t *map)
{
    tmsg_status_t status;

    if (payload_bytes > limits->message_bytes || payload_bytes > INT64_MAX) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "payload of %" PRIu64 " bytes, at most %" PRIu64
                              " (limit message_bytes)",
                              payload_bytes, limits->message_bytes);
    }
    status = append_payload(header, payload_bytes, limits, map);
    if (status == TMSG_OK) {
        status = keep_user(header, limits, map);
    }
    if (status != TMSG_OK) {
        (void)tmsg_map_clear(map);
    }
    return status;
}

/* Returns JSON that describes a tensor, or NULL if memory is lacking. The
 * caller frees it with cJSON_free(). */
static char *format_description(const tmsg_map_entry_t *entry)
{
    char dtype[TMSG_DTYPE_NAME_MAX];
    cJSON *object = cJSON_CreateObject();
    cJSON *shape;
    char *text = NULL;
    bool ok =
        cJSON_AddStringToObject(object, "name", entry->name) != NULL &&
        cJSON_AddStringToObject(object, "dtype",
                                tmsg_dtype_format(entry->tensor.dtype, dtype,
                                                  sizeof(dtype))) != NULL;

    shape = ok ? cJSON_AddArrayToObject(object, "shape") : NULL;
    for (int32_t i = 0; i < entry->tensor.ndim && shape != NULL; i++) {
        if (!tmsg_json_add(shape, NULL,
                           tmsg_json_integer(entry->tensor.shape[i]))) {
            shape = NULL;
        }
    }
    if (shape != NULL) {
        text = cJSON_PrintUnformatted(object);
    }
    cJSON_Delete(object);
    return text;
}

/* Checks that a map fits into a UCXX message, which has one buffer and the
 * application's header. */
static tmsg_status_t check_ucxx_map(const tmsg_map_t *map)
{
    const tmsg_map_meta_entry_t *meta = tmsg_map_meta_entries(map);

    if (tmsg_map_size(map) != 1) {
        return tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "a map of %zu tensors: a ucx:// endpoint sends maps of one tensor",
            tmsg_map_size(map));
    }
    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        if (strcmp(meta[i].key, TMSG_META_UCXX_HEADER) != 0) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED,
                "metadata '%s': a ucx:// endpoint sends only '%s'",
                tmsg_error_name(meta[i].key, meta[i].key_bytes).text,
                TMSG_META_UCXX_HEADER);
        }
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_ucxx_from_map(const tmsg_map_t *map, uint8_t policy,
                                 uint8_t **header_p, size_t *bytes_p)
{
    tmsg_ucxx_header_t header = {.memory_type = TMSG_UCXX_HOST,
                                 .policy = policy};
    char *text = NULL;
    uint8_t *bytes = NULL;
    tmsg_status_t status = check_ucxx_map(map);

    if (status != TMSG_OK) {
        return status;
    }
    if (tmsg_map_get_bytes(map, TMSG_META_UCXX_HEADER, &header.user,
                           &header.user_bytes) != TMSG_OK) {
        text = format_description(&tmsg_map_entries(map)[0]);
        header.user = text;
        header.user_bytes = text == NULL ? 0 : strlen(text);
    }
    if (header.user != NULL) {
        *bytes_p = tmsg_ucxx_encode(&header, NULL, 0);
        bytes = malloc(*bytes_p);
    }
    if (bytes != NULL) {
        tmsg_ucxx_encode(&header, bytes, *bytes_p);
    }
    cJSON_free(text);
    if (bytes == NULL) {
        return tmsg_error_memory("a UCXX header");
    }
    *header_p = bytes;
    return TMSG_OK;
}
