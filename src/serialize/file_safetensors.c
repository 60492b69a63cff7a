/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/file_safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/file_json.h"

#define PREFIX_BYTES 8               /* the header's length */
#define EXACT_MAX 9007199254740992.0 /* 2^53: beyond it cJSON rounds */

static const struct {
    const char *name;
    tmsg_dtype_t dtype;
} dtypes[] = {
    {"BOOL", {TMSG_DTYPE_BOOL, 8, 1}},
    {"U8", {TMSG_DTYPE_UINT, 8, 1}},
    {"U16", {TMSG_DTYPE_UINT, 16, 1}},
    {"U32", {TMSG_DTYPE_UINT, 32, 1}},
    {"U64", {TMSG_DTYPE_UINT, 64, 1}},
    {"I8", {TMSG_DTYPE_INT, 8, 1}},
    {"I16", {TMSG_DTYPE_INT, 16, 1}},
    {"I32", {TMSG_DTYPE_INT, 32, 1}},
    {"I64", {TMSG_DTYPE_INT, 64, 1}},
    {"F16", {TMSG_DTYPE_FLOAT, 16, 1}},
    {"F32", {TMSG_DTYPE_FLOAT, 32, 1}},
    {"F64", {TMSG_DTYPE_FLOAT, 64, 1}},
    {"BF16", {TMSG_DTYPE_BFLOAT, 16, 1}},
    {"C64", {TMSG_DTYPE_COMPLEX, 64, 1}},
    {"F8_E4M3", {TMSG_DTYPE_FLOAT8_E4M3FN, 8, 1}},
    {"F8_E4M3FNUZ", {TMSG_DTYPE_FLOAT8_E4M3FNUZ, 8, 1}},
    {"F8_E5M2", {TMSG_DTYPE_FLOAT8_E5M2, 8, 1}},
    {"F8_E5M2FNUZ", {TMSG_DTYPE_FLOAT8_E5M2FNUZ, 8, 1}},
    {"F8_E8M0", {TMSG_DTYPE_FLOAT8_E8M0FNU, 8, 1}},
    {"F6_E2M3", {TMSG_DTYPE_FLOAT6_E2M3FN, 6, 1}},
    {"F6_E3M2", {TMSG_DTYPE_FLOAT6_E3M2FN, 6, 1}},
    {"F4", {TMSG_DTYPE_FLOAT4_E2M1FN, 4, 1}},
};

#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

const char *tmsg_safetensors_name(tmsg_dtype_t dtype)
{
    for (size_t i = 0; i < DTYPES; i++) {
        if (dtypes[i].dtype.code == dtype.code &&
            dtypes[i].dtype.bits == dtype.bits) {
            return dtypes[i].name;
        }
    }
    return NULL;
}

bool tmsg_safetensors_dtype(const char *name, tmsg_dtype_t *dtype_p)
{
    for (size_t i = 0; i < DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *dtype_p = dtypes[i].dtype;
            return true;
        }
    }
    return false;
}

static bool holds(tmsg_dtype_t dtype)
{
    return tmsg_safetensors_name(dtype) != NULL;
}

bool tmsg_safetensors_fills_bytes(const tmsg_tensor_t *tensor)
{
    uint64_t bits = tensor->dtype.bits;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        bits *= (uint64_t)tensor->shape[i]; /* modulo 8 is enough */
    }
    return bits % 8 == 0;
}

bool tmsg_safetensors_is_of_file(const char *key)
{
    return strncmp(key, "tensormsg.file.", 15) == 0;
}

/* Where a tensor says that its bytes are. */
typedef struct {
    uint64_t begin, end;
    const char *name;
} span_t;

typedef struct {
    tmsg_file_input_t *input;
    uint8_t *data;
    uint64_t data_bytes;
    span_t *spans;
    size_t tensors;
    const cJSON *metadata;
} reader_t;

static tmsg_status_t malformed(const reader_t *reader, const char *what)
{
    return tmsg_file_fail(&reader->input->where, TMSG_ERR_MALFORMED, "%s",
                          what);
}

static tmsg_error_name_t shown(const char *text)
{
    return tmsg_error_name(text, strlen(text));
}

/* All values are text; those of reserved keys get their type back. */
static tmsg_status_t read_value(const reader_t *reader, const cJSON *item,
                                tmsg_meta_t *value)
{
    char *end;

    if (!cJSON_IsString(item)) {
        return malformed(reader, "is not a string");
    }
    *value = (tmsg_meta_t){.type = TMSG_META_TYPE_STRING,
                           .data = item->valuestring,
                           .bytes = strlen(item->valuestring)};
    if (tmsg_meta_reserved(item->string, strlen(item->string)) !=
        TMSG_META_TYPE_I64) {
        return TMSG_OK;
    }
    if (*value->data != '-' && (*value->data < '0' || *value->data > '9')) {
        return malformed(reader, "is not a 64-bit integer"); /* " +7" */
    }
    errno = 0;
    value->type = TMSG_META_TYPE_I64;
    value->i64 = strtoll(value->data, &end, 10);
    return *end == '\0' && errno == 0
               ? TMSG_OK
               : malformed(reader, "is not a 64-bit integer");
}

static tmsg_status_t add_metadata(reader_t *reader, const cJSON *item)
{
    tmsg_file_input_t *input = reader->input;
    const char *key = item->string;
    size_t key_bytes = strlen(key);
    tmsg_meta_t value;
    tmsg_status_t status = read_value(reader, item, &value);

    if (status != TMSG_OK || tmsg_safetensors_is_of_file(key)) {
        return status;
    }
    if (key_bytes == 0 || key_bytes > input->limits.name_bytes) {
        return tmsg_file_fail(&input->where, TMSG_ERR_LIMIT_EXCEEDED,
                              "the key has %zu bytes, not 1 to %" PRIu64,
                              key_bytes, input->limits.name_bytes);
    }
    status = tmsg_map_append_meta(input->map, key, key_bytes, &value);
    if (status == TMSG_ERR_ALREADY_EXISTS) {
        return malformed(reader, "the key occurs twice");
    }
    return status;
}

static tmsg_status_t read_metadata(reader_t *reader)
{
    tmsg_file_where_t *where = &reader->input->where;
    const tmsg_limits_t *limits = &reader->input->limits;
    uint64_t keys, bytes = 0;
    tmsg_status_t status = TMSG_OK;
    const cJSON *item;

    if (reader->metadata == NULL) {
        return TMSG_OK;
    }
    if (!cJSON_IsObject(reader->metadata)) {
        return malformed(reader, TMSG_SAFETENSORS_METADATA " is not an object");
    }
    keys = (uint64_t)cJSON_GetArraySize(reader->metadata);
    if (keys > limits->metadata_keys) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              TMSG_SAFETENSORS_METADATA
                              " has %" PRIu64 " keys, at most %" PRIu64,
                              keys, limits->metadata_keys);
    }
    where->part = TMSG_SAFETENSORS_METADATA;
    for (item = reader->metadata->child; item != NULL; item = item->next) {
        where->name = item->string;
        status = add_metadata(reader, item);
        if (status != TMSG_OK) {
            return status;
        }
        bytes += strlen(item->string) + strlen(item->valuestring);
    }
    where->name = NULL;
    if (bytes > limits->metadata_bytes) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              TMSG_SAFETENSORS_METADATA
                              " has %" PRIu64 " bytes, at most %" PRIu64,
                              bytes, limits->metadata_bytes);
    }
    return status;
}

/* An integer that survived cJSON's doubles. */
static tmsg_status_t read_integer(const reader_t *reader, const char *field,
                                  size_t index, const cJSON *item,
                                  uint64_t *value_p)
{
    const tmsg_file_where_t *where = &reader->input->where;

    if (!cJSON_IsNumber(item)) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "%s[%zu] is not a number", field, index);
    }
    if (item->valuedouble < 0) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "%s[%zu] is negative (%.0f)", field, index,
                              item->valuedouble);
    }
    if (item->valuedouble >= EXACT_MAX) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              "%s[%zu] is 2^53 or more", field, index);
    }
    *value_p = (uint64_t)item->valuedouble;
    return TMSG_OK;
}

static tmsg_status_t read_shape(const reader_t *reader, const cJSON *array,
                                int64_t *shape, int32_t *ndim_p)
{
    const cJSON *item;
    size_t ndim = 0;

    if (!cJSON_IsArray(array)) {
        return malformed(reader, "shape is not an array");
    }
    for (item = array->child; item != NULL; item = item->next) {
        uint64_t extent;
        tmsg_status_t status =
            ndim < TMSG_NDIM_MAX
                ? read_integer(reader, "shape", ndim, item, &extent)
                : tmsg_file_fail(&reader->input->where, TMSG_ERR_LIMIT_EXCEEDED,
                                 "ndim %d exceeds %d",
                                 cJSON_GetArraySize(array), TMSG_NDIM_MAX);

        if (status != TMSG_OK) {
            return status;
        }
        shape[ndim++] = (int64_t)extent;
    }
    *ndim_p = (int32_t)ndim;
    return TMSG_OK;
}

static tmsg_status_t read_offsets(const reader_t *reader, const cJSON *array,
                                  span_t *span)
{
    const tmsg_file_where_t *where = &reader->input->where;
    const cJSON *item;
    uint64_t ends[2];
    size_t count = 0;

    if (!cJSON_IsArray(array) || cJSON_GetArraySize(array) != 2) {
        return malformed(reader, "data_offsets is not an array of two");
    }
    for (item = array->child; item != NULL; item = item->next) {
        tmsg_status_t status =
            read_integer(reader, "data_offsets", count, item, &ends[count]);

        if (status != TMSG_OK) {
            return status;
        }
        count++;
    }
    if (ends[0] > ends[1]) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "data_offsets [%" PRIu64 ", %" PRIu64
                              "] run backwards",
                              ends[0], ends[1]);
    }
    if (ends[1] > reader->data_bytes) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "data_offsets [%" PRIu64 ", %" PRIu64
                              "] reach beyond the %" PRIu64 " bytes of data",
                              ends[0], ends[1], reader->data_bytes);
    }
    span->begin = ends[0];
    span->end = ends[1];
    return TMSG_OK;
}

/* Each of the three fields, once. */
static tmsg_status_t find_fields(const reader_t *reader, const cJSON *entry,
                                 const cJSON *fields[3])
{
    static const char *const names[3] = {"dtype", "shape", "data_offsets"};
    const tmsg_file_where_t *where = &reader->input->where;
    const cJSON *item;

    if (!cJSON_IsObject(entry)) {
        return malformed(reader, "is not an object");
    }
    for (item = entry->child; item != NULL; item = item->next) {
        size_t i = 0;

        while (i < 3 && strcmp(item->string, names[i]) != 0) {
            i++;
        }
        if (i == 3) {
            return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                                  "unknown field '%s'",
                                  shown(item->string).text);
        }
        if (fields[i] != NULL) {
            return tmsg_file_fail(where, TMSG_ERR_MALFORMED, "%s occurs twice",
                                  names[i]);
        }
        fields[i] = item;
    }
    for (size_t i = 0; i < 3; i++) {
        if (fields[i] == NULL) {
            return tmsg_file_fail(where, TMSG_ERR_MALFORMED, "no %s", names[i]);
        }
    }
    return TMSG_OK;
}

/* The shape's bytes must be just those that the offsets span. */
static tmsg_status_t check_bytes(const reader_t *reader,
                                 const tmsg_tensor_t *tensor,
                                 const span_t *span)
{
    const tmsg_file_where_t *where = &reader->input->where;
    uint64_t bytes;
    tmsg_status_t status = tmsg_tensor_bytes(tensor, &bytes);

    if (status != TMSG_OK) {
        return tmsg_file_fail(where, status, "%s", tmsg_error_message());
    }
    if (!tmsg_safetensors_fills_bytes(tensor)) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "the elements of %u bits do not fill whole "
                              "bytes",
                              tensor->dtype.bits);
    }
    if (bytes != span->end - span->begin) {
        return tmsg_file_fail(
            where, TMSG_ERR_MALFORMED,
            "dtype and shape take %" PRIu64 " bytes, data_offsets [%" PRIu64
            ", %" PRIu64 "] hold %" PRIu64,
            bytes, span->begin, span->end, span->end - span->begin);
    }
    return TMSG_OK;
}

static tmsg_status_t read_tensor(reader_t *reader, const cJSON *entry,
                                 span_t *span)
{
    tmsg_file_input_t *input = reader->input;
    const cJSON *fields[3] = {NULL, NULL, NULL};
    int64_t shape[TMSG_NDIM_MAX];
    tmsg_tensor_t tensor = {.device = {TMSG_DEVICE_CPU, 0}, .shape = shape};
    tmsg_status_t status = find_fields(reader, entry, fields);

    if (status != TMSG_OK) {
        return status;
    }
    if (!cJSON_IsString(fields[0])) {
        return malformed(reader, "dtype is not a string");
    }
    if (!tmsg_safetensors_dtype(fields[0]->valuestring, &tensor.dtype)) {
        return tmsg_file_fail(&input->where, TMSG_ERR_UNSUPPORTED,
                              "unknown dtype '%s'",
                              shown(fields[0]->valuestring).text);
    }
    status = read_shape(reader, fields[1], shape, &tensor.ndim);
    if (status == TMSG_OK) {
        status = read_offsets(reader, fields[2], span);
    }
    if (status == TMSG_OK) {
        status = check_bytes(reader, &tensor, span);
    }
    if (status != TMSG_OK) {
        return status;
    }
    span->name = entry->string;
    tensor.data = reader->data + span->begin;
    return tmsg_file_add(input, entry->string, &tensor, NULL, false);
}

static int by_offset(const void *left, const void *right)
{
    const span_t *a = left, *b = right;

    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->end < b->end ? -1 : a->end > b->end;
}

/* In order of offsets every span begins where the one before it ended. */
static tmsg_status_t check_cover(reader_t *reader)
{
    tmsg_file_where_t *where = &reader->input->where;
    uint64_t covered = 0;

    qsort(reader->spans, reader->tensors, sizeof(span_t), by_offset);
    for (size_t i = 0; i < reader->tensors; i++) {
        const span_t *span = &reader->spans[i];

        where->name = span->name;
        if (span->begin < covered) {
            return tmsg_file_fail(
                where, TMSG_ERR_MALFORMED,
                "data_offsets [%" PRIu64 ", %" PRIu64 "] overlap those of '%s'",
                span->begin, span->end, shown(span[-1].name).text);
        }
        if (span->begin > covered) {
            return tmsg_file_fail(
                where, TMSG_ERR_MALFORMED,
                "data_offsets [%" PRIu64 ", %" PRIu64
                "] leave a hole of %" PRIu64 " bytes before them",
                span->begin, span->end, span->begin - covered);
        }
        covered = span->end;
    }
    where->name = NULL;
    if (covered != reader->data_bytes) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "the last %" PRIu64 " bytes belong to no tensor",
                              reader->data_bytes - covered);
    }
    return TMSG_OK;
}

/* Finds __metadata__ and counts the rest. */
static tmsg_status_t count(reader_t *reader, const cJSON *root)
{
    const tmsg_file_where_t *where = &reader->input->where;
    const cJSON *item;

    for (item = root->child; item != NULL; item = item->next) {
        if (strcmp(item->string, TMSG_SAFETENSORS_METADATA) != 0) {
            reader->tensors++;
        } else if (reader->metadata != NULL) {
            return malformed(reader, TMSG_SAFETENSORS_METADATA " occurs twice");
        } else {
            reader->metadata = item;
        }
    }
    if (reader->tensors > reader->input->limits.tensors) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              "%zu tensors, at most %" PRIu64, reader->tensors,
                              reader->input->limits.tensors);
    }
    return TMSG_OK;
}

static tmsg_status_t read_root(reader_t *reader, const cJSON *root)
{
    tmsg_file_where_t *where = &reader->input->where;
    tmsg_status_t status = count(reader, root);
    const cJSON *item;
    size_t i = 0;

    if (status == TMSG_OK) {
        status = read_metadata(reader);
    }
    if (status == TMSG_OK) {
        status = tmsg_map_reserve(reader->input->map, reader->tensors);
    }
    if (status != TMSG_OK) {
        return status;
    }
    reader->spans = calloc(reader->tensors + 1, sizeof(span_t));
    if (reader->spans == NULL) {
        return tmsg_error_memory("the offsets of a file");
    }
    where->part = "tensor";
    for (item = root->child; item != NULL; item = item->next) {
        if (item != reader->metadata && status == TMSG_OK) {
            where->name = item->string;
            status = read_tensor(reader, item, &reader->spans[i++]);
        }
    }
    if (status == TMSG_OK) {
        status = check_cover(reader);
    }
    free(reader->spans);
    return status;
}

static tmsg_status_t load(tmsg_file_input_t *input)
{
    const tmsg_file_where_t *where = &input->where;
    reader_t reader = {.input = input};
    uint64_t header_bytes = 0;
    cJSON *root = NULL;
    tmsg_status_t status;

    if (input->size < PREFIX_BYTES) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "%" PRIu64 " bytes are too few for a header",
                              input->size);
    }
    for (int i = 0; i < PREFIX_BYTES; i++) {
        header_bytes |= (uint64_t)input->bytes[i] << 8 * i;
    }
    if (header_bytes > TMSG_SAFETENSORS_HEADER_MAX) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              "header of %" PRIu64 " bytes, at most %u",
                              header_bytes, TMSG_SAFETENSORS_HEADER_MAX);
    }
    if (header_bytes > input->size - PREFIX_BYTES) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "header of %" PRIu64
                              " bytes in a file of %" PRIu64,
                              header_bytes, input->size);
    }
    reader.data = input->bytes + PREFIX_BYTES + header_bytes;
    reader.data_bytes = input->size - PREFIX_BYTES - header_bytes;
    status =
        tmsg_file_parse_json(where, (const char *)input->bytes + PREFIX_BYTES,
                             (size_t)header_bytes, &root);
    if (status == TMSG_OK) {
        status = read_root(&reader, root);
    }
    cJSON_Delete(root);
    return status;
}

const tmsg_file_ops_t tmsg_file_safetensors = {
    .name = "safetensors",
    .load = load,
    .save = tmsg_safetensors_save,
    .holds = holds,
    .check = tmsg_safetensors_check,
};
