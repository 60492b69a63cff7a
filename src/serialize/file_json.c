/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/file_json.h"

#include <limits.h>
#include <string.h>

#include "core/utf8.h"

#define DEPTH_MAX 3 /* the header, a tensor and its shape */

#define ESCAPE_BYTES 6 /* bytes of an escape such as \u0041 */
#define UTF8_BYTES_MAX 4

static bool read_hex_unit(const char *at, uint32_t *unit_p)
{
    *unit_p = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i], letter = (char)(c | 0x20);

        if (c >= '0' && c <= '9') {
            *unit_p = *unit_p << 4 | (uint32_t)(c - '0');
        } else if (letter >= 'a' && letter <= 'f') {
            *unit_p = *unit_p << 4 | (uint32_t)(letter - 'a' + 10);
        } else {
            return false;
        }
    }
    return true;
}

/* Reads one \uXXXX, or two that form a surrogate pair. Returns the number of
 * characters, or 0 if they are not valid. */
static size_t read_unicode(const char *at, size_t left, uint32_t *point_p)
{
    uint32_t low;

    if (left < ESCAPE_BYTES || !read_hex_unit(at + 2, point_p) ||
        (*point_p & 0xfc00) == 0xdc00) {
        return 0;
    }
    if ((*point_p & 0xfc00) != 0xd800) {
        return ESCAPE_BYTES;
    }
    if (left < 2 * ESCAPE_BYTES || memcmp(at + ESCAPE_BYTES, "\\u", 2) != 0 ||
        !read_hex_unit(at + ESCAPE_BYTES + 2, &low) ||
        (low & 0xfc00) != 0xdc00) {
        return 0;
    }
    *point_p = 0x10000 + ((*point_p & 0x3ff) << 10 | (low & 0x3ff));
    return 2 * ESCAPE_BYTES;
}

/* Reads the escape that begins with the backslash at `at`. Returns the number
 * of its characters, or 0 if JSON has no such escape. */
static size_t read_escape(const char *at, size_t left, uint32_t *point_p)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *letter;

    if (left < 2 || at[1] == '\0') {
        return 0;
    }
    if (at[1] == 'u') {
        return read_unicode(at, left, point_p);
    }
    letter = strchr(letters, at[1]);
    if (letter == NULL) {
        return 0;
    }
    *point_p = (unsigned char)meant[letter - letters];
    return 2;
}

static size_t write_utf8(uint32_t point, unsigned char out[UTF8_BYTES_MAX])
{
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t bytes = point < 0x80      ? 1
                   : point < 0x800   ? 2
                   : point < 0x10000 ? 3
                                     : 4;

    for (size_t i = bytes; i-- > 1;) {
        out[i] = (unsigned char)(0x80 | (point & 0x3f));
        point >>= 6;
    }
    out[0] = (unsigned char)(lead[bytes] | point);
    return bytes;
}

typedef struct {
    const tmsg_file_where_t *where;
    const char *text;
    size_t bytes;
    size_t at;
    unsigned depth;
} scan_t;

static tmsg_status_t fail_scan(const scan_t *scan, const char *what)
{
    return tmsg_file_fail(scan->where, TMSG_ERR_MALFORMED,
                          "header byte %zu: %s", scan->at, what);
}

/* Returns the character at the current position plus `ahead`, or NUL behind the
 * end of the text. */
static char peek(const scan_t *scan, size_t ahead)
{
    return scan->bytes - scan->at > ahead ? scan->text[scan->at + ahead] : '\0';
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Skips white space, and then the next character if it is `wanted`. Returns
 * whether it was. */
static bool accept_char(scan_t *scan, char wanted)
{
    while (is_space(peek(scan, 0))) {
        scan->at++;
    }
    if (peek(scan, 0) != wanted) {
        return false;
    }
    scan->at++;
    return true;
}

static tmsg_status_t scan_escapes(scan_t *scan, size_t end)
{
    while (scan->at < end) {
        uint32_t point = 0;
        size_t taken = 1;

        if (scan->text[scan->at] == '\\') {
            taken = read_escape(scan->text + scan->at, end - scan->at, &point);
            if (taken == 0) {
                return fail_scan(scan, "an escape that JSON does not have");
            }
            if (point == 0) {
                return tmsg_file_fail(scan->where, TMSG_ERR_UNSUPPORTED,
                                      "header byte %zu: NUL in a string",
                                      scan->at);
            }
        }
        scan->at += taken;
    }
    return TMSG_OK;
}

/* Checks a string. The scan begins behind the opening quote and ends behind the
 * closing one. */
static tmsg_status_t scan_string(scan_t *scan)
{
    size_t start = scan->at;
    bool escapes = false;

    for (; scan->at < scan->bytes && peek(scan, 0) != '"'; scan->at++) {
        if ((unsigned char)peek(scan, 0) < 0x20) {
            return fail_scan(scan, "control character in a string");
        }
        if (peek(scan, 0) == '\\') {
            escapes = true;
            scan->at++;
        }
    }
    if (scan->at >= scan->bytes) {
        scan->at = scan->bytes;
        return fail_scan(scan, "a string does not end");
    }
    if (escapes) {
        size_t end = scan->at;
        tmsg_status_t status;

        scan->at = start;
        status = scan_escapes(scan, end);
        if (status != TMSG_OK) {
            return status;
        }
    }
    scan->at++;
    return TMSG_OK;
}

static bool is_json_digit(char c) { return c >= '0' && c <= '9'; }

static tmsg_status_t scan_number(scan_t *scan)
{
    if (peek(scan, 0) == '-' && peek(scan, 1) == '0') {
        return fail_scan(scan, "a number begins with -0");
    }
    if (peek(scan, 0) == '-') {
        scan->at++;
    }
    if (peek(scan, 0) == '0' && is_json_digit(peek(scan, 1))) {
        return fail_scan(scan, "a number begins with 0");
    }
    if (!is_json_digit(peek(scan, 0))) {
        return fail_scan(scan, "'-' without a number");
    }
    while (is_json_digit(peek(scan, 0))) {
        scan->at++;
    }
    if (peek(scan, 0) == '.' || peek(scan, 0) == 'e' || peek(scan, 0) == 'E') {
        return fail_scan(scan, "a number that is not an integer");
    }
    return TMSG_OK;
}

static tmsg_status_t scan_value(scan_t *scan);

static tmsg_status_t scan_key(scan_t *scan)
{
    tmsg_status_t status;

    if (!accept_char(scan, '"')) {
        return fail_scan(scan, "is not JSON: no key");
    }
    status = scan_string(scan);
    if (status == TMSG_OK && !accept_char(scan, ':')) {
        return fail_scan(scan, "is not JSON: no ':'");
    }
    return status;
}

/* Checks an object or array. The scan begins behind the opening bracket and
 * ends behind the closing one. */
static tmsg_status_t scan_container(scan_t *scan, char close)
{
    tmsg_status_t status;

    if (++scan->depth > DEPTH_MAX) {
        return fail_scan(scan, "nested too deep");
    }
    if (!accept_char(scan, close)) {
        do {
            status = close == '}' ? scan_key(scan) : TMSG_OK;
            if (status == TMSG_OK) {
                status = scan_value(scan);
            }
            if (status != TMSG_OK) {
                return status;
            }
        } while (accept_char(scan, ','));
        if (!accept_char(scan, close)) {
            return fail_scan(scan, close == '}' ? "is not JSON: no ',' or '}'"
                                                : "is not JSON: no ',' or ']'");
        }
    }
    scan->depth--;
    return TMSG_OK;
}

static tmsg_status_t scan_value(scan_t *scan)
{
    if (accept_char(scan, '"')) {
        return scan_string(scan);
    }
    if (accept_char(scan, '{')) {
        return scan_container(scan, '}');
    }
    if (accept_char(scan, '[')) {
        return scan_container(scan, ']');
    }
    if (peek(scan, 0) == '-' || is_json_digit(peek(scan, 0))) {
        return scan_number(scan);
    }
    return fail_scan(scan, scan->at == scan->bytes
                               ? "is not JSON: it ends too early"
                               : "neither a string nor an integer");
}

tmsg_status_t tmsg_file_json_scan(const tmsg_file_where_t *where,
                                  const char *text, size_t bytes,
                                  tmsg_file_json_t *root_p)
{
    scan_t scan = {.where = where, .text = text, .bytes = bytes};
    tmsg_file_json_t root;
    tmsg_status_t status;

    if (bytes == 0 || text[0] != '{') {
        return fail_scan(&scan, "is not '{'");
    }
    if (!tmsg_utf8_valid(text, bytes)) {
        return tmsg_file_fail(where, TMSG_ERR_MALFORMED,
                              "the header is not UTF-8");
    }
    status = scan_value(&scan);
    if (status != TMSG_OK) {
        return status;
    }
    root = (tmsg_file_json_t){text, scan.at};
    for (; scan.at < bytes; scan.at++) {
        if (text[scan.at] != ' ') {
            return fail_scan(&scan, text[scan.at] == '}' || text[scan.at] == ']'
                                        ? "a bracket closes nothing"
                                        : "something follows the JSON object");
        }
    }
    *root_p = root;
    return TMSG_OK;
}

/* The functions below run on a text that was scanned. Every string and every
 * bracket in it is closed, so none of them looks for the end of the text. */

static const char *skip_json_space(const char *at)
{
    while (is_space(*at)) {
        at++;
    }
    return at;
}

static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        at += *at == '\\';
    }
    return at + 1;
}

/* A table decides about each character with one lookup. */
static const char *skip_container(const char *at)
{
    static const signed char deeper[UCHAR_MAX + 1] = {
        ['{'] = 1, ['['] = 1, ['}'] = -1, [']'] = -1, ['"'] = 2};
    int depth = 0;

    do {
        int step = deeper[(unsigned char)*at];

        if (step == 2) {
            at = skip_string(at);
        } else {
            depth += step;
            at++;
        }
    } while (depth > 0);
    return at;
}

/* Returns the address behind the value that begins at `at`. */
static const char *skip_value(const char *at)
{
    if (*at == '"') {
        return skip_string(at);
    }
    if (*at == '{' || *at == '[') {
        return skip_container(at);
    }
    do {
        at++;
    } while (is_json_digit(*at));
    return at;
}

tmsg_file_json_walk_t tmsg_file_json_walk(const tmsg_file_json_t *container)
{
    return (tmsg_file_json_walk_t){
        .at = container->text, .close = *container->text == '{' ? '}' : ']'};
}

/* Between two calls, walk->at points to the opening bracket, a comma or the
 * closing bracket. */
bool tmsg_file_json_next(tmsg_file_json_walk_t *walk)
{
    const char *at = walk->at;

    if (*at == walk->close) {
        return false;
    }
    at = skip_json_space(at + 1);
    if (*at == walk->close) {
        walk->at = at;
        return false;
    }
    if (walk->close == '}') {
        walk->key.text = at;
        at = skip_string(at);
        walk->key.bytes = (size_t)(at - walk->key.text);
        at = skip_json_space(skip_json_space(at) + 1);
    }
    walk->value.text = at;
    at = skip_value(at);
    walk->value.bytes = (size_t)(at - walk->value.text);
    walk->at = skip_json_space(at);
    return true;
}

tmsg_file_json_t tmsg_file_json_at(const char *text)
{
    return (tmsg_file_json_t){text, (size_t)(skip_value(text) - text)};
}

uint64_t tmsg_file_json_count(const tmsg_file_json_t *container)
{
    tmsg_file_json_walk_t walk = tmsg_file_json_walk(container);
    uint64_t count = 0;

    while (tmsg_file_json_next(&walk)) {
        count++;
    }
    return count;
}

/* Reads the text of a string byte by byte. */
typedef struct {
    const char *at;
    unsigned char escape[UTF8_BYTES_MAX]; /* UTF-8 of the latest escape */
    size_t used, left; /* bytes of `escape`: read so far, and left */
} reader_t;

static int next_of_escape(reader_t *reader)
{
    uint32_t point = 0;

    if (reader->left == 0) {
        reader->at += read_escape(reader->at, 2 * ESCAPE_BYTES, &point);
        reader->left = write_utf8(point, reader->escape);
        reader->used = 0;
    }
    reader->left--;
    return reader->escape[reader->used++];
}

/* Returns the next byte, or -1 behind the last one. */
static inline int next_byte(reader_t *reader)
{
    if (reader->left > 0 || *reader->at == '\\') {
        return next_of_escape(reader);
    }
    return *reader->at == '"' ? -1 : (unsigned char)*reader->at++;
}

static bool has_escapes(const tmsg_file_json_t *string)
{
    return memchr(string->text, '\\', string->bytes) != NULL;
}

size_t tmsg_file_json_string_bytes(const tmsg_file_json_t *string)
{
    reader_t reader = {.at = string->text + 1};
    size_t bytes = 0;

    if (!has_escapes(string)) {
        return string->bytes - 2;
    }
    while (next_byte(&reader) >= 0) {
        bytes++;
    }
    return bytes;
}

void tmsg_file_json_copy_string(const tmsg_file_json_t *string, char *text)
{
    reader_t reader = {.at = string->text + 1};
    int byte;

    if (!has_escapes(string)) {
        memcpy(text, string->text + 1, string->bytes - 2);
        text[string->bytes - 2] = '\0';
        return;
    }
    while ((byte = next_byte(&reader)) >= 0) {
        *text++ = (char)byte;
    }
    *text = '\0';
}

int tmsg_file_json_compare(const char *a, const char *b)
{
    reader_t left, right;
    int byte, other;

    do {
        a++;
        b++;
    } while (*a == *b && *a != '\\' && *a != '"');
    left = (reader_t){.at = a};
    right = (reader_t){.at = b};
    do {
        byte = next_byte(&left);
        other = next_byte(&right);
    } while (byte == other && byte >= 0);
    return byte - other;
}

bool tmsg_file_json_string_is(const tmsg_file_json_t *string, const char *text)
{
    reader_t reader = {.at = string->text + 1};
    int byte;

    do {
        byte = next_byte(&reader);
    } while (byte > 0 && byte == (unsigned char)*text++);
    return byte < 0 && *text == '\0';
}

bool tmsg_file_json_read_extent(const tmsg_file_json_t *number,
                                int64_t *extent_p)
{
    *extent_p = 0;
    for (size_t i = 0; i < number->bytes; i++) {
        int digit = number->text[i] - '0'; /* a sign gives a negative digit */

        if (digit < 0 || __builtin_mul_overflow(*extent_p, 10, extent_p) ||
            __builtin_add_overflow(*extent_p, digit, extent_p)) {
            return false;
        }
    }
    return true;
}
