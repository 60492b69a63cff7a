/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/json.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/json.h>

#include "core/error.h"
#include "core/map.h"

#define EXACT_MAX (1LL << 53)
#define BASE64 sodium_base64_VARIANT_ORIGINAL

void tmsg_string_free(char *text) { free(text); }

bool tmsg_json_add(cJSON *parent, const char *key, cJSON *item)
{
    bool added = item != NULL &&
                 (key == NULL ? cJSON_AddItemToArray(parent, item)
                              : cJSON_AddItemToObject(parent, key, item));

    if (!added) {
        cJSON_Delete(item);
    }
    return added;
}

/* cJSON keeps numbers as doubles, and prints 15 digits if these are nearly
 * equal. Integers are therefore added as raw text. */
cJSON *tmsg_json_integer(int64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRId64, value);
    return value > EXACT_MAX || value < -EXACT_MAX ? cJSON_CreateString(text)
                                                   : cJSON_CreateRaw(text);
}

const char *tmsg_json_quote(uint64_t value)
{
    return value > EXACT_MAX ? "\"" : "";
}

cJSON *tmsg_json_unsigned(uint64_t value)
{
    char text[32];

    if (value <= INT64_MAX) {
        return tmsg_json_integer((int64_t)value);
    }
    snprintf(text, sizeof(text), "%" PRIu64, value);
    return cJSON_CreateString(text);
}

const char *tmsg_json_f64(double value, char text[TMSG_JSON_F64_BYTES])
{
    const char *point = localeconv()->decimal_point;
    char *at;

    if (!isfinite(value)) {
        return isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, TMSG_JSON_F64_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    at = strstr(text, point);
    if (at != NULL) {
        *at = '.';
        memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
    }
    if (strpbrk(text, ".e") == NULL) {
        strcat(text, ".0"); /* 1 would be read as an integer */
    }
    return text;
}

static cJSON *json_number(double value)
{
    char buffer[TMSG_JSON_F64_BYTES];
    const char *text = tmsg_json_f64(value, buffer);

    return isfinite(value) ? cJSON_CreateRaw(text) : cJSON_CreateString(text);
}

/* Creates a string. cJSON's strings end at the first NUL, so a string that
 * contains NUL is escaped here. */
static cJSON *json_text(const char *text, size_t bytes)
{
    char *escaped, *to;
    cJSON *item;

    if (memchr(text, '\0', bytes) == NULL) {
        return cJSON_CreateString(text);
    }
    to = escaped = malloc(bytes * 6 + 3);
    if (escaped == NULL) {
        return NULL;
    }
    *to++ = '"';
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];

        if (byte < 0x20 || byte == '"' || byte == '\\') {
            to += sprintf(to, "\\u%04x", byte);
        } else {
            *to++ = (char)byte;
        }
    }
    memcpy(to, "\"", 2);
    item = cJSON_CreateRaw(escaped);
    free(escaped);
    return item;
}

cJSON *tmsg_json_base64(const void *data, size_t bytes)
{
    size_t size = sodium_base64_encoded_len(bytes, BASE64);
    char *text = malloc(size);
    cJSON *item = NULL;

    if (text != NULL) {
        sodium_bin2base64(text, size, data, bytes, BASE64);
        item = cJSON_CreateString(text);
    }
    free(text);
    return item;
}

/* Prints an object on one line, behind `indent`, and frees it. cJSON alone
 * would use many lines. Returns NULL if `complete` is false or memory is
 * lacking. */
static cJSON *json_row(cJSON *object, bool complete, const char *indent)
{
    char *printed = complete ? cJSON_PrintUnformatted(object) : NULL;
    size_t size = printed == NULL ? 0 : strlen(indent) + strlen(printed) + 1;
    char *text = printed == NULL ? NULL : malloc(size);
    cJSON *row = NULL;

    if (text != NULL) {
        snprintf(text, size, "%s%s", indent, printed);
        row = cJSON_CreateRaw(text);
    }
    free(text);
    cJSON_free(printed);
    cJSON_Delete(object);
    return row;
}

static cJSON *json_extents(const int64_t *extents, int32_t count)
{
    cJSON *array = cJSON_CreateArray();
    bool complete = array != NULL;

    for (int32_t i = 0; i < count && complete; i++) {
        complete = tmsg_json_add(array, NULL, tmsg_json_integer(extents[i]));
    }
    if (!complete) {
        cJSON_Delete(array);
        return NULL;
    }
    return array;
}

static cJSON *json_tensor(const tmsg_map_entry_t *entry)
{
    const tmsg_map_entry_t shown = tmsg_map_shown(entry);
    const tmsg_tensor_t *tensor = &shown.tensor;
    char dtype[TMSG_DTYPE_NAME_MAX], device[TMSG_DEVICE_NAME_MAX];
    cJSON *object = cJSON_CreateObject();
    bool complete = object != NULL;

    tmsg_dtype_format(tensor->dtype, dtype, sizeof(dtype));
    complete = complete &&
               tmsg_json_add(object, "name", cJSON_CreateString(entry->name));
    complete =
        complete && tmsg_json_add(object, "dtype", cJSON_CreateString(dtype));
    complete =
        complete && tmsg_json_add(object, "shape",
                                  json_extents(tensor->shape, tensor->ndim));
    if (tensor->strides != NULL) {
        complete = complete &&
                   tmsg_json_add(object, "strides",
                                 json_extents(tensor->strides, tensor->ndim));
    }
    if (tmsg_map_view(entry) != NULL) {
        complete = complete && tmsg_json_add(object, "encoding",
                                             cJSON_CreateString("span"));
    }
    tmsg_device_format(tensor->device, device, sizeof(device));
    complete =
        complete && tmsg_json_add(object, "device", cJSON_CreateString(device));
    complete = complete &&
               tmsg_json_add(object, "bytes", tmsg_json_unsigned(entry->bytes));
    return json_row(object, complete, "\n\t\t");
}

static cJSON *json_value(const tmsg_meta_t *value)
{
    switch (value->type) {
    case TMSG_META_TYPE_BOOL:
        return cJSON_CreateBool(value->boolean != 0);
    case TMSG_META_TYPE_I64:
        return tmsg_json_integer(value->i64);
    case TMSG_META_TYPE_F64:
        return json_number(value->f64);
    case TMSG_META_TYPE_STRING:
        return json_text(value->data, value->bytes);
    default:
        return tmsg_json_base64(value->data, value->bytes);
    }
}

/* Creates an object such as {"i64":7}. The key says the type, which the value
 * alone does not say. */
static cJSON *json_typed(const tmsg_meta_t *value)
{
    static const char *const types[] = {
        [TMSG_META_TYPE_BOOL] = "bool",   [TMSG_META_TYPE_I64] = "i64",
        [TMSG_META_TYPE_F64] = "f64",     [TMSG_META_TYPE_STRING] = "string",
        [TMSG_META_TYPE_BYTES] = "bytes",
    };
    cJSON *object = cJSON_CreateObject();
    bool complete = object != NULL && tmsg_json_add(object, types[value->type],
                                                    json_value(value));

    return json_row(object, complete, "");
}

bool tmsg_json_add_tensors(cJSON *object, const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    cJSON *tensors = cJSON_AddArrayToObject(object, "tensors");
    bool complete = tensors != NULL;

    for (size_t i = 0; i < tmsg_map_size(map) && complete; i++) {
        complete = tmsg_json_add(tensors, NULL, json_tensor(&entries[i]));
    }
    return complete;
}

bool tmsg_json_add_metadata(cJSON *object, const tmsg_map_t *map)
{
    const tmsg_map_meta_entry_t *keys = tmsg_map_meta_entries(map);
    cJSON *metadata = cJSON_AddObjectToObject(object, "metadata");
    bool complete = metadata != NULL;

    for (size_t i = 0; i < tmsg_map_meta_size(map) && complete; i++) {
        complete =
            tmsg_json_add(metadata, keys[i].key, json_typed(&keys[i].value));
    }
    return complete;
}

tmsg_status_t tmsg_json_finish(cJSON *object, bool complete, char **json_p)
{
    char *printed = complete ? cJSON_Print(object) : NULL;
    /* The caller frees the text with free(), but somebody may have set another
     * allocator for cJSON. So the text is copied. */
    char *text = printed == NULL ? NULL : strdup(printed);

    cJSON_free(printed);
    cJSON_Delete(object);
    if (text == NULL) {
        return tmsg_error_memory("JSON");
    }
    *json_p = text;
    return TMSG_OK;
}

tmsg_status_t tmsg_map_to_json(const tmsg_map_t *map, char **json_p)
{
    cJSON *object;
    bool complete;

    if (map == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "map is NULL");
    }
    object = cJSON_CreateObject();
    complete = object != NULL && tmsg_json_add_tensors(object, map) &&
               tmsg_json_add_metadata(object, map);
    return tmsg_json_finish(object, complete, json_p);
}
