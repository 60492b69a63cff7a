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

#define ALIGNMENT 8          /* of the data in the file, as the original's */
#define EXTENT_TEXT_BYTES 20 /* of an int64 and a comma */

/* Data lie in groups, large elements first, so that all are aligned; within a
 * group, and in the header, the order is the map's. */
enum { GROUPS = 4 };

static int group_of(const tmsg_map_entry_t *entry)
{
    uint32_t bits = entry->tensor.dtype.bits;

    return bits > 32 ? 0 : bits > 16 ? 1 : bits > 8 ? 2 : 3;
}

tmsg_status_t tmsg_safetensors_check(tmsg_file_where_t *where,
                                     const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const tmsg_tensor_t *tensor = &entries[i].tensor;

        where->name = entries[i].name;
        if (strcmp(entries[i].name, TMSG_SAFETENSORS_METADATA) == 0) {
            return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                                  "a .safetensors file keeps that name for "
                                  "its metadata");
        }
        if (!tmsg_safetensors_fills_bytes(tensor)) {
            return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                                  "its elements of %u bits do not fill whole "
                                  "bytes, as a .safetensors file wants",
                                  tensor->dtype.bits);
        }
    }
    where->name = NULL;
    return TMSG_OK;
}

/* A value as text, NULL where text cannot hold it. */
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

static bool add_metadata(cJSON *object, const tmsg_file_where_t *where,
                         const tmsg_map_t *map)
{
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(map);

    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        char buffer[TMSG_JSON_F64_BYTES];
        const char *text = value_text(&entries[i].value, buffer);

        if (tmsg_safetensors_is_of_file(entries[i].key)) {
            continue; /* the file has its name and format already */
        }
        if (text == NULL) {
            tmsg_log(
                TMSG_LOG_WARN, "%s: metadata '%s' is not text and stays behind",
                where->path,
                tmsg_error_name(entries[i].key, entries[i].key_bytes).text);
            continue;
        }
        if (cJSON_AddStringToObject(object, entries[i].key, text) == NULL) {
            return false;
        }
    }
    return true;
}

static uint64_t bytes_of(const tmsg_map_entry_t *entry)
{
    return tmsg_tensor_bytes_out(&entry->tensor, entry->bytes);
}

/* Numbers go in raw: cJSON's are doubles and become 1e+15. */
static bool add_tensor(cJSON *root, const tmsg_map_entry_t *entry,
                       uint64_t offset)
{
    const tmsg_tensor_t *tensor = &entry->tensor;
    char text[TMSG_NDIM_MAX * EXTENT_TEXT_BYTES + sizeof("[]")] = "[";
    size_t used = 1;
    cJSON *object = cJSON_AddObjectToObject(root, entry->name);

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
             offset + bytes_of(entry));
    return cJSON_AddRawToObject(object, "data_offsets", text) != NULL;
}

char *tmsg_safetensors_header(const tmsg_file_where_t *where,
                              const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);
    cJSON *root = cJSON_CreateObject();
    cJSON *metadata = cJSON_AddObjectToObject(root, TMSG_SAFETENSORS_METADATA);
    bool whole = metadata != NULL && add_metadata(metadata, where, map);
    uint64_t offsets[GROUPS + 1] = {0};
    char *text = NULL;

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        offsets[group_of(&entries[i]) + 1] += bytes_of(&entries[i]);
    }
    for (int group = 1; group < GROUPS; group++) {
        offsets[group] += offsets[group - 1];
    }
    if (whole && metadata->child == NULL) {
        cJSON_Delete(cJSON_DetachItemViaPointer(root, metadata));
    }
    for (size_t i = 0; i < tmsg_map_size(map) && whole; i++) {
        uint64_t *offset = &offsets[group_of(&entries[i])];

        whole = add_tensor(root, &entries[i], *offset);
        *offset += bytes_of(&entries[i]);
    }
    if (whole) {
        text = cJSON_PrintUnformatted(root);
    }
    cJSON_Delete(root);
    return text;
}

static tmsg_status_t write_header(tmsg_file_output_t *output, const char *text)
{
    static const char spaces[ALIGNMENT + 1] = "        ";
    uint64_t bytes = strlen(text);
    uint64_t padding = (ALIGNMENT - bytes % ALIGNMENT) % ALIGNMENT;
    uint8_t prefix[8];
    tmsg_status_t status;

    if (bytes + padding > TMSG_SAFETENSORS_HEADER_MAX) {
        return tmsg_file_fail(&output->where, TMSG_ERR_LIMIT_EXCEEDED,
                              "names, shapes and metadata take a header of "
                              "%" PRIu64 " bytes, at most %u",
                              bytes, TMSG_SAFETENSORS_HEADER_MAX);
    }
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
    char *header = tmsg_safetensors_header(&output->where, map);
    tmsg_status_t status;

    if (header == NULL) {
        return tmsg_error_memory("a .safetensors header");
    }
    status = write_header(output, header);
    cJSON_free(header);
    for (int group = 0; group < GROUPS; group++) {
        for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
            if (group_of(&entries[i]) == group) {
                status = tmsg_file_write_tensor(output, &entries[i].tensor);
            }
        }
    }
    return status;
}
