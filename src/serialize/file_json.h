/* SPDX-License-Identifier: BSD-3-Clause */
/* serialize/file_json.h - reads the JSON of a file's header as text. A tree
 * of the JSON would take ten times its memory before any limit could be
 * checked. */
#ifndef TMSG_SERIALIZE_FILE_JSON_H
#define TMSG_SERIALIZE_FILE_JSON_H

#include "serialize/file.h"

/* Holds the text of a value in a header, including its quotes or brackets. */
typedef struct {
    const char *text;
    size_t bytes;
} tmsg_file_json_t;

/* Checks the syntax (RFC 8259) of a safetensors header: one object, followed by
 * spaces only. The header may contain objects, arrays, strings and integers,
 * nested at most three levels deep. *root_p is the object. Allocates nothing.
 * Errors: MALFORMED, UNSUPPORTED (NUL in a string).
 *
 * The functions below take only values of a header that passed this check and
 * has not changed since, because they do not look for the end of the text. The
 * text must therefore not lie in a mapped file, to which other processes may
 * write. */
tmsg_status_t tmsg_file_json_scan(const tmsg_file_where_t *where,
                                  const char *text, size_t bytes,
                                  tmsg_file_json_t *root_p);

/* Iterates over the values of an object or array. */
typedef struct {
    const char *at;
    char close;           /* closing bracket of the container */
    tmsg_file_json_t key; /* set only for an object */
    tmsg_file_json_t value;
} tmsg_file_json_walk_t;

/* Returns a walk that stands before the first value. */
tmsg_file_json_walk_t tmsg_file_json_walk(const tmsg_file_json_t *container);

/* Moves to the next value. Returns false if there is none. */
bool tmsg_file_json_next(tmsg_file_json_walk_t *walk);

/* Returns the value that begins at `text`. */
tmsg_file_json_t tmsg_file_json_at(const char *text);

/* Returns the number of values of an object or array. */
uint64_t tmsg_file_json_count(const tmsg_file_json_t *container);

/* Returns the bytes of a string's text, with its escapes resolved. */
size_t tmsg_file_json_string_bytes(const tmsg_file_json_t *string);

/* Writes the text of a string, with its escapes resolved, and a NUL to `text`.
 * `text` needs tmsg_file_json_string_bytes() + 1 bytes. */
void tmsg_file_json_copy_string(const tmsg_file_json_t *string, char *text);

/* Returns whether the text of a string, with its escapes resolved, is
 * `text`. */
bool tmsg_file_json_string_is(const tmsg_file_json_t *string, const char *text);

/* Compares the texts of two strings as strcmp() does, with their escapes
 * resolved. `a` and `b` point to the opening quotes. */
int tmsg_file_json_compare(const char *a, const char *b);

/* Reads an integer from 0 to 2^63 - 1. Returns false for any other number. */
bool tmsg_file_json_read_extent(const tmsg_file_json_t *number,
                                int64_t *extent_p);

/* Returns the type of a value: '{', '[', '"', or 'i' for an integer. */
static inline char tmsg_file_json_type(const tmsg_file_json_t *value)
{
    char first = *value->text;

    return first == '{' || first == '[' || first == '"' ? first : 'i';
}

#endif
