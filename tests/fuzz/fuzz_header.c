/* SPDX-License-Identifier: BSD-3-Clause */
/* Headers from anyone: what is taken must be written again as bytes that are
 * taken as the same map, and its JSON must be JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include <tensormsg/json.h>

#include "core/limits.h"
#include "core/map.h"
#include "serialize/header.h"
#include "support/must.h"

/* The encoded map, in a buffer of exactly its size. */
static uint8_t *encode(const tmsg_map_t *map, const tmsg_body_extra_t *extra,
                       size_t *bytes_p)
{
    uint8_t *body;
    size_t again;

    must(tmsg_body_encode(map, extra, NULL, 0, bytes_p));
    body = malloc(*bytes_p);
    must(tmsg_body_encode(map, extra, body, *bytes_p, &again));
    must_true(again == *bytes_p);
    return body;
}

static void check_body(const uint8_t *data, size_t size)
{
    tmsg_limits_t limits;
    tmsg_body_extra_t extra, extra_again;
    tmsg_map_t *map, *again;
    uint64_t payload;

    limits = tmsg_limits_usual();
    must(tmsg_map_create(&map));
    must(tmsg_map_create(&again));
    if (tmsg_body_decode(data, size, &limits, map, &extra) == TMSG_OK) {
        /* Checksums of a reference are of tensors that are not here. */
        const tmsg_body_extra_t alone = {.schema = extra.schema};
        bool refers = extra.schema.form == TMSG_SCHEMA_REFERS;
        size_t bytes, bytes_again;
        uint8_t *body, *body_again;

        extra = refers ? alone : extra;
        body = encode(map, &extra, &bytes);

        must(tmsg_body_decode(body, bytes, &limits, again, &extra_again));
        must_true(extra_again.checksum == extra.checksum &&
                  extra_again.checksum_count == extra.checksum_count);
        must_true(tmsg_map_size(again) == tmsg_map_size(map));
        must_true(tmsg_map_meta_size(again) == tmsg_map_meta_size(map));
        body_again = encode(again, &extra_again, &bytes_again);
        must_true(bytes == bytes_again && memcmp(body, body_again, bytes) == 0);
        free(body);
        free(body_again);
        (void)tmsg_layout_bytes(map, &limits, &payload);
    } else {
        must_true(tmsg_map_size(map) == 0 && tmsg_map_meta_size(map) == 0);
        must_true(tmsg_error_message()[0] != '\0');
    }
    tmsg_map_destroy(map);
    tmsg_map_destroy(again);
}

static void check_json(const uint8_t *data, size_t size)
{
    char *text = NULL;

    if (tmsg_header_to_json(data, size, &text) == TMSG_OK) {
        cJSON *json = cJSON_ParseWithOpts(text, NULL, 1);

        must_true(json != NULL);
        cJSON_Delete(json);
        tmsg_string_free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tmsg_preamble_t preamble;

    check_json(data, size);
    if (size >= TMSG_PREAMBLE_SHORT &&
        tmsg_preamble_decode(data, size, &preamble) == TMSG_OK) {
        check_body(data + preamble.bytes, size - preamble.bytes);
    }
    check_body(data, size);
    return 0;
}
