/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "serialize/file_npy.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_BYTES 6
#define ALIGNMENT 64     /* alignment of the data in the file */
#define GROWTH_DIGITS 21 /* digits that numpy reserves for an extent */

/* Holds the state of the parser. A header is a Python dictionary; the parser
 * knows only the part of Python that numpy writes. */
typedef struct {
    const tmsg_file_where_t *where;
    const char *at, *end;
    tmsg_npy_t *npy;
} parser_t;

static tmsg_status_t fail_npy_header(const parser_t *parser, const char *what)
{
    return tmsg_file_fail(parser->where, TMSG_ERR_MALFORMED, ".npy header: %s",
                          what);
}

static void skip_npy_space(parser_t *parser)
{
    while (parser->at < parser->end && *parser->at != '\0' &&
           strchr(" \t\r\n", *parser->at) != NULL) {
        parser->at++;
    }
}

/* Skips white space, and then `text` if it comes next. Returns whether it
 * did. */
static bool accept_text(parser_t *parser, const char *text)
{
    size_t bytes = strlen(text);

    skip_npy_space(parser);
    if ((size_t)(parser->end - parser->at) < bytes ||
        memcmp(parser->at, text, bytes) != 0) {
        return false;
    }
    parser->at += bytes;
    return true;
}

/* Reads a quoted string without escapes. Returns false if something else comes
 * next, or if the string does not fit into `text`. */
static bool read_string(parser_t *parser, char *text, size_t text_bytes)
{
    const char *close;
    size_t bytes;
    char quote;

    skip_npy_space(parser);
    if (parser->at == parser->end ||
        (*parser->at != '\'' && *parser->at != '"')) {
        return false;
    }
    quote = *parser->at++;
    close = memchr(parser->at, quote, (size_t)(parser->end - parser->at));
    if (close == NULL) {
        return false;
    }
    bytes = (size_t)(close - parser->at);
    if (bytes >= text_bytes || memchr(parser->at, '\\', bytes) != NULL ||
        memchr(parser->at, '\0', bytes) != NULL) {
        return false;
    }
    memcpy(text, parser->at, bytes);
    text[bytes] = '\0';
    parser->at = close + 1;
    return true;
}

static tmsg_status_t read_descr(parser_t *parser)
{
    char text[64];

    skip_npy_space(parser);
    if (parser->at < parser->end &&
        (*parser->at == '[' || *parser->at == '(')) {
        return tmsg_file_fail(parser->where, TMSG_ERR_UNSUPPORTED,
                              "structured dtypes are not supported");
    }
    if (!read_string(parser, text, sizeof(text))) {
        return fail_npy_header(parser, "descr is not a short string");
    }
    return tmsg_npy_read_dtype(parser->where, text, &parser->npy->dtype,
                               &parser->npy->swap);
}

static tmsg_status_t read_order(parser_t *parser)
{
    if (accept_text(parser, "True")) {
        parser->npy->fortran = true;
        return TMSG_OK;
    }
    return accept_text(parser, "False")
               ? TMSG_OK
               : fail_npy_header(parser,
                                 "fortran_order is neither True nor False");
}

static tmsg_status_t read_npy_extent(parser_t *parser, int64_t *extent_p)
{
    int64_t extent = 0;
    const char *start;
    int digits = 0;

    if (accept_text(parser, "-")) {
        return fail_npy_header(parser, "shape has a negative extent");
    }
    for (start = parser->at;
         parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9';
         parser->at++, digits++) {
        if (__builtin_mul_overflow(extent, 10, &extent) ||
            __builtin_add_overflow(extent, *parser->at - '0', &extent)) {
            return tmsg_file_fail(parser->where, TMSG_ERR_LIMIT_EXCEEDED,
                                  "shape: an extent overflows 63 bits");
        }
    }
    if (digits == 0 || (digits > 1 && *start == '0')) {
        return fail_npy_header(parser, "shape is not a tuple of integers");
    }
    if (parser->at < parser->end && *parser->at == 'L') {
        parser->at++; /* Python 2 writes a long as 3L */
    }
    *extent_p = extent;
    return TMSG_OK;
}

static tmsg_status_t read_npy_shape(parser_t *parser)
{
    tmsg_npy_t *npy = parser->npy;
    bool comma = true;

    if (!accept_text(parser, "(")) {
        return fail_npy_header(parser, "shape is not a tuple");
    }
    while (!accept_text(parser, ")")) {
        tmsg_status_t status;

        if (!comma) {
            return fail_npy_header(parser, "shape is not a tuple of integers");
        }
        if (npy->ndim == TMSG_NDIM_MAX) {
            return tmsg_file_fail(parser->where, TMSG_ERR_LIMIT_EXCEEDED,
                                  "ndim exceeds %d", TMSG_NDIM_MAX);
        }
        status = read_npy_extent(parser, &npy->shape[npy->ndim]);
        if (status != TMSG_OK) {
            return status;
        }
        npy->ndim++;
        comma = accept_text(parser, ",");
    }
    return npy->ndim == 1 && !comma
               ? fail_npy_header(parser, "shape is not a tuple")
               : TMSG_OK;
}

/* Reads one of the three fields, and sets its bit in *seen. */
static tmsg_status_t read_field(parser_t *parser, unsigned *seen)
{
    static const struct {
        const char *key;
        tmsg_status_t (*read)(parser_t *parser);
    } fields[] = {{"descr", read_descr},
                  {"fortran_order", read_order},
                  {"shape", read_npy_shape}};
    char key[16];
    size_t i = 0;

    if (!read_string(parser, key, sizeof(key)) || !accept_text(parser, ":")) {
        return fail_npy_header(parser,
                               "is not a dictionary of the three fields");
    }
    while (i < 3 && strcmp(key, fields[i].key) != 0) {
        i++;
    }
    if (i == 3 || (*seen & 1u << i)) {
        return tmsg_file_fail(parser->where, TMSG_ERR_MALFORMED,
                              ".npy header: field '%s' %s", key,
                              i == 3 ? "is unknown" : "occurs twice");
    }
    *seen |= 1u << i;
    return fields[i].read(parser);
}

static tmsg_status_t read_dict(parser_t *parser)
{
    unsigned seen = 0;
    bool comma = true;

    if (!accept_text(parser, "{")) {
        return fail_npy_header(parser, "is not a dictionary");
    }
    while (!accept_text(parser, "}")) {
        tmsg_status_t status =
            comma ? read_field(parser, &seen)
                  : fail_npy_header(parser,
                                    "is not a dictionary of the three fields");

        if (status != TMSG_OK) {
            return status;
        }
        comma = accept_text(parser, ",");
    }
    skip_npy_space(parser);
    if (seen != 7 || parser->at != parser->end) {
        return fail_npy_header(parser,
                               seen != 7 ? "a field is missing"
                                         : "something follows the dictionary");
    }
    return TMSG_OK;
}

/* numpy multiplies the extents that are not 0, even those of an empty array.
 * This product must not overflow. */
tmsg_status_t tmsg_npy_check_extents(const tmsg_file_where_t *where,
                                     const tmsg_tensor_t *tensor)
{
    int64_t bytes = tensor->dtype.bits / 8;

    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] != 0 &&
            __builtin_mul_overflow(bytes, tensor->shape[i], &bytes)) {
            return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                                  "shape: the extents that are not 0 overflow "
                                  "63 bits");
        }
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_npy_read_prefix(const tmsg_file_where_t *where,
                                   const uint8_t *data, uint64_t bytes,
                                   uint64_t *header_bytes_p)
{
    uint64_t length, prefix;

    if (bytes < TMSG_NPY_PREFIX_BYTES) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "%" PRIu64 " bytes are too few for a .npy",
                              bytes);
    }
    if (memcmp(data, MAGIC, MAGIC_BYTES) != 0) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "is not a .npy: wrong magic");
    }
    if (data[6] < 1 || data[6] > 3 || data[7] != 0) {
        return tmsg_file_fail(where, TMSG_ERR_UNSUPPORTED,
                              ".npy version %u.%u, known are 1.0 to 3.0",
                              data[6], data[7]);
    }
    length = (uint64_t)data[8] | (uint64_t)data[9] << 8;
    prefix = 10;
    if (data[6] > 1) {
        length |= (uint64_t)data[10] << 16 | (uint64_t)data[11] << 24;
        prefix = 12;
    }
    if (length > TMSG_NPY_HEADER_MAX) {
        return tmsg_file_fail(where, TMSG_ERR_LIMIT_EXCEEDED,
                              ".npy header of %" PRIu64 " bytes, at most %u",
                              length, TMSG_NPY_HEADER_MAX);
    }
    if (prefix + length < TMSG_NPY_PREFIX_BYTES) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              ".npy header of %" PRIu64 " bytes", length);
    }
    *header_bytes_p = prefix + length;
    return TMSG_OK;
}

tmsg_status_t tmsg_npy_read_header(const tmsg_file_where_t *where,
                                   const uint8_t *header, uint64_t header_bytes,
                                   tmsg_npy_t *npy)
{
    parser_t parser = {.where = where,
                       .at = (const char *)header + (header[6] > 1 ? 12 : 10),
                       .end = (const char *)header + header_bytes,
                       .npy = npy};
    tmsg_tensor_t tensor = {.shape = npy->shape};
    tmsg_status_t status;

    *npy = (tmsg_npy_t){.header_bytes = header_bytes};
    status = read_dict(&parser);
    if (status != TMSG_OK) {
        return status;
    }
    tensor.dtype = npy->dtype;
    tensor.ndim = npy->ndim;
    status = tmsg_tensor_bytes(&tensor, &npy->data_bytes);
    if (status != TMSG_OK) {
        return tmsg_file_fail(where, status, "%s", tmsg_error_message());
    }
    status = tmsg_npy_check_extents(where, &tensor);
    if (status != TMSG_OK) {
        return status;
    }
    if (npy->ndim < 2 || npy->data_bytes == 0) {
        npy->fortran =
            false; /* the order is irrelevant; strides could overflow */
    }
    if (npy->fortran) {
        npy->strides[0] = 1;
    }
    for (int32_t i = 1; i < npy->ndim && npy->fortran; i++) {
        npy->strides[i] = npy->strides[i - 1] * npy->shape[i - 1];
    }
    return TMSG_OK;
}

static bool is_fortran(const tmsg_tensor_t *tensor)
{
    int64_t expected = 1;

    if (tmsg_tensor_is_contiguous(tensor)) {
        return false;
    }
    for (int32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != expected) {
            return false;
        }
        expected *= tensor->shape[i];
    }
    return true;
}

tmsg_tensor_t tmsg_npy_as_written(const tmsg_tensor_t *tensor)
{
    tmsg_tensor_t written = *tensor;

    if (is_fortran(tensor)) {
        written.strides = NULL;
    }
    return written;
}

size_t tmsg_npy_format_header(const tmsg_tensor_t *tensor,
                              char header[TMSG_NPY_HEADER_BYTES])
{
    bool fortran = is_fortran(tensor);
    size_t used, bytes, growth = 0, room = TMSG_NPY_HEADER_BYTES;
    char dtype[8] = "";

    tmsg_npy_dtype_name(tensor->dtype, dtype);
    memcpy(header, MAGIC "\x01\x00", 8);
    used = 10;
    used += (size_t)snprintf(header + used, room - used,
                             "{'descr': '%s', 'fortran_order': %s, "
                             "'shape': (",
                             dtype, fortran ? "True" : "False");
    for (int32_t i = 0; i < tensor->ndim; i++) {
        int digits =
            snprintf(header + used, room - used, "%" PRId64, tensor->shape[i]);

        if (i == (fortran ? tensor->ndim - 1 : 0)) {
            growth = (size_t)(GROWTH_DIGITS - digits);
        }
        used += (size_t)digits;
        used += (size_t)snprintf(header + used, room - used, "%s",
                                 i + 1 < tensor->ndim ? ", "
                                 : tensor->ndim == 1  ? ","
                                                      : "");
    }
    used += (size_t)snprintf(header + used, room - used, "), }");
    bytes = used + growth + 1;
    bytes += ALIGNMENT - bytes % ALIGNMENT;
    memset(header + used, ' ', bytes - used);
    header[bytes - 1] = '\n';
    header[8] = (char)((bytes - 10) & 0xff);
    header[9] = (char)((bytes - 10) >> 8);
    return bytes;
}
