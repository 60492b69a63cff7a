/* SPDX-License-Identifier: BSD-3-Clause */
#include "transfer.h"

#include <string.h>

#define KEY_OFFER "transfer.offer"
#define KEY_BYTES "transfer.bytes"
#define KEY_NOTE "transfer.note"
#define KEY_CHECKED "transfer.checked"
#define KEY_VERDICT "transfer.verdict"
#define KEY_REPLY "transfer.reply"
#define KEY_STATE "transfer.state"
#define KEY_FILE "transfer.file"
#define KEY_ERROR "transfer.error"

static const char *const states[] = {
    [TRANSFER_GO] = "go",
    [TRANSFER_ALIVE] = "alive",
    [TRANSFER_DONE] = "done",
    [TRANSFER_FAILED] = "failed",
};

#define STATE_COUNT (sizeof(states) / sizeof(states[0]))

#define STATE_SAME "same" /* state of a verdict */
#define STATE_CHANGED "changed"

/* Paths in error messages may contain bytes that are not UTF-8. Metadata must
 * be UTF-8. */
static tmsg_status_t set_text(tmsg_map_t *map, const char *key,
                              const char *text)
{
    char plain[1024];
    tmsg_status_t status = tmsg_map_set_string(map, key, text);

    if (status != TMSG_ERR_INVALID_PARAM) {
        return status;
    }
    snprintf(plain, sizeof(plain), "%s", text);
    for (char *c = plain; *c != '\0'; c++) {
        if ((unsigned char)*c >= 0x80) {
            *c = '?';
        }
    }
    return tmsg_map_set_string(map, key, plain);
}

/* Sends the map if `status` is TMSG_OK, and destroys it in any case. */
static tmsg_status_t send_and_destroy(tmsg_endpoint_t *endpoint,
                                      tmsg_map_t *map, tmsg_status_t status,
                                      tmsg_request_t **request_p)
{
    if (status == TMSG_OK) {
        status = tmsg_endpoint_send(endpoint, map, NULL, request_p);
    }
    tmsg_map_destroy(map);
    return status;
}

tmsg_status_t transfer_send_offer(tmsg_endpoint_t *endpoint,
                                  const transfer_offer_t *offer)
{
    tmsg_map_t *map;
    tmsg_status_t status = tmsg_map_create(&map);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_map_set_i64(map, KEY_OFFER, offer->number);
    if (status == TMSG_OK) {
        status = tmsg_map_set_i64(map, KEY_BYTES, (int64_t)offer->bytes);
    }
    if (status == TMSG_OK) {
        status = tmsg_map_set_string(map, TMSG_META_FILE_NAME, offer->name);
    }
    if (status == TMSG_OK) {
        status = tmsg_map_set_string(map, TMSG_META_FILE_FORMAT, offer->format);
    }
    if (status == TMSG_OK && offer->note != NULL) {
        status = set_text(map, KEY_NOTE, offer->note);
    }
    if (status == TMSG_OK && offer->checked) {
        status = tmsg_map_set_bool(map, KEY_CHECKED, true);
    }
    return send_and_destroy(endpoint, map, status, NULL);
}

tmsg_status_t transfer_send_reply(tmsg_endpoint_t *endpoint,
                                  const transfer_reply_t *reply,
                                  tmsg_request_t **request_p)
{
    tmsg_map_t *map;
    tmsg_status_t status = tmsg_map_create(&map);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_map_set_i64(map, KEY_REPLY, reply->number);
    if (status == TMSG_OK) {
        status = tmsg_map_set_string(map, KEY_STATE, states[reply->state]);
    }
    if (status == TMSG_OK && reply->state == TRANSFER_DONE) {
        status = set_text(map, KEY_FILE, reply->file);
    }
    if (status == TMSG_OK && reply->state == TRANSFER_FAILED) {
        status = set_text(map, KEY_ERROR, reply->error);
    }
    if (status == TMSG_OK && reply->checked) {
        status = tmsg_map_set_bool(map, KEY_CHECKED, true);
    }
    return send_and_destroy(endpoint, map, status, request_p);
}

tmsg_status_t transfer_send_verdict(tmsg_endpoint_t *endpoint,
                                    const transfer_verdict_t *verdict)
{
    bool changed = verdict->changed != NULL;
    tmsg_map_t *map;
    tmsg_status_t status = tmsg_map_create(&map);

    if (status != TMSG_OK) {
        return status;
    }
    status = tmsg_map_set_i64(map, KEY_VERDICT, verdict->number);
    if (status == TMSG_OK) {
        status = tmsg_map_set_string(map, KEY_STATE,
                                     changed ? STATE_CHANGED : STATE_SAME);
    }
    if (status == TMSG_OK && changed) {
        status = set_text(map, KEY_ERROR, verdict->changed);
    }
    return send_and_destroy(endpoint, map, status, NULL);
}

const char *transfer_text(const tmsg_map_t *map, const char *key)
{
    const char *text = NULL;

    tmsg_map_get_string(map, key, &text);
    return text;
}

static bool is_checked(const tmsg_map_t *map)
{
    int checked = 0;

    return tmsg_map_get_bool(map, KEY_CHECKED, &checked) == TMSG_OK &&
           checked != 0;
}

bool transfer_read_offer(const tmsg_map_t *map, transfer_offer_t *offer)
{
    int64_t bytes;

    if (tmsg_map_size(map) > 0 ||
        tmsg_map_get_i64(map, KEY_OFFER, &offer->number) != TMSG_OK ||
        tmsg_map_get_i64(map, KEY_BYTES, &bytes) != TMSG_OK || bytes < 0 ||
        offer->number < 1) {
        return false;
    }
    offer->bytes = (uint64_t)bytes;
    offer->name = transfer_text(map, TMSG_META_FILE_NAME);
    offer->format = transfer_text(map, TMSG_META_FILE_FORMAT);
    offer->note = transfer_text(map, KEY_NOTE);
    offer->checked = is_checked(map);
    return true;
}

bool transfer_read_reply(const tmsg_map_t *map, transfer_reply_t *reply)
{
    const char *state = transfer_text(map, KEY_STATE);
    const char *file = transfer_text(map, KEY_FILE);
    const char *error = transfer_text(map, KEY_ERROR);
    size_t i = 0;

    if (state == NULL ||
        tmsg_map_get_i64(map, KEY_REPLY, &reply->number) != TMSG_OK) {
        return false;
    }
    while (i < STATE_COUNT && strcmp(state, states[i]) != 0) {
        i++;
    }
    reply->state = (transfer_state_t)i;
    reply->file = file == NULL ? "" : file;
    reply->error = error == NULL ? "without a reason" : error;
    reply->checked = is_checked(map);
    return i < STATE_COUNT;
}

/* Any state but "same" is a reason to keep nothing. This includes states of
 * later versions. */
bool transfer_read_verdict(const tmsg_map_t *map, transfer_verdict_t *verdict)
{
    const char *state = transfer_text(map, KEY_STATE);
    const char *error = transfer_text(map, KEY_ERROR);

    if (tmsg_map_size(map) > 0 || state == NULL ||
        tmsg_map_get_i64(map, KEY_VERDICT, &verdict->number) != TMSG_OK) {
        return false;
    }
    verdict->changed = strcmp(state, STATE_SAME) == 0 ? NULL
                       : error == NULL                ? "without a reason"
                                                      : error;
    return true;
}
