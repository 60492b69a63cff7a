/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json_read.h"
#include "core/params.h"
#include "memory/device_table.h"

#define VERSION 1
#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_DEVICES_PARAM_TABLE | TMSG_DEVICES_PARAM_SYSFS |          \
                TMSG_DEVICES_PARAM_FLAGS))

typedef struct {
    tmsg_json_reader_t json;
    tmsg_devices_t *devices;
    size_t entry; /* index of the entry that is being read */
    bool named;   /* the error names the entry */
} reader_t;

/* Holds the values of an entry. If the entry lacks a key, the value is -1 or
 * NULL, and 0 for the kind. */
typedef struct {
    int64_t index, module_id;
    int32_t kind;
    const char *bus_id, *uuid;
} entry_t;

static bool reader_is_ok(const reader_t *reader)
{
    return reader->json.status == TMSG_OK;
}

__attribute__((format(printf, 2, 3))) static void
fail_entry(reader_t *reader, const char *format, ...)
{
    char why[TMSG_ERROR_BYTES];
    va_list args;

    if (!reader_is_ok(reader)) {
        return;
    }
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    reader->json.status =
        tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s: entry %zu: %s",
                       reader->json.source, reader->entry, why);
    reader->named = true;
}

/* Adds the number of the entry to the message of an error. */
static void blame_entry(reader_t *reader)
{
    size_t source = strlen(reader->json.source) + strlen(": ");
    char why[TMSG_ERROR_BYTES];

    snprintf(why, sizeof(why), "%s", tmsg_error_message());
    reader->json.status = TMSG_OK;
    fail_entry(reader, "%s", strlen(why) > source ? why + source : why);
}

static const char *read_entry_text(reader_t *reader, const cJSON *item)
{
    if (!cJSON_IsString(item)) {
        tmsg_json_fail(&reader->json, item, "is not a string");
        return "";
    }
    /* The devices that have no bus id or uuid have "" there. */
    if (item->valuestring[0] == '\0') {
        tmsg_json_fail(&reader->json, item, "is empty");
    }
    return item->valuestring;
}

static int32_t read_kind(reader_t *reader, const cJSON *item)
{
    const char *name = read_entry_text(reader, item);

    for (int32_t kind = TMSG_DEVICE_KIND_HOST; kind <= TMSG_DEVICE_KIND_GAUDI;
         kind++) {
        if (strcmp(name, tmsg_device_kind_name(kind)) == 0) {
            return kind;
        }
    }
    fail_entry(reader, "kind '%s' is not one of host, cuda, rocm, gaudi",
               tmsg_error_name(name, strlen(name)).text);
    return 0;
}

static void read_item(reader_t *reader, const cJSON *item, bool gaudi,
                      entry_t *entry)
{
    const char *key = item->string;

    if (strcmp(key, "index") == 0) {
        entry->index =
            (int64_t)tmsg_json_read_number(&reader->json, item, INT32_MAX);
    } else if (strcmp(key, "bus_id") == 0) {
        entry->bus_id = read_entry_text(reader, item);
    } else if (gaudi && strcmp(key, "module_id") == 0) {
        entry->module_id =
            (int64_t)tmsg_json_read_number(&reader->json, item, INT32_MAX);
    } else if (!gaudi && strcmp(key, "kind") == 0) {
        entry->kind = read_kind(reader, item);
    } else if (!gaudi && strcmp(key, "uuid") == 0) {
        entry->uuid = read_entry_text(reader, item);
    } else {
        tmsg_json_fail(&reader->json, item, "is not a field of an entry");
    }
}

static void check_table_entry(reader_t *reader, const entry_t *entry)
{
    bool host = entry->kind == TMSG_DEVICE_KIND_HOST;

    if (entry->index < 0) {
        fail_entry(reader, "it has no index");
    } else if (entry->kind == 0) {
        fail_entry(reader, "it has no kind");
    } else if (host && (entry->bus_id != NULL || entry->uuid != NULL)) {
        fail_entry(reader, "the host has neither bus_id nor uuid here");
    } else if (!host && entry->bus_id == NULL && entry->uuid == NULL) {
        fail_entry(reader, "it has no bus_id");
    }
}

static bool entry_fits(const entry_t *entry, const char *bus_id,
                       const tmsg_device_info_t *info)
{
    return info->kind == entry->kind &&
           (entry->bus_id == NULL || strcmp(info->bus_id, bus_id) == 0) &&
           (entry->uuid == NULL || strcmp(info->uuid, entry->uuid) == 0);
}

/* Returns the kind of a device with that bus id, for the error that tells it.
 * Returns NULL if there is none. */
static const char *other_kind(const reader_t *reader, const char *bus_id)
{
    for (size_t i = 0; i < reader->devices->count; i++) {
        const tmsg_device_info_t *info = &reader->devices->infos[i];

        if (bus_id[0] != '\0' && strcmp(info->bus_id, bus_id) == 0) {
            return tmsg_device_kind_name(info->kind);
        }
    }
    return NULL;
}

/* Returns the one device that an entry describes. */
static tmsg_device_info_t *match_device(reader_t *reader, const entry_t *entry)
{
    char bus_id[TMSG_DEVICE_BUS_ID_BYTES] = "";
    const char *said = entry->bus_id != NULL ? entry->bus_id
                       : entry->uuid != NULL ? entry->uuid
                                             : "host";
    tmsg_error_name_t name = tmsg_error_name(said, strlen(said));
    tmsg_device_info_t *found = NULL;
    size_t count = 0;

    if (entry->bus_id != NULL && !tmsg_device_bus_id(entry->bus_id, bus_id)) {
        fail_entry(reader, "'%s' is not a bus id like 0000:33:00.0", name.text);
        return NULL;
    }
    for (size_t i = 0; i < reader->devices->count; i++) {
        if (entry_fits(entry, bus_id, &reader->devices->infos[i])) {
            found = &reader->devices->infos[i];
            count++;
        }
    }
    if (count == 0 && other_kind(reader, bus_id) != NULL) {
        fail_entry(reader, "'%s' is a device of kind %s, not %s", name.text,
                   other_kind(reader, bus_id),
                   tmsg_device_kind_name(entry->kind));
    } else if (count == 0) {
        fail_entry(reader, "'%s' is not a %s device of this machine", name.text,
                   tmsg_device_kind_name(entry->kind));
    } else if (count > 1) {
        fail_entry(reader, "'%s' matches %zu devices: choose one by its uuid",
                   name.text, count);
    }
    return count == 1 ? found : NULL;
}

static void check_index(reader_t *reader, const entry_t *entry)
{
    for (size_t i = 0; i < reader->devices->count; i++) {
        const tmsg_device_info_t *info = &reader->devices->infos[i];

        if (info->index == entry->index) {
            fail_entry(reader, "index %d occurs twice", info->index);
        } else if (entry->module_id >= 0 &&
                   info->module_id == entry->module_id) {
            fail_entry(reader, "module_id %d occurs twice", info->module_id);
        }
    }
}

static void read_table_entry(reader_t *reader, const cJSON *object, bool gaudi)
{
    entry_t entry = {
        .index = -1,
        .module_id = -1,
        .kind = gaudi ? TMSG_DEVICE_KIND_GAUDI : 0,
    };
    tmsg_device_info_t *info = NULL;
    const cJSON *item;

    if (tmsg_json_check_object(&reader->json, object)) {
        cJSON_ArrayForEach(item, object)
        {
            if (reader_is_ok(reader)) {
                read_item(reader, item, gaudi, &entry);
            }
        }
        if (reader_is_ok(reader)) {
            check_table_entry(reader, &entry);
            check_index(reader, &entry);
        }
        info = reader_is_ok(reader) ? match_device(reader, &entry) : NULL;
    }
    if (info != NULL && info->index >= 0) {
        fail_entry(reader, "index %d is the same device", info->index);
    } else if (info != NULL) {
        info->index = (int32_t)entry.index;
        info->module_id = (int32_t)entry.module_id;
    }
}

static void read_entries(reader_t *reader, const cJSON *array, bool gaudi)
{
    const cJSON *object;

    if (!cJSON_IsArray(array)) {
        tmsg_json_fail(&reader->json, array, "is not a list");
        return;
    }
    reader->entry = 0;
    cJSON_ArrayForEach(object, array)
    {
        read_table_entry(reader, object, gaudi);
        if (!reader_is_ok(reader)) {
            if (!reader->named) {
                blame_entry(reader);
            }
            return;
        }
        reader->entry++;
    }
}

static void read_root(reader_t *reader, const cJSON *root)
{
    const cJSON *item, *version = NULL, *entries = NULL;

    if (cJSON_IsArray(root)) {
        read_entries(reader, root, true);
        return;
    }
    if (!tmsg_json_check_object(&reader->json, root)) {
        return;
    }
    cJSON_ArrayForEach(item, root)
    {
        if (strcmp(item->string, "version") == 0) {
            version = item;
        } else if (strcmp(item->string, "devices") == 0) {
            entries = item;
        } else {
            tmsg_json_fail(&reader->json, item, "is not a field of the table");
        }
    }
    if (version == NULL) {
        tmsg_json_fail(&reader->json, root, "has no \"version\": 1");
    } else if (tmsg_json_read_number(&reader->json, version, UINT32_MAX) !=
               VERSION) {
        tmsg_json_fail(&reader->json, version,
                       "is not 1, the version that this library reads");
    } else if (entries == NULL) {
        tmsg_json_fail(&reader->json, root, "has no \"devices\"");
    } else if (reader_is_ok(reader)) {
        read_entries(reader, entries, false);
    }
}

tmsg_status_t tmsg_device_table_read(const char *table, tmsg_devices_t *devices)
{
    bool inlined = strchr("{[ \t\r\n", *table) != NULL;
    reader_t reader = {
        .json = {"the device table",
                 inlined ? "the device table that was given" : table, TMSG_OK},
        .devices = devices,
    };
    cJSON *root = inlined ? tmsg_json_parse(&reader.json, table)
                          : tmsg_json_load(&reader.json);

    if (root != NULL) {
        read_root(&reader, root);
        cJSON_Delete(root);
    }
    return reader.json.status;
}

static tmsg_status_t check_devices_params(const tmsg_devices_params_t *params,
                                          uint32_t *flags_p)
{
    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("devices",
                                   params->field_mask & ~PARAMS_KNOWN);
    }
    *flags_p =
        params->field_mask & TMSG_DEVICES_PARAM_FLAGS ? params->flags : 0;
    return *flags_p & ~(uint32_t)TMSG_DEVICES_NO_DRIVERS
               ? tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "devices: unknown flags 0x%x", *flags_p)
               : TMSG_OK;
}

tmsg_status_t tmsg_devices_create(const tmsg_devices_params_t *params,
                                  tmsg_devices_t **devices_p)
{
    static const tmsg_devices_params_t defaults = {.field_mask = 0};
    const char *table = getenv("TENSORMSG_DEVICE_TABLE"), *sysfs = "/sys";
    tmsg_devices_t *devices;
    tmsg_status_t status;
    uint32_t flags = 0;

    params = params == NULL ? &defaults : params;
    status = check_devices_params(params, &flags);
    if (status != TMSG_OK) {
        return status;
    }
    if (params->field_mask & TMSG_DEVICES_PARAM_TABLE) {
        table = params->table;
    }
    if ((params->field_mask & TMSG_DEVICES_PARAM_SYSFS) &&
        params->sysfs != NULL) {
        sysfs = params->sysfs;
    }
    devices = calloc(1, sizeof(*devices));
    if (devices == NULL) {
        return tmsg_error_memory("the list of devices");
    }
    status = tmsg_devices_scan(
        devices, sysfs, tmsg_device_sources,
        flags & TMSG_DEVICES_NO_DRIVERS ? 0 : TMSG_DEVICE_SOURCES);
    if (status == TMSG_OK && table != NULL && *table != '\0') {
        status = tmsg_device_table_read(table, devices);
    }
    if (status != TMSG_OK) {
        tmsg_devices_destroy(devices);
        return status;
    }
    *devices_p = devices;
    return TMSG_OK;
}

void tmsg_devices_destroy(tmsg_devices_t *devices)
{
    if (devices != NULL) {
        free(devices->infos);
        free(devices);
    }
}

size_t tmsg_devices_size(const tmsg_devices_t *devices)
{
    return devices == NULL ? 0 : devices->count;
}

tmsg_status_t tmsg_devices_at(const tmsg_devices_t *devices, size_t position,
                              tmsg_device_info_t *info_p)
{
    if (devices == NULL || info_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s is NULL",
                              devices == NULL ? "devices" : "info_p");
    }
    if (position >= devices->count) {
        return tmsg_error_set(
            TMSG_ERR_NOT_FOUND,
            "device index %zu is out of range: there are %zu devices", position,
            devices->count);
    }
    *info_p = devices->infos[position];
    return TMSG_OK;
}

tmsg_status_t tmsg_devices_find(const tmsg_devices_t *devices, uint32_t index,
                                tmsg_device_info_t *info_p)
{
    if (devices == NULL || info_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s is NULL",
                              devices == NULL ? "devices" : "info_p");
    }
    for (size_t i = 0; i < devices->count; i++) {
        if (devices->infos[i].index >= 0 &&
            (uint32_t)devices->infos[i].index == index) {
            *info_p = devices->infos[i];
            return TMSG_OK;
        }
    }
    return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                          "the device table has no index %u", index);
}
