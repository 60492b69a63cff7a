/* SPDX-License-Identifier: BSD-3-Clause */
#include <tensormsg/meta.h>

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/map_struct.h"
#include "core/utf8.h"

#define PREFIX "tensormsg."

static const struct {
    const char *key;
    tmsg_meta_type_t type;
} reserved[] = {
    {TMSG_META_SEQUENCE, TMSG_META_TYPE_I64},
    {TMSG_META_FRAME, TMSG_META_TYPE_I64},
    {TMSG_META_ACQUIRED, TMSG_META_TYPE_I64},
    {TMSG_META_PUBLISHED, TMSG_META_TYPE_I64},
    {TMSG_META_TRACE_PARENT, TMSG_META_TYPE_STRING},
    {TMSG_META_TRACE_STATE, TMSG_META_TYPE_STRING},
    {TMSG_META_FILE_NAME, TMSG_META_TYPE_STRING},
    {TMSG_META_FILE_FORMAT, TMSG_META_TYPE_STRING},
    {TMSG_META_UCXX_HEADER, TMSG_META_TYPE_BYTES},
    {TMSG_META_OFFER_EPOCH, TMSG_META_TYPE_I64},
    {TMSG_META_OFFER_VERSION, TMSG_META_TYPE_I64},
};

static const char *const type_names[] = {"none", "bool",   "i64",
                                         "f64",  "string", "bytes"};

int32_t tmsg_meta_reserved(const char *key, size_t key_bytes)
{
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
        if (strlen(reserved[i].key) == key_bytes &&
            memcmp(reserved[i].key, key, key_bytes) == 0) {
            return reserved[i].type;
        }
    }
    return 0;
}

static bool is_sized(int32_t type)
{
    return type == TMSG_META_TYPE_STRING || type == TMSG_META_TYPE_BYTES;
}

/* Puts the key in front of what is wrong with it or its value. */
__attribute__((format(printf, 3, 4))) static tmsg_status_t
refuse_meta(const char *key, size_t key_bytes, const char *format, ...)
{
    char text[TMSG_ERROR_BYTES / 2];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "key '%s': %s",
                          tmsg_error_name(key, key_bytes).text, text);
}

static tmsg_status_t check_value(const char *key, size_t key_bytes,
                                 const tmsg_meta_t *value)
{
    int32_t reserved_type = tmsg_meta_reserved(key, key_bytes);

    if (value->type < TMSG_META_TYPE_BOOL ||
        value->type > TMSG_META_TYPE_BYTES) {
        return refuse_meta(key, key_bytes, "unknown type %d", value->type);
    }
    if (reserved_type != 0 && reserved_type != value->type) {
        return refuse_meta(key, key_bytes, "takes %s, not %s",
                           type_names[reserved_type], type_names[value->type]);
    }
    if (is_sized(value->type) && value->data == NULL && value->bytes != 0) {
        return refuse_meta(key, key_bytes, "data is NULL");
    }
    if (value->type == TMSG_META_TYPE_STRING &&
        !tmsg_utf8_valid(value->data, value->bytes)) {
        return refuse_meta(key, key_bytes, "the string is not UTF-8");
    }
    return TMSG_OK;
}

/* Copies a value: only the field that its type names, and its data. */
static tmsg_status_t adopt_value(tmsg_map_t *map, const tmsg_meta_t *value,
                                 tmsg_meta_t *copy)
{
    *copy = (tmsg_meta_t){.type = value->type};
    switch (value->type) {
    case TMSG_META_TYPE_BOOL:
        copy->boolean = value->boolean != 0;
        return TMSG_OK;
    case TMSG_META_TYPE_I64:
        copy->i64 = value->i64;
        return TMSG_OK;
    case TMSG_META_TYPE_F64:
        copy->f64 = value->f64;
        return TMSG_OK;
    default:
        copy->bytes = value->bytes;
        copy->data = tmsg_map_copy(map, value->data, value->bytes);
        return copy->data == NULL ? tmsg_error_memory("a metadata value")
                                  : TMSG_OK;
    }
}

/* Returns what a value takes of the arena. */
static size_t value_size(const tmsg_meta_t *value)
{
    return value->data == NULL ? 0 : tmsg_arena_size(value->bytes + 1);
}

static tmsg_names_t names_of_meta(const tmsg_map_t *map)
{
    return (tmsg_names_t){map->meta, sizeof(*map->meta), map->meta_size};
}

static size_t find_meta_key(const tmsg_map_t *map, const char *key,
                            size_t key_bytes)
{
    tmsg_names_t names = names_of_meta(map);

    return tmsg_index_find(&map->meta_index, &names, key, key_bytes);
}

static tmsg_status_t append_meta(tmsg_map_t *map, const char *key,
                                 size_t key_bytes, const tmsg_meta_t *value)
{
    tmsg_map_meta_entry_t *entry;
    tmsg_names_t names;
    tmsg_status_t status;

    entry = tmsg_map_grow(map->meta, &map->meta_capacity, map->meta_size,
                          sizeof(*map->meta));
    if (entry == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    map->meta = entry;
    entry = &map->meta[map->meta_size];
    entry->key = tmsg_map_copy(map, key, key_bytes);
    entry->key_bytes = key_bytes;
    if (entry->key == NULL) {
        return tmsg_error_memory("a metadata key");
    }
    status = adopt_value(map, value, &entry->value);
    if (status != TMSG_OK) {
        return status;
    }
    map->meta_size++;
    names = names_of_meta(map);
    status = tmsg_index_add(&map->meta_index, &names);
    if (status != TMSG_OK) {
        map->meta_size--;
    }
    return status;
}

tmsg_status_t tmsg_map_append_meta(tmsg_map_t *map, const char *key,
                                   size_t key_bytes, const tmsg_meta_t *value)
{
    tmsg_status_t status;

    if (key_bytes == 0 || !tmsg_utf8_valid(key, key_bytes) ||
        memchr(key, '\0', key_bytes) != NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "metadata %zu: key is not UTF-8 without NUL",
                              map->meta_size);
    }
    if (find_meta_key(map, key, key_bytes) != TMSG_INDEX_NONE) {
        return tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                              "the map has a key '%s' already",
                              tmsg_error_name(key, key_bytes).text);
    }
    status = check_value(key, key_bytes, value);
    return status != TMSG_OK ? status : append_meta(map, key, key_bytes, value);
}

tmsg_status_t tmsg_map_set_meta(tmsg_map_t *map, const char *key,
                                const tmsg_meta_t *value)
{
    size_t key_bytes, index, wasted;
    tmsg_meta_t copy, *old;
    tmsg_status_t status = tmsg_map_check_idle(map);

    if (status != TMSG_OK) {
        return status;
    }
    if (key == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "key is NULL");
    }
    key_bytes = strlen(key);
    status = tmsg_map_check_name("key", key, key_bytes);
    if (status == TMSG_OK && value == NULL) {
        return refuse_meta(key, key_bytes, "the value is NULL");
    }
    if (status == TMSG_OK) {
        status = check_value(key, key_bytes, value);
    }
    if (status != TMSG_OK) {
        return status;
    }
    if (strncmp(key, PREFIX, strlen(PREFIX)) == 0 &&
        tmsg_meta_reserved(key, key_bytes) == 0) {
        return refuse_meta(key, key_bytes,
                           "the prefix '" PREFIX "' is reserved");
    }
    index = find_meta_key(map, key, key_bytes);
    if (index == TMSG_INDEX_NONE) {
        return append_meta(map, key, key_bytes, value);
    }
    status = adopt_value(map, value, &copy);
    if (status != TMSG_OK) {
        return status;
    }
    old = &map->meta[index].value;
    wasted = value_size(old);
    *old = copy;
    tmsg_map_waste(map, wasted);
    return TMSG_OK;
}

tmsg_status_t tmsg_map_set_bool(tmsg_map_t *map, const char *key, int boolean)
{
    tmsg_meta_t value = {.type = TMSG_META_TYPE_BOOL, .boolean = boolean};

    return tmsg_map_set_meta(map, key, &value);
}

tmsg_status_t tmsg_map_set_i64(tmsg_map_t *map, const char *key, int64_t i64)
{
    tmsg_meta_t value = {.type = TMSG_META_TYPE_I64, .i64 = i64};

    return tmsg_map_set_meta(map, key, &value);
}

tmsg_status_t tmsg_map_set_f64(tmsg_map_t *map, const char *key, double f64)
{
    tmsg_meta_t value = {.type = TMSG_META_TYPE_F64, .f64 = f64};

    return tmsg_map_set_meta(map, key, &value);
}

tmsg_status_t tmsg_map_set_string(tmsg_map_t *map, const char *key,
                                  const char *text)
{
    tmsg_meta_t value = {.type = TMSG_META_TYPE_STRING,
                         .data = text,
                         .bytes = text == NULL ? 1 : strlen(text)};

    return tmsg_map_set_meta(map, key, &value);
}

tmsg_status_t tmsg_map_set_bytes(tmsg_map_t *map, const char *key,
                                 const void *data, size_t bytes)
{
    tmsg_meta_t value = {
        .type = TMSG_META_TYPE_BYTES, .data = data, .bytes = bytes};

    return tmsg_map_set_meta(map, key, &value);
}

/* Finds a key as find_meta_key() does, for a caller's key. Errors:
 * INVALID_PARAM, NOT_FOUND. */
static tmsg_status_t find_key(const tmsg_map_t *map, const char *key,
                              size_t *index_p)
{
    if (map == NULL) {
        return tmsg_map_check_given(map);
    }
    if (key == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "key is NULL");
    }
    *index_p = find_meta_key(map, key, strlen(key));
    if (*index_p == TMSG_INDEX_NONE) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND, "no key '%s' in the metadata",
                              tmsg_error_name(key, strlen(key)).text);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_map_get_meta(const tmsg_map_t *map, const char *key,
                                tmsg_meta_t *value_p)
{
    size_t index;
    tmsg_status_t status = find_key(map, key, &index);

    if (status == TMSG_OK && value_p != NULL) {
        *value_p = map->meta[index].value;
    }
    return status;
}

static tmsg_status_t get_typed(const tmsg_map_t *map, const char *key,
                               tmsg_meta_type_t type, tmsg_meta_t *value)
{
    tmsg_status_t status = tmsg_map_get_meta(map, key, value);

    if (status == TMSG_OK && value->type != (int32_t)type) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "key '%s' holds %s, not %s",
                              tmsg_error_name(key, strlen(key)).text,
                              type_names[value->type], type_names[type]);
    }
    return status;
}

tmsg_status_t tmsg_map_get_bool(const tmsg_map_t *map, const char *key,
                                int *boolean_p)
{
    tmsg_meta_t value;
    tmsg_status_t status = get_typed(map, key, TMSG_META_TYPE_BOOL, &value);

    if (status == TMSG_OK && boolean_p != NULL) {
        *boolean_p = value.boolean;
    }
    return status;
}

tmsg_status_t tmsg_map_get_i64(const tmsg_map_t *map, const char *key,
                               int64_t *i64_p)
{
    tmsg_meta_t value;
    tmsg_status_t status = get_typed(map, key, TMSG_META_TYPE_I64, &value);

    if (status == TMSG_OK && i64_p != NULL) {
        *i64_p = value.i64;
    }
    return status;
}

tmsg_status_t tmsg_map_get_f64(const tmsg_map_t *map, const char *key,
                               double *f64_p)
{
    tmsg_meta_t value;
    tmsg_status_t status = get_typed(map, key, TMSG_META_TYPE_F64, &value);

    if (status == TMSG_OK && f64_p != NULL) {
        *f64_p = value.f64;
    }
    return status;
}

tmsg_status_t tmsg_map_get_string(const tmsg_map_t *map, const char *key,
                                  const char **text_p)
{
    tmsg_meta_t value;
    tmsg_status_t status = get_typed(map, key, TMSG_META_TYPE_STRING, &value);

    if (status == TMSG_OK && memchr(value.data, '\0', value.bytes) != NULL) {
        return refuse_meta(key, strlen(key), "the string holds a NUL");
    }
    if (status == TMSG_OK && text_p != NULL) {
        *text_p = value.data;
    }
    return status;
}

tmsg_status_t tmsg_map_get_bytes(const tmsg_map_t *map, const char *key,
                                 const void **data_p, size_t *bytes_p)
{
    tmsg_meta_t value;
    tmsg_status_t status = get_typed(map, key, TMSG_META_TYPE_BYTES, &value);

    if (status == TMSG_OK && data_p != NULL) {
        *data_p = value.data;
    }
    if (status == TMSG_OK && bytes_p != NULL) {
        *bytes_p = value.bytes;
    }
    return status;
}

size_t tmsg_map_meta_size(const tmsg_map_t *map)
{
    return map == NULL ? 0 : map->meta_size;
}

const tmsg_map_meta_entry_t *tmsg_map_meta_entries(const tmsg_map_t *map)
{
    return map->meta;
}

bool tmsg_map_meta_has(const tmsg_map_t *map, const tmsg_map_meta_entry_t *key)
{
    return map != NULL &&
           find_meta_key(map, key->key, key->key_bytes) != TMSG_INDEX_NONE;
}

tmsg_status_t tmsg_map_meta_at(const tmsg_map_t *map, size_t index,
                               const char **key_p, tmsg_meta_t *value_p)
{
    if (map == NULL) {
        return tmsg_map_check_given(map);
    }
    if (index >= map->meta_size) {
        return tmsg_error_set(
            TMSG_ERR_NOT_FOUND,
            "key index %zu is out of range: the map has %zu keys", index,
            map->meta_size);
    }
    if (key_p != NULL) {
        *key_p = map->meta[index].key;
    }
    if (value_p != NULL) {
        *value_p = map->meta[index].value;
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_map_remove_meta(tmsg_map_t *map, const char *key)
{
    size_t index, wasted;
    tmsg_names_t names;
    tmsg_status_t status = tmsg_map_check_idle(map);

    if (status == TMSG_OK) {
        status = find_key(map, key, &index);
    }
    if (status != TMSG_OK) {
        return status;
    }
    wasted = tmsg_arena_size(map->meta[index].key_bytes + 1) +
             value_size(&map->meta[index].value);
    map->meta_size--;
    memmove(map->meta + index, map->meta + index + 1,
            (map->meta_size - index) * sizeof(*map->meta));
    names = names_of_meta(map);
    tmsg_index_remove(&map->meta_index, &names, index);
    tmsg_map_waste(map, wasted);
    return TMSG_OK;
}
