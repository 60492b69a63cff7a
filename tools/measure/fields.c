/* SPDX-License-Identifier: BSD-3-Clause */
#include "fields.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const void *field_value(const field_t *field, const void *row)
{
    return (const char *)row + field->offset;
}

static cJSON *json_of(const field_t *field, const void *row)
{
    const void *value = field_value(field, row);

    switch (field->type) {
    case FIELD_TEXT:
        return cJSON_CreateString(value);
    case FIELD_WORD:
        return cJSON_CreateString(*(const char *const *)value);
    case FIELD_WHOLE:
        return cJSON_CreateNumber((double)*(const uint64_t *)value);
    case FIELD_TRUTH:
        return cJSON_CreateBool(*(const bool *)value);
    default:
        return isnan(*(const double *)value)
                   ? cJSON_CreateNull()
                   : cJSON_CreateNumber(*(const double *)value);
    }
}

cJSON *fields_json(const field_t *fields, size_t count, const void *rows,
                   size_t row_bytes, size_t row_count)
{
    cJSON *array = cJSON_CreateArray();
    bool ok = array != NULL;

    for (size_t i = 0; i < row_count && ok; i++) {
        cJSON *object = cJSON_CreateObject();

        ok = cJSON_AddItemToArray(array, object);
        for (size_t j = 0; j < count && ok; j++) {
            ok = cJSON_AddItemToObject(
                object, fields[j].name,
                json_of(&fields[j], (const char *)rows + i * row_bytes));
        }
    }
    if (!ok) {
        cJSON_Delete(array);
        array = NULL;
    }
    return array;
}

static void put_quoted(const char *text, FILE *stream)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stream);
        return;
    }
    putc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            putc('"', stream);
        }
        putc(*text, stream);
    }
    putc('"', stream);
}

static void put_field(const field_t *field, const void *row, FILE *stream)
{
    const void *value = field_value(field, row);

    switch (field->type) {
    case FIELD_TEXT:
        put_quoted(value, stream);
        break;
    case FIELD_WORD:
        put_quoted(*(const char *const *)value, stream);
        break;
    case FIELD_WHOLE:
        fprintf(stream, "%llu", (unsigned long long)*(const uint64_t *)value);
        break;
    case FIELD_TRUTH:
        fputs(*(const bool *)value ? "true" : "false", stream);
        break;
    default:
        if (!isnan(*(const double *)value)) {
            fprintf(stream, "%.6g", *(const double *)value);
        }
    }
}

void fields_csv_head(const field_t *fields, size_t count, FILE *stream)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(stream, "%s%s", i == 0 ? "" : ",", fields[i].name);
    }
    putc('\n', stream);
}

void fields_csv(const field_t *fields, size_t count, const void *row,
                FILE *stream)
{
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            putc(',', stream);
        }
        put_field(&fields[i], row, stream);
    }
    putc('\n', stream);
}
