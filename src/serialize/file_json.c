/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/file_json.h"

#include <errno.h>
#include <string.h>

#include "core/json_read.h"
#include "core/utf8.h"

#define DEPTH_MAX 3              /* header, tensor, shape */
#define VALUES_MAX (16ULL << 20) /* at 64 bytes each and more */

typedef struct {
    const tmsg_file_where_t *where;
    const char *text;
    size_t bytes;
    size_t at;
    size_t depth;
    uint64_t values;
} scan_t;

static tmsg_status_t fail(const scan_t *scan, const char *what)
{
    return tmsg_file_fail(scan->where, TMSG_ERR_MALFORMED,
                          "header byte %zu: %s", scan->at, what);
}

static char peek(const scan_t *scan, size_t ahead)
{
    return scan->bytes - scan->at > ahead ? scan->text[scan->at + ahead] : '\0';
}

/* From the opening quote to behind the closing one. */
static tmsg_status_t scan_string(scan_t *scan)
{
    for (scan->at++; scan->at < scan->bytes; scan->at++) {
        char c = scan->text[scan->at];

        if (c == '"') {
            scan->at++;
            return TMSG_OK;
        }
        if ((unsigned char)c < 0x20) {
            return fail(scan, "control character in a string");
        }
        if (c == '\\') {
            scan->at++;
        }
    }
    return fail(scan, "a string does not end");
}

static tmsg_status_t scan_number(scan_t *scan)
{
    if (peek(scan, 0) == '-' && peek(scan, 1) == '0') {
        return fail(scan, "a number begins with -0");
    }
    if (peek(scan, 0) == '-') {
        scan->at++;
    }
    if (peek(scan, 0) == '0' && peek(scan, 1) >= '0' && peek(scan, 1) <= '9') {
        return fail(scan, "a number begins with 0");
    }
    if (peek(scan, 0) < '0' || peek(scan, 0) > '9') {
        return fail(scan, "'-' without a number");
    }
    while (peek(scan, 0) >= '0' && peek(scan, 0) <= '9') {
        scan->at++;
    }
    if (peek(scan, 0) == '.' || peek(scan, 0) == 'e' || peek(scan, 0) == 'E') {
        return fail(scan, "a number that is not an integer");
    }
    return TMSG_OK;
}

static tmsg_status_t scan_token(scan_t *scan)
{
    char c = scan->text[scan->at];

    if (c == '"') {
        return scan_string(scan);
    }
    if (c == '-' || (c >= '0' && c <= '9')) {
        return scan_number(scan);
    }
    if (c == '{' || c == '[') {
        if (++scan->depth > DEPTH_MAX) {
            return fail(scan, "nested too deep");
        }
    } else if (c == '}' || c == ']') {
        if (scan->depth-- == 0) {
            return fail(scan, "a bracket closes nothing");
        }
    } else if (c == '\0' || strchr(" \t\n\r,:", c) == NULL) {
        return fail(scan, "neither a string nor an integer");
    }
    if (c == '{' || c == '[' || c == ',') {
        scan->values++;
    }
    scan->at++;
    return TMSG_OK;
}

static tmsg_status_t scan_header(scan_t *scan)
{
    const char *nul = tmsg_json_find_nul(scan->text, scan->bytes);
    tmsg_status_t status = TMSG_OK;

    if (scan->bytes == 0 || scan->text[0] != '{') {
        return fail(scan, "is not '{'");
    }
    if (!tmsg_utf8_valid(scan->text, scan->bytes)) {
        return tmsg_file_fail(scan->where, TMSG_ERR_MALFORMED,
                              "the header is not UTF-8");
    }
    if (nul != NULL) {
        return tmsg_file_fail(scan->where, TMSG_ERR_UNSUPPORTED,
                              "header byte %zu: NUL in a string",
                              (size_t)(nul - scan->text));
    }
    while (scan->at < scan->bytes && status == TMSG_OK) {
        status = scan_token(scan);
        if (status == TMSG_OK && scan->values > VALUES_MAX) {
            return tmsg_file_fail(scan->where, TMSG_ERR_LIMIT_EXCEEDED,
                                  "the header has more than %llu values",
                                  (unsigned long long)VALUES_MAX);
        }
    }
    return status;
}

tmsg_status_t tmsg_file_parse_json(const tmsg_file_where_t *where,
                                   const char *text, size_t bytes,
                                   cJSON **root_p)
{
    scan_t scan = {.where = where, .text = text, .bytes = bytes};
    tmsg_status_t status = scan_header(&scan);
    const char *end = text;
    cJSON *root;

    if (status != TMSG_OK) {
        return status;
    }
    errno = 0; /* the only way to tell cJSON's two failures apart */
    root = cJSON_ParseWithLengthOpts(text, bytes, &end, 0);
    if (root == NULL && errno == ENOMEM) {
        return tmsg_file_fail(where, TMSG_ERR_NO_MEMORY,
                              "no memory for the header");
    }
    scan.at = (size_t)(end - text);
    if (root == NULL) {
        return fail(&scan, "is no JSON");
    }
    for (; scan.at < bytes; scan.at++) {
        if (text[scan.at] != ' ') {
            cJSON_Delete(root);
            return fail(&scan, "something follows the JSON object");
        }
    }
    *root_p = root;
    return TMSG_OK;
}
