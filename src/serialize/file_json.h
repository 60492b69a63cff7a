/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_json.h - reads the JSON of a file's header as text. A tree of
 * it would take ten times its memory before anything is counted. */
#ifndef TMSG_SERIALIZE_FILE_JSON_H
#define TMSG_SERIALIZE_FILE_JSON_H

#include "serialize/file.h"

/* A value in a header, with its quotes or brackets. */
typedef struct {
    const char *text;
    size_t bytes;
} tmsg_file_json_t;

/* Checks the syntax (RFC 8259) of a safetensors header: one object, followed by
 * spaces only. Objects, arrays, strings and integers are allowed, at most three
 * levels deep. *root_p is the object. The functions below take only values of a
 * header that was checked and did not change since: they look for no end of the
 * text. So it may not lie in a mapped file, which others write to. Allocates
 * nothing. Errors: MALFORMED, UNSUPPORTED
 * (NUL in a string). */
tmsg_status_t tmsg_file_json_scan(const tmsg_file_where_t *where,
                                  const char *text, size_t bytes,
                                  tmsg_file_json_t *root_p);

/* A walk through the values of an object or array. */
typedef struct {
    const char *at;
    char close;           /* the bracket that ends the container */
    tmsg_file_json_t key; /* only in an object */
    tmsg_file_json_t value;
} tmsg_file_json_walk_t;

/* Begins a walk, before the first value. */
tmsg_file_json_walk_t tmsg_file_json_walk(const tmsg_file_json_t *container);

/* Moves to the next value. Returns false if there is none. */
bool tmsg_file_json_next(tmsg_file_json_walk_t *walk);

/* Returns the value that begins at `text`. */
tmsg_file_json_t tmsg_file_json_at(const char *text);

/* Counts the values of an object or array. */
uint64_t tmsg_file_json_count(const tmsg_file_json_t *container);

/* Returns the bytes of a string's text, with its escapes resolved. */
size_t tmsg_file_json_string_bytes(const tmsg_file_json_t *string);

/* Writes that text and a NUL. */
void tmsg_file_json_copy_string(const tmsg_file_json_t *string, char *text);

bool tmsg_file_json_string_is(const tmsg_file_json_t *string, const char *text);

/* Compares the texts of two strings, which begin at `a` and `b`, as memcmp()
 * does. */
int tmsg_file_json_compare(const char *a, const char *b);

/* Reads a number from 0 to 2^63 - 1. Returns false if it is another. */
bool tmsg_file_json_read_extent(const tmsg_file_json_t *number,
                                int64_t *extent_p);

/* Returns the type of a value: '{', '[', '"', or 'i' for an integer. */
static inline char tmsg_file_json_type(const tmsg_file_json_t *value)
{
    char first = *value->text;

    return first == '{' || first == '[' || first == '"' ? first : 'i';
}

#endif
