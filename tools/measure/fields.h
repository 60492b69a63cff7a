/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/fields.h - writes structures as rows of JSON and CSV, by a table of
 * their fields. */
#ifndef TMSG_MEASURE_FIELDS_H
#define TMSG_MEASURE_FIELDS_H

#include <stddef.h>
#include <stdio.h>

#include <cjson/cJSON.h>

typedef struct {
    const char *name;
    enum {
        FIELD_TEXT,  /* char[] */
        FIELD_WORD,  /* const char * */
        FIELD_WHOLE, /* uint64_t */
        FIELD_REAL,  /* double; NAN is null in JSON and empty in CSV */
        FIELD_TRUTH  /* bool */
    } type;
    size_t offset;
} field_t;

/* Returns an array of objects, one for each row, or NULL if there is no memory.
 * `rows` has rows of `row_bytes` each. The caller frees the array with
 * cJSON_Delete(). */
cJSON *fields_json(const field_t *fields, size_t count, const void *rows,
                   size_t row_bytes, size_t row_count);

/* These functions write a line of names, and a line of values, as RFC 4180
 * specifies. */
void fields_csv_head(const field_t *fields, size_t count, FILE *stream);
void fields_csv(const field_t *fields, size_t count, const void *row,
                FILE *stream);

#endif
