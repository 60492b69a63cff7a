/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/file_safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "core/bytes.h"
#include "core/error.h"
#include "core/map.h"
#include "core/tensor.h"

#define PREFIX_BYTES 8 /* bytes of the length of the header */

bool tmsg_safetensors_is_of_file(const char *key)
{
    return strncmp(key, "tensormsg.file.", 15) == 0;
}

/* Holds the range of the data that belongs to a tensor, according to the
 * header. */
typedef struct {
    uint64_t begin, end;
    uint32_t key; /* offset of the tensor's name in the header */
} span_t;

_Static_assert(TMSG_SAFETENSORS_HEADER_MAX < UINT32_MAX,
               "places in a header are kept as 32 bits");

typedef struct {
    char *text;
    size_t room;
} text_t;

/* Holds the state of a load. Everything is checked before the file is mapped
 * and the map gets its first tensor. Until then, a load takes less memory than
 * twice the size of the header. */
typedef struct {
    tmsg_file_input_t *input;
    char *header; /* copy of the header, with a NUL behind it */
    uint64_t header_bytes;
    tmsg_file_json_t root,
        metadata; /* metadata.text is NULL if there are none */
    uint64_t tensors;
    uint64_t data_bytes;
    text_t name;  /* name of the current tensor or key */
    text_t value; /* value of the current key */
} reader_t;

static tmsg_status_t malformed_header(const reader_t *reader, const char *what)
{
    return tmsg_file_fail(&reader->input->where, TMSG_ERR_MALFORMED, "%s",
                          what);
}

/* Formats a string for an error, with its escapes unresolved. */
static tmsg_error_name_t shown_string(const tmsg_file_json_t *string)
{
    return tmsg_error_name(string->text + 1, string->bytes - 2);
}

static tmsg_status_t read_string_text(text_t *text,
                                      const tmsg_file_json_t *string)
{
    size_t bytes = tmsg_file_json_string_bytes(string) + 1;

    if (bytes > text->room) {
        free(text->text);
        *text = (text_t){.text = malloc(bytes)};
        if (text->text == NULL) {
            return tmsg_error_memory("a string of a header");
        }
        text->room = bytes;
    }
    tmsg_file_json_copy_string(string, text->text);
    return TMSG_OK;
}

/* Makes a tensor or key the current one, which errors name. */
static tmsg_status_t read_current_name(reader_t *reader,
                                       const tmsg_file_json_t *string)
{
    tmsg_status_t status;

    reader->input->where.name = NULL;
    status = read_string_text(&reader->name, string);
    reader->input->where.name = reader->name.text;
    return status;
}

/* Finds __metadata__ and counts the tensors. */
static tmsg_status_t count_tensors(reader_t *reader)
{
    const tmsg_file_where_t *where = &reader->input->where;
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(&reader->root);

    while (tmsg_file_json_next(&walk)) {
        if (!tmsg_file_json_string_is(&walk.key, TMSG_SAFETENSORS_METADATA)) {
            reader->tensors++;
        } else if (reader->metadata.text != NULL) {
            return malformed_header(reader,
                                    TMSG_SAFETENSORS_METADATA " occurs twice");
        } else {
            reader->metadata = walk.value;
        }
    }
    if (reader->tensors > reader->input->limits.tensors) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              "%" PRIu64 " tensors, at most %" PRIu64,
                              reader->tensors, reader->input->limits.tensors);
    }
    return TMSG_OK;
}

static int compare_names(const void *left, const void *right, void *header)
{
    const uint32_t *a = left, *b = right;

    return tmsg_file_json_compare((const char *)header + *a,
                                  (const char *)header + *b);
}

/* Makes the tensor or key current whose name is at offset `key` of the
 * header. */
static tmsg_status_t read_name_at(reader_t *reader, uint32_t key)
{
    tmsg_file_json_t string = tmsg_file_json_at(reader->header + key);

    return read_current_name(reader, &string);
}

/* Refuses two names with the same text, even if their escapes differ. `keys`
 * are offsets in the header. */
static tmsg_status_t check_names(reader_t *reader, uint32_t *keys, size_t count,
                                 const char *twice)
{
    tmsg_status_t status;

    qsort_r(keys, count, sizeof(*keys), compare_names, reader->header);
    for (size_t i = 1; i < count; i++) {
        if (compare_names(&keys[i - 1], &keys[i], reader->header) == 0) {
            status = read_name_at(reader, keys[i]);
            return status == TMSG_OK ? malformed_header(reader, twice) : status;
        }
    }
    return TMSG_OK;
}

/* Reads a value. All values are text in the file; those of reserved keys get
 * their type back. */
static tmsg_status_t read_value(reader_t *reader, const tmsg_file_json_t *json,
                                tmsg_meta_t *value)
{
    const char *key = reader->name.text;
    tmsg_status_t status;
    char *end;

    if (tmsg_file_json_type(json) != '"') {
        return malformed_header(reader, "is not a string");
    }
    status = read_string_text(&reader->value, json);
    if (status != TMSG_OK) {
        return status;
    }
    *value = (tmsg_meta_t){.type = TMSG_META_TYPE_STRING,
                           .data = reader->value.text,
                           .bytes = strlen(reader->value.text)};
    switch (tmsg_meta_reserved(key, strlen(key))) {
    case TMSG_META_TYPE_I64:
        break;
    case TMSG_META_TYPE_BYTES:
        return malformed_header(reader,
                                "is a key of bytes, which no text can be");
    default:
        return TMSG_OK;
    }
    /* strtoll() also accepts white space and '+' at the beginning. */
    if (*value->data != '-' && (*value->data < '0' || *value->data > '9')) {
        return malformed_header(reader, "is not a 64-bit integer");
    }
    errno = 0;
    value->type = TMSG_META_TYPE_I64;
    value->i64 = strtoll(value->data, &end, 10);
    return *end == '\0' && errno == 0
               ? TMSG_OK
               : malformed_header(reader, "is not a 64-bit integer");
}

/* Reads one key with its value. */
static tmsg_status_t read_meta(reader_t *reader,
                               const tmsg_file_json_walk_t *walk,
                               tmsg_meta_t *value)
{
    const tmsg_limits_t *limits = &reader->input->limits;
    size_t bytes = tmsg_file_json_string_bytes(&walk->key);
    tmsg_status_t status = read_current_name(reader, &walk->key);

    if (status != TMSG_OK) {
        return status;
    }
    if (bytes == 0 || bytes > limits->name_bytes) {
        return tmsg_file_fail(&reader->input->where, TMSG_ERR_LIMIT_EXCEEDED,
                              "the key has %zu bytes, not 1 to %" PRIu64, bytes,
                              limits->name_bytes);
    }
    return read_value(reader, &walk->value, value);
}

tmsg_status_t tmsg_safetensors_check_amount(const tmsg_file_where_t *where,
                                            uint64_t keys, uint64_t bytes,
                                            const tmsg_limits_t *limits)
{
    if (keys > limits->metadata_keys) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              TMSG_SAFETENSORS_METADATA
                              " has %" PRIu64 " keys, at most %" PRIu64,
                              keys, limits->metadata_keys);
    }
    if (bytes > limits->metadata_bytes) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              TMSG_SAFETENSORS_METADATA
                              " has %" PRIu64 " bytes, at most %" PRIu64,
                              bytes, limits->metadata_bytes);
    }
    return TMSG_OK;
}

/* Checks the number of keys and of bytes before anything is copied. */
static tmsg_status_t measure_metadata(const reader_t *reader)
{
    const tmsg_limits_t *limits = &reader->input->limits;
    const tmsg_file_where_t *where = &reader->input->where;
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(&reader->metadata);
    uint64_t keys = 0, bytes = 0;

    while (tmsg_file_json_next(&walk)) {
        keys++;
        bytes += tmsg_file_json_string_bytes(&walk.key);
        if (tmsg_file_json_type(&walk.value) == '"') {
            bytes += tmsg_file_json_string_bytes(&walk.value);
        }
    }
    return tmsg_safetensors_check_amount(where, keys, bytes, limits);
}

/* Checks all keys and values or, if `add` is set, adds them to the map. */
static tmsg_status_t read_metadata(reader_t *reader, bool add)
{
    tmsg_file_where_t *where = &reader->input->where;
    tmsg_status_t status = TMSG_OK;
    tmsg_file_json_walk_t walk;

    if (reader->metadata.text == NULL) {
        return TMSG_OK;
    }
    walk = tmsg_file_json_walk(&reader->metadata);
    where->part = TMSG_SAFETENSORS_METADATA;
    while (status == TMSG_OK && tmsg_file_json_next(&walk)) {
        tmsg_meta_t value;

        status = read_meta(reader, &walk, &value);
        if (status == TMSG_OK && add &&
            !tmsg_safetensors_is_of_file(reader->name.text)) {
            status = tmsg_map_append_meta(reader->input->map, reader->name.text,
                                          strlen(reader->name.text), &value);
        }
    }
    if (status == TMSG_OK) {
        where->name = NULL;
    }
    return status;
}

static tmsg_status_t check_keys(reader_t *reader)
{
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(&reader->metadata);
    uint64_t count = tmsg_file_json_count(&reader->metadata), i = 0;
    uint32_t *keys = calloc(count + 1, sizeof(*keys));
    tmsg_status_t status;

    if (keys == NULL) {
        return tmsg_error_memory("the metadata keys of a file");
    }
    while (tmsg_file_json_next(&walk)) {
        keys[i++] = (uint32_t)(walk.key.text - reader->header);
    }
    status = check_names(reader, keys, count, "the key occurs twice");
    free(keys);
    return status;
}

static tmsg_status_t check_header_metadata(reader_t *reader)
{
    tmsg_status_t status;

    if (reader->metadata.text == NULL) {
        return TMSG_OK;
    }
    if (tmsg_file_json_type(&reader->metadata) != '{') {
        return malformed_header(reader,
                                TMSG_SAFETENSORS_METADATA " is not an object");
    }
    status = measure_metadata(reader);
    if (status == TMSG_OK) {
        status = read_metadata(reader, false);
    }
    return status == TMSG_OK ? check_keys(reader) : status;
}

/* Returns the address of the data at offset `begin`. Before the file is mapped,
 * the result is only checked for NULL, so any other address will do. */
static void *data_at(const reader_t *reader, uint64_t begin)
{
    const tmsg_file_input_t *input = reader->input;

    return input->bytes == NULL
               ? (void *)reader->header
               : tmsg_file_at(input,
                              PREFIX_BYTES + reader->header_bytes + begin);
}

/* Checks all tensors and fills `spans` or, if `spans` is NULL, adds the tensors
 * to the map. */
static tmsg_status_t read_header_tensors(reader_t *reader, span_t *spans)
{
    tmsg_file_input_t *input = reader->input;
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(&reader->root);
    tmsg_status_t status = TMSG_OK;
    size_t i = 0;

    input->where.part = "tensor";
    while (status == TMSG_OK && tmsg_file_json_next(&walk)) {
        tmsg_safetensors_entry_t entry;
        tmsg_tensor_t tensor;

        if (walk.value.text == reader->metadata.text) {
            continue;
        }
        status = read_current_name(reader, &walk.key);
        if (status == TMSG_OK) {
            status = tmsg_safetensors_read_entry(&input->where, &walk.value,
                                                 reader->data_bytes, &entry);
        }
        if (status != TMSG_OK) {
            return status;
        }
        tensor = (tmsg_tensor_t){.data = data_at(reader, entry.begin),
                                 .device = {TMSG_DEVICE_CPU, 0},
                                 .dtype = entry.dtype,
                                 .ndim = entry.ndim,
                                 .shape = entry.shape};
        if (spans == NULL) {
            status =
                tmsg_file_add(input, reader->name.text, &tensor, NULL, false);
        } else {
            spans[i++] = (span_t){entry.begin, entry.end,
                                  (uint32_t)(walk.key.text - reader->header)};
            status = tmsg_file_check(input, reader->name.text, &tensor);
        }
    }
    return status;
}

static int by_offset(const void *left, const void *right)
{
    const span_t *a = left, *b = right;

    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    return a->end < b->end ? -1 : a->end > b->end;
}

/* Refuses a span that overlaps the one before it or leaves a hole. */
static tmsg_status_t refuse_span(reader_t *reader, const span_t *span,
                                 uint64_t covered)
{
    const tmsg_file_where_t *where = &reader->input->where;
    tmsg_status_t status = read_name_at(reader, span->key);
    tmsg_file_json_t other;

    if (status != TMSG_OK) {
        return status;
    }
    if (span->begin < covered) {
        other = tmsg_file_json_at(reader->header + span[-1].key);
        return tmsg_file_fail(
            where, TMSG_ERR_MALFORMED,
            "data_offsets [%" PRIu64 ", %" PRIu64 "] overlap those of '%s'",
            span->begin, span->end, shown_string(&other).text);
    }
    return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                          "data_offsets [%" PRIu64 ", %" PRIu64
                          "] leave a hole of %" PRIu64 " bytes before them",
                          span->begin, span->end, span->begin - covered);
}

/* Checks that in order of offsets every span begins where the span before it
 * ended, and that the last one ends with the data. */
static tmsg_status_t check_cover(reader_t *reader, span_t *spans)
{
    tmsg_file_where_t *where = &reader->input->where;
    uint64_t covered = 0;

    qsort(spans, reader->tensors, sizeof(span_t), by_offset);
    for (size_t i = 0; i < reader->tensors; i++) {
        if (spans[i].begin != covered) {
            return refuse_span(reader, &spans[i], covered);
        }
        covered = spans[i].end;
    }
    where->name = NULL;
    if (covered != reader->data_bytes) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "the last %" PRIu64 " bytes belong to no tensor",
                              reader->data_bytes - covered);
    }
    return TMSG_OK;
}

static tmsg_status_t check_tensor_names(reader_t *reader, const span_t *spans)
{
    uint32_t *keys = calloc(reader->tensors + 1, sizeof(*keys));
    tmsg_status_t status;

    if (keys == NULL) {
        return tmsg_error_memory("the names of a file");
    }
    for (size_t i = 0; i < reader->tensors; i++) {
        keys[i] = spans[i].key;
    }
    status =
        check_names(reader, keys, reader->tensors, "the name occurs twice");
    free(keys);
    return status;
}

static tmsg_status_t check_header_tensors(reader_t *reader)
{
    span_t *spans = calloc(reader->tensors + 1, sizeof(*spans));
    tmsg_status_t status;

    if (spans == NULL) {
        return tmsg_error_memory("the offsets of a file");
    }
    status = read_header_tensors(reader, spans);
    if (status == TMSG_OK) {
        status = check_tensor_names(reader, spans);
    }
    if (status == TMSG_OK) {
        status = check_cover(reader, spans);
    }
    free(spans);
    return status;
}

/* Copies the header, so that the text that was checked is the text that is
 * read. */
static tmsg_status_t copy_header(reader_t *reader)
{
    reader->header = malloc(reader->header_bytes + 1);
    if (reader->header == NULL) {
        return tmsg_error_memory("the header of a file");
    }
    reader->header[reader->header_bytes] = '\0';
    return tmsg_file_read(reader->input, PREFIX_BYTES, reader->header,
                          reader->header_bytes);
}

static tmsg_status_t check_header(reader_t *reader)
{
    tmsg_status_t status =
        tmsg_file_json_scan(&reader->input->where, reader->header,
                            reader->header_bytes, &reader->root);

    if (status == TMSG_OK) {
        status = count_tensors(reader);
    }
    if (status == TMSG_OK) {
        status = check_header_metadata(reader);
    }
    return status == TMSG_OK ? check_header_tensors(reader) : status;
}

static tmsg_status_t read_safetensors_header(reader_t *reader)
{
    tmsg_status_t status = copy_header(reader);

    if (status == TMSG_OK) {
        status = check_header(reader);
    }
    if (status == TMSG_OK) {
        status =
            tmsg_file_map(reader->input, PREFIX_BYTES + reader->header_bytes);
    }
    if (status == TMSG_OK) {
        status = tmsg_map_reserve(reader->input->map, reader->tensors);
    }
    if (status == TMSG_OK) {
        status = read_metadata(reader, true);
    }
    return status == TMSG_OK ? read_header_tensors(reader, NULL) : status;
}

static tmsg_status_t read_safetensors_prefix(const tmsg_file_input_t *input,
                                             uint64_t *header_bytes_p)
{
    const tmsg_file_where_t *where = &input->where;
    uint8_t prefix[PREFIX_BYTES];
    uint64_t header_bytes;
    tmsg_status_t status;

    if (input->size < PREFIX_BYTES) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "%" PRIu64 " bytes are too few for a header",
                              input->size);
    }
    status = tmsg_file_read(input, 0, prefix, PREFIX_BYTES);
    if (status != TMSG_OK) {
        return status;
    }
    header_bytes = tmsg_get_le(prefix, PREFIX_BYTES);
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
    *header_bytes_p = header_bytes;
    return TMSG_OK;
}

static tmsg_status_t load_safetensors(tmsg_file_input_t *input)
{
    reader_t reader = {.input = input};
    tmsg_status_t status = read_safetensors_prefix(input, &reader.header_bytes);

    if (status != TMSG_OK) {
        return status;
    }
    reader.data_bytes = input->size - PREFIX_BYTES - reader.header_bytes;
    status = read_safetensors_header(&reader);
    input->where.name = NULL; /* the reader owns that name */
    free(reader.header);
    free(reader.name.text);
    free(reader.value.text);
    return status;
}

const tmsg_file_ops_t tmsg_file_safetensors = {
    .name = "safetensors",
    .load = load_safetensors,
    .save = tmsg_safetensors_save,
    .holds = tmsg_safetensors_holds,
    .names = true,
    .check = tmsg_safetensors_check,
};
