/* SPDX-License-Identifier: BSD-3-Clause */
#include "show.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "output.h"

#define PIECE_BYTES (1u << 20) /* bytes that are packed at a time */
#define BULK_NS 1000000000u
#define BULK_LOOK_MS 10

typedef struct {
    XXH3_state_t *state;
    void *piece;
    size_t piece_bytes;
} hasher_t;

/* Feeds the elements to the hash in C order. Contiguous elements are fed
 * directly. Other elements are packed in blocks, so that a huge tensor needs no
 * second copy. */
static tmsg_status_t feed_tensor(hasher_t *hasher, const tmsg_tensor_t *tensor)
{
    tmsg_tensor_t part = *tensor;
    int64_t shape[64];
    int64_t rows, step;
    uint64_t bytes;
    tmsg_status_t status = tmsg_tensor_bytes(tensor, &bytes);

    if (status != TMSG_OK || bytes == 0) {
        return status;
    }
    if (tmsg_tensor_is_contiguous(tensor)) {
        XXH3_64bits_update(hasher->state, tensor->data, bytes);
        return TMSG_OK;
    }
    if (bytes <= hasher->piece_bytes) {
        status = tmsg_tensor_pack(tensor, hasher->piece);
        XXH3_64bits_update(hasher->state, hasher->piece,
                           status == TMSG_OK ? bytes : 0);
        return status;
    }
    rows = tensor->shape[0];
    if (rows == 1) {
        part.ndim--;
        part.shape++;
        part.strides++;
        return feed_tensor(hasher, &part);
    }
    step = (int64_t)((uint64_t)rows * hasher->piece_bytes / bytes);
    step = step < 1 ? 1 : step;
    memcpy(shape, tensor->shape, (size_t)tensor->ndim * sizeof(shape[0]));
    part.shape = shape;
    for (int64_t row = 0; row < rows && status == TMSG_OK; row += step) {
        int64_t item = tensor->dtype.bits * tensor->dtype.lanes / 8;

        shape[0] = rows - row < step ? rows - row : step;
        part.data = (char *)tensor->data + row * tensor->strides[0] * item;
        status = feed_tensor(hasher, &part);
    }
    return status;
}

static tmsg_status_t hash_tensor(hasher_t *hasher, const tmsg_tensor_t *tensor,
                                 uint64_t *sum_p)
{
    tmsg_status_t status = TMSG_OK;

    if (tensor->device.type != TMSG_DEVICE_CPU &&
        tensor->device.type != TMSG_DEVICE_CUDA_HOST) {
        return TMSG_ERR_UNSUPPORTED;
    }
    XXH3_64bits_reset(hasher->state);
    status = feed_tensor(hasher, tensor);
    *sum_p = XXH3_64bits_digest(hasher->state);
    return status;
}

static tmsg_status_t hash_map(const tmsg_map_t *map, digest_t *digest)
{
    hasher_t hasher = {XXH3_createState(), malloc(PIECE_BYTES), PIECE_BYTES};
    tmsg_status_t status = TMSG_OK;

    digest->sums = calloc(digest->tensors + 1, sizeof(*digest->sums));
    if (hasher.state == NULL || hasher.piece == NULL || digest->sums == NULL) {
        status = TMSG_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < digest->tensors && status == TMSG_OK; i++) {
        tmsg_tensor_t tensor;

        tmsg_map_at(map, i, NULL, &tensor);
        status = hash_tensor(&hasher, &tensor, &digest->sums[i]);
    }
    XXH3_freeState(hasher.state);
    free(hasher.piece);
    if (status != TMSG_OK) {
        free(digest->sums);
    }
    return status;
}

tmsg_status_t digest_map(const tmsg_map_t *map, bool sums, digest_t *digest_p)
{
    digest_t digest = {tmsg_map_size(map), 0, NULL};
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < digest.tensors; i++) {
        tmsg_tensor_t tensor;
        uint64_t bytes = 0;

        tmsg_map_at(map, i, NULL, &tensor);
        tmsg_tensor_bytes(&tensor, &bytes);
        digest.bytes += bytes;
    }
    if (sums) {
        status = hash_map(map, &digest);
    }
    if (status == TMSG_OK) {
        *digest_p = digest;
    }
    return status;
}

#define SHAPE_TEXT 1400 /* room for 64 extents of 20 digits */
#define NAME_WIDTH_MAX 40

static int format_shape(const tmsg_tensor_t *tensor, char *text)
{
    int used = snprintf(text, SHAPE_TEXT, "[");

    for (int32_t i = 0; i < tensor->ndim; i++) {
        used += snprintf(text + used, SHAPE_TEXT - (size_t)used, "%s%" PRId64,
                         i == 0 ? "" : ",", tensor->shape[i]);
    }
    return used + snprintf(text + used, SHAPE_TEXT - (size_t)used, "]");
}

static const char *device_name(tmsg_device_t device, char *text, size_t bytes)
{
    return device.type == TMSG_DEVICE_CPU
               ? "cpu"
               : tmsg_device_format(device, text, bytes);
}

typedef struct {
    int name, dtype, shape;
} widths_t;

static int wider(int width, size_t length)
{
    return length > NAME_WIDTH_MAX || (int)length < width ? width : (int)length;
}

static widths_t measure_columns(const tmsg_map_t *map)
{
    widths_t widths = {0, 0, 0};

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        char dtype[TMSG_DTYPE_NAME_MAX], shape[SHAPE_TEXT];
        tmsg_tensor_t tensor;
        const char *name;

        tmsg_map_at(map, i, &name, &tensor);
        tmsg_dtype_format(tensor.dtype, dtype, sizeof(dtype));
        widths.name = wider(widths.name, strlen(name));
        widths.dtype = wider(widths.dtype, strlen(dtype));
        widths.shape =
            wider(widths.shape, (size_t)format_shape(&tensor, shape));
    }
    return widths;
}

static void show_tensor(FILE *stream, const char *name,
                        const tmsg_tensor_t *tensor, const widths_t *widths)
{
    char dtype[TMSG_DTYPE_NAME_MAX], device[40], shape[SHAPE_TEXT];
    int padding = widths->name - (int)strlen(name);
    uint64_t bytes = 0;

    tmsg_tensor_bytes(tensor, &bytes);
    format_shape(tensor, shape);
    fputs("  ", stream);
    put_text(stream, name);
    fprintf(stream, "%*s  %-*s  %-*s  %s  %12" PRIu64,
            padding < 0 ? 0 : padding, "", widths->dtype,
            tmsg_dtype_format(tensor->dtype, dtype, sizeof(dtype)),
            widths->shape, shape,
            device_name(tensor->device, device, sizeof(device)), bytes);
}

void show_table(FILE *stream, const tmsg_map_t *map, const digest_t *digest)
{
    widths_t widths = measure_columns(map);

    for (size_t i = 0; i < digest->tensors; i++) {
        tmsg_tensor_t tensor;
        const char *name;

        tmsg_map_at(map, i, &name, &tensor);
        show_tensor(stream, name, &tensor, &widths);
        if (digest->sums != NULL) {
            fprintf(stream, "  xxh3:%016" PRIx64, digest->sums[i]);
        }
        putc('\n', stream);
    }
}

static void copy_field(const cJSON *object, const char *key, char *text,
                       size_t bytes)
{
    const char *value =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

    snprintf(text, bytes, "%s", value == NULL ? "unknown" : value);
}

/* Returns a number of the object, or 0 if it is missing. */
static uint64_t count_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(item) ? (uint64_t)item->valuedouble : 0;
}

void look_up_route(const tmsg_endpoint_t *endpoint, route_t *route)
{
    char *json = NULL;
    cJSON *object = NULL;

    if (tmsg_endpoint_describe(endpoint, &json) == TMSG_OK) {
        object = cJSON_Parse(json);
    }
    copy_field(object, "transports", route->transports,
               sizeof(route->transports));
    copy_field(object, "why", route->why, sizeof(route->why));
    copy_field(object, "bulk", route->bulk, sizeof(route->bulk));
    route->by_bulk =
        count_of(object, "sent_by_bulk") + count_of(object, "received_by_bulk");
    cJSON_Delete(object);
    tmsg_string_free(json);
}

void put_transports(FILE *stream, const route_t *route)
{
    put_text(stream, route->transports);
    if (route->by_bulk > 0) {
        fputs(" and its bulk stream", stream);
    }
}

void await_bulk(tmsg_worker_t *worker, const tmsg_endpoint_t *endpoint)
{
    uint64_t deadline_ns = now_ns() + BULK_NS;
    route_t route;

    for (look_up_route(endpoint, &route);
         strcmp(route.bulk, "dialled") == 0 && ms_until(deadline_ns) > 0;
         look_up_route(endpoint, &route)) {
        (void)tmsg_worker_wait(worker, BULK_LOOK_MS);
    }
}

cJSON *event_new(const char *name)
{
    cJSON *event = cJSON_CreateObject();

    event_text(event, "event", name);
    return event;
}

void event_text(cJSON *event, const char *key, const char *text)
{
    cJSON_AddStringToObject(event, key, text);
}

/* Writes a number as the library's JSON does: exactly, and as text if a double
 * cannot hold it. */
void event_number(cJSON *event, const char *key, uint64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, number);
    if (number > 1ULL << 53) {
        cJSON_AddStringToObject(event, key, text);
    } else {
        cJSON_AddRawToObject(event, key, text);
    }
}

void event_seconds(cJSON *event, const char *key, double seconds)
{
    cJSON_AddNumberToObject(event, key, seconds);
}

void event_map(cJSON *event, const tmsg_map_t *map, const digest_t *digest)
{
    char *json;

    event_number(event, "tensors", digest->tensors);
    event_number(event, "bytes", digest->bytes);
    if (tmsg_map_to_json(map, &json) == TMSG_OK) {
        cJSON_Minify(json);
        cJSON_AddRawToObject(event, "map", json);
        tmsg_string_free(json);
    }
    if (digest->sums != NULL) {
        cJSON *sums = cJSON_AddArrayToObject(event, "xxh3");

        for (size_t i = 0; i < digest->tensors; i++) {
            char text[20];

            snprintf(text, sizeof(text), "%016" PRIx64, digest->sums[i]);
            cJSON_AddItemToArray(sums, cJSON_CreateString(text));
        }
    }
}

void event_print(cJSON *event)
{
    char *line = cJSON_PrintUnformatted(event);

    if (line != NULL) {
        put_json(stdout, line);
        putchar('\n');
        output_flush();
    }
    cJSON_free(line);
    cJSON_Delete(event);
}
