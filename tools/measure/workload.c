/* SPDX-License-Identifier: BSD-3-Clause */
#include "workload.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <tensormsg/tensormsg.h>

#define FILE_BYTES_MOST (16u << 20)
#define NAME_BYTES_MOST 400
#define TENSORS_MOST 1048576 /* tensors of a map that the library accepts */
#define WHOLE_MOST 9007199254740992.0 /* 2^53: exact in a double */

/* Holds the file that is being read, and its first error. */
typedef struct {
    const char *path;
    size_t map; /* index of the map that is being read */
    char *why;  /* text of the first error, or "" */
} reading_t;

__attribute__((format(printf, 2, 3))) static bool
refuse_workload(const reading_t *reading, const char *format, ...)
{
    va_list args;
    int at;

    if (*reading->why != '\0') {
        return false;
    }
    at = snprintf(reading->why, WORKLOAD_WHY_BYTES,
                  "%s: ", reading->path == NULL ? "maps" : reading->path);
    if (at < WORKLOAD_WHY_BYTES) {
        va_start(args, format);
        vsnprintf(reading->why + at, WORKLOAD_WHY_BYTES - (size_t)at, format,
                  args);
        va_end(args);
    }
    return false;
}

static void *allocate_room(const reading_t *reading, size_t count, size_t size)
{
    void *memory = calloc(count == 0 ? 1 : count, size);

    if (memory == NULL) {
        refuse_workload(reading, "no memory for it");
    }
    return memory;
}

static char *copy_text(const reading_t *reading, const char *text)
{
    char *copied = strdup(text);

    if (copied == NULL) {
        refuse_workload(reading, "no memory for it");
    }
    return copied;
}

static void sum_bytes(workload_t *workload)
{
    workload->bytes = 0;
    for (size_t m = 0; m < workload->count; m++) {
        workload_map_t *map = &workload->maps[m];

        map->bytes = 0;
        for (size_t i = 0; i < map->count; i++) {
            map->bytes += map->tensors[i].bytes;
        }
        workload->bytes += map->bytes;
    }
}

bool workload_uniform(size_t tensors, size_t bytes, workload_t *workload,
                      char why[WORKLOAD_WHY_BYTES])
{
    const reading_t reading = {.why = why};
    workload_map_t *map;
    char name[64];

    *why = '\0';
    *workload = (workload_t){.count = 0};
    snprintf(name, sizeof(name), "%zux%zu", tensors, bytes);
    workload->name = copy_text(&reading, name);
    workload->maps = map = allocate_room(&reading, 1, sizeof(*map));
    if (map == NULL) {
        return false;
    }
    workload->count = 1;
    map->tensors = allocate_room(&reading, tensors, sizeof(*map->tensors));
    while (*why == '\0' && map->count < tensors) {
        snprintf(name, sizeof(name), "tensor%zu", map->count);
        map->tensors[map->count++] =
            (workload_tensor_t){.name = copy_text(&reading, name),
                                .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                .ndim = 1,
                                .shape = {(int64_t)bytes},
                                .bytes = bytes};
    }
    sum_bytes(workload);
    return *why == '\0';
}

/* Returns the line of the first NUL in the text, or 0 if there is none. cJSON
 * would end the text, or a string in it, there. */
static unsigned nul_line(const char *text, size_t bytes)
{
    unsigned line = 1;

    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\0' || strncmp(text + i, "\\u0000", 6) == 0) {
            return line;
        }
        line += text[i] == '\n';
        i += text[i] == '\\'; /* skips the character after a backslash */
    }
    return 0;
}

static cJSON *load_json(const reading_t *reading)
{
    char *text = allocate_room(reading, FILE_BYTES_MOST, 1);
    FILE *file = text == NULL ? NULL : fopen(reading->path, "rbe");
    cJSON *json = NULL;
    size_t bytes = 0;

    errno = file == NULL ? errno : 0;
    if (file == NULL) {
        refuse_workload(reading, "%s", strerror(errno));
    } else if ((bytes = fread(text, 1, FILE_BYTES_MOST, file)) ==
               FILE_BYTES_MOST) {
        refuse_workload(reading, "longer than %u bytes", FILE_BYTES_MOST);
    } else if (ferror(file)) {
        refuse_workload(reading, "%s", strerror(errno));
    } else if (nul_line(text, bytes) > 0) {
        refuse_workload(reading, "line %u: it holds a NUL",
                        nul_line(text, bytes));
    } else {
        json = cJSON_ParseWithOpts(text, NULL, true);
    }
    if (json == NULL) {
        refuse_workload(reading, "it is not JSON");
    }
    if (file != NULL) {
        fclose(file);
    }
    free(text);
    return json;
}

static bool is_whole(const cJSON *number, double least, double most)
{
    return cJSON_IsNumber(number) && number->valuedouble >= least &&
           number->valuedouble <= most &&
           floor(number->valuedouble) == number->valuedouble;
}

static bool read_workload_shape(const reading_t *reading, const cJSON *shape,
                                workload_tensor_t *tensor)
{
    tmsg_tensor_t plain = {.dtype = tensor->dtype, .shape = tensor->shape};
    const cJSON *extent;

    if (!cJSON_IsArray(shape) ||
        cJSON_GetArraySize(shape) > WORKLOAD_NDIM_MAX) {
        return refuse_workload(
            reading, "map %zu: %s: \"shape\" is not a list of at most 8",
            reading->map, tensor->name);
    }
    cJSON_ArrayForEach(extent, shape)
    {
        if (!is_whole(extent, 0, WHOLE_MOST)) {
            return refuse_workload(
                reading, "map %zu: %s: an extent is not a whole number",
                reading->map, tensor->name);
        }
        tensor->shape[tensor->ndim++] = (int64_t)extent->valuedouble;
    }
    plain.ndim = tensor->ndim;
    if (tmsg_tensor_bytes(&plain, &tensor->bytes) != TMSG_OK) {
        return refuse_workload(reading, "map %zu: %s: %s", reading->map,
                               tensor->name, tmsg_error_message());
    }
    return true;
}

/* Puts the number into the name: "layers/{}/key" and 3 give "layers/3/key". */
static char *number_name(const reading_t *reading, const char *name, size_t n)
{
    const char *place = strstr(name, "{}");
    char text[NAME_BYTES_MOST + 32];

    if (place == NULL) {
        return copy_text(reading, name);
    }
    snprintf(text, sizeof(text), "%.*s%zu%s", (int)(place - name), name, n,
             place + 2);
    return copy_text(reading, text);
}

/* Returns how many tensors an entry stands for, or 0 after an error. */
static size_t times_of(const reading_t *reading, const cJSON *entry)
{
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(entry, "times");

    if (times == NULL) {
        return 1;
    }
    if (!is_whole(times, 1, TENSORS_MOST)) {
        refuse_workload(reading,
                        "map %zu: \"times\" is not a whole number from 1 to %d",
                        reading->map, TENSORS_MOST);
        return 0;
    }
    return (size_t)times->valuedouble;
}

static bool read_workload_tensor(const reading_t *reading, const cJSON *entry,
                                 size_t n, workload_tensor_t *tensor)
{
    const char *name =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "name"));
    const char *dtype =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));

    if (name == NULL || strlen(name) > NAME_BYTES_MOST) {
        return refuse_workload(
            reading,
            "map %zu: a tensor: it has no \"name\" of at most %d "
            "bytes",
            reading->map, NAME_BYTES_MOST);
    }
    if (dtype == NULL || tmsg_dtype_parse(dtype, &tensor->dtype) != TMSG_OK) {
        return refuse_workload(reading, "map %zu: %s: \"dtype\" is not known",
                               reading->map, name);
    }
    tensor->name = number_name(reading, name, n);
    return tensor->name != NULL &&
           read_workload_shape(reading,
                               cJSON_GetObjectItemCaseSensitive(entry, "shape"),
                               tensor);
}

static bool read_workload_meta(const reading_t *reading, const cJSON *object,
                               workload_map_t *map)
{
    const cJSON *entry;

    map->meta = allocate_room(reading, (size_t)cJSON_GetArraySize(object),
                              sizeof(*map->meta));
    if (map->meta == NULL) {
        return false;
    }
    cJSON_ArrayForEach(entry, object)
    {
        workload_meta_t *meta = &map->meta[map->meta_count];

        if (entry->string == NULL ||
            (!cJSON_IsNumber(entry) && !cJSON_IsString(entry))) {
            return refuse_workload(
                reading, "map %zu: %s: neither a number nor text", reading->map,
                entry->string == NULL ? "\"meta\"" : entry->string);
        }
        map->meta_count++;
        meta->name = copy_text(reading, entry->string);
        meta->text = cJSON_IsString(entry)
                         ? copy_text(reading, entry->valuestring)
                         : NULL;
        meta->number = entry->valuedouble;
        meta->is_whole = is_whole(entry, -WHOLE_MOST, WHOLE_MOST);
    }
    return *reading->why == '\0';
}

static bool read_workload_map(const reading_t *reading, const cJSON *object,
                              workload_map_t *map)
{
    const cJSON *tensors = cJSON_GetObjectItemCaseSensitive(object, "tensors");
    const cJSON *entry;
    size_t most = 0;

    if (!cJSON_IsArray(tensors)) {
        return refuse_workload(reading, "map %zu: \"tensors\" is not a list",
                               reading->map);
    }
    cJSON_ArrayForEach(entry, tensors) { most += times_of(reading, entry); }
    if (most > TENSORS_MOST) {
        return refuse_workload(reading, "map %zu: more than %d tensors",
                               reading->map, TENSORS_MOST);
    }
    map->tensors = allocate_room(reading, most, sizeof(*map->tensors));
    cJSON_ArrayForEach(entry, tensors)
    {
        size_t times = times_of(reading, entry);

        for (size_t n = 0; n < times && *reading->why == '\0'; n++) {
            read_workload_tensor(reading, entry, n,
                                 &map->tensors[map->count++]);
        }
    }
    return *reading->why == '\0' &&
           read_workload_meta(
               reading, cJSON_GetObjectItemCaseSensitive(object, "meta"), map);
}

static void read_all_maps(reading_t *reading, const cJSON *json,
                          workload_t *workload)
{
    const cJSON *maps = cJSON_GetObjectItemCaseSensitive(json, "maps");
    const char *name =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "name"));
    const cJSON *entry;

    if (name == NULL || !cJSON_IsArray(maps) || maps->child == NULL) {
        refuse_workload(reading, "it has no \"name\" or no \"maps\"");
        return;
    }
    workload->name = copy_text(reading, name);
    workload->maps = allocate_room(reading, (size_t)cJSON_GetArraySize(maps),
                                   sizeof(*workload->maps));
    cJSON_ArrayForEach(entry, maps)
    {
        if (*reading->why == '\0') {
            reading->map = workload->count;
            read_workload_map(reading, entry,
                              &workload->maps[workload->count++]);
        }
    }
    sum_bytes(workload);
}

bool workload_read(const char *path, workload_t *workload,
                   char why[WORKLOAD_WHY_BYTES])
{
    reading_t reading = {.path = path, .why = why};
    cJSON *json;

    *why = '\0';
    *workload = (workload_t){.count = 0};
    json = load_json(&reading);
    if (json != NULL) {
        read_all_maps(&reading, json, workload);
    }
    cJSON_Delete(json);
    return *why == '\0';
}

void workload_free(workload_t *workload)
{
    for (size_t m = 0; m < workload->count; m++) {
        workload_map_t *map = &workload->maps[m];

        for (size_t i = 0; i < map->count; i++) {
            free(map->tensors[i].name);
        }
        for (size_t i = 0; i < map->meta_count; i++) {
            free(map->meta[i].name);
            free(map->meta[i].text);
        }
        free(map->tensors);
        free(map->meta);
    }
    free(workload->maps);
    free(workload->name);
}

tmsg_status_t workload_add(const workload_tensor_t *like, tmsg_device_t device,
                           void *data, tmsg_map_t *map)
{
    const tmsg_tensor_t tensor = {.data = data,
                                  .device = device,
                                  .dtype = like->dtype,
                                  .ndim = like->ndim,
                                  .shape = like->shape};

    return tmsg_map_add(map, like->name, &tensor, NULL);
}

static tmsg_status_t add_meta_entry(const workload_meta_t *meta,
                                    tmsg_map_t *map)
{
    if (meta->text != NULL) {
        return tmsg_map_set_string(map, meta->name, meta->text);
    }
    return meta->is_whole
               ? tmsg_map_set_i64(map, meta->name, (int64_t)meta->number)
               : tmsg_map_set_f64(map, meta->name, meta->number);
}

tmsg_status_t workload_add_meta(const workload_map_t *like, tmsg_map_t *map)
{
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < like->meta_count && status == TMSG_OK; i++) {
        status = add_meta_entry(&like->meta[i], map);
    }
    return status;
}
