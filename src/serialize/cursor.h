/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/cursor.h - reads msgpack from untrusted peers. msgpack-c's unpacker
 * allocates what an array's count claims before it has seen an element (2 GiB
 * for five bytes). The decoder therefore reads with a cursor. The cursor
 * allocates nothing, and refuses counts that exceed the bytes left. */
#ifndef TMSG_SERIALIZE_CURSOR_H
#define TMSG_SERIALIZE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TMSG_CURSOR_DEPTH 16 /* depth to which a skipped value may nest */

/* A position in a msgpack text. The first error stays, and each later read
 * returns 0, "" or nothing. A caller can read on and check `error` once at the
 * end. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    const char *field; /* field that is read; set for errors */
    const char *error; /* NULL, or the error, such as "ends early" */
} tmsg_cursor_t;

typedef enum {
    TMSG_VALUE_NIL,
    TMSG_VALUE_BOOL,    /* boolean */
    TMSG_VALUE_INTEGER, /* integer */
    TMSG_VALUE_FLOAT,   /* number */
    TMSG_VALUE_STRING,  /* data, count bytes */
    TMSG_VALUE_BINARY,  /* data, count bytes */
    TMSG_VALUE_ARRAY,   /* count elements follow */
    TMSG_VALUE_MAP,     /* count keys with their values follow */
    TMSG_VALUE_OTHER    /* an integer above 2^63 - 1, an extension */
} tmsg_value_type_t;

/* One msgpack value; `type` says which fields are valid. */
typedef struct {
    tmsg_value_type_t type;
    uint32_t count;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *data; /* within the bytes being read */
    };
} tmsg_value_t;

/* Reads one value, or the head of an array or a map. */
tmsg_value_t tmsg_cursor_value(tmsg_cursor_t *cursor);

/* Each function reads one value of its type, in any msgpack encoding. */
int64_t tmsg_cursor_any_integer(tmsg_cursor_t *cursor);
uint32_t tmsg_cursor_any_array(tmsg_cursor_t *cursor);
const char *tmsg_cursor_any_string(tmsg_cursor_t *cursor, size_t *bytes_p);
uint32_t tmsg_cursor_map(tmsg_cursor_t *cursor);

/* The next three functions read the same types. Short encodings are the most
 * frequent, so these functions read them inline. */
static inline int64_t tmsg_cursor_integer(tmsg_cursor_t *cursor)
{
    /* One byte encodes integers from -32 to 127. */
    if (cursor->at < cursor->end && (int8_t)*cursor->at >= -32) {
        return (int8_t)*cursor->at++;
    }
    return tmsg_cursor_any_integer(cursor);
}

static inline uint32_t tmsg_cursor_array(tmsg_cursor_t *cursor)
{
    /* One byte encodes counts up to 15; the elements must fit, too. */
    if (cursor->at < cursor->end && (*cursor->at & 0xf0) == 0x90 &&
        (*cursor->at & 0x0f) < cursor->end - cursor->at) {
        return *cursor->at++ & 0x0f;
    }
    return tmsg_cursor_any_array(cursor);
}

static inline const char *tmsg_cursor_string(tmsg_cursor_t *cursor,
                                             size_t *bytes_p)
{
    /* One byte encodes lengths up to 31; the text must fit, too. */
    if (cursor->at < cursor->end && (*cursor->at & 0xe0) == 0xa0 &&
        (*cursor->at & 0x1f) < cursor->end - cursor->at) {
        const char *text = (const char *)cursor->at + 1;

        *bytes_p = *cursor->at & 0x1f;
        cursor->at += 1 + *bytes_p;
        return text;
    }
    return tmsg_cursor_any_string(cursor, bytes_p);
}

/* Skips one value with everything in it. */
void tmsg_cursor_skip(tmsg_cursor_t *cursor);

#endif
