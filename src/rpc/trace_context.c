/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads and writes the two strings of the W3C's Trace Context (Recommendation
 * of 23 November 2021). Numbers in parentheses below are its sections. */
#include <stddef.h>
#include <string.h>

#include "core/map.h"
#include "rpc/intercept.h"

#define VERSION_AT 0 /* offsets in a traceparent, in characters (3.2.2) */
#define TRACE_ID_AT 3
#define SPAN_ID_AT 36
#define FLAGS_AT 53

#define MEMBERS_MOST 32 /* members of a tracestate (3.3.1.1) */
#define MEMBER_LONG 128 /* longer members are left out first (3.3.1.5) */
#define KEY_MOST 256    /* characters of a simple key (3.3.1.3.1) */
#define TENANT_MOST 241 /* characters of a tenant, before the '@' of a key */
#define SYSTEM_MOST 14  /* characters of a system, behind that '@' */
#define VALUE_MOST 256  /* characters of a value */

/* Returns the value of a hexadecimal digit in lower case; -1: no digit. */
static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Reads `count` bytes, of two digits each. Returns false if a character is no
 * digit; the byte is then 0. */
static bool read_hex_bytes(const char *text, uint8_t *bytes, size_t count)
{
    bool good = true;

    for (size_t i = 0; i < count && good; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

        good = high >= 0 && low >= 0;
        bytes[i] = (uint8_t)(good ? high << 4 | low : 0);
    }
    return good;
}

static void write_hex(const uint8_t *bytes, size_t count, char *text)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < count; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    size_t i = 0;

    while (i < count && bytes[i] == 0) {
        i++;
    }
    return i == count;
}

/* Reads of a later version only the fields that version 0 has, too (4.1). */
const char *tmsg_trace_read_parent(const char *text, size_t bytes,
                                   tmsg_trace_context_t *context)
{
    uint8_t version, flags;

    if (bytes < TMSG_TRACE_PARENT_TEXT) {
        return "it is too short";
    }
    if (text[TRACE_ID_AT - 1] != '-' || text[SPAN_ID_AT - 1] != '-' ||
        text[FLAGS_AT - 1] != '-') {
        return "a '-' is not where it belongs";
    }
    if (!read_hex_bytes(text + VERSION_AT, &version, 1) ||
        !read_hex_bytes(text + TRACE_ID_AT, context->trace_id,
                        TMSG_TRACE_ID_BYTES) ||
        !read_hex_bytes(text + SPAN_ID_AT, context->span_id,
                        TMSG_SPAN_ID_BYTES) ||
        !read_hex_bytes(text + FLAGS_AT, &flags, 1)) {
        return "it is not hexadecimal in lower case";
    }
    if (version == 0xff) {
        return "version ff does not exist";
    }
    if (bytes > TMSG_TRACE_PARENT_TEXT &&
        (version == 0 || text[TMSG_TRACE_PARENT_TEXT] != '-')) {
        return "it is too long";
    }
    if (is_zero(context->trace_id, TMSG_TRACE_ID_BYTES) ||
        is_zero(context->span_id, TMSG_SPAN_ID_BYTES)) {
        return "an id is 0";
    }
    /* Other flags become 0 (3.2.2.5.2). */
    context->flags = flags & TMSG_TRACE_SAMPLED;
    return NULL;
}

static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

static bool is_number(char c) { return c >= '0' && c <= '9'; }

/* Returns the number of characters at `text` that a part of a key may have. */
static size_t key_part(const char *text, size_t bytes)
{
    size_t i = 0;

    while (i < bytes && (is_lower(text[i]) || is_number(text[i]) ||
                         (text[i] != '\0' && strchr("_-*/", text[i])))) {
        i++;
    }
    return i;
}

/* Returns whether a text is a key: simple, or with a tenant. */
static bool is_key(const char *text, size_t bytes)
{
    size_t first = key_part(text, bytes), rest;

    if (first == 0) {
        return false;
    }
    if (first == bytes) {
        return bytes <= KEY_MOST && is_lower(text[0]);
    }
    rest = bytes - first - 1;
    return text[first] == '@' && first <= TENANT_MOST &&
           (is_lower(text[0]) || is_number(text[0])) && rest >= 1 &&
           rest <= SYSTEM_MOST && is_lower(text[first + 1]) &&
           key_part(text + first + 1, rest) == rest;
}

/* Returns whether a text is a value of a member. The caller has removed the
 * blanks at its end. */
static bool is_value(const char *text, size_t bytes)
{
    bool good = bytes <= VALUE_MOST && bytes > 0;

    for (size_t i = 0; i < bytes && good; i++) {
        good = text[i] >= 0x20 && text[i] <= 0x7e && text[i] != ',' &&
               text[i] != '=';
    }
    return good;
}

typedef struct {
    const char *text;
    size_t bytes, key_bytes;
} member_t;

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

/* Reads the member between two commas, without blanks around it. Returns false
 * if it is malformed; an empty member is allowed. */
static bool read_state_member(const char *text, size_t bytes, member_t *member)
{
    const char *equals;

    while (bytes > 0 && is_blank(text[0])) {
        text++;
        bytes--;
    }
    while (bytes > 0 && is_blank(text[bytes - 1])) {
        bytes--;
    }
    *member = (member_t){text, bytes, 0};
    if (bytes == 0) {
        return true;
    }
    equals = memchr(text, '=', bytes);
    if (equals == NULL) {
        return false;
    }
    member->key_bytes = (size_t)(equals - text);
    return is_key(text, member->key_bytes) &&
           is_value(equals + 1, bytes - member->key_bytes - 1);
}

/* Returns whether the last member has the key of an earlier one. */
static bool is_twice(const member_t *members, size_t count)
{
    const member_t *last = &members[count - 1];

    for (size_t i = 0; i + 1 < count; i++) {
        if (members[i].key_bytes == last->key_bytes &&
            memcmp(members[i].text, last->text, last->key_bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns the number of members that are not empty; 0: there are none, or the
 * text is malformed. */
static size_t read_members(const char *text, size_t bytes,
                           member_t members[MEMBERS_MOST])
{
    const char *end = text + bytes;
    size_t count = 0;

    for (const char *next; text <= end; text = next + 1) {
        member_t member;

        next = text < end ? memchr(text, ',', (size_t)(end - text)) : NULL;
        next = next == NULL ? end : next;
        if (!read_state_member(text, (size_t)(next - text), &member)) {
            return 0;
        }
        if (member.bytes > 0) {
            if (count == MEMBERS_MOST) {
                return 0;
            }
            members[count++] = member;
            if (is_twice(members, count)) {
                return 0;
            }
        }
    }
    return count;
}

/* Returns the length of the members with the commas between them. A member that
 * is left out has 0 bytes. */
static size_t length_of(const member_t *members, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += members[i].bytes > 0 ? members[i].bytes + 1 : 0;
    }
    return bytes == 0 ? 0 : bytes - 1;
}

/* Leaves members out until the rest fits. The long members go first, from the
 * end, and then the others, from the end. */
static void shorten(member_t *members, size_t count)
{
    for (int all = 0; all < 2; all++) {
        for (size_t i = count; i-- > 0;) {
            if (length_of(members, count) <= TMSG_TRACE_STATE_MOST) {
                return;
            }
            if (all || members[i].bytes > MEMBER_LONG) {
                members[i].bytes = 0;
            }
        }
    }
}

void tmsg_trace_read_state(const char *text, size_t bytes,
                           char state[TMSG_TRACE_STATE_MOST + 1])
{
    member_t members[MEMBERS_MOST];
    size_t count = read_members(text, bytes, members);
    char *to = state;

    shorten(members, count);
    for (size_t i = 0; i < count; i++) {
        if (members[i].bytes > 0 && to > state) {
            *to++ = ',';
        }
        memcpy(to, members[i].text, members[i].bytes);
        to += members[i].bytes;
    }
    *to = '\0';
}

const char *tmsg_trace_read(const tmsg_meta_t *parent, const tmsg_meta_t *state,
                            tmsg_trace_context_t *context)
{
    const char *fault = tmsg_trace_read_parent(
        parent->data, parent->type == TMSG_META_TYPE_STRING ? parent->bytes : 0,
        context);

    context->state[0] = '\0';
    if (fault == NULL && state != NULL &&
        state->type == TMSG_META_TYPE_STRING) {
        tmsg_trace_read_state(state->data, state->bytes, context->state);
    }
    return fault;
}

static tmsg_status_t malformed_parent(const char *fault)
{
    return tmsg_error_set(TMSG_ERR_MALFORMED, "traceparent: %s", fault);
}

tmsg_status_t tmsg_trace_context_parse(const char *parent, const char *state,
                                       tmsg_trace_context_t *context_p)
{
    tmsg_trace_context_t context;
    const char *fault;

    if (parent == NULL || context_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "trace context: a pointer is NULL");
    }
    fault = tmsg_trace_read_parent(parent, strlen(parent), &context);
    if (fault != NULL) {
        return malformed_parent(fault);
    }
    tmsg_trace_read_state(state == NULL ? "" : state,
                          state == NULL ? 0 : strlen(state), context.state);
    *context_p = context;
    return TMSG_OK;
}

void tmsg_trace_context_format(const tmsg_trace_context_t *context,
                               char parent[TMSG_TRACE_PARENT_TEXT + 1])
{
    const uint8_t version = 0;
    const uint8_t flags = (uint8_t)(context->flags & TMSG_TRACE_SAMPLED);

    memset(parent, '-', TMSG_TRACE_PARENT_TEXT);
    write_hex(&version, 1, parent + VERSION_AT);
    write_hex(context->trace_id, TMSG_TRACE_ID_BYTES, parent + TRACE_ID_AT);
    write_hex(context->span_id, TMSG_SPAN_ID_BYTES, parent + SPAN_ID_AT);
    write_hex(&flags, 1, parent + FLAGS_AT);
    parent[TMSG_TRACE_PARENT_TEXT] = '\0';
}

tmsg_status_t tmsg_map_set_trace(tmsg_map_t *map,
                                 const tmsg_trace_context_t *context)
{
    char parent[TMSG_TRACE_PARENT_TEXT + 1];
    tmsg_status_t status;

    tmsg_trace_context_format(context, parent);
    status = tmsg_map_set_string(map, TMSG_META_TRACE_PARENT, parent);
    if (status == TMSG_OK && context->state[0] != '\0') {
        status =
            tmsg_map_set_string(map, TMSG_META_TRACE_STATE, context->state);
    } else if (status == TMSG_OK &&
               tmsg_meta_look_up(map, TMSG_META_TRACE_STATE) != NULL) {
        status = tmsg_map_remove_meta(map, TMSG_META_TRACE_STATE);
    }
    return status;
}

tmsg_status_t tmsg_map_get_trace(const tmsg_map_t *map,
                                 tmsg_trace_context_t *context_p)
{
    tmsg_trace_context_t context;
    const tmsg_meta_t *parent;
    const char *fault;

    if (map == NULL || context_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "trace context: a pointer is NULL");
    }
    parent = tmsg_meta_look_up(map, TMSG_META_TRACE_PARENT);
    if (parent == NULL) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              "the map has no trace context");
    }
    fault = tmsg_trace_read(
        parent, tmsg_meta_look_up(map, TMSG_META_TRACE_STATE), &context);
    if (fault != NULL) {
        return malformed_parent(fault);
    }
    *context_p = context;
    return TMSG_OK;
}
