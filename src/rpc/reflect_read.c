/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads what a peer tells of itself, and checks all of it. */
#include <stdlib.h>
#include <string.h>

#include <tensormsg/signature.h>

#include "core/json_read.h"
#include "core/map.h"
#include "core/shown.h"
#include "rpc/reflect.h"

/* METHODS_MOST bounds the keys of a reply, JSON_BYTES_MOST the text of each
 * method. */
#define METHODS_MOST 65536
#define JSON_BYTES_MOST (2u * TMSG_SIGNATURE_TEXT_MAX + 8192)
#define LOAD_BYTES_MOST 4096 /* of the JSON of a report's figures */

struct tmsg_methods {
    size_t count;
    tmsg_method_info_t *infos;
};

void tmsg_methods_destroy(tmsg_methods_t *methods)
{
    if (methods == NULL) {
        return;
    }
    for (size_t i = 0; i < methods->count; i++) {
        free((char *)(uintptr_t)methods->infos[i].name);
        free((char *)(uintptr_t)methods->infos[i].description);
        free((char *)(uintptr_t)methods->infos[i].signature);
    }
    free(methods->infos);
    free(methods);
}

size_t tmsg_methods_size(const tmsg_methods_t *methods)
{
    return methods == NULL ? 0 : methods->count;
}

tmsg_status_t tmsg_methods_at(const tmsg_methods_t *methods, size_t index,
                              tmsg_method_info_t *info_p)
{
    if (methods == NULL || info_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "methods: a pointer is NULL");
    }
    if (index >= methods->count) {
        return tmsg_error_set(
            TMSG_ERR_NOT_FOUND,
            "methods: there are %zu, and index %zu is out of range",
            methods->count, index);
    }
    *info_p = methods->infos[index];
    return TMSG_OK;
}

static tmsg_status_t malformed_list(const char *name, const char *what)
{
    return tmsg_error_set(TMSG_ERR_MALFORMED, "list of methods: '%s': %s",
                          tmsg_error_name(name, strlen(name)).text, what);
}

/* Stores the string that a member holds; NULL: the member is missing. Returns
 * false if the member is no string. */
static bool text_of(const cJSON *object, const char *key, const char **text_p)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    *text_p = item == NULL ? NULL : cJSON_GetStringValue(item);
    return item == NULL || *text_p != NULL;
}

/* Stores the number that a member holds; a missing member stores nothing.
 * Returns false if the member is no number of 32 bits. */
static bool number_of(const cJSON *object, const char *key, uint32_t *number_p)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    tmsg_json_reader_t reader = {.source = ""};

    if (item != NULL) {
        *number_p = (uint32_t)tmsg_json_read_number(&reader, item, UINT32_MAX);
    }
    return reader.status == TMSG_OK;
}

/* Stores a copy of `text`. NULL leaves *copy_p as it is. Errors: NO_MEMORY. */
static tmsg_status_t keep_text(const char *text, const char **copy_p)
{
    if (text != NULL) {
        *copy_p = strdup(text);
    }
    return text != NULL && *copy_p == NULL ? tmsg_error_memory("methods")
                                           : TMSG_OK;
}

/* Checks that a text is a signature; NULL (none) is allowed. Errors: MALFORMED,
 * NO_MEMORY. */
static tmsg_status_t check_signature(const char *name, const char *text)
{
    tmsg_signature_t *signature;
    char why[TMSG_ERROR_BYTES];
    tmsg_status_t status =
        text == NULL ? TMSG_OK : tmsg_signature_parse(text, &signature);

    if (text != NULL && status == TMSG_OK) {
        tmsg_signature_destroy(signature);
    } else if (status != TMSG_OK && status != TMSG_ERR_NO_MEMORY) {
        strcpy(why, tmsg_error_message());
        status = malformed_list(name, why);
    }
    return status;
}

/* Stores the truth that a member holds; a missing member is false. Returns
 * false if the member is neither true nor false. */
static bool truth_of(const cJSON *object, const char *key, int32_t *truth_p)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    *truth_p = cJSON_IsTrue(item);
    return item == NULL || cJSON_IsBool(item);
}

static tmsg_status_t read_object(const cJSON *object, tmsg_method_info_t *info)
{
    tmsg_json_reader_t reader = {.what = "methods", .source = info->name};
    const char *description, *signature, *health;
    tmsg_status_t status;

    if (!tmsg_json_check_object(&reader, object)) {
        return reader.status == TMSG_ERR_NO_MEMORY
                   ? reader.status
                   : malformed_list(info->name,
                                    "no object, or a key that occurs twice");
    }
    if (!text_of(object, "description", &description) ||
        !text_of(object, "signature", &signature) ||
        !text_of(object, "health", &health) ||
        !truth_of(object, "stream", &info->is_stream) ||
        !truth_of(object, "idempotent", &info->is_idempotent) ||
        !truth_of(object, "principal", &info->needs_principal) ||
        !number_of(object, "concurrency", &info->concurrency) ||
        !number_of(object, "queue", &info->queue)) {
        return malformed_list(info->name, "a value is of another type");
    }
    if (description != NULL &&
        strlen(description) > TMSG_METHOD_DESCRIPTION_MAX) {
        return malformed_list(info->name, "the description is too long");
    }
    info->health =
        health == NULL ? TMSG_HEALTH_UNKNOWN : (int32_t)tmsg_health_of(health);
    status = check_signature(info->name, signature);
    if (status == TMSG_OK) {
        status = keep_text(description == NULL ? "" : description,
                           &info->description);
    }
    return status == TMSG_OK ? keep_text(signature, &info->signature) : status;
}

/* Reads one method of the list. A lack of memory in cJSON looks like a text
 * that is no JSON, and becomes MALFORMED; nobody needs the difference. Errors:
 * MALFORMED, NO_MEMORY. */
static tmsg_status_t read_method_info(const char *name,
                                      const tmsg_meta_t *value,
                                      tmsg_method_info_t *info)
{
    cJSON *object = NULL;
    const char *end;
    size_t bytes;
    tmsg_status_t status = tmsg_method_check(name, &bytes);

    if (status != TMSG_OK) {
        return malformed_list(name, "no name of a method");
    }
    if (value->type != TMSG_META_TYPE_STRING ||
        value->bytes > JSON_BYTES_MOST ||
        memchr(value->data, '\0', value->bytes) != NULL) {
        return malformed_list(name, "not a string, or too long");
    }
    if (tmsg_json_find_nul(value->data, value->bytes) != NULL) {
        return malformed_list(name, "a string holds \\u0000");
    }
    status = keep_text(name, &info->name);
    if (status != TMSG_OK) {
        return status;
    }
    object = cJSON_ParseWithOpts(value->data, &end, 1);
    status = object == NULL ? malformed_list(name, "not JSON")
                            : read_object(object, info);
    cJSON_Delete(object);
    return status;
}

static bool is_method(const tmsg_map_meta_entry_t *entry)
{
    const size_t bytes = strlen(TMSG_REFLECT_METHOD);

    return entry->key_bytes >= bytes &&
           memcmp(entry->key, TMSG_REFLECT_METHOD, bytes) == 0;
}

tmsg_status_t tmsg_methods_read(const tmsg_map_t *reply,
                                tmsg_methods_t **methods_p)
{
    size_t keys = tmsg_map_meta_size(reply);
    const tmsg_map_meta_entry_t *entries;
    tmsg_methods_t *methods;
    tmsg_status_t status = TMSG_OK;

    if (reply == NULL || methods_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "methods: a pointer is NULL");
    }
    if (keys > METHODS_MOST) {
        return tmsg_error_set(TMSG_ERR_LIMIT_EXCEEDED,
                              "list of methods: more than %d", METHODS_MOST);
    }
    methods = calloc(1, sizeof(*methods));
    if (methods != NULL) {
        methods->infos = calloc(keys + 1, sizeof(*methods->infos));
    }
    if (methods == NULL || methods->infos == NULL) {
        status = tmsg_error_memory("a list of methods");
    }
    entries = tmsg_map_meta_entries(reply);
    for (size_t i = 0; i < keys && status == TMSG_OK; i++) {
        if (is_method(&entries[i])) {
            status = read_method_info(
                entries[i].key + strlen(TMSG_REFLECT_METHOD), &entries[i].value,
                &methods->infos[methods->count++]);
        }
    }
    if (status != TMSG_OK) {
        tmsg_methods_destroy(methods);
        return status;
    }
    *methods_p = methods;
    return TMSG_OK;
}

tmsg_status_t tmsg_health_read(const tmsg_map_t *reply, tmsg_health_t *health_p)
{
    const char *word = NULL;

    if (reply == NULL || health_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "health: a pointer is NULL");
    }
    if (tmsg_map_get_string(reply, TMSG_HEALTH_TOLD, &word) != TMSG_OK) {
        return tmsg_error_set(TMSG_ERR_MALFORMED,
                              "health: the reply has no string '%s'",
                              TMSG_HEALTH_TOLD);
    }
    *health_p = tmsg_health_of(word);
    return TMSG_OK;
}

/* Returns the figure of that key; 0 if it is missing or is none. */
static uint64_t figure_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    tmsg_json_reader_t reader = {.source = ""};
    uint64_t figure =
        item == NULL ? 0 : tmsg_json_read_number(&reader, item, INT64_MAX);

    return reader.status == TMSG_OK ? figure : 0;
}

/* Reads the figures of a report; what is malformed is left out. */
static void read_load(const char *text, tmsg_health_report_t *report)
{
    const char *end, *why = NULL;
    cJSON *object = strlen(text) > LOAD_BYTES_MOST ||
                            tmsg_json_find_nul(text, strlen(text)) != NULL
                        ? NULL
                        : cJSON_ParseWithOpts(text, &end, 1);

    report->running = figure_of(object, "running");
    report->waiting = figure_of(object, "waiting");
    report->held = figure_of(object, "held");
    report->stalls = figure_of(object, "stalls");
    if (text_of(object, "why", &why) && why != NULL) {
        tmsg_shown_format(report->why, sizeof(report->why), "%s", why);
    }
    cJSON_Delete(object);
}

tmsg_status_t tmsg_health_report_read(const tmsg_map_t *reply,
                                      tmsg_health_report_t *report_p)
{
    tmsg_health_t health = TMSG_HEALTH_UNKNOWN;
    const char *load = "";
    tmsg_status_t status;

    if (report_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "health: a pointer is NULL");
    }
    status = tmsg_health_read(reply, &health);
    if (status != TMSG_OK) {
        return status;
    }
    *report_p = (tmsg_health_report_t){.health = (int32_t)health};
    if (tmsg_map_get_string(reply, TMSG_HEALTH_LOAD, &load) == TMSG_OK) {
        read_load(load, report_p);
    }
    return TMSG_OK;
}

/* Makes a call and waits for its reply. On TMSG_OK the caller destroys *call_p.
 * Errors: those of tmsg_endpoint_call(), and of the call. */
static tmsg_status_t call_and_wait(tmsg_endpoint_t *endpoint,
                                   const char *method, const tmsg_map_t *map,
                                   int timeout_ms, tmsg_call_t **call_p)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                       .timeout_ms = timeout_ms};
    tmsg_call_t *call;
    tmsg_status_t status =
        tmsg_endpoint_call(endpoint, method, map, &params, &call);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_call_wait(call, -1); /* the call's timeout ends the wait */
    if (status != TMSG_OK) {
        tmsg_call_destroy(call);
        return status;
    }
    *call_p = call;
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_methods(tmsg_endpoint_t *endpoint, int timeout_ms,
                                    tmsg_methods_t **methods_p)
{
    tmsg_call_t *call;
    tmsg_status_t status =
        call_and_wait(endpoint, TMSG_METHOD_METHODS, NULL, timeout_ms, &call);

    if (status == TMSG_OK) {
        status = tmsg_methods_read(tmsg_call_reply(call), methods_p);
        tmsg_call_destroy(call);
    }
    return status;
}

/* Asks for the health of a method; NULL stands for the whole server. On TMSG_OK
 * the caller destroys *call_p. */
static tmsg_status_t ask_health(tmsg_endpoint_t *endpoint, const char *method,
                                int timeout_ms, tmsg_call_t **call_p)
{
    tmsg_map_t *map;
    tmsg_status_t status = tmsg_map_create(&map);

    if (status != TMSG_OK) {
        return status;
    }
    if (method != NULL) {
        status = tmsg_map_set_string(map, TMSG_HEALTH_ASKED, method);
    }
    if (status == TMSG_OK) {
        status = call_and_wait(endpoint, TMSG_METHOD_HEALTH, map, timeout_ms,
                               call_p);
    }
    tmsg_map_destroy(map);
    return status;
}

tmsg_status_t tmsg_endpoint_health_report(tmsg_endpoint_t *endpoint,
                                          const char *method, int timeout_ms,
                                          tmsg_health_report_t *report_p)
{
    tmsg_call_t *call;
    tmsg_status_t status = ask_health(endpoint, method, timeout_ms, &call);

    if (status == TMSG_OK) {
        status = tmsg_health_report_read(tmsg_call_reply(call), report_p);
        tmsg_call_destroy(call);
    }
    return status;
}

tmsg_status_t tmsg_endpoint_health(tmsg_endpoint_t *endpoint,
                                   const char *method, int timeout_ms,
                                   tmsg_health_t *health_p)
{
    tmsg_health_report_t report;
    tmsg_status_t status =
        tmsg_endpoint_health_report(endpoint, method, timeout_ms, &report);

    if (status == TMSG_OK) {
        *health_p = (tmsg_health_t)report.health;
    }
    return status;
}
