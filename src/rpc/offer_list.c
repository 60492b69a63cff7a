/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists the names that a worker offers, and reads such a list. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include <tensormsg/meta.h>

#include "core/json_read.h"
#include "core/map.h"
#include "rpc/builtin.h"
#include "rpc/offer.h"
#include "rpc/principal.h"
#include "serialize/json.h"

#define KEY_BYTES (sizeof(TMSG_LIST_OFFER) + TMSG_OFFER_NAME_MAX)
#define JSON_BYTES 160 /* 4 numbers, and 45 bytes of text */

typedef struct {
    tmsg_offer_t *offer; /* with a reference */
    size_t count;        /* of the offers of its name that the asker may see */
} listed_t;

/* Notes the newest offer of each name that the asker may see. Returns how many
 * there are; *more_p: there are more. Lock held. */
static size_t note_offers(const tmsg_offers_t *offers,
                          const tmsg_endpoint_t *asker, listed_t *listed,
                          bool *more_p)
{
    size_t count = 0;

    for (tmsg_node_t *node = offers->live.head; node != NULL;
         node = node->next) {
        tmsg_offer_t *offer = TMSG_CONTAINER_OF(node, tmsg_offer_t, node);

        if (offer->name == NULL || !tmsg_version_is_newest(offer) ||
            !tmsg_principals_allow(offer->principals, asker) ||
            offer != tmsg_versions_newest(offers, offer->name, asker)) {
            continue; /* one of each name */
        }
        if (count == TMSG_LIST_MOST) {
            *more_p = true;
            break;
        }
        offer->refs++;
        listed[count++] =
            (listed_t){offer, tmsg_versions_count(offers, offer->name, asker)};
    }
    return count;
}

/* A tree of cJSON would cost several times as much. */
static tmsg_status_t write_offer(const listed_t *listed, tmsg_map_t *map)
{
    const tmsg_offer_t *offer = listed->offer;
    const char *version = tmsg_json_quote(offer->version);
    const char *bytes = tmsg_json_quote(offer->bytes);
    char key[KEY_BYTES], json[JSON_BYTES];

    snprintf(json, sizeof(json),
             "{\"version\":%s%" PRIu64 "%s,\"tensors\":%zu,\"bytes\":%s%" PRIu64
             "%s,\"offers\":%zu}",
             version, offer->version, version, offer->tensors, bytes,
             offer->bytes, bytes, listed->count);
    strcpy(key, TMSG_LIST_OFFER);
    strcat(key, offer->name);
    return tmsg_map_set_string(map, key, json);
}

static tmsg_status_t list_offers(tmsg_task_t *task, tmsg_map_t *map)
{
    tmsg_hub_t *hub = task->server->hub;
    listed_t *listed = calloc(TMSG_LIST_MOST, sizeof(*listed));
    tmsg_status_t status = TMSG_OK;
    bool more = false;
    size_t count;

    if (listed == NULL) {
        return tmsg_error_memory("a list of offers");
    }
    tmsg_hub_lock(hub);
    count = note_offers(hub->offers, task->endpoint, listed, &more);
    tmsg_hub_unlock(hub);
    for (size_t i = 0; i < count; i++) {
        if (status == TMSG_OK) {
            status = write_offer(&listed[i], map);
        }
        tmsg_offer_drop(listed[i].offer);
    }
    free(listed);
    return status == TMSG_OK && more ? tmsg_map_set_bool(map, TMSG_LIST_MORE, 1)
                                     : status;
}

void tmsg_offer_list(void *arg, tmsg_task_t *task)
{
    tmsg_map_t *map = NULL;
    tmsg_status_t status = tmsg_list_begin(task);

    (void)arg;
    if (status != TMSG_OK) {
        (void)tmsg_task_fail(task, status, 0, tmsg_error_message(), NULL);
        return;
    }
    status = tmsg_map_create(&map);
    if (status == TMSG_OK) {
        status = list_offers(task, map);
    }
    tmsg_list_end(task, status, map);
}

static tmsg_status_t malformed_offer(const char *name)
{
    return tmsg_error_set(TMSG_ERR_MALFORMED,
                          "list of offers: '%s' is not described",
                          tmsg_error_name(name, strlen(name)).text);
}

/* Returns whether a peer wrote a number: one that a double cannot have comes as
 * text. */
static bool is_number(const cJSON *item)
{
    size_t bytes = cJSON_IsString(item) ? strlen(item->valuestring) : 0;

    return cJSON_IsNumber(item) ||
           (bytes > 0 && bytes <= 20 &&
            strspn(item->valuestring, "0123456789") == bytes);
}

/* Copies a number from what a peer wrote of a name; a missing one is 0. */
static tmsg_status_t copy_number(const char *name, const cJSON *from,
                                 const char *key, cJSON *to)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, key);
    cJSON *copy;

    if (item != NULL && !is_number(item)) {
        return malformed_offer(name);
    }
    copy = item == NULL ? cJSON_CreateNumber(0) : cJSON_Duplicate(item, false);
    return tmsg_json_add(to, key, copy) ? TMSG_OK
                                        : tmsg_error_memory("a list of offers");
}

/* Adds what a peer says of one name. */
static tmsg_status_t read_offer(const char *name, const tmsg_meta_t *value,
                                cJSON *array)
{
    static const char *const keys[] = {"version", "tensors", "bytes", "offers"};
    tmsg_json_reader_t reader = {.what = "an offer",
                                 .source = "list of offers"};
    tmsg_status_t status = TMSG_OK;
    cJSON *from, *to;

    if (value->type != TMSG_META_TYPE_STRING ||
        tmsg_json_find_nul(value->data, value->bytes) != NULL ||
        strlen(value->data) != value->bytes) {
        return malformed_offer(name);
    }
    from = tmsg_json_parse(&reader, value->data); /* NULL also without memory */
    if (!cJSON_IsObject(from)) {
        cJSON_Delete(from);
        return malformed_offer(name);
    }
    to = cJSON_CreateObject();
    if (!tmsg_json_add(array, NULL, to) ||
        !tmsg_json_add(to, "name", cJSON_CreateString(name))) {
        status = tmsg_error_memory("a list of offers");
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && status == TMSG_OK;
         i++) {
        status = copy_number(name, from, keys[i], to);
    }
    cJSON_Delete(from);
    return status;
}

/* Adds what a peer says of all its names. */
static tmsg_status_t read_names(const tmsg_map_t *reply, cJSON *array)
{
    static const size_t prefix = sizeof(TMSG_LIST_OFFER) - 1;
    const tmsg_map_meta_entry_t *entries = tmsg_map_meta_entries(reply);
    size_t count = tmsg_map_meta_size(reply);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < count && status == TMSG_OK; i++) {
        if (strncmp(entries[i].key, TMSG_LIST_OFFER, prefix) == 0 &&
            strlen(entries[i].key) == entries[i].key_bytes) {
            status =
                read_offer(entries[i].key + prefix, &entries[i].value, array);
        }
    }
    return status;
}

static tmsg_status_t read_list(const tmsg_map_t *reply, char **json_p)
{
    cJSON *object = cJSON_CreateObject(), *array = cJSON_CreateArray();
    tmsg_status_t status;
    int more = 0;

    if (object == NULL || !tmsg_json_add(object, "offers", array)) {
        if (object == NULL) {
            cJSON_Delete(array);
        }
        cJSON_Delete(object);
        return tmsg_error_memory("a list of offers");
    }
    status = read_names(reply, array);
    if (status != TMSG_OK) {
        cJSON_Delete(object);
        return status;
    }
    (void)tmsg_map_get_bool(reply, TMSG_LIST_MORE, &more); /* may be missing */
    return tmsg_json_finish(
        object, tmsg_json_add(object, "more", cJSON_CreateBool(more)), json_p);
}

tmsg_status_t tmsg_endpoint_offers(tmsg_endpoint_t *endpoint, int timeout_ms,
                                   char **json_p)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                       .timeout_ms = timeout_ms};
    tmsg_call_t *call;
    tmsg_status_t status;

    if (endpoint == NULL || json_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "offers: %s is NULL",
                              endpoint == NULL ? "endpoint" : "json_p");
    }
    status =
        tmsg_endpoint_call(endpoint, TMSG_OFFER_LIST, NULL, &params, &call);
    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_call_wait(call, -1); /* the call's timeout ends the wait */
    if (status == TMSG_OK) {
        status = read_list(tmsg_call_reply(call), json_p);
    }
    tmsg_call_destroy(call);
    return status;
}
