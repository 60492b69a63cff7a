/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/settings.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/limits.h"

#define VERSION 1
#define FILE_BYTES_MOST (1u << 20)
#define EXACT_MOST (1LL << 53) /* to where a double has every integer */

/* What is being read; `status` is sticky. */
typedef struct {
    tmsg_settings_t *settings;
    tmsg_status_t status;
} reader_t;

static void fail(reader_t *reader, const cJSON *item, const char *what)
{
    const char *key = item->string == NULL ? "" : item->string;

    if (reader->status == TMSG_OK) {
        reader->status = tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "%s: '%s' %s", reader->settings->path,
            tmsg_error_name(key, strlen(key)).text, what);
    }
}

static uint64_t read_number(reader_t *reader, const cJSON *item, uint64_t most)
{
    double value = item->valuedouble;

    if (!cJSON_IsNumber(item) || value < 0 || value > (double)EXACT_MOST ||
        value != (double)(uint64_t)value || (uint64_t)value > most) {
        char what[64];

        snprintf(what, sizeof(what), "is not an integer from 0 to %" PRIu64,
                 most);
        fail(reader, item, what);
        return 0;
    }
    return (uint64_t)value;
}

static void read_version(reader_t *reader, const cJSON *item)
{
    if (read_number(reader, item, UINT32_MAX) != VERSION) {
        fail(reader, item, "is not 1, the version that this library reads");
    }
}

static void read_peer_timeout(reader_t *reader, const cJSON *item)
{
    reader->settings->has_peer_timeout = true;
    reader->settings->peer_timeout_ms =
        (uint32_t)read_number(reader, item, INT32_MAX);
}

static void read_no_thread(reader_t *reader, const cJSON *item)
{
    if (!cJSON_IsBool(item)) {
        fail(reader, item, "is neither true nor false");
    }
    reader->settings->no_thread = cJSON_IsTrue(item);
}

static bool has_twice(const cJSON *object, const cJSON *item)
{
    const cJSON *other;

    cJSON_ArrayForEach(other, object)
    {
        if (other == item) {
            return false;
        }
        if (strcmp(other->string, item->string) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether it is an object whose keys are all different. */
static bool check_object(reader_t *reader, const cJSON *object)
{
    const cJSON *item;

    if (!cJSON_IsObject(object)) {
        fail(reader, object, "is not an object");
        return false;
    }
    cJSON_ArrayForEach(item, object)
    {
        if (has_twice(object, item)) {
            fail(reader, item, "is there twice");
        }
    }
    return reader->status == TMSG_OK;
}

static void read_limits(reader_t *reader, const cJSON *object)
{
    const cJSON *item;

    if (!check_object(reader, object)) {
        return;
    }
    cJSON_ArrayForEach(item, object)
    {
        if (!tmsg_limits_set(&reader->settings->limits, item->string,
                             read_number(reader, item, EXACT_MOST))) {
            fail(reader, item, "is no limit");
        }
    }
}

/* "KEY=VALUE;", to the end of `text` or, where it is NULL, nowhere. */
static size_t put_pair(const cJSON *item, char *text)
{
    const char *value = item->valuestring;

    if (text != NULL) {
        sprintf(text, "%s=%s;", item->string, value);
    }
    return strlen(item->string) + strlen(value) + 2;
}

static void check_pair(reader_t *reader, const cJSON *item)
{
    const char *key = item->string;

    if (!cJSON_IsString(item) || item->valuestring[0] == '\0') {
        fail(reader, item, "is not a text, as UCX's values are");
    } else if (strncmp(key, "UCX_", 4) == 0) {
        fail(reader, item,
             "is a key of UCX with the UCX_ prefix: leave it "
             "out");
    } else if (*key == '\0' || strpbrk(key, "=;") != NULL ||
               strchr(item->valuestring, ';') != NULL) {
        fail(reader, item, "is no key of UCX's, or its value holds a ';'");
    }
}

static void read_ucx(reader_t *reader, const cJSON *object)
{
    const cJSON *item;
    size_t bytes = 1;

    if (!check_object(reader, object)) {
        return;
    }
    cJSON_ArrayForEach(item, object)
    {
        check_pair(reader, item);
        if (reader->status != TMSG_OK) {
            return;
        }
        bytes += put_pair(item, NULL);
    }
    reader->settings->ucx = calloc(1, bytes);
    if (reader->settings->ucx == NULL) {
        reader->status = tmsg_error_memory("the UCX configuration");
        return;
    }
    bytes = 0;
    cJSON_ArrayForEach(item, object)
    {
        bytes += put_pair(item, reader->settings->ucx + bytes);
    }
}

/* "carrier.name=bytes,", to the end of `text` or, where it is NULL, nowhere. */
static size_t put_threshold(const cJSON *carrier, const cJSON *item, char *text)
{
    char number[24];
    int bytes = snprintf(number, sizeof(number), "%.0f", item->valuedouble);

    if (text != NULL) {
        sprintf(text, "%s.%s=%s,", carrier->string, item->string, number);
    }
    return strlen(carrier->string) + strlen(item->string) + (size_t)bytes + 3;
}

static size_t put_thresholds(reader_t *reader, const cJSON *object, char *text)
{
    const cJSON *carrier, *item;
    size_t bytes = 0;

    cJSON_ArrayForEach(carrier, object)
    {
        if (!check_object(reader, carrier)) {
            return 0;
        }
        cJSON_ArrayForEach(item, carrier)
        {
            (void)read_number(reader, item, EXACT_MOST);
            bytes += put_threshold(carrier, item,
                                   text == NULL ? NULL : text + bytes);
        }
    }
    return bytes;
}

/* Which carriers and thresholds there are is for tmsg_tuning_read() to say. */
static void read_thresholds(reader_t *reader, const cJSON *object)
{
    size_t bytes;

    if (!check_object(reader, object)) {
        return;
    }
    bytes = put_thresholds(reader, object, NULL);
    if (reader->status != TMSG_OK) {
        return;
    }
    reader->settings->thresholds = calloc(1, bytes + 1);
    if (reader->settings->thresholds == NULL) {
        reader->status = tmsg_error_memory("thresholds");
        return;
    }
    put_thresholds(reader, object, reader->settings->thresholds);
}

static const struct {
    const char *name;
    void (*read)(reader_t *reader, const cJSON *item);
} keys[] = {
    {"version", read_version},
    {"peer_timeout_ms", read_peer_timeout},
    {"no_thread", read_no_thread},
    {"limits", read_limits},
    {"ucx", read_ucx},
    {"thresholds", read_thresholds},
};

#define KEYS (sizeof(keys) / sizeof(keys[0]))

static void read_root(reader_t *reader, const cJSON *root)
{
    const cJSON *item;
    bool versioned = false;

    if (!check_object(reader, root)) {
        return;
    }
    cJSON_ArrayForEach(item, root)
    {
        size_t i = 0;

        while (i < KEYS && strcmp(keys[i].name, item->string) != 0) {
            i++;
        }
        if (i == KEYS) {
            fail(reader, item, "is no setting");
            return;
        }
        versioned = versioned || i == 0;
        keys[i].read(reader, item);
    }
    if (!versioned) {
        fail(reader, root, "has no \"version\": 1");
    }
}

/* The whole file with a NUL behind it, or NULL. */
static char *load(const char *path, tmsg_status_t *status)
{
    char *text = malloc(FILE_BYTES_MOST + 1);
    FILE *file;
    size_t bytes;

    if (text == NULL) {
        *status = tmsg_error_memory("a configuration file");
        return NULL;
    }
    file = fopen(path, "rbe");
    if (file == NULL) {
        *status = tmsg_error_errno(TMSG_ERR_NOT_FOUND,
                                   "the configuration file %s", path);
        free(text);
        return NULL;
    }
    bytes = fread(text, 1, FILE_BYTES_MOST + 1, file);
    if (ferror(file)) {
        *status =
            tmsg_error_errno(TMSG_ERR_IO, "the configuration file %s", path);
    } else if (bytes > FILE_BYTES_MOST) {
        *status =
            tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                           "the configuration file %s is over 1 MiB", path);
    } else {
        text[bytes] = '\0';
    }
    fclose(file);
    if (*status != TMSG_OK || strlen(text) < bytes) {
        if (*status == TMSG_OK) {
            *status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                     "%s is not JSON: it holds a NUL", path);
        }
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

static void parse(reader_t *reader, const char *text)
{
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithOpts(text, &end, 1);

    if (root == NULL) {
        reader->status = tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "%s is not JSON: see line %u",
            reader->settings->path, line_of(text, end));
        return;
    }
    read_root(reader, root);
    cJSON_Delete(root);
}

tmsg_status_t tmsg_settings_read(const char *path, tmsg_settings_t *settings)
{
    reader_t reader = {.settings = settings, .status = TMSG_OK};
    char *text;

    *settings = (tmsg_settings_t){0};
    path = path != NULL ? path : getenv("TENSORMSG_CONFIG");
    if (path == NULL || *path == '\0') {
        return TMSG_OK;
    }
    text = load(path, &reader.status);
    if (text == NULL) {
        return reader.status;
    }
    settings->path = strdup(path);
    if (settings->path == NULL) {
        reader.status = tmsg_error_memory("a configuration file");
    } else {
        parse(&reader, text);
    }
    free(text);
    if (reader.status != TMSG_OK) {
        tmsg_settings_free(settings);
    }
    return reader.status;
}

void tmsg_settings_free(tmsg_settings_t *settings)
{
    free(settings->path);
    free(settings->ucx);
    free(settings->thresholds);
    *settings = (tmsg_settings_t){0};
}
