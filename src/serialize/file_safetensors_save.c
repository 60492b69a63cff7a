/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <tensormsg/meta.h>

#include "core/error.h"
#include "core/log.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/file_safetensors.h"
#include "serialize/json.h"

#define ALIGNMENT 8 /* alignment of the data, as in the reference code */
#define EXTENT_TEXT_BYTES 20 /* most bytes of an extent and a comma */

/* The data lie in groups, large elements first, so that all tensors are
 * aligned. Within a group, and in the header, tensors are in map order. */
enum { GROUPS = 4 };

static int group_of(const tmsg_map_entry_t *entry)
{
    uint32_t bits = entry->tensor.dtype.bits;

    return bits > 32 ? 0 : bits > 16 ? 1 : bits > 8 ? 2 : 3;
}

/* Returns a value as text, or NULL if text cannot represent it. The result may
 * point to `buffer`. */
static const char *value_text(const tmsg_meta_t *value,
                              char buffer[TMSG_JSON_F64_BYTES])
{
    switch (value->type) {
    case TMSG_META_TYPE_BOOL:
        return value->boolean ? "true" : "false";
    case TMSG_META_TYPE_I64:
        snprintf(buffer, TMSG_JSON_F64_BYTES, "%" PRId64, value->i64);
        return buffer;
    case TMSG_META_TYPE_F64:
        return tmsg_json_f64(value->f64, buffer);
    case TMSG_META_TYPE_STRING:
        return memchr(value->data, '\0', value->bytes) == NULL ? value->data
                                                               : NULL;
    default:
        return NULL;
    }
}

/* Returns whether a key is written. *text_p is its value as text, or NULL. */
static bool is_written(const tmsg_map_meta_entry_t *entry,
                       char buffer[TMSG_JSON_F64_BYTES], const char **text_p)
{
    *text_p = value_text(&entry->value, buffer);
    return *text_p != NULL && !tmsg_safetensors_is_of_file(entry->key);
}

static tmsg_status_t check_saved_metadata(tmsg_file_where_t *where,
                                          const tmsg_map_t *map,
                                          const tmsg_limits_t *limits)
{
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(map);
    uint64_t keys = 0, bytes = 0;

    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        char buffer[TMSG_JSON_F64_BYTES];
        const char *text;

        if (!is_written(&entries[i], buffer, &text)) {
            continue;
        }
        if (entries[i].key_bytes > limits->name_bytes) {
            where->part = TMSG_SAFETENSORS_METADATA;
            where->name = entries[i].key;
            return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                                  "the key has %zu bytes, at most %" PRIu64,
                                  entries[i].key_bytes, limits->name_bytes);
        }
        keys++;
        bytes += entries[i].key_bytes + strlen(text);
    }
    return tmsg_safetensors_check_amount(where, keys, bytes, limits);
}

tmsg_status_t tmsg_safetensors_check(tmsg_file_where_t *where,
                                     const tmsg_map_t *map,
                                     const tmsg_limits_t *limits)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        int64_t shape[TMSG_NDIM_MAX];
        tmsg_tensor_t written;
        tmsg_status_t status;

        where->name = entries[i].name;
        if (strcmp(entries[i].name, TMSG_SAFETENSORS_METADATA) == 0) {
            return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                                  "a .safetensors file keeps that name for "
                                  "its metadata");
        }
        status = tmsg_safetensors_as_written(where, &entries[i].tensor, shape,
                                             &written);
        if (status != TMSG_OK) {
            return status;
        }
        if (!tmsg_safetensors_fills_bytes(&written)) {
            return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                                  "its elements of %u bits do not fill whole "
                                  "bytes, as a .safetensors file wants",
                                  written.dtype.bits);
        }
    }
    where->name = NULL;
    return check_saved_metadata(where, map, limits);
}

/* Holds the header that is being built. cJSON formats one member at a time,
 * because a tree of all members would take ten times the memory of the
 * header. */
typedef struct {
    const tmsg_file_where_t *where;
    char *text;
    size_t bytes, room;
} header_t;

static tmsg_status_t append_text(header_t *header, const char *text,
                                 size_t bytes)
{
    if (bytes >= header->room - header->bytes) {
        size_t room = header->room + header->room / 2 + bytes + 1;
        char *grown = realloc(header->text, room);

        if (grown == NULL) {
            return tmsg_error_memory("a .safetensors header");
        }
        header->text = grown;
        header->room = room;
    }
    memcpy(header->text + header->bytes, text, bytes);
    header->bytes += bytes;
    header->text[header->bytes] = '\0';
    if (header->bytes > TMSG_SAFETENSORS_HEADER_MAX) {
        return tmsg_file_fail(header->where, TMSG_ERR_LIMIT_EXCEEDED,
                              "names, shapes and metadata take a header of "
                              "more than %u bytes",
                              TMSG_SAFETENSORS_HEADER_MAX);
    }
    return TMSG_OK;
}

/* Appends the members of an object, without its brackets, and frees the object.
 * `object` is NULL if there was no memory for it. Errors: NO_MEMORY,
 * LIMIT_EXCEEDED. */
static tmsg_status_t append_members(header_t *header, cJSON *object)
{
    char *text = object == NULL ? NULL : cJSON_PrintUnformatted(object);
    tmsg_status_t status;

    cJSON_Delete(object);
    if (text == NULL) {
        return tmsg_error_memory("a .safetensors header");
    }
    status = append_text(header, ",",
                         header->bytes > 0 &&
                             header->text[header->bytes - 1] != '{');
    if (status == TMSG_OK) {
        status = append_text(header, text + 1, strlen(text) - 2);
    }
    cJSON_free(text);
    return status;
}

static tmsg_status_t append_key(header_t *header, const char *key,
                                const char *text)
{
    cJSON *object = cJSON_CreateObject();

    if (cJSON_AddStringToObject(object, key, text) == NULL) {
        cJSON_Delete(object);
        object = NULL;
    }
    return append_members(header, object);
}

static tmsg_status_t append_metadata(header_t *header, const tmsg_map_t *map)
{
    static const char open[] = "\"" TMSG_SAFETENSORS_METADATA "\":{";
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(map);
    tmsg_status_t status = TMSG_OK;
    bool opened = false;

    for (size_t i = 0; i < tmsg_map_meta_size(map) && status == TMSG_OK; i++) {
        char buffer[TMSG_JSON_F64_BYTES];
        const char *text;
        bool written = is_written(&entries[i], buffer, &text);

        if (text == NULL) {
            tmsg_log(
                TMSG_LOG_WARN,
                "%s: metadata '%s' is not text and was not saved",
                header->where->path,
                tmsg_error_name(entries[i].key, entries[i].key_bytes).text);
        }
        if (!written) {
            continue;
        }
        if (!opened) {
            status = append_text(header, open, strlen(open));
            opened = true;
        }
        if (status == TMSG_OK) {
            status = append_key(header, entries[i].key, text);
        }
    }
    return status == TMSG_OK && opened ? append_text(header, "}", 1) : status;
}

static uint64_t entry_bytes_out(const tmsg_map_entry_t *entry)
{
    return tmsg_tensor_bytes_out(&entry->tensor, entry->bytes);
}

/* Adds the fields of a tensor. Numbers are added as raw text, because cJSON's
 * numbers are doubles, which it prints as 1e+15. */
static bool add_tensor(cJSON *object, const tmsg_tensor_t *tensor,
                       uint64_t offset, uint64_t bytes)
{
    char text[TMSG_NDIM_MAX * EXTENT_TEXT_BYTES + sizeof("[]")] = "[";
    size_t used = 1;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRId64,
                                 i == 0 ? "" : ",", tensor->shape[i]);
    }
    snprintf(text + used, sizeof(text) - used, "]");
    if (object == NULL ||
        cJSON_AddStringToObject(object, "dtype",
                                tmsg_safetensors_name(tensor->dtype)) == NULL ||
        cJSON_AddRawToObject(object, "shape", text) == NULL) {
        return false;
    }
    snprintf(text, sizeof(text), "[%" PRIu64 ",%" PRIu64 "]", offset,
             offset + bytes);
    return cJSON_AddRawToObject(object, "data_offsets", text) != NULL;
}

static tmsg_status_t append_tensor_entry(header_t *header,
                                         const tmsg_map_entry_t *entry,
                                         uint64_t offset)
{
    int64_t shape[TMSG_NDIM_MAX];
    tmsg_tensor_t written;
    tmsg_status_t status = tmsg_safetensors_as_written(
        header->where, &entry->tensor, shape, &written);
    cJSON *object;

    if (status != TMSG_OK) {
        return status;
    }
    object = cJSON_CreateObject();
    if (!add_tensor(cJSON_AddObjectToObject(object, entry->name), &written,
                    offset, entry_bytes_out(entry))) {
        cJSON_Delete(object);
        object = NULL;
    }
    return append_members(header, object);
}

tmsg_status_t tmsg_safetensors_header(const tmsg_file_where_t *where,
                                      const tmsg_map_t *map, char **text_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    header_t header = {.where = where};
    uint64_t offsets[GROUPS + 1] = {0};
    tmsg_status_t status = append_text(&header, "{", 1);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        offsets[group_of(&entries[i]) + 1] += entry_bytes_out(&entries[i]);
    }
    for (int group = 1; group < GROUPS; group++) {
        offsets[group] += offsets[group - 1];
    }
    if (status == TMSG_OK) {
        status = append_metadata(&header, map);
    }
    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        uint64_t *offset = &offsets[group_of(&entries[i])];

        status = append_tensor_entry(&header, &entries[i], *offset);
        *offset += entry_bytes_out(&entries[i]);
    }
    if (status == TMSG_OK) {
        status = append_text(&header, "}", 1);
    }
    if (status != TMSG_OK) {
        free(header.text);
        return status;
    }
    *text_p = header.text;
    return TMSG_OK;
}

static tmsg_status_t write_header(tmsg_file_output_t *output, const char *text)
{
    static const char spaces[ALIGNMENT + 1] = "        ";
    uint64_t bytes = strlen(text);
    uint64_t padding = (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
    uint8_t prefix[8];
    tmsg_status_t status;

    for (int i = 0; i < 8; i++) {
        prefix[i] = (uint8_t)((bytes + padding) >> 8 * i);
    }
    status = tmsg_file_write(output, prefix, sizeof(prefix));
    if (status == TMSG_OK) {
        status = tmsg_file_write(output, text, bytes);
    }
    if (status == TMSG_OK) {
        status = tmsg_file_write(output, spaces, padding);
    }
    return status;
}

tmsg_status_t tmsg_safetensors_save(tmsg_file_output_t *output,
                                    const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    char *header;
    tmsg_status_t status =
        tmsg_safetensors_header(&output->where, map, &header);

    if (status != TMSG_OK) {
        return status;
    }
    status = write_header(output, header);
    free(header);
    for (int group = 0; group < GROUPS; group++) {
        for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
            if (group_of(&entries[i]) == group) {
                status = tmsg_file_write_tensor(output, &entries[i].tensor);
            }
        }
    }
    return status;
}
