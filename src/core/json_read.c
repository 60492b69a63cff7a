/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/json_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/index.h"
#include "core/regular.h"

#define FILE_BYTES_MOST (1u << 20)

void tmsg_json_fail(tmsg_json_reader_t *reader, const cJSON *item,
                    const char *what)
{
    const char *key = item->string == NULL ? "" : item->string;

    if (reader->status == TMSG_OK) {
        reader->status = tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "%s: '%s' %s", reader->source,
            tmsg_error_name(key, strlen(key)).text, what);
    }
}

uint64_t tmsg_json_read_number(tmsg_json_reader_t *reader, const cJSON *item,
                               uint64_t most)
{
    double value = item->valuedouble;

    if (!cJSON_IsNumber(item) || value < 0 ||
        value > (double)TMSG_JSON_EXACT_MOST ||
        value != (double)(uint64_t)value || (uint64_t)value > most) {
        char what[64];

        snprintf(what, sizeof(what), "is not an integer from 0 to %" PRIu64,
                 most);
        tmsg_json_fail(reader, item, what);
        return 0;
    }
    return (uint64_t)value;
}

/* Holds a key of an object, as the index expects names. */
typedef struct {
    const char *name;
    size_t name_bytes;
} member_t;

static tmsg_status_t check_json_keys(tmsg_json_reader_t *reader,
                                     const cJSON *object, member_t *members)
{
    tmsg_names_t names = {members, sizeof(*members), 0};
    tmsg_index_t index = {0};
    tmsg_status_t status = TMSG_OK;
    const cJSON *item;

    cJSON_ArrayForEach(item, object)
    {
        member_t *member = &members[names.count];

        *member = (member_t){item->string, strlen(item->string)};
        if (tmsg_index_find(&index, &names, member->name, member->name_bytes) !=
            TMSG_INDEX_NONE) {
            tmsg_json_fail(reader, item, "occurs twice");
            break;
        }
        names.count++;
        status = tmsg_index_add(&index, &names);
        if (status != TMSG_OK) {
            break;
        }
    }
    tmsg_index_free(&index);
    return status;
}

bool tmsg_json_check_object(tmsg_json_reader_t *reader, const cJSON *object)
{
    tmsg_status_t status;
    member_t *members;

    if (!cJSON_IsObject(object)) {
        tmsg_json_fail(reader, object, "is not an object");
        return false;
    }
    members = calloc((size_t)cJSON_GetArraySize(object) + 1, sizeof(*members));
    status = members == NULL ? tmsg_error_memory(reader->what)
                             : check_json_keys(reader, object, members);
    free(members);
    if (reader->status == TMSG_OK) {
        reader->status = status;
    }
    return reader->status == TMSG_OK;
}

const char *tmsg_json_find_nul(const char *text, size_t bytes)
{
    static const char nul[] = "\\u0000";
    const char *end = text + bytes;

    while ((text = memchr(text, '\\', (size_t)(end - text))) != NULL) {
        size_t left = (size_t)(end - text);

        if (left >= strlen(nul) && memcmp(text, nul, strlen(nul)) == 0) {
            return text;
        }
        text += left > 1 ? 2 : 1; /* an escaped character begins no escape */
    }
    return NULL;
}

/* Returns the whole file with a NUL behind it, or NULL. */
static char *load_json_file(tmsg_json_reader_t *reader)
{
    char *text = malloc(FILE_BYTES_MOST + 1);
    FILE *file = NULL;
    size_t bytes = 0;
    int fd = -1;

    reader->status = text == NULL
                         ? tmsg_error_memory(reader->what)
                         : tmsg_regular_open(reader->what, reader->source, &fd);
    if (reader->status == TMSG_OK && (file = fdopen(fd, "rb")) == NULL) {
        reader->status = tmsg_error_memory(reader->what);
        close(fd);
    }
    if (file != NULL) {
        bytes = fread(text, 1, FILE_BYTES_MOST + 1, file);
    }
    if (file != NULL && ferror(file)) {
        reader->status = tmsg_error_errno(TMSG_ERR_IO, "%s %s", reader->what,
                                          reader->source);
    } else if (bytes > FILE_BYTES_MOST) {
        reader->status = tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                                        "%s %s is larger than 1 MiB",
                                        reader->what, reader->source);
    } else if (file != NULL) {
        text[bytes] = '\0';
        if (strlen(text) < bytes) {
            reader->status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                            "%s is not JSON: it holds a NUL",
                                            reader->source);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    if (reader->status != TMSG_OK) {
        free(text);
        return NULL;
    }
    return text;
}

static unsigned line_of(const char *text, const char *at)
{
    unsigned line = 1;

    for (; at != NULL && text < at; text++) {
        line += *text == '\n';
    }
    return line;
}

cJSON *tmsg_json_parse(tmsg_json_reader_t *reader, const char *text)
{
    const char *end = tmsg_json_find_nul(text, strlen(text));
    cJSON *root;

    if (end != NULL) {
        reader->status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                        "%s: line %u: a string holds \\u0000",
                                        reader->source, line_of(text, end));
        return NULL;
    }
    root = cJSON_ParseWithOpts(text, &end, 1);
    if (root == NULL) {
        reader->status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                        "%s is not JSON: see line %u",
                                        reader->source, line_of(text, end));
    }
    return root;
}

cJSON *tmsg_json_load(tmsg_json_reader_t *reader)
{
    char *text = load_json_file(reader);
    cJSON *root = text == NULL ? NULL : tmsg_json_parse(reader, text);

    free(text);
    return root;
}
