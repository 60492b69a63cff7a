/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the entry of one tensor in the header of a .safetensors file. */
#include <inttypes.h>

#include "core/error.h"
#include "serialize/file_safetensors.h"

static tmsg_status_t malformed_entry(const tmsg_file_where_t *where,
                                     const char *what)
{
    return tmsg_file_fail(where, TMSG_ERR_MALFORMED, "%s", what);
}

/* Formats a string for an error, with its escapes unresolved. */
static tmsg_error_name_t shown_text(const tmsg_file_json_t *string)
{
    return tmsg_error_name(string->text + 1, string->bytes - 2);
}

static tmsg_status_t read_integer(const tmsg_file_where_t *where,
                                  const char *field, size_t index,
                                  const tmsg_file_json_t *number,
                                  int64_t *value_p)
{
    if (tmsg_file_json_type(number) != 'i') {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "%s[%zu] is not a number", field, index);
    }
    if (*number->text == '-') {
        return tmsg_file_fail(
            where, TMSG_ERR_MALFORMED, "%s[%zu] is negative (%s)", field, index,
            tmsg_error_name(number->text, number->bytes).text);
    }
    if (!tmsg_file_json_read_extent(number, value_p)) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              "%s[%zu] is 2^63 or more", field, index);
    }
    return TMSG_OK;
}

static tmsg_status_t read_entry_shape(const tmsg_file_where_t *where,
                                      const tmsg_file_json_t *array,
                                      tmsg_safetensors_entry_t *entry)
{
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(array);
    tmsg_status_t status = TMSG_OK;
    size_t ndim = 0;

    if (tmsg_file_json_type(array) != '[') {
        return malformed_entry(where, "shape is not an array");
    }
    while (status == TMSG_OK && tmsg_file_json_next(&walk)) {
        status =
            ndim < TMSG_NDIM_MAX
                ? read_integer(where, "shape", ndim, &walk.value,
                               &entry->shape[ndim])
                : tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                                 "ndim %" PRIu64 " exceeds %d",
                                 tmsg_file_json_count(array), TMSG_NDIM_MAX);
        ndim++;
    }
    entry->ndim = (int32_t)ndim;
    return status;
}

static tmsg_status_t read_offsets(const tmsg_file_where_t *where,
                                  const tmsg_file_json_t *array,
                                  uint64_t data_bytes,
                                  tmsg_safetensors_entry_t *entry)
{
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(array);
    int64_t ends[2] = {0, 0};

    if (tmsg_file_json_type(array) != '[' || tmsg_file_json_count(array) != 2) {
        return malformed_entry(where, "data_offsets is not an array of two");
    }
    for (size_t i = 0; tmsg_file_json_next(&walk); i++) {
        tmsg_status_t status =
            read_integer(where, "data_offsets", i, &walk.value, &ends[i]);

        if (status != TMSG_OK) {
            return status;
        }
    }
    if (ends[0] > ends[1]) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "data_offsets [%" PRId64 ", %" PRId64
                              "] run backwards",
                              ends[0], ends[1]);
    }
    if ((uint64_t)ends[1] > data_bytes) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "data_offsets [%" PRId64 ", %" PRId64
                              "] reach beyond the %" PRIu64 " bytes of data",
                              ends[0], ends[1], data_bytes);
    }
    entry->begin = (uint64_t)ends[0];
    entry->end = (uint64_t)ends[1];
    return TMSG_OK;
}

/* Finds the three fields of an entry. Each must occur exactly once. */
static tmsg_status_t find_fields(const tmsg_file_where_t *where,
                                 const tmsg_file_json_t *entry,
                                 tmsg_file_json_t fields[3])
{
    static const char *const names[3] = {"dtype", "shape", "data_offsets"};
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(entry);

    if (tmsg_file_json_type(entry) != '{') {
        return malformed_entry(where, "is not an object");
    }
    while (tmsg_file_json_next(&walk)) {
        size_t i = 0;

        while (i < 3 && !tmsg_file_json_string_is(&walk.key, names[i])) {
            i++;
        }
        if (i == 3) {
            return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                                  "unknown field '%s'",
                                  shown_text(&walk.key).text);
        }
        if (fields[i].text != NULL) {
            return tmsg_file_fail(where, TMSG_ERR_MALFORMED, "%s occurs twice",
                                  names[i]);
        }
        fields[i] = walk.value;
    }
    for (size_t i = 0; i < 3; i++) {
        if (fields[i].text == NULL) {
            return tmsg_file_fail(where, TMSG_ERR_MALFORMED, "no %s", names[i]);
        }
    }
    return TMSG_OK;
}

/* Checks that dtype and shape take exactly the bytes between the offsets. */
static tmsg_status_t check_bytes(const tmsg_file_where_t *where,
                                 const tmsg_safetensors_entry_t *entry)
{
    const tmsg_tensor_t tensor = {
        .dtype = entry->dtype, .ndim = entry->ndim, .shape = entry->shape};
    uint64_t bytes;
    tmsg_status_t status = tmsg_tensor_bytes(&tensor, &bytes);

    if (status != TMSG_OK) {
        return tmsg_file_fail(where, status, "%s", tmsg_error_message());
    }
    if (!tmsg_safetensors_fills_bytes(&tensor)) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "the elements of %u bits do not fill whole "
                              "bytes",
                              entry->dtype.bits);
    }
    if (bytes != entry->end - entry->begin) {
        return tmsg_file_fail(
            where, TMSG_ERR_MALFORMED,
            "dtype and shape take %" PRIu64 " bytes, data_offsets [%" PRIu64
            ", %" PRIu64 "] hold %" PRIu64,
            bytes, entry->begin, entry->end, entry->end - entry->begin);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_safetensors_read_entry(const tmsg_file_where_t *where,
                                          const tmsg_file_json_t *json,
                                          uint64_t data_bytes,
                                          tmsg_safetensors_entry_t *entry)
{
    tmsg_file_json_t fields[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    tmsg_status_t status = find_fields(where, json, fields);

    if (status != TMSG_OK) {
        return status;
    }
    if (tmsg_file_json_type(&fields[0]) != '"') {
        return malformed_entry(where, "dtype is not a string");
    }
    if (!tmsg_safetensors_dtype(&fields[0], &entry->dtype)) {
        return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED, "unknown dtype '%s'",
                              shown_text(&fields[0]).text);
    }
    status = read_entry_shape(where, &fields[1], entry);
    if (status == TMSG_OK) {
        status = read_offsets(where, &fields[2], data_bytes, entry);
    }
    return status == TMSG_OK ? check_bytes(where, entry) : status;
}
