/* SPDX-License-Identifier: BSD-3-Clause */
#include "serialize/cursor.h"

#include <string.h>

static void fail_cursor(tmsg_cursor_t *cursor, const char *error)
{
    if (cursor->error == NULL) {
        cursor->error = error;
    }
    cursor->at = cursor->end;
}

static size_t bytes_left(const tmsg_cursor_t *cursor)
{
    return (size_t)(cursor->end - cursor->at);
}

/* Takes an unsigned number of `bytes` bytes. msgpack is big-endian. */
static uint64_t take_number(tmsg_cursor_t *cursor, unsigned bytes)
{
    uint64_t value = 0;

    if (bytes_left(cursor) < bytes) {
        fail_cursor(cursor, "ends early");
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++) {
        value = value << 8 | *cursor->at++;
    }
    return value;
}

/* Takes a number of `bytes` bytes in two's complement. */
static int64_t signed_number(tmsg_cursor_t *cursor, unsigned bytes)
{
    unsigned unused = 64 - 8 * bytes;

    return (int64_t)(take_number(cursor, bytes) << unused) >> unused;
}

static void take_data(tmsg_cursor_t *cursor, tmsg_value_t *value,
                      tmsg_value_type_t type, uint64_t count)
{
    if (count > bytes_left(cursor)) {
        fail_cursor(cursor, "ends early");
        return;
    }
    value->type = type;
    value->count = (uint32_t)count;
    value->data = (const char *)cursor->at;
    cursor->at += count;
}

/* Takes the count of an array or a map. An element has one byte or more, so the
 * count cannot exceed the bytes left. */
static void take_count(tmsg_cursor_t *cursor, tmsg_value_t *value,
                       tmsg_value_type_t type, uint64_t count)
{
    uint64_t elements = type == TMSG_VALUE_MAP ? 2 * count : count;

    if (elements > bytes_left(cursor)) {
        fail_cursor(cursor, "counts more elements than there are bytes");
        return;
    }
    value->type = type;
    value->count = (uint32_t)count;
}

static void take_integer(tmsg_value_t *value, int64_t integer)
{
    value->type = TMSG_VALUE_INTEGER;
    value->integer = integer;
}

static void take_unsigned(tmsg_value_t *value, uint64_t integer)
{
    if (integer <= INT64_MAX) {
        take_integer(value, (int64_t)integer);
    }
}

static void take_float(tmsg_cursor_t *cursor, tmsg_value_t *value,
                       unsigned bytes)
{
    uint64_t bits = take_number(cursor, bytes);
    uint32_t bits32 = (uint32_t)bits;
    float single;

    memcpy(&value->number, &bits, sizeof(bits));
    if (bytes == sizeof(single)) {
        memcpy(&single, &bits32, sizeof(bits32));
        value->number = (double)single;
    }
    value->type = TMSG_VALUE_FLOAT;
}

/* Takes a value that has no bytes after its mark: 0xc0 to 0xc3. */
static void take_constant(tmsg_cursor_t *cursor, uint8_t mark,
                          tmsg_value_t *value)
{
    if (mark == 0xc1) {
        fail_cursor(cursor, "holds a byte that msgpack never uses");
    } else if (mark == 0xc0) {
        value->type = TMSG_VALUE_NIL;
    } else {
        value->type = TMSG_VALUE_BOOL;
        value->boolean = mark == 0xc3;
    }
}

/* Takes a value of the formats 0xc0 to 0xdf, in the order of msgpack's table.
 * Within a type, each format has a number twice as long as the format before
 * it. */
static void take_marked(tmsg_cursor_t *cursor, uint8_t mark,
                        tmsg_value_t *value)
{
    if (mark < 0xc4) {
        take_constant(cursor, mark, value);
    } else if (mark < 0xc7) {
        take_data(cursor, value, TMSG_VALUE_BINARY,
                  take_number(cursor, 1u << (mark - 0xc4)));
    } else if (mark < 0xca) { /* the type of an extension takes one more byte */
        take_data(cursor, value, TMSG_VALUE_OTHER,
                  take_number(cursor, 1u << (mark - 0xc7)) + 1);
    } else if (mark < 0xcc) {
        take_float(cursor, value, 4u << (mark - 0xca));
    } else if (mark < 0xd0) {
        take_unsigned(value, take_number(cursor, 1u << (mark - 0xcc)));
    } else if (mark < 0xd4) {
        take_integer(value, signed_number(cursor, 1u << (mark - 0xd0)));
    } else if (mark < 0xd9) { /* such an extension has 1 to 16 bytes */
        take_data(cursor, value, TMSG_VALUE_OTHER, (1u << (mark - 0xd4)) + 1);
    } else if (mark < 0xdc) {
        take_data(cursor, value, TMSG_VALUE_STRING,
                  take_number(cursor, 1u << (mark - 0xd9)));
    } else if (mark < 0xde) {
        take_count(cursor, value, TMSG_VALUE_ARRAY,
                   take_number(cursor, 2u << (mark - 0xdc)));
    } else {
        take_count(cursor, value, TMSG_VALUE_MAP,
                   take_number(cursor, 2u << (mark - 0xde)));
    }
}

tmsg_value_t tmsg_cursor_value(tmsg_cursor_t *cursor)
{
    tmsg_value_t value = {.type = TMSG_VALUE_OTHER};
    uint8_t mark;

    if (cursor->at == cursor->end) {
        fail_cursor(cursor, "ends early");
        return value;
    }
    mark = *cursor->at++;
    if (mark < 0x80) {
        take_integer(&value, mark);
    } else if (mark < 0x90) {
        take_count(cursor, &value, TMSG_VALUE_MAP, mark & 0x0f);
    } else if (mark < 0xa0) {
        take_count(cursor, &value, TMSG_VALUE_ARRAY, mark & 0x0f);
    } else if (mark < 0xc0) {
        take_data(cursor, &value, TMSG_VALUE_STRING, mark & 0x1f);
    } else if (mark < 0xe0) {
        take_marked(cursor, mark, &value);
    } else {
        take_integer(&value, (int8_t)mark);
    }
    return value;
}

static tmsg_value_t typed(tmsg_cursor_t *cursor, tmsg_value_type_t type,
                          const char *error)
{
    tmsg_value_t value = tmsg_cursor_value(cursor);

    if (value.type != type) {
        fail_cursor(cursor, error);
    }
    if (cursor->error != NULL) {
        return (tmsg_value_t){.type = type};
    }
    return value;
}

/* Takes an unsigned integer that has one or two bytes after its mark. Returns
 * -1 if the next value is another. Most extents above 127 have this form. */
static int64_t take_short_unsigned(tmsg_cursor_t *cursor)
{
    const uint8_t *at = cursor->at;
    ptrdiff_t bytes = cursor->end - at;

    if (bytes > 1 && at[0] == 0xcc) {
        cursor->at += 2;
        return at[1];
    }
    if (bytes > 2 && at[0] == 0xcd) {
        cursor->at += 3;
        return at[1] << 8 | at[2];
    }
    return -1;
}

int64_t tmsg_cursor_any_integer(tmsg_cursor_t *cursor)
{
    int64_t value = take_short_unsigned(cursor);

    return value >= 0 ? value
                      : typed(cursor, TMSG_VALUE_INTEGER,
                              "is not an integer of 63 bits")
                            .integer;
}

uint32_t tmsg_cursor_any_array(tmsg_cursor_t *cursor)
{
    return typed(cursor, TMSG_VALUE_ARRAY, "is not an array").count;
}

uint32_t tmsg_cursor_map(tmsg_cursor_t *cursor)
{
    return typed(cursor, TMSG_VALUE_MAP, "is not a map").count;
}

const char *tmsg_cursor_any_string(tmsg_cursor_t *cursor, size_t *bytes_p)
{
    tmsg_value_t value = typed(cursor, TMSG_VALUE_STRING, "is not a string");

    *bytes_p = value.count;
    return value.data == NULL ? "" : value.data;
}

void tmsg_cursor_skip(tmsg_cursor_t *cursor)
{
    uint64_t pending[TMSG_CURSOR_DEPTH + 1] = {
        1}; /* values left to skip at each depth */
    unsigned depth = 0;

    while (cursor->error == NULL) {
        tmsg_value_t value;
        bool map;

        while (pending[depth] == 0) {
            if (depth == 0) {
                return;
            }
            depth--;
        }
        pending[depth]--;
        value = tmsg_cursor_value(cursor);
        map = value.type == TMSG_VALUE_MAP;
        if (!map && value.type != TMSG_VALUE_ARRAY) {
            continue;
        }
        if (depth == TMSG_CURSOR_DEPTH) {
            fail_cursor(cursor, "nests too deeply");
            return;
        }
        pending[++depth] = map ? 2 * (uint64_t)value.count : value.count;
    }
}
