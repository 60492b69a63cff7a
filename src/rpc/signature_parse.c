/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the text of a signature; docs/reference/signatures.md has the grammar.
 * The functions that parse a part of it return false if they have set an error.
 * The first error ends the parsing. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "rpc/signature.h"

#define SYMBOL_BYTES_MOST 64 /* bytes of a symbol */

typedef struct {
    tmsg_signature_t *signature;
    const char *what; /* kind of the text: "signature" or "type" */
    const char *text; /* whole text, NUL-terminated */
    const char *at;   /* next character */
    tmsg_status_t status;
    char *name; /* last name that was read, without quotes and escapes */
    size_t name_bytes;
    char *room; /* buffer for `name`, as large as `text`; NULL for a type */
} parser_t;

/* Sets an error with the line and column of `at`. Returns false. */
__attribute__((format(printf, 4, 5))) static bool
fail_at(parser_t *parser, tmsg_status_t status, const char *at,
        const char *format, ...)
{
    unsigned line = 1, column = 1;
    char why[TMSG_ERROR_BYTES];
    va_list args;

    for (const char *c = parser->text; c < at; c++) {
        line += *c == '\n';
        column = *c == '\n' ? 1 : column + ((*c & 0xc0) != 0x80);
    }
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    parser->status = tmsg_error_set(status, "%s, line %u, column %u: %s",
                                    parser->what, line, column, why);
    return false;
}

/* Sets the error INVALID_PARAM with the line and column of `at`. Returns false.
 */
static bool invalid_at(parser_t *parser, const char *at, const char *why)
{
    return fail_at(parser, TMSG_ERR_INVALID_PARAM, at, "%s", why);
}

/* Adds the place in the text to an error that another function has set. Returns
 * true if `status` is OK. ALREADY_EXISTS becomes INVALID_PARAM. */
static bool relay_error(parser_t *parser, const char *at, tmsg_status_t status)
{
    char why[TMSG_ERROR_BYTES];

    if (status == TMSG_OK) {
        return true;
    }
    strcpy(why, tmsg_error_message());
    return fail_at(parser,
                   status == TMSG_ERR_ALREADY_EXISTS ? TMSG_ERR_INVALID_PARAM
                                                     : status,
                   at, "%s", why);
}

static void skip_blanks(parser_t *parser)
{
    parser->at += strspn(parser->at, " \t\r\n");
}

/* Skips white space, and then steps over `token` if it comes next. Returns
 * whether it came. */
static bool take_token(parser_t *parser, const char *token)
{
    skip_blanks(parser);
    if (strncmp(parser->at, token, strlen(token)) != 0) {
        return false;
    }
    parser->at += strlen(token);
    return true;
}

/* Sets the error that something else stands where `wanted` has to be. The error
 * quotes the character that stands there. Returns false. */
static bool unexpected(parser_t *parser, const char *wanted)
{
    char found[8] = "";
    size_t bytes = 0;

    skip_blanks(parser);
    if (*parser->at == '\0') {
        return fail_at(parser, TMSG_ERR_INVALID_PARAM, parser->at,
                       "%s is missing at the end", wanted);
    }
    do { /* copies a whole UTF-8 character */
        found[bytes] = parser->at[bytes];
        bytes++;
    } while (bytes < 4 && (parser->at[bytes] & 0xc0) == 0x80);
    return fail_at(parser, TMSG_ERR_INVALID_PARAM, parser->at,
                   "'%s' where %s must be", found, wanted);
}

/* Steps over `token`, or sets an error that calls it `wanted`. */
static bool expect_token(parser_t *parser, const char *token,
                         const char *wanted)
{
    return take_token(parser, token) || unexpected(parser, wanted);
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

/* Returns the length of the letters, digits and underscores at `at`. */
static size_t word_bytes(const char *at)
{
    size_t bytes = 0;

    while (is_letter(at[bytes]) || is_decimal_digit(at[bytes])) {
        bytes++;
    }
    return bytes;
}

/* Returns the length of the name at `at` that needs no quotes; 0: none. */
static size_t bare_bytes(const char *at)
{
    size_t bytes = word_bytes(at);

    while (bytes > 0 && at[bytes] != '\0' &&
           (strchr("._/-", at[bytes]) != NULL || word_bytes(at + bytes) > 0)) {
        bytes++;
    }
    return bytes;
}

bool tmsg_signature_is_bare(const char *name, size_t bytes)
{
    return bare_bytes(name) == bytes;
}

/* Returns the value of four hexadecimal digits; -1: some character is none. */
static long hex4(const char *at)
{
    long value = 0;

    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = is_decimal_digit(c)    ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

static char *put_utf8(char *to, long code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* Parses what follows "\u", which may be a pair of surrogates. */
static bool parse_unicode(parser_t *parser, char **to)
{
    long code = hex4(parser->at);

    if (code > 0) {
        parser->at += 4;
        if (code >= 0xd800 && code < 0xdc00 && parser->at[0] == '\\' &&
            parser->at[1] == 'u') {
            long low = hex4(parser->at + 2);

            if (low >= 0xdc00 && low < 0xe000) {
                code = 0x10000 + (code - 0xd800) * 0x400 + (low - 0xdc00);
                parser->at += 6;
            }
        }
    }
    if (code <= 0 || (code >= 0xd800 && code < 0xe000)) {
        return invalid_at(parser, parser->at, "\\u of no character");
    }
    *to = put_utf8(*to, code);
    return true;
}

static bool parse_escape(parser_t *parser, char **to)
{
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    char letter = *parser->at;
    const char *found = letter == '\0' ? NULL : strchr(letters, letter);

    if (found != NULL) {
        parser->at++;
        *(*to)++ = means[found - letters];
        return true;
    }
    if (letter != 'u') {
        return invalid_at(parser, parser->at,
                          "an escape that JSON does not have");
    }
    parser->at++;
    return parse_unicode(parser, to);
}

/* Parses a quoted name, which is written like a string of JSON. parser->at is
 * behind the first quote. */
static bool parse_quoted(parser_t *parser)
{
    const char *start = parser->at - 1;
    char *to = parser->room;

    while (*parser->at != '"') {
        unsigned char c = (unsigned char)*parser->at;

        if (c == '\0') {
            return invalid_at(parser, start, "a quote that does not end");
        }
        if (c < 0x20) {
            return invalid_at(parser, parser->at,
                              "a control character within quotes");
        }
        parser->at++;
        if (c != '\\') {
            *to++ = (char)c;
        } else if (!parse_escape(parser, &to)) {
            return false;
        }
    }
    parser->at++;
    parser->name = parser->room;
    parser->name_bytes = (size_t)(to - parser->room);
    return true;
}

/* Parses a name, quoted or not, into parser->name. */
static bool parse_name(parser_t *parser)
{
    const char *start, *fault;

    skip_blanks(parser);
    start = parser->at;
    if (take_token(parser, "\"")) {
        if (!parse_quoted(parser)) {
            return false;
        }
    } else {
        parser->name_bytes = bare_bytes(start);
        parser->name = memcpy(parser->room, start, parser->name_bytes);
        parser->at += parser->name_bytes;
        if (parser->name_bytes == 0) {
            return unexpected(parser, "a name");
        }
    }
    fault = tmsg_signature_name_fault(parser->name, parser->name_bytes);
    return fault == NULL ||
           fail_at(parser, TMSG_ERR_INVALID_PARAM, start, "the name %s", fault);
}

static bool parse_number(parser_t *parser, int64_t *extent_p)
{
    const char *start = parser->at;
    int64_t value = 0;

    for (; is_decimal_digit(*parser->at); parser->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *parser->at - '0', &value)) {
            return invalid_at(parser, start, "an extent beyond 2^63 - 1");
        }
    }
    if (*start == '0' && parser->at > start + 1) {
        return invalid_at(parser, start, "an extent that begins with 0");
    }
    if (is_letter(*parser->at)) {
        return invalid_at(parser, start,
                          "a symbol does not begin with a digit");
    }
    *extent_p = value;
    return true;
}

static bool parse_symbol(parser_t *parser, int64_t *extent_p)
{
    const char *start = parser->at;
    size_t bytes = word_bytes(start);
    int index;

    if (bytes > SYMBOL_BYTES_MOST) {
        return fail_at(parser, TMSG_ERR_LIMIT_EXCEEDED, start,
                       "a symbol of more than %d bytes", SYMBOL_BYTES_MOST);
    }
    index = tmsg_signature_symbol(parser->signature, start, bytes);
    if (index == -1) {
        return fail_at(parser, TMSG_ERR_LIMIT_EXCEEDED, start,
                       "more than %d different symbols",
                       TMSG_SIGNATURE_SYMBOLS_MAX);
    }
    if (index < 0) {
        parser->status = tmsg_error_memory("a signature");
        return false;
    }
    parser->at += bytes;
    *extent_p = TMSG_EXTENT_SYMBOL - index;
    return true;
}

static bool parse_extent(parser_t *parser, tmsg_want_tensor_t *tensor,
                         int64_t *extents)
{
    int64_t *place = &extents[tensor->extent_count];
    const char *start;

    skip_blanks(parser);
    start = parser->at;
    if (tensor->extent_count - (tensor->rest >= 0) == 64 &&
        strncmp(start, "...", 3) != 0) {
        return fail_at(parser, TMSG_ERR_LIMIT_EXCEEDED, start,
                       "more than 64 dimensions");
    }
    if (take_token(parser, "...")) {
        if (tensor->rest >= 0) {
            return invalid_at(parser, start, "'...' occurs twice");
        }
        tensor->rest = tensor->extent_count;
        *place = TMSG_EXTENT_REST;
    } else if (take_token(parser, "*")) {
        *place = TMSG_EXTENT_ANY;
    } else if (is_decimal_digit(*start)) {
        if (!parse_number(parser, place)) {
            return false;
        }
    } else if (!is_letter(*start)) {
        return unexpected(parser, "an extent");
    } else if (!parse_symbol(parser, place)) {
        return false;
    }
    tensor->extent_count++;
    return true;
}

static bool parse_dtype(parser_t *parser, tmsg_want_tensor_t *tensor)
{
    char text[TMSG_DTYPE_NAME_MAX];
    const char *start;
    size_t bytes;

    skip_blanks(parser);
    start = parser->at;
    tensor->any_dtype = take_token(parser, "*");
    if (tensor->any_dtype) {
        return true;
    }
    bytes = word_bytes(start);
    if (bytes == 0) {
        return unexpected(parser, "a dtype");
    }
    snprintf(text, sizeof(text), "%.*s", (int)(bytes < 1000 ? bytes : 1000),
             start);
    parser->at += bytes;
    return relay_error(parser, start,
                       bytes < sizeof(text)
                           ? tmsg_dtype_parse(text, &tensor->dtype)
                           : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                            "'%s...' is not a dtype", text));
}

/* Parses a type, such as "uint8[b,h,w,3]". */
static bool parse_type(parser_t *parser, tmsg_want_tensor_t *tensor,
                       int64_t *extents)
{
    tensor->rest = -1;
    tensor->extents = extents;
    if (!parse_dtype(parser, tensor) ||
        !expect_token(parser, "[", "'[' and the extents (of a scalar: '[]')")) {
        return false;
    }
    if (take_token(parser, "]")) {
        return true;
    }
    do {
        if (!parse_extent(parser, tensor, extents)) {
            return false;
        }
    } while (take_token(parser, ","));
    return expect_token(parser, "]", "',' or ']'");
}

static bool tensor_item(parser_t *parser, tmsg_signature_side_t side)
{
    int64_t extents[TMSG_SIGNATURE_EXTENTS];
    tmsg_want_tensor_t tensor = {0};
    const char *start;

    skip_blanks(parser);
    start = parser->at;
    if (!parse_name(parser)) {
        return false;
    }
    tensor.optional = take_token(parser, "?");
    if (!expect_token(parser, ":", tensor.optional ? "':'" : "':' or '?'") ||
        !parse_type(parser, &tensor, extents)) {
        return false;
    }
    tensor.name = parser->name;
    tensor.name_bytes = parser->name_bytes;
    return relay_error(
        parser, start,
        tmsg_signature_put_tensor(parser->signature, side, &tensor));
}

static bool meta_type(parser_t *parser, int32_t *type_p)
{
    const char *start;
    size_t bytes;

    if (take_token(parser, "*")) {
        *type_p = 0;
        return true;
    }
    start = parser->at;
    bytes = word_bytes(start);
    for (int32_t i = TMSG_META_TYPE_BOOL; i <= TMSG_META_TYPE_BYTES; i++) {
        const char *known = tmsg_signature_meta_type(i);

        if (strlen(known) == bytes && memcmp(known, start, bytes) == 0) {
            parser->at += bytes;
            *type_p = i;
            return true;
        }
    }
    return bytes == 0 ? unexpected(parser, "a type of metadata")
                      : invalid_at(parser, start,
                                   "not a type of metadata: these are bool, "
                                   "i64, f64, string, bytes and '*'");
}

static bool meta_item(parser_t *parser, tmsg_signature_side_t side)
{
    tmsg_want_meta_t meta = {0};
    const char *start = parser->at, *fault;

    if (!parse_name(parser)) {
        return false;
    }
    meta.optional = take_token(parser, "?");
    if (!expect_token(parser, ":", meta.optional ? "':'" : "':' or '?'") ||
        !meta_type(parser, &meta.type)) {
        return false;
    }
    meta.key = parser->name;
    meta.key_bytes = parser->name_bytes;
    fault = tmsg_signature_meta_fault(&meta);
    if (fault != NULL) {
        return fail_at(parser, TMSG_ERR_INVALID_PARAM, start, "\"%s\" %s",
                       tmsg_error_name(meta.key, meta.key_bytes).text, fault);
    }
    return relay_error(parser, start,
                       tmsg_signature_put_meta(parser->signature, side, &meta));
}

/* Parses a side, such as "(a: float32[n], ...)". */
static bool parse_side(parser_t *parser, tmsg_signature_side_t side)
{
    if (!expect_token(parser, "(", "'('")) {
        return false;
    }
    if (take_token(parser, ")")) {
        return true;
    }
    do {
        if (take_token(parser, "...")) {
            parser->signature->sides[side].further = true;
            return expect_token(parser, ")",
                                "')' (nothing comes behind '...')");
        }
        if (!(take_token(parser, "@") ? meta_item(parser, side)
                                      : tensor_item(parser, side))) {
            return false;
        }
    } while (take_token(parser, ","));
    return expect_token(parser, ")", "',' or ')'");
}

/* Checks that only white space is left. */
static bool nothing_left(parser_t *parser, const char *wanted)
{
    skip_blanks(parser);
    return *parser->at == '\0' || unexpected(parser, wanted);
}

static bool parse_whole(parser_t *parser)
{
    if (!parse_side(parser, TMSG_SIGNATURE_INPUTS)) {
        return false;
    }
    if (take_token(parser, "->")) {
        return parse_side(parser, TMSG_SIGNATURE_OUTPUTS) &&
               nothing_left(parser, "the end");
    }
    parser->signature->sides[TMSG_SIGNATURE_OUTPUTS].further = true;
    return nothing_left(parser, "'->' or the end");
}

static tmsg_status_t parse_text(tmsg_signature_t *signature, const char *text)
{
    parser_t parser = {.signature = signature,
                       .what = "signature",
                       .text = text,
                       .at = text,
                       .room = malloc(strlen(text) + 1)};

    if (parser.room == NULL) {
        return tmsg_error_memory("a signature");
    }
    (void)parse_whole(&parser);
    free(parser.room);
    return parser.status;
}

tmsg_status_t tmsg_signature_parse(const char *text,
                                   tmsg_signature_t **signature_p)
{
    tmsg_signature_t *signature;
    tmsg_status_t status;

    if (text == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "signature: the text is NULL");
    }
    if (strnlen(text, TMSG_SIGNATURE_TEXT_MAX + 1) > TMSG_SIGNATURE_TEXT_MAX) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "signature: the text has more than %d bytes",
                              TMSG_SIGNATURE_TEXT_MAX);
    }
    status = tmsg_signature_create(&signature);
    if (status != TMSG_OK) {
        return status;
    }
    status = parse_text(signature, text);
    if (status != TMSG_OK) {
        tmsg_signature_destroy(signature);
        return status;
    }
    *signature_p = signature;
    return TMSG_OK;
}

tmsg_status_t tmsg_signature_read_type(tmsg_signature_t *signature,
                                       const char *text,
                                       tmsg_want_tensor_t *tensor,
                                       int64_t *extents)
{
    parser_t parser = {
        .signature = signature, .what = "type", .text = text, .at = text};

    if (parse_type(&parser, tensor, extents)) {
        (void)nothing_left(&parser, "the end");
    }
    return parser.status;
}
