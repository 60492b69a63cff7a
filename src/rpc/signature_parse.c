/* SPDX-License-Identifier: BSD-3-Clause */
/* From text to a signature: docs/signatures.md has the grammar. The first error
 * stays; functions say whether there was none. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/map.h"
#include "rpc/signature.h"

#define SYMBOL_BYTES_MOST 64

typedef struct {
    tmsg_signature_t *signature;
    const char *what; /* the text is: "signature", or "type" */
    const char *text; /* the whole, with a NUL after it */
    const char *at;
    tmsg_status_t status;
    char *name; /* the latest, with quotes and escapes undone */
    size_t name_bytes;
    char *room; /* for it where it was quoted */
} parser_t;

__attribute__((format(printf, 4, 5))) static bool fail(parser_t *parser,
                                                       tmsg_status_t status,
                                                       const char *at,
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

static bool bad(parser_t *parser, const char *at, const char *why)
{
    return fail(parser, TMSG_ERR_INVALID_PARAM, at, "%s", why);
}

/* An error of another's, with the place. */
static bool relay(parser_t *parser, const char *at, tmsg_status_t status)
{
    char why[TMSG_ERROR_BYTES];

    if (status == TMSG_OK) {
        return true;
    }
    strcpy(why, tmsg_error_message());
    return fail(parser,
                status == TMSG_ERR_ALREADY_EXISTS ? TMSG_ERR_INVALID_PARAM
                                                  : status,
                at, "%s", why);
}

static void skip_space(parser_t *parser)
{
    parser->at += strspn(parser->at, " \t\r\n");
}

/* Steps over `token` and the space before it, if it comes next. */
static bool take(parser_t *parser, const char *token)
{
    skip_space(parser);
    if (strncmp(parser->at, token, strlen(token)) != 0) {
        return false;
    }
    parser->at += strlen(token);
    return true;
}

/* What stands there, to be quoted in an error. */
static bool unexpected(parser_t *parser, const char *wanted)
{
    char found[8] = "";
    size_t bytes = 0;

    skip_space(parser);
    if (*parser->at == '\0') {
        return fail(parser, TMSG_ERR_INVALID_PARAM, parser->at,
                    "%s is missing at the end", wanted);
    }
    do { /* a whole character */
        found[bytes] = parser->at[bytes];
        bytes++;
    } while (bytes < 4 && (parser->at[bytes] & 0xc0) == 0x80);
    return fail(parser, TMSG_ERR_INVALID_PARAM, parser->at,
                "'%s' where %s has to be", found, wanted);
}

static bool want(parser_t *parser, const char *token, const char *wanted)
{
    return take(parser, token) || unexpected(parser, wanted);
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t word_bytes(const char *at)
{
    size_t bytes = 0;

    while (is_letter(at[bytes]) || is_digit(at[bytes])) {
        bytes++;
    }
    return bytes;
}

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

/* Four hexadecimal digits, or -1. */
static long hex4(const char *at)
{
    long value = 0;

    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = is_digit(c)            ? c - '0'
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

/* What is behind "\u", a pair of surrogates included. */
static bool unicode(parser_t *parser, char **to)
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
        return bad(parser, parser->at, "\\u of no character");
    }
    *to = put_utf8(*to, code);
    return true;
}

static bool escape(parser_t *parser, char **to)
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
        return bad(parser, parser->at, "an escape that JSON does not have");
    }
    parser->at++;
    return unicode(parser, to);
}

/* As JSON's strings; parser->at is behind the quote. */
static bool quoted(parser_t *parser)
{
    const char *start = parser->at - 1;
    char *to = parser->room;

    while (*parser->at != '"') {
        unsigned char c = (unsigned char)*parser->at;

        if (c == '\0') {
            return bad(parser, start, "a quote that does not end");
        }
        if (c < 0x20) {
            return bad(parser, parser->at, "a control character within quotes");
        }
        parser->at++;
        if (c != '\\') {
            *to++ = (char)c;
        } else if (!escape(parser, &to)) {
            return false;
        }
    }
    parser->at++;
    parser->name = parser->room;
    parser->name_bytes = (size_t)(to - parser->room);
    return true;
}

static bool name(parser_t *parser)
{
    const char *start, *fault;

    skip_space(parser);
    start = parser->at;
    if (take(parser, "\"")) {
        if (!quoted(parser)) {
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
           fail(parser, TMSG_ERR_INVALID_PARAM, start, "the name %s", fault);
}

static bool number(parser_t *parser, int64_t *extent_p)
{
    const char *start = parser->at;
    int64_t value = 0;

    for (; is_digit(*parser->at); parser->at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *parser->at - '0', &value)) {
            return bad(parser, start, "an extent beyond 2^63 - 1");
        }
    }
    if (*start == '0' && parser->at > start + 1) {
        return bad(parser, start, "an extent that begins with 0");
    }
    if (is_letter(*parser->at)) {
        return bad(parser, start, "a symbol does not begin with a digit");
    }
    *extent_p = value;
    return true;
}

static bool symbol(parser_t *parser, int64_t *extent_p)
{
    const char *start = parser->at;
    size_t bytes = word_bytes(start);
    int index;

    if (bytes > SYMBOL_BYTES_MOST) {
        return fail(parser, TMSG_ERR_LIMIT_EXCEEDED, start,
                    "a symbol of more than %d bytes", SYMBOL_BYTES_MOST);
    }
    index = tmsg_signature_symbol(parser->signature, start, bytes);
    if (index == -1) {
        return fail(parser, TMSG_ERR_LIMIT_EXCEEDED, start,
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

static bool extent(parser_t *parser, tmsg_want_tensor_t *tensor,
                   int64_t *extents)
{
    int64_t *place = &extents[tensor->extent_count];
    const char *start;

    skip_space(parser);
    start = parser->at;
    if (tensor->extent_count - (tensor->rest >= 0) == 64 &&
        strncmp(start, "...", 3) != 0) {
        return fail(parser, TMSG_ERR_LIMIT_EXCEEDED, start,
                    "more than 64 dimensions");
    }
    if (take(parser, "...")) {
        if (tensor->rest >= 0) {
            return bad(parser, start, "'...' comes twice");
        }
        tensor->rest = tensor->extent_count;
        *place = TMSG_EXTENT_REST;
    } else if (take(parser, "*")) {
        *place = TMSG_EXTENT_ANY;
    } else if (is_digit(*start)) {
        if (!number(parser, place)) {
            return false;
        }
    } else if (!is_letter(*start)) {
        return unexpected(parser, "an extent");
    } else if (!symbol(parser, place)) {
        return false;
    }
    tensor->extent_count++;
    return true;
}

static bool dtype(parser_t *parser, tmsg_want_tensor_t *tensor)
{
    char text[TMSG_DTYPE_NAME_MAX];
    const char *start;
    size_t bytes;

    skip_space(parser);
    start = parser->at;
    tensor->any_dtype = take(parser, "*");
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
    return relay(parser, start,
                 bytes < sizeof(text)
                     ? tmsg_dtype_parse(text, &tensor->dtype)
                     : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                      "'%s...' names no dtype", text));
}

/* "uint8[b,h,w,3]" */
static bool type(parser_t *parser, tmsg_want_tensor_t *tensor, int64_t *extents)
{
    tensor->rest = -1;
    tensor->extents = extents;
    if (!dtype(parser, tensor) ||
        !want(parser, "[", "'[' and the extents (of a scalar: '[]')")) {
        return false;
    }
    if (take(parser, "]")) {
        return true;
    }
    do {
        if (!extent(parser, tensor, extents)) {
            return false;
        }
    } while (take(parser, ","));
    return want(parser, "]", "',' or ']'");
}

static bool tensor_item(parser_t *parser, tmsg_signature_side_t side)
{
    int64_t extents[TMSG_SIGNATURE_EXTENTS];
    tmsg_want_tensor_t tensor = {0};
    const char *start;

    skip_space(parser);
    start = parser->at;
    if (!name(parser)) {
        return false;
    }
    tensor.optional = take(parser, "?");
    if (!want(parser, ":", tensor.optional ? "':'" : "':' or '?'") ||
        !type(parser, &tensor, extents)) {
        return false;
    }
    tensor.name = parser->name;
    tensor.name_bytes = parser->name_bytes;
    return relay(parser, start,
                 tmsg_signature_put_tensor(parser->signature, side, &tensor));
}

static bool meta_type(parser_t *parser, int32_t *type_p)
{
    const char *start;
    size_t bytes;

    if (take(parser, "*")) {
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
                      : bad(parser, start,
                            "no type of metadata: these are bool, i64, f64, "
                            "string, bytes and '*'");
}

static bool meta_item(parser_t *parser, tmsg_signature_side_t side)
{
    tmsg_want_meta_t meta = {0};
    const char *start = parser->at, *fault;

    if (!name(parser)) {
        return false;
    }
    meta.optional = take(parser, "?");
    if (!want(parser, ":", meta.optional ? "':'" : "':' or '?'") ||
        !meta_type(parser, &meta.type)) {
        return false;
    }
    meta.key = parser->name;
    meta.key_bytes = parser->name_bytes;
    fault = tmsg_signature_meta_fault(&meta);
    if (fault != NULL) {
        return fail(parser, TMSG_ERR_INVALID_PARAM, start, "\"%s\" %s",
                    tmsg_error_name(meta.key, meta.key_bytes).text, fault);
    }
    return relay(parser, start,
                 tmsg_signature_put_meta(parser->signature, side, &meta));
}

/* "(a: float32[n], ...)" */
static bool parse_side(parser_t *parser, tmsg_signature_side_t side)
{
    if (!want(parser, "(", "'('")) {
        return false;
    }
    if (take(parser, ")")) {
        return true;
    }
    do {
        if (take(parser, "...")) {
            parser->signature->sides[side].further = true;
            return want(parser, ")", "')' (nothing comes behind '...')");
        }
        if (!(take(parser, "@") ? meta_item(parser, side)
                                : tensor_item(parser, side))) {
            return false;
        }
    } while (take(parser, ","));
    return want(parser, ")", "',' or ')'");
}

static bool nothing_left(parser_t *parser, const char *wanted)
{
    skip_space(parser);
    return *parser->at == '\0' || unexpected(parser, wanted);
}

static bool whole(parser_t *parser)
{
    if (!parse_side(parser, TMSG_SIGNATURE_INPUTS)) {
        return false;
    }
    if (take(parser, "->")) {
        return parse_side(parser, TMSG_SIGNATURE_OUTPUTS) &&
               nothing_left(parser, "the end");
    }
    parser->signature->sides[TMSG_SIGNATURE_OUTPUTS].further = true;
    return nothing_left(parser, "'->' or the end");
}

static tmsg_status_t parse(tmsg_signature_t *signature, const char *text)
{
    parser_t parser = {.signature = signature,
                       .what = "signature",
                       .text = text,
                       .at = text,
                       .room = malloc(strlen(text) + 1)};

    if (parser.room == NULL) {
        return tmsg_error_memory("a signature");
    }
    (void)whole(&parser);
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
    status = parse(signature, text);
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

    if (type(&parser, tensor, extents)) {
        (void)nothing_left(&parser, "the end");
    }
    return parser.status;
}
