/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/worker/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/worker/way.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/limits.h"

#define VERSION 1

typedef struct {
    tmsg_json_reader_t json;
    tmsg_settings_t *settings;
} reader_t;

static void read_version(reader_t *reader, const cJSON *item)
{
    if (tmsg_json_read_number(&reader->json, item, UINT32_MAX) != VERSION) {
        tmsg_json_fail(&reader->json, item,
                       "is not 1, the version that this library reads");
    }
}

static void read_setting_peer_timeout(reader_t *reader, const cJSON *item)
{
    reader->settings->has_peer_timeout = true;
    reader->settings->peer_timeout_ms =
        (uint32_t)tmsg_json_read_number(&reader->json, item, INT32_MAX);
}

static bool read_bool(reader_t *reader, const cJSON *item)
{
    if (!cJSON_IsBool(item)) {
        tmsg_json_fail(&reader->json, item, "is neither true nor false");
    }
    return cJSON_IsTrue(item);
}

static void read_no_thread(reader_t *reader, const cJSON *item)
{
    reader->settings->no_thread = read_bool(reader, item);
}

static void read_require_path(reader_t *reader, const cJSON *item)
{
    reader->settings->require_path = read_bool(reader, item);
}

static void read_carrier(reader_t *reader, const cJSON *item)
{
    if (!cJSON_IsString(item) ||
        !tmsg_carrier_read(item->valuestring, &reader->settings->carrier)) {
        tmsg_json_fail(&reader->json, item,
                       "is not \"auto\", \"ucx\" or \"stream\"");
    }
}

static void read_bulk_connections(reader_t *reader, const cJSON *item)
{
    reader->settings->bulk_connections = (uint32_t)tmsg_json_read_number(
        &reader->json, item, TMSG_BULK_CONNECTIONS_MOST);
}

static void read_setting_huge_pages(reader_t *reader, const cJSON *item)
{
    reader->settings->has_huge_pages = true;
    reader->settings->huge_page_bytes =
        (uint32_t)tmsg_json_read_number(&reader->json, item, UINT32_MAX);
}

static void read_setting_limits(reader_t *reader, const cJSON *object)
{
    const cJSON *item;

    if (!tmsg_json_check_object(&reader->json, object)) {
        return;
    }
    cJSON_ArrayForEach(item, object)
    {
        if (!tmsg_limits_set(&reader->settings->limits, item->string,
                             tmsg_json_read_number(&reader->json, item,
                                                   TMSG_JSON_EXACT_MOST))) {
            tmsg_json_fail(&reader->json, item, "is not a limit");
        }
    }
}

/* Writes "KEY=VALUE;" to `text`, unless that is NULL. Returns the bytes that it
 * takes. */
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
        tmsg_json_fail(&reader->json, item,
                       "is not a string, as UCX's values must be");
    } else if (strncmp(key, "UCX_", 4) == 0) {
        tmsg_json_fail(&reader->json, item,
                       "is a key of UCX with the UCX_ prefix: leave it "
                       "out");
    } else if (*key == '\0' || strpbrk(key, "=;") != NULL ||
               strchr(item->valuestring, ';') != NULL) {
        tmsg_json_fail(&reader->json, item,
                       "is not a UCX key, or its value holds a ';'");
    }
}

static void read_setting_ucx(reader_t *reader, const cJSON *object)
{
    const cJSON *item;
    size_t bytes = 1;

    if (!tmsg_json_check_object(&reader->json, object)) {
        return;
    }
    cJSON_ArrayForEach(item, object)
    {
        check_pair(reader, item);
        if (reader->json.status != TMSG_OK) {
            return;
        }
        bytes += put_pair(item, NULL);
    }
    reader->settings->ucx = calloc(1, bytes);
    if (reader->settings->ucx == NULL) {
        reader->json.status = tmsg_error_memory("the UCX configuration");
        return;
    }
    bytes = 0;
    cJSON_ArrayForEach(item, object)
    {
        bytes += put_pair(item, reader->settings->ucx + bytes);
    }
}

static bool is_never(const cJSON *item)
{
    return cJSON_IsString(item) &&
           strcmp(item->valuestring, TMSG_THRESHOLD_NEVER_WORD) == 0;
}

/* Writes "transport.name=bytes," to `text`, unless that is NULL. Returns the
 * bytes that it takes. */
static size_t put_threshold(const cJSON *transport, const cJSON *item,
                            char *text)
{
    char value[24];
    int bytes =
        is_never(item)
            ? snprintf(value, sizeof(value), "%s", TMSG_THRESHOLD_NEVER_WORD)
            : snprintf(value, sizeof(value), "%.0f", item->valuedouble);

    if (text != NULL) {
        sprintf(text, "%s.%s=%s,", transport->string, item->string, value);
    }
    return strlen(transport->string) + strlen(item->string) + (size_t)bytes + 3;
}

static size_t put_thresholds(reader_t *reader, const cJSON *object, char *text)
{
    const cJSON *transport, *item;
    size_t bytes = 0;

    cJSON_ArrayForEach(transport, object)
    {
        if (!tmsg_json_check_object(&reader->json, transport)) {
            return 0;
        }
        cJSON_ArrayForEach(item, transport)
        {
            if (!is_never(item)) {
                (void)tmsg_json_read_number(&reader->json, item,
                                            TMSG_JSON_EXACT_MOST);
            }
            bytes += put_threshold(transport, item,
                                   text == NULL ? NULL : text + bytes);
        }
    }
    return bytes;
}

/* Reads the thresholds. tmsg_tuning_read() knows which transports and
 * thresholds there are. */
static void read_thresholds(reader_t *reader, const cJSON *object)
{
    size_t bytes;

    if (!tmsg_json_check_object(&reader->json, object)) {
        return;
    }
    bytes = put_thresholds(reader, object, NULL);
    if (reader->json.status != TMSG_OK) {
        return;
    }
    reader->settings->thresholds = calloc(1, bytes + 1);
    if (reader->settings->thresholds == NULL) {
        reader->json.status = tmsg_error_memory("thresholds");
        return;
    }
    put_thresholds(reader, object, reader->settings->thresholds);
}

static const struct {
    const char *name;
    void (*read)(reader_t *reader, const cJSON *item);
} keys[] = {
    {"version", read_version},
    {"peer_timeout_ms", read_setting_peer_timeout},
    {"no_thread", read_no_thread},
    {"require_path", read_require_path},
    {"limits", read_setting_limits},
    {"ucx", read_setting_ucx},
    {"thresholds", read_thresholds},
    {"huge_page_bytes", read_setting_huge_pages},
    {"carrier", read_carrier},
    {"bulk_connections", read_bulk_connections},
};

#define KEYS (sizeof(keys) / sizeof(keys[0]))

static void read_settings_root(reader_t *reader, const cJSON *root)
{
    const cJSON *item;
    bool versioned = false;

    if (!tmsg_json_check_object(&reader->json, root)) {
        return;
    }
    cJSON_ArrayForEach(item, root)
    {
        size_t i = 0;

        while (i < KEYS && strcmp(keys[i].name, item->string) != 0) {
            i++;
        }
        if (i == KEYS) {
            tmsg_json_fail(&reader->json, item, "is not a setting");
            return;
        }
        versioned = versioned || i == 0;
        keys[i].read(reader, item);
    }
    if (!versioned) {
        tmsg_json_fail(&reader->json, root, "has no \"version\": 1");
    }
}

const char *const tmsg_carrier_names[TMSG_CARRIERS] = {"auto", "ucx", "stream"};

bool tmsg_carrier_read(const char *name, int32_t *carrier_p)
{
    for (int32_t i = 0; i < TMSG_CARRIERS; i++) {
        if (strcmp(name, tmsg_carrier_names[i]) == 0) {
            *carrier_p = i;
            return true;
        }
    }
    return false;
}

tmsg_status_t tmsg_settings_read(const char *path, tmsg_settings_t *settings)
{
    reader_t reader = {.settings = settings};
    cJSON *root;

    *settings = (tmsg_settings_t){0};
    path = path != NULL ? path : getenv("TENSORMSG_CONFIG");
    if (path == NULL || *path == '\0') {
        return TMSG_OK;
    }
    reader.json = (tmsg_json_reader_t){"the configuration file", path, TMSG_OK};
    settings->path = strdup(path);
    if (settings->path == NULL) {
        return tmsg_error_memory("a configuration file");
    }
    root = tmsg_json_load(&reader.json);
    if (root != NULL) {
        read_settings_root(&reader, root);
        cJSON_Delete(root);
    }
    if (reader.json.status != TMSG_OK) {
        tmsg_settings_free(settings);
    }
    return reader.json.status;
}

void tmsg_settings_free(tmsg_settings_t *settings)
{
    free(settings->path);
    free(settings->ucx);
    free(settings->thresholds);
    *settings = (tmsg_settings_t){0};
}
