/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata of a peer, as bytes of msgpack: every value that is taken can be
 * asked for by its key in every way, is what its type says, and is the same
 * when it was set in another map, was sent on, or was written as JSON. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include <tensormsg/json.h>
#include <tensormsg/meta.h>

#include "core/limits.h"
#include "core/map.h"
#include "core/utf8.h"
#include "serialize/header.h"
#include "support/must.h"

static bool is_same(const tmsg_meta_t *a, const tmsg_meta_t *b)
{
    if (a->type != b->type) {
        return false;
    }
    switch (a->type) {
    case TMSG_META_TYPE_BOOL:
        return a->boolean == b->boolean;
    case TMSG_META_TYPE_I64:
        return a->i64 == b->i64;
    case TMSG_META_TYPE_F64:
        return memcmp(&a->f64, &b->f64, sizeof(a->f64)) == 0;
    default:
        return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
    }
}

static void check_data(const tmsg_meta_t *value)
{
    volatile uint8_t sum = 0;

    for (size_t i = 0; i < value->bytes; i++) {
        sum ^= (uint8_t)value->data[i];
    }
    (void)sum;
    if (value->type == TMSG_META_TYPE_STRING) {
        must_true(value->data[value->bytes] == '\0');
        must_true(tmsg_utf8_valid(value->data, value->bytes));
    }
}

/* One way is the right one, and no other. */
static void ask(const tmsg_map_t *map, const char *key,
                const tmsg_meta_t *value)
{
    bool is_text = value->type == TMSG_META_TYPE_STRING &&
                   strlen(value->data) == value->bytes;
    tmsg_meta_t found;
    const void *data;
    const char *text;
    size_t bytes;
    int64_t i64;
    double f64;
    int boolean;

    must(tmsg_map_get_meta(map, key, &found));
    must_true(is_same(&found, value));
    must_true((tmsg_map_get_bool(map, key, &boolean) == TMSG_OK) ==
              (value->type == TMSG_META_TYPE_BOOL));
    must_true((tmsg_map_get_i64(map, key, &i64) == TMSG_OK) ==
              (value->type == TMSG_META_TYPE_I64));
    must_true((tmsg_map_get_f64(map, key, &f64) == TMSG_OK) ==
              (value->type == TMSG_META_TYPE_F64));
    must_true((tmsg_map_get_string(map, key, &text) == TMSG_OK) == is_text);
    must_true((tmsg_map_get_bytes(map, key, &data, &bytes) == TMSG_OK) ==
              (value->type == TMSG_META_TYPE_BYTES));
}

/* Reserved keys may have come with a type that they cannot be set to. */
static void set_in_another(tmsg_map_t *other, const char *key,
                           const tmsg_meta_t *value)
{
    tmsg_meta_t found;

    if (tmsg_map_set_meta(other, key, value) == TMSG_OK) {
        must(tmsg_map_get_meta(other, key, &found));
        must_true(is_same(&found, value));
        return;
    }
    must_true(strncmp(key, "tensormsg.", 10) == 0);
}

static void check_values(const tmsg_map_t *map)
{
    tmsg_map_t *other;

    must(tmsg_map_create(&other));
    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        const char *key;
        tmsg_meta_t value;

        must(tmsg_map_meta_at(map, i, &key, &value));
        must_true(key[0] != '\0' && tmsg_utf8_valid(key, strlen(key)));
        check_data(&value);
        ask(map, key, &value);
        set_in_another(other, key, &value);
    }
    while (tmsg_map_meta_size(other) > 0) {
        const char *key;

        must(
            tmsg_map_meta_at(other, tmsg_map_meta_size(other) / 2, &key, NULL));
        must(tmsg_map_remove_meta(other, key));
    }
    tmsg_map_destroy(other);
}

/* As many keys as the map has; what JSON cannot say, it says otherwise. */
static void check_json(const tmsg_map_t *map)
{
    const cJSON *metadata;
    char *text = NULL;
    cJSON *json;

    must(tmsg_map_to_json(map, &text));
    json = cJSON_ParseWithOpts(text, NULL, 1);
    must_true(json != NULL);
    metadata = cJSON_GetObjectItemCaseSensitive(json, "metadata");
    must_true((size_t)cJSON_GetArraySize(metadata) == tmsg_map_meta_size(map));
    cJSON_Delete(json);
    tmsg_string_free(text);
}

static void send_on(const tmsg_map_t *map, const tmsg_limits_t *limits)
{
    tmsg_body_extra_t extra;
    tmsg_map_t *again;
    uint8_t *body;
    size_t bytes;

    must(tmsg_body_encode(map, NULL, NULL, 0, &bytes));
    body = malloc(bytes);
    must_true(body != NULL);
    must(tmsg_body_encode(map, NULL, body, bytes, &bytes));
    must(tmsg_map_create(&again));
    must(tmsg_body_decode(body, bytes, limits, again, &extra));
    free(body); /* nothing points there */
    must_true(tmsg_map_meta_size(again) == tmsg_map_meta_size(map));
    for (size_t i = 0; i < tmsg_map_meta_size(map); i++) {
        const char *key, *key_again;
        tmsg_meta_t value, value_again;

        must(tmsg_map_meta_at(map, i, &key, &value));
        must(tmsg_map_meta_at(again, i, &key_again, &value_again));
        must_true(strcmp(key, key_again) == 0 && is_same(&value, &value_again));
    }
    tmsg_map_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tmsg_limits_t limits = tmsg_limits_usual();
    uint8_t *body = malloc(size + 2);
    tmsg_body_extra_t extra;
    tmsg_map_t *map;

    must_true(body != NULL);
    body[0] = 0x81; /* {2: metadata} */
    body[1] = 0x02;
    if (size > 0) {
        memcpy(body + 2, data, size);
    }
    must(tmsg_map_create(&map));
    if (tmsg_body_decode(body, size + 2, &limits, map, &extra) == TMSG_OK) {
        free(body);
        body = NULL;
        check_values(map);
        check_json(map);
        send_on(map, &limits);
    }
    free(body);
    tmsg_map_destroy(map);
    return 0;
}
