/* SPDX-License-Identifier: BSD-3-Clause */
/* measure/fields.h - structures as rows of JSON and CSV, by a table of their
 * fields. */
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
        FIELD_REAL,  /* double; NAN is null in JSON, and nothing in CSV */
        FIELD_TRUTH  /* bool */
    } type;
    size_t offset;
} field_t;

/* An array of objects; NULL: no memory. `rows` are `row_bytes` each. */
cJSON *fields_json(const field_t *fields, size_t count, const void *rows,
                   size_t row_bytes, size_t row_count);

/* A line of names, and a line of values as RFC 4180 has them. */
void fields_csv_head(const field_t *fields, size_t count, FILE *stream);
void fields_csv(const field_t *fields, size_t count, const void *row,
                FILE *stream);

#endif
