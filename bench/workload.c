/* SPDX-License-Identifier: BSD-3-Clause */
#include "workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <tensormsg/tensormsg.h>

#include "bench.h"

#define FILE_BYTES_MOST (16u << 20)
#define WHOLE_MOST 9007199254740992.0 /* 2^53: what a double counts to */

static void *room(size_t count, size_t size)
{
    void *memory = calloc(count == 0 ? 1 : count, size);

    if (memory == NULL) {
        bench_die("no memory for a workload");
    }
    return memory;
}

static char *copy(const char *text)
{
    char *copied = strdup(text);

    return copied == NULL ? room(0, 0) : copied;
}

static void measure(bench_workload_t *workload)
{
    workload->bytes = 0;
    for (size_t m = 0; m < workload->count; m++) {
        bench_map_t *map = &workload->maps[m];

        map->bytes = 0;
        for (size_t i = 0; i < map->count; i++) {
            map->bytes += map->tensors[i].bytes;
        }
        workload->bytes += map->bytes;
    }
}

void bench_workload_uniform(size_t tensors, size_t bytes,
                            bench_workload_t *workload)
{
    bench_map_t *map = room(1, sizeof(*map));
    char name[64];

    map->count = tensors;
    map->tensors = room(tensors, sizeof(*map->tensors));
    for (size_t i = 0; i < tensors; i++) {
        snprintf(name, sizeof(name), "tensor%zu", i);
        map->tensors[i] = (bench_tensor_t){.name = copy(name),
                                           .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                           .ndim = 1,
                                           .shape = {(int64_t)bytes},
                                           .bytes = bytes};
    }
    snprintf(name, sizeof(name), "%zux%zu", tensors, bytes);
    *workload = (bench_workload_t){.name = copy(name), .maps = map, .count = 1};
    measure(workload);
}

/* What is read, for what is said of it. */
typedef struct {
    const char *path;
    size_t map; /* the map of the file that it is about, or the next one */
} reading_t;

__attribute__((noreturn)) static void refuse(const reading_t *reading,
                                             const char *name, const char *why)
{
    bench_die("%s: map %zu: %s: %s", reading->path, reading->map, name, why);
}

static cJSON *load(const char *path)
{
    char *text = room(FILE_BYTES_MOST, 1);
    FILE *file = fopen(path, "rbe");
    cJSON *json;

    if (file == NULL) {
        bench_die("%s cannot be opened", path);
    }
    if (fread(text, 1, FILE_BYTES_MOST, file) == FILE_BYTES_MOST) {
        bench_die("%s is longer than %u bytes", path, FILE_BYTES_MOST);
    }
    fclose(file);
    json = cJSON_ParseWithOpts(text, NULL, true);
    if (json == NULL) {
        bench_die("%s is no JSON", path);
    }
    free(text);
    return json;
}

static void read_shape(const reading_t *reading, const cJSON *shape,
                       bench_tensor_t *tensor)
{
    tmsg_tensor_t plain = {.dtype = tensor->dtype, .shape = tensor->shape};
    const cJSON *extent;

    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > BENCH_NDIM_MAX) {
        refuse(reading, tensor->name, "\"shape\" is no list of at most 8");
    }
    cJSON_ArrayForEach(extent, shape)
    {
        if (!cJSON_IsNumber(extent) || extent->valuedouble < 0 ||
            extent->valuedouble > WHOLE_MOST ||
            floor(extent->valuedouble) != extent->valuedouble) {
            refuse(reading, tensor->name, "an extent is no whole number");
        }
        tensor->shape[tensor->ndim++] = (int64_t)extent->valuedouble;
    }
    plain.ndim = tensor->ndim;
    if (tmsg_tensor_bytes(&plain, &tensor->bytes) != TMSG_OK) {
        refuse(reading, tensor->name, tmsg_error_message());
    }
}

/* "layers/{}/key", 3 -> "layers/3/key" */
static char *number(const char *name, size_t n)
{
    const char *place = strstr(name, "{}");
    char text[512];

    if (place == NULL) {
        return copy(name);
    }
    snprintf(text, sizeof(text), "%.*s%zu%s", (int)(place - name), name, n,
             place + 2);
    return copy(text);
}

static size_t times_of(const cJSON *entry)
{
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(entry, "times");

    return cJSON_IsNumber(times) && times->valuedouble >= 1 &&
                   times->valuedouble <= 1e6
               ? (size_t)times->valuedouble
               : 1;
}

static void read_tensor(const reading_t *reading, const cJSON *entry, size_t n,
                        bench_tensor_t *tensor)
{
    const char *name =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "name"));
    const char *dtype =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));

    if (name == NULL || strlen(name) > 400) {
        refuse(reading, "a tensor", "it has no \"name\" of at most 400 bytes");
    }
    if (dtype == NULL || tmsg_dtype_parse(dtype, &tensor->dtype) != TMSG_OK) {
        refuse(reading, name, "\"dtype\" is none that is known");
    }
    tensor->name = number(name, n);
    read_shape(reading, cJSON_GetObjectItemCaseSensitive(entry, "shape"),
               tensor);
}

static void read_meta(const reading_t *reading, const cJSON *object,
                      bench_map_t *map)
{
    const cJSON *entry;

    map->meta = room((size_t)cJSON_GetArraySize(object), sizeof(*map->meta));
    cJSON_ArrayForEach(entry, object)
    {
        bench_meta_t *meta = &map->meta[map->meta_count++];

        if (!cJSON_IsNumber(entry) && !cJSON_IsString(entry)) {
            refuse(reading, entry->string, "neither a number nor text");
        }
        meta->name = copy(entry->string);
        meta->text = cJSON_IsString(entry) ? copy(entry->valuestring) : NULL;
        meta->number = entry->valuedouble;
        meta->is_whole = fabs(entry->valuedouble) <= WHOLE_MOST &&
                         floor(entry->valuedouble) == entry->valuedouble;
    }
}

static void read_map(const reading_t *reading, const cJSON *object,
                     bench_map_t *map)
{
    const cJSON *tensors = cJSON_GetObjectItemCaseSensitive(object, "tensors");
    const cJSON *entry;
    size_t most = 0;

    if (!cJSON_IsArray(tensors)) {
        refuse(reading, "\"tensors\"", "no list");
    }
    cJSON_ArrayForEach(entry, tensors) { most += times_of(entry); }
    map->tensors = room(most, sizeof(*map->tensors));
    cJSON_ArrayForEach(entry, tensors)
    {
        for (size_t n = 0; n < times_of(entry); n++) {
            read_tensor(reading, entry, n, &map->tensors[map->count++]);
        }
    }
    read_meta(reading, cJSON_GetObjectItemCaseSensitive(object, "meta"), map);
}

void bench_workload_read(const char *path, bench_workload_t *workload)
{
    cJSON *json = load(path);
    const cJSON *maps = cJSON_GetObjectItemCaseSensitive(json, "maps");
    const char *name =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "name"));
    reading_t reading = {.path = path};
    const cJSON *entry;

    if (name == NULL || !cJSON_IsArray(maps) || maps->child == NULL) {
        bench_die("%s has no \"name\" or no \"maps\"", path);
    }
    *workload = (bench_workload_t){.name = copy(name)};
    workload->maps =
        room((size_t)cJSON_GetArraySize(maps), sizeof(*workload->maps));
    cJSON_ArrayForEach(entry, maps)
    {
        read_map(&reading, entry, &workload->maps[workload->count++]);
        reading.map++;
    }
    measure(workload);
    cJSON_Delete(json);
}

void bench_workload_free(bench_workload_t *workload)
{
    for (size_t m = 0; m < workload->count; m++) {
        bench_map_t *map = &workload->maps[m];

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
