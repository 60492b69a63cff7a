/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include <tensormsg/endpoint.h>
#include <tensormsg/json.h>

#include "core/error.h"
#include "core/limits.h"
#include "serialize/checksum.h"
#include "serialize/json.h"
#include "serialize/lent_places.h"
#include "serialize/schema_wire.h"
#include "serialize/wire.h"

static cJSON *json_flags(uint8_t flags)
{
    static const char *const names[8] = {"spilled", "acked",     "bit 2",
                                         "read",    "unordered", "charged",
                                         "bit 6",   "bit 7"};
    cJSON *array = cJSON_CreateArray();
    bool complete = array != NULL;

    for (unsigned bit = 0; bit < 8 && complete; bit++) {
        if (flags & (1u << bit)) {
            complete =
                tmsg_json_add(array, NULL, cJSON_CreateString(names[bit]));
        }
    }
    if (!complete) {
        cJSON_Delete(array);
        return NULL;
    }
    return array;
}

static cJSON *json_preamble(const tmsg_preamble_t *preamble)
{
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {
        {"version", preamble->version},
        {"preamble_bytes", preamble->bytes},
        {"kind", preamble->kind},
        {"channel", preamble->channel},
        {"message_id", preamble->message_id},
        {"endpoint_id", preamble->endpoint_id},
        {"sequence", preamble->sequence},
        {"body_bytes", preamble->body_bytes},
        {"payload_bytes", preamble->payload_bytes},
    };
    const char *policy =
        preamble->policy == TMSG_POLICY_STRICT ? "strict" : "host_fallback";
    cJSON *object = cJSON_CreateObject();
    bool complete = object != NULL;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) && complete;
         i++) {
        complete = tmsg_json_add(object, numbers[i].key,
                                 tmsg_json_unsigned(numbers[i].value));
    }
    complete =
        complete && tmsg_json_add(object, "policy", cJSON_CreateString(policy));
    complete =
        complete && tmsg_json_add(object, "flags", json_flags(preamble->flags));
    if (!complete) {
        cJSON_Delete(object);
        return NULL;
    }
    return object;
}

/* Decodes a body into an empty map and checks it against the payload. A body
 * that refers to a schema is not checked, because that needs the schema. */
static tmsg_status_t read_map(const uint8_t *body,
                              const tmsg_preamble_t *preamble, tmsg_map_t *map,
                              tmsg_body_extra_t *extra)
{
    const tmsg_limits_t limits = tmsg_limits_usual();
    tmsg_status_t status =
        tmsg_body_decode(body, preamble->body_bytes, &limits, map, extra);

    if (status != TMSG_OK || extra->schema.form == TMSG_SCHEMA_REFERS) {
        return status;
    }
    return extra->lent.count > 0
               ? tmsg_payload_check_lent(preamble, map, &limits)
               : tmsg_payload_check_map(preamble, map, &extra->split, &limits);
}

static cJSON *json_numbers(const tmsg_schema_use_t *use)
{
    tmsg_cursor_t cursor = tmsg_schema_numbers(use);
    cJSON *array = cJSON_CreateArray();
    bool complete = array != NULL;

    for (uint32_t i = 0; i < use->count && complete; i++) {
        complete = tmsg_json_add(
            array, NULL, tmsg_json_integer(tmsg_cursor_integer(&cursor)));
    }
    if (!complete) {
        cJSON_Delete(array);
        return NULL;
    }
    return array;
}

static bool add_schema(cJSON *object, const tmsg_schema_use_t *use)
{
    bool defines = use->form == TMSG_SCHEMA_DEFINES;
    cJSON *schema;

    if (use->form == TMSG_SCHEMA_NONE) {
        return true;
    }
    schema = cJSON_AddObjectToObject(object, "schema");
    return schema != NULL &&
           cJSON_AddStringToObject(
               schema, "form", defines ? "definition" : "reference") != NULL &&
           tmsg_json_add(schema, "slot", tmsg_json_unsigned(use->slot)) &&
           tmsg_json_add(schema, "generation",
                         tmsg_json_unsigned(use->generation)) &&
           tmsg_json_add(schema, defines ? "varying" : "extents",
                         json_numbers(use));
}

/* Adds the checksums; the values are strings of hexadecimal digits. */
static bool add_checksums(cJSON *object, const tmsg_body_extra_t *extra)
{
    cJSON *checksums, *values = NULL;
    bool complete;

    if (extra->checksum == NULL) {
        return true;
    }
    checksums = cJSON_AddObjectToObject(object, "checksums");
    complete = checksums != NULL &&
               cJSON_AddStringToObject(checksums, "algorithm",
                                       extra->checksum->name) != NULL;
    if (complete) {
        values = cJSON_AddArrayToObject(checksums, "values");
        complete = values != NULL;
    }
    for (size_t i = 0; i < extra->checksum_count && complete; i++) {
        char text[17];

        snprintf(text, sizeof(text), "%0*" PRIx64, 2 * extra->checksum->bytes,
                 tmsg_checksum_value(extra, i));
        complete = tmsg_json_add(values, NULL, cJSON_CreateString(text));
    }
    return complete;
}

static bool add_parts(cJSON *object, const tmsg_split_t *split)
{
    cJSON *parts;

    if (split->large == 0) {
        return true;
    }
    parts = cJSON_AddObjectToObject(object, "parts");
    return parts != NULL &&
           tmsg_json_add(parts, "large", tmsg_json_unsigned(split->large)) &&
           tmsg_json_add(parts, "chunk", tmsg_json_unsigned(split->chunk)) &&
           tmsg_json_add(
               parts, "others",
               tmsg_json_base64(split->others, split->others_bytes)) &&
           (split->slice == 0 ||
            tmsg_json_add(parts, "slice", tmsg_json_unsigned(split->slice))) &&
           (split->others_chunk == 0 ||
            tmsg_json_add(parts, "others_chunk",
                          tmsg_json_unsigned(split->others_chunk)));
}

/* Adds the places of a loan: a segment and an offset for each tensor. */
static bool add_lent(cJSON *object, const tmsg_lent_places_t *lent)
{
    tmsg_cursor_t cursor = tmsg_lent_places_begin(lent);
    cJSON *places;
    bool complete = true;

    if (lent->count == 0) {
        return true;
    }
    places = cJSON_AddArrayToObject(object, "loan");
    complete = places != NULL;
    for (size_t i = 0; i < lent->count && complete; i++) {
        tmsg_lent_place_t place = tmsg_lent_places_next(&cursor);

        complete =
            tmsg_json_add(places, NULL, tmsg_json_unsigned(place.segment)) &&
            tmsg_json_add(places, NULL, tmsg_json_unsigned(place.offset));
    }
    return complete;
}

static tmsg_status_t add_map(cJSON *object, const uint8_t *body,
                             const tmsg_preamble_t *preamble, bool *complete)
{
    tmsg_body_extra_t extra = {0};
    bool refers;
    tmsg_map_t *map;
    tmsg_status_t status = tmsg_map_create(&map);

    if (status != TMSG_OK) {
        return status;
    }
    status = read_map(body, preamble, map, &extra);
    refers = extra.schema.form == TMSG_SCHEMA_REFERS;
    *complete =
        status == TMSG_OK && add_schema(object, &extra.schema) &&
        (refers || tmsg_json_add_tensors(object, map)) &&
        tmsg_json_add_metadata(object, map) && add_checksums(object, &extra) &&
        add_parts(object, &extra.split) && add_lent(object, &extra.lent);
    tmsg_map_destroy(map);
    return status;
}

tmsg_status_t tmsg_header_to_json(const void *header, size_t header_bytes,
                                  char **json_p)
{
    tmsg_preamble_t preamble;
    const uint8_t *body;
    cJSON *object;
    bool complete;
    tmsg_status_t status =
        tmsg_preamble_decode(header, header_bytes, &preamble);

    if (status != TMSG_OK) {
        return status;
    }
    object = cJSON_CreateObject();
    complete = object != NULL &&
               tmsg_json_add(object, "preamble", json_preamble(&preamble));
    body = (const uint8_t *)header + preamble.bytes;
    /* A spilled body is not in the header, unless it was captured behind the
     * header. */
    if (complete && preamble.body_bytes <= header_bytes - preamble.bytes) {
        if (preamble.kind == TMSG_PREAMBLE_MAP) {
            status = add_map(object, body, &preamble, &complete);
        } else {
            complete = tmsg_json_add(
                object, "body", tmsg_json_base64(body, preamble.body_bytes));
        }
    }
    if (status != TMSG_OK) {
        cJSON_Delete(object);
        return status;
    }
    return tmsg_json_finish(object, complete, json_p);
}
