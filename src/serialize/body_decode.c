/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"
#include "serialize/checksum.h"
#include "serialize/decoder.h"
#include "serialize/lent_places.h"
#include "serialize/schema_wire.h"
#include "serialize/split.h"
#include "serialize/wire.h"

/* The smallest tensor has this many bytes: an array of a name of one character,
 * code, bits, lanes and an empty shape. */
#define TENSOR_BYTES_MIN 7

/* Holds the fields of a tensor as the body states them, before they are
 * checked. */
typedef struct {
    size_t index;
    const char *name;
    size_t name_bytes;
    int64_t code, bits, lanes;
    uint32_t ndim;
    int64_t shape[TMSG_NDIM_MAX];
    bool has_strides;
    int64_t strides[TMSG_NDIM_MAX];
    int64_t device_type, device_id;
    bool has_bytes;
    int64_t bytes;
    int64_t encoding;
} record_t;

/* Sets an error about a tensor. The error begins with "tensor 3 'mask': ". */
__attribute__((format(printf, 3, 4))) static tmsg_status_t
blame_record(tmsg_status_t status, const record_t *record, const char *format,
             ...)
{
    char text[TMSG_ERROR_BYTES / 2];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return tmsg_error_set(
        status, "tensor %zu '%s': %s", record->index,
        tmsg_error_name(record->name, record->name_bytes).text, text);
}

/* A set of keys is a bit mask. Its bit 0 stands for KEY_LEAST. */
#define KEY_LEAST (-8)
#define KEY_BIT(key) (1u << ((key)-KEY_LEAST))

#define OPTION_KEYS                                                            \
    (KEY_BIT(TMSG_OPTION_STRIDES) | KEY_BIT(TMSG_OPTION_DEVICE) |              \
     KEY_BIT(TMSG_OPTION_BYTES) | KEY_BIT(TMSG_OPTION_ENCODING))
#define BODY_KEYS (KEY_BIT(TMSG_BODY_TENSORS) | KEY_BIT(TMSG_BODY_METADATA))
#define EXTRA_KEYS                                                             \
    (KEY_BIT(TMSG_BODY_CHECKSUMS) | KEY_BIT(TMSG_BODY_DEFINITION) |            \
     KEY_BIT(TMSG_BODY_REFERENCE) | KEY_BIT(TMSG_BODY_PARTS) |                 \
     KEY_BIT(TMSG_BODY_LOAN))

static bool is_known(int64_t key, unsigned known)
{
    return key >= KEY_LEAST && key < KEY_LEAST + 32 && KEY_BIT(key) & known;
}

/* Adds a key to *seen if the key is in `known`. Unknown keys from 0 on are
 * allowed. Errors: UNSUPPORTED (an unknown negative key), MALFORMED (a known
 * key comes twice). */
static tmsg_status_t check_key(int64_t key, unsigned known, unsigned *seen)
{
    unsigned bit = is_known(key, known) ? KEY_BIT(key) : 0;

    if (bit == 0 && key < 0) {
        return tmsg_error_set(TMSG_ERR_UNSUPPORTED,
                              "key %" PRId64 " is not known here", key);
    }
    if (bit & *seen) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "key %" PRId64 " occurs twice", key);
    }
    *seen |= bit;
    return TMSG_OK;
}

static void read_extents(tmsg_cursor_t *cursor, uint32_t count,
                         int64_t *extents)
{
    for (uint32_t i = 0; i < count; i++) {
        extents[i] = tmsg_cursor_integer(cursor);
    }
}

static tmsg_status_t read_record_shape(tmsg_decoder_t *decoder,
                                       record_t *record)
{
    uint64_t most = decoder->limits->ndim;

    tmsg_decoder_reading(&decoder->cursor, "shape");
    record->ndim = tmsg_cursor_array(&decoder->cursor);
    if (record->ndim > most || record->ndim > TMSG_NDIM_MAX) {
        return blame_record(TMSG_ERR_LIMIT_EXCEEDED, record,
                            "ndim %" PRIu32 " exceeds %" PRIu64, record->ndim,
                            most < TMSG_NDIM_MAX ? most : TMSG_NDIM_MAX);
    }
    read_extents(&decoder->cursor, record->ndim, record->shape);
    return TMSG_OK;
}

static tmsg_status_t read_strides(tmsg_cursor_t *cursor, record_t *record)
{
    uint32_t count;

    tmsg_decoder_reading(cursor, "strides");
    count = tmsg_cursor_array(cursor);
    if (cursor->error == NULL && count != record->ndim) {
        return blame_record(TMSG_ERR_MALFORMED, record,
                            "%" PRIu32 " strides for %" PRIu32 " dimensions",
                            count, record->ndim);
    }
    if (cursor->error == NULL) {
        read_extents(cursor, count, record->strides);
        record->has_strides = count != 0;
    }
    return TMSG_OK;
}

static tmsg_status_t read_device(tmsg_cursor_t *cursor, record_t *record)
{
    tmsg_decoder_reading(cursor, "device");
    if (tmsg_cursor_array(cursor) != 2 && cursor->error == NULL) {
        return blame_record(TMSG_ERR_MALFORMED, record,
                            "device is not a type and an id");
    }
    record->device_type = tmsg_cursor_integer(cursor);
    record->device_id = tmsg_cursor_integer(cursor);
    return TMSG_OK;
}

static tmsg_status_t read_option(tmsg_cursor_t *cursor, record_t *record,
                                 int64_t key)
{
    switch (key) {
    case TMSG_OPTION_STRIDES:
        return read_strides(cursor, record);
    case TMSG_OPTION_DEVICE:
        return read_device(cursor, record);
    case TMSG_OPTION_BYTES:
        tmsg_decoder_reading(cursor, "byte length");
        record->bytes = tmsg_cursor_integer(cursor);
        record->has_bytes = true;
        return TMSG_OK;
    case TMSG_OPTION_ENCODING:
        tmsg_decoder_reading(cursor, "encoding");
        record->encoding = tmsg_cursor_integer(cursor);
        return TMSG_OK;
    default:
        tmsg_decoder_reading(cursor, "an unknown option");
        tmsg_cursor_skip(cursor);
        return TMSG_OK;
    }
}

static tmsg_status_t read_options(tmsg_cursor_t *cursor, record_t *record)
{
    tmsg_status_t status = TMSG_OK;
    unsigned seen = 0;
    uint32_t count;

    tmsg_decoder_reading(cursor, "options");
    count = tmsg_cursor_map(cursor);
    for (uint32_t i = 0; i < count && status == TMSG_OK; i++) {
        int64_t key;

        tmsg_decoder_reading(cursor, "option key");
        key = tmsg_cursor_integer(cursor);
        status = check_key(key, OPTION_KEYS, &seen);
        if (status != TMSG_OK) {
            return blame_record(status, record, "option %s",
                                tmsg_error_message());
        }
        status = read_option(cursor, record, key);
    }
    return status;
}

static tmsg_status_t read_record(tmsg_decoder_t *decoder, record_t *record)
{
    tmsg_cursor_t *cursor = &decoder->cursor;
    tmsg_status_t status;
    uint32_t fields;

    tmsg_decoder_reading(cursor, "it");
    fields = tmsg_cursor_array(cursor);
    if (fields < TMSG_TENSOR_FIELDS && cursor->error == NULL) {
        return blame_record(TMSG_ERR_MALFORMED, record,
                            "it has %" PRIu32 " fields, not 5 or more", fields);
    }
    tmsg_decoder_reading(cursor, "name");
    record->name = tmsg_cursor_string(cursor, &record->name_bytes);
    tmsg_decoder_reading(cursor, "dtype code");
    record->code = tmsg_cursor_integer(cursor);
    tmsg_decoder_reading(cursor, "dtype bits");
    record->bits = tmsg_cursor_integer(cursor);
    tmsg_decoder_reading(cursor, "dtype lanes");
    record->lanes = tmsg_cursor_integer(cursor);
    status = read_record_shape(decoder, record);
    if (status == TMSG_OK && fields > TMSG_TENSOR_FIELDS) {
        status = read_options(cursor, record);
    }
    for (uint32_t i = TMSG_TENSOR_FIELDS + 1; i < fields; i++) {
        tmsg_decoder_reading(cursor, "an unknown field");
        tmsg_cursor_skip(cursor);
    }
    if (status == TMSG_OK && cursor->error != NULL) {
        return blame_record(TMSG_ERR_MALFORMED, record, "%s %s", cursor->field,
                            cursor->error);
    }
    return status;
}

/* Checks what the map does not check when it takes the tensor. */
static tmsg_status_t check_record(const record_t *record,
                                  const tmsg_limits_t *limits)
{
    if (record->name_bytes > limits->name_bytes) {
        return blame_record(TMSG_ERR_LIMIT_EXCEEDED, record,
                            "a name of %zu bytes exceeds the limit of %" PRIu64,
                            record->name_bytes, limits->name_bytes);
    }
    if (record->code < 0 || record->code > UINT8_MAX || record->bits < 0 ||
        record->bits > UINT8_MAX || record->lanes < 0 ||
        record->lanes > UINT16_MAX) {
        return blame_record(TMSG_ERR_UNSUPPORTED, record,
                            "unknown dtype (code %" PRId64 ", bits %" PRId64
                            ", lanes %" PRId64 ")",
                            record->code, record->bits, record->lanes);
    }
    if (record->device_type < 1 || record->device_type > INT32_MAX) {
        return blame_record(TMSG_ERR_MALFORMED, record,
                            "device type %" PRId64 " is out of range",
                            record->device_type);
    }
    if (record->device_id < 0 || record->device_id > INT32_MAX) {
        return blame_record(TMSG_ERR_MALFORMED, record,
                            "device id %" PRId64 " is out of range",
                            record->device_id);
    }
    if (record->encoding != TMSG_ENCODING_RAW &&
        record->encoding != TMSG_ENCODING_SPAN) {
        return blame_record(TMSG_ERR_UNSUPPORTED, record,
                            "encoding %" PRId64 " is not known here",
                            record->encoding);
    }
    if (record->encoding == TMSG_ENCODING_SPAN && !record->has_strides) {
        return blame_record(TMSG_ERR_UNSUPPORTED, record,
                            "a span without strides");
    }
    if (record->encoding == TMSG_ENCODING_SPAN &&
        record->bits * record->lanes % 8 != 0) {
        return blame_record(TMSG_ERR_UNSUPPORTED, record,
                            "a span of elements of %" PRId64 " bits",
                            record->bits * record->lanes);
    }
    return TMSG_OK;
}

/* Turns the map's error into an error about the body: says why the map did not
 * take a tensor. */
static tmsg_status_t blame_append(tmsg_status_t status, const record_t *record,
                                  const tmsg_tensor_t *tensor)
{
    const char *error =
        tmsg_decoder_name_error(record->name, record->name_bytes);
    uint64_t bytes;

    if (status == TMSG_ERR_NO_MEMORY) {
        return status;
    }
    if (error != NULL) {
        return blame_record(TMSG_ERR_MALFORMED, record, "name %s", error);
    }
    if (status == TMSG_ERR_ALREADY_EXISTS) {
        return blame_record(TMSG_ERR_MALFORMED, record,
                            "the name occurs twice");
    }
    tmsg_tensor_check_shape(tensor, &bytes);
    if (status == TMSG_ERR_INVALID_PARAM) {
        status = TMSG_ERR_MALFORMED;
    }
    return blame_record(status, record, "%s", tmsg_error_message());
}

static tmsg_status_t add_record(tmsg_decoder_t *decoder, const record_t *record)
{
    tmsg_tensor_t tensor = {
        .device = {(int32_t)record->device_type, (int32_t)record->device_id},
        .dtype = {(uint8_t)record->code, (uint8_t)record->bits,
                  (uint16_t)record->lanes},
        .ndim = (int32_t)record->ndim,
        .shape = record->shape,
        .strides = record->has_strides ? record->strides : NULL,
    };
    bool span = record->encoding == TMSG_ENCODING_SPAN;
    tmsg_status_t status = (span ? tmsg_map_append_span : tmsg_map_append)(
        decoder->map, record->name, record->name_bytes, &tensor);
    const tmsg_map_entry_t *entry;

    if (status != TMSG_OK) {
        return blame_append(status, record, &tensor);
    }
    entry = &tmsg_map_entries(decoder->map)[record->index];
    if (!span && tensor.strides != NULL && !tmsg_tensor_is_dense(&tensor)) {
        return blame_record(TMSG_ERR_UNSUPPORTED, record,
                            "strides leave gaps or overlap");
    }
    if (!span && tmsg_tensor_is_broadcast(&tensor) &&
        tmsg_tensor_check_packable(&tensor) != TMSG_OK) {
        return blame_record(TMSG_ERR_UNSUPPORTED, record, "%s",
                            tmsg_error_message());
    }
    if (record->has_bytes &&
        (record->bytes < 0 || (uint64_t)record->bytes != entry->bytes)) {
        return blame_record(TMSG_ERR_MALFORMED, record,
                            "byte length %" PRId64
                            " does not match dtype and shape",
                            record->bytes);
    }
    return TMSG_OK;
}

static tmsg_status_t read_tensor(tmsg_decoder_t *decoder, size_t index)
{
    record_t record; /* `= {0}` would clear a kilobyte of shape and strides */
    tmsg_status_t status;

    record.index = index;
    record.name = "";
    record.name_bytes = 0;
    record.has_strides = false;
    record.device_type = TMSG_DEVICE_CPU;
    record.device_id = 0;
    record.has_bytes = false;
    record.encoding = TMSG_ENCODING_RAW;
    status = read_record(decoder, &record);
    if (status == TMSG_OK) {
        status = check_record(&record, decoder->limits);
    }
    return status == TMSG_OK ? add_record(decoder, &record) : status;
}

static tmsg_status_t read_body_tensors(tmsg_decoder_t *decoder)
{
    tmsg_cursor_t *cursor = &decoder->cursor;
    tmsg_status_t status;
    uint32_t count;

    tmsg_decoder_reading(cursor, "tensors");
    count = tmsg_cursor_array(cursor);
    if (count > decoder->limits->tensors) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "body: %" PRIu32
                              " tensors exceed the limit of %" PRIu64,
                              count, decoder->limits->tensors);
    }
    if (count > (size_t)(cursor->end - cursor->at) / TENSOR_BYTES_MIN) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: %" PRIu32 " tensors in %zu bytes", count,
                              (size_t)(cursor->end - cursor->at));
    }
    status = tmsg_map_reserve(decoder->map, count);
    for (uint32_t i = 0; i < count && status == TMSG_OK; i++) {
        status = read_tensor(decoder, i);
    }
    return status;
}

static tmsg_status_t read_checksums(tmsg_decoder_t *decoder)
{
    tmsg_body_extra_t *extra = decoder->extra;
    tmsg_cursor_t *cursor = &decoder->cursor;
    int64_t algorithm;
    tmsg_value_t values;
    tmsg_status_t status;

    tmsg_decoder_reading(cursor, "checksums");
    if (tmsg_cursor_array(cursor) != 2 && cursor->error == NULL) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: checksums are not an algorithm and "
                              "values");
    }
    algorithm = tmsg_cursor_integer(cursor);
    values = tmsg_cursor_value(cursor);
    if (cursor->error != NULL) {
        return TMSG_OK; /* the caller reports cursor->error */
    }
    status = tmsg_checksum_find(algorithm, &extra->checksum);
    if (status != TMSG_OK) {
        return tmsg_error_set(status, "body: %s", tmsg_error_message());
    }
    if (values.type != TMSG_VALUE_BINARY ||
        values.count % extra->checksum->bytes != 0) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: checksums are not a bin of %s values",
                              extra->checksum->name);
    }
    extra->checksums = (const uint8_t *)values.data;
    extra->checksum_count = values.count / extra->checksum->bytes;
    return TMSG_OK;
}

static tmsg_status_t read_schema(tmsg_decoder_t *decoder,
                                 tmsg_schema_form_t form)
{
    tmsg_decoder_reading(&decoder->cursor, "schema");
    return tmsg_schema_read(&decoder->cursor, form, &decoder->extra->schema);
}

/* Checks that the sections of a body agree with each other. */
static tmsg_status_t check_sections(const tmsg_decoder_t *decoder,
                                    unsigned seen)
{
    const tmsg_schema_use_t *use = &decoder->extra->schema;
    bool tensors = (seen & KEY_BIT(TMSG_BODY_TENSORS)) != 0;

    if ((seen & KEY_BIT(TMSG_BODY_LOAN)) != 0 &&
        (seen & KEY_BIT(TMSG_BODY_PARTS)) != 0) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: a loan whose tensors travel as parts");
    }
    if ((seen & KEY_BIT(TMSG_BODY_REFERENCE)) != 0) {
        if (tensors || (seen & KEY_BIT(TMSG_BODY_DEFINITION)) != 0) {
            return tmsg_error_set(TMSG_ERR_MALFORMED,
                                  "body: a reference to a schema beside %s",
                                  tensors ? "tensors" : "a definition");
        }
        /* The caller checks checksums, parts and places later. */
        return TMSG_OK;
    }
    if (use->form == TMSG_SCHEMA_DEFINES) {
        tmsg_status_t status;

        if (!tensors) {
            return tmsg_error_set(TMSG_ERR_MALFORMED,
                                  "body: definition of a schema without "
                                  "tensors");
        }
        status = tmsg_schema_check(use, decoder->map);
        if (status != TMSG_OK) {
            return status;
        }
    }
    if ((seen & KEY_BIT(TMSG_BODY_PARTS)) != 0) {
        tmsg_status_t status =
            tmsg_split_check(&decoder->extra->split, decoder->map);

        if (status != TMSG_OK) {
            return status;
        }
    }
    if ((seen & KEY_BIT(TMSG_BODY_LOAN)) != 0) {
        tmsg_status_t status =
            tmsg_lent_places_check(&decoder->extra->lent, decoder->map);

        if (status != TMSG_OK) {
            return status;
        }
    }
    return tmsg_checksum_check_count(decoder->map, decoder->extra);
}

static tmsg_status_t read_section(tmsg_decoder_t *decoder, int64_t key)
{
    switch (key) {
    case TMSG_BODY_TENSORS:
        return read_body_tensors(decoder);
    case TMSG_BODY_METADATA:
        return tmsg_decoder_metadata(decoder);
    case TMSG_BODY_CHECKSUMS:
        return read_checksums(decoder);
    case TMSG_BODY_PARTS:
        tmsg_decoder_reading(&decoder->cursor, "parts");
        return tmsg_split_read(&decoder->cursor, &decoder->extra->split);
    case TMSG_BODY_LOAN:
        tmsg_decoder_reading(&decoder->cursor, "places");
        return tmsg_lent_places_read(&decoder->cursor, decoder->extra);
    case TMSG_BODY_DEFINITION:
        return read_schema(decoder, TMSG_SCHEMA_DEFINES);
    case TMSG_BODY_REFERENCE:
        return read_schema(decoder, TMSG_SCHEMA_REFERS);
    default:
        tmsg_decoder_reading(&decoder->cursor, "an unknown section");
        tmsg_cursor_skip(&decoder->cursor);
        return TMSG_OK;
    }
}

static tmsg_status_t read_body(tmsg_decoder_t *decoder, unsigned known)
{
    tmsg_cursor_t *cursor = &decoder->cursor;
    tmsg_status_t status = TMSG_OK;
    unsigned seen = 0; /* set of the known keys that were read */
    uint32_t count = tmsg_cursor_map(cursor);

    for (uint32_t i = 0; i < count && cursor->error == NULL; i++) {
        int64_t key;

        tmsg_decoder_reading(cursor, "key");
        key = tmsg_cursor_integer(cursor);
        status = check_key(key, known, &seen);
        if (status != TMSG_OK) {
            return tmsg_error_set(status, "body: %s", tmsg_error_message());
        }
        status = read_section(decoder, is_known(key, known) ? key : 0);
        if (status != TMSG_OK) {
            return status;
        }
    }
    if (cursor->error != NULL) {
        return tmsg_error_set(TMSG_ERR_MALFORMED, "body: %s %s", cursor->field,
                              cursor->error);
    }
    if (cursor->at != cursor->end) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "body: %zu bytes after its end",
                              (size_t)(cursor->end - cursor->at));
    }
    return check_sections(decoder, seen);
}

tmsg_status_t tmsg_body_decode(const void *body, size_t bytes,
                               const tmsg_limits_t *limits, tmsg_map_t *map,
                               tmsg_body_extra_t *extra_p)
{
    const uint8_t *at = bytes == 0 ? (const uint8_t *)"" : body;
    tmsg_body_extra_t none;
    tmsg_decoder_t decoder = {
        .cursor = {.at = at, .end = at + bytes, .field = "it"},
        .limits = limits,
        .map = map,
        .extra = extra_p == NULL ? &none : extra_p,
    };
    tmsg_status_t status;

    *decoder.extra = (tmsg_body_extra_t){0};
    if (bytes > limits->header_bytes) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "body: %zu bytes exceed the limit of %" PRIu64,
                              bytes, limits->header_bytes);
    }
    status = read_body(&decoder,
                       extra_p == NULL ? BODY_KEYS : BODY_KEYS | EXTRA_KEYS);
    if (status != TMSG_OK) {
        tmsg_map_clear(map);
    }
    return status;
}
