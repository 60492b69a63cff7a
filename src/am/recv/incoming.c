/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/recv/incoming.h"

#include <stdio.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "am/recv/stage_in.h"
#include "am/worker/lead.h"
#include "core/error.h"
#include "core/map.h"

#define WHY_BYTES 241 /* bytes of the text that travel, and a NUL */

struct tmsg_incoming {
    tmsg_message_t *message;
    tmsg_status_t refusal;
    char why[WHY_BYTES];
};

const tmsg_map_t *tmsg_incoming_map(const tmsg_incoming_t *incoming)
{
    return incoming->message->map;
}

tmsg_endpoint_t *tmsg_incoming_endpoint(const tmsg_incoming_t *incoming)
{
    return incoming->message->endpoint->face;
}

uint64_t tmsg_incoming_bytes(const tmsg_incoming_t *incoming)
{
    const tmsg_message_t *message = incoming->message;

    return tmsg_message_bytes(message) - tmsg_payload_spill(&message->head);
}

static tmsg_status_t no_tensor(const tmsg_map_t *map, size_t index)
{
    return tmsg_error_set(
        TMSG_ERR_NOT_FOUND,
        "tensor index %zu is out of range: the map has %zu tensors", index,
        tmsg_map_size(map));
}

static tmsg_status_t check_place(const tmsg_incoming_t *incoming, size_t index,
                                 const void *data, uint64_t capacity)
{
    const tmsg_map_t *map = incoming->message->map;
    const tmsg_map_entry_t *entry;
    tmsg_error_name_t name;

    if (index >= tmsg_map_size(map)) {
        return no_tensor(map, index);
    }
    entry = &tmsg_map_entries(map)[index];
    name = tmsg_error_name(entry->name, entry->name_bytes);
    if (data == NULL && entry->bytes > 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "tensor '%s': placed at NULL", name.text);
    }
    if (capacity < entry->bytes) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "tensor '%s': %llu bytes do not fit into %llu",
                              name.text, (unsigned long long)entry->bytes,
                              (unsigned long long)capacity);
    }
    if (entry->tensor.data != NULL) {
        return tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                              "tensor '%s' is placed already", name.text);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_incoming_place(tmsg_incoming_t *incoming, size_t index,
                                  void *data, uint64_t capacity,
                                  const tmsg_map_add_params_t *params)
{
    tmsg_status_t status = check_place(incoming, index, data, capacity);

    if (status == TMSG_OK) {
        status = tmsg_map_lend(incoming->message->map, index, data, params);
    }
    if (status == TMSG_OK) {
        tmsg_stage_in_placed(incoming->message, index);
    }
    return status;
}

tmsg_status_t tmsg_incoming_choose(tmsg_incoming_t *incoming, size_t index,
                                   tmsg_device_t device, tmsg_stream_t stream)
{
    tmsg_message_t *message = incoming->message;
    const tmsg_map_entry_t *entry;

    if (index >= tmsg_map_size(message->map)) {
        return no_tensor(message->map, index);
    }
    entry = &tmsg_map_entries(message->map)[index];
    if (entry->tensor.data != NULL) {
        return tmsg_error_set(
            TMSG_ERR_ALREADY_EXISTS, "tensor '%s' is placed already",
            tmsg_error_name(entry->name, entry->name_bytes).text);
    }
    return tmsg_stage_in_choose(message, index, device, stream);
}

tmsg_status_t tmsg_incoming_choose_name(tmsg_incoming_t *incoming,
                                        const char *name, tmsg_device_t device,
                                        tmsg_stream_t stream)
{
    const tmsg_map_t *map = incoming->message->map;
    tmsg_status_t status = tmsg_map_find(map, name, NULL);

    return status == TMSG_OK
               ? tmsg_incoming_choose(
                     incoming, tmsg_map_position(map, name, strlen(name)),
                     device, stream)
               : status;
}

tmsg_status_t tmsg_incoming_choose_all(tmsg_incoming_t *incoming,
                                       tmsg_device_t device,
                                       tmsg_stream_t stream)
{
    tmsg_message_t *message = incoming->message;
    const tmsg_map_entry_t *entries = tmsg_map_entries(message->map);
    tmsg_status_t status = TMSG_OK;

    for (size_t i = 0; i < tmsg_map_size(message->map) && status == TMSG_OK;
         i++) {
        if (entries[i].tensor.data == NULL) {
            status = tmsg_stage_in_choose(message, i, device, stream);
        }
    }
    return status;
}

tmsg_status_t tmsg_incoming_refuse(tmsg_incoming_t *incoming,
                                   tmsg_status_t status, const char *why)
{
    if (status >= 0 || status == TMSG_ERR_CLOSED || why == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "refuse: status %d and %s: give a failure other "
                              "than CLOSED, and words",
                              status, why == NULL ? "no words" : "words");
    }
    incoming->refusal = status;
    snprintf(incoming->why, sizeof(incoming->why), "%s", why);
    return TMSG_OK;
}

bool tmsg_incoming_may_be_placed(const tmsg_message_t *message)
{
    if (message->head.kind == TMSG_KIND_CALL) {
        return message->posted != NULL;
    }
    return message->head.kind == TMSG_KIND_MAP &&
           (message->endpoint->worker->on_header != NULL ||
            message->endpoint->face->rx.posted.map != NULL);
}

tmsg_status_t tmsg_incoming_ask(tmsg_message_t *message)
{
    tmsg_worker_t *worker = message->endpoint->worker;
    tmsg_incoming_t incoming = {.message = message};
    tmsg_callback_t callback;

    if (worker->on_header == NULL || message->asked ||
        message->head.kind != TMSG_KIND_MAP) {
        return TMSG_OK;
    }
    message->asked = true;
    if (!message->endpoint->face
             ->handle) { /* nobody has the endpoint any more */
        return TMSG_OK;
    }
    tmsg_callback_enter(&callback, worker);
    tmsg_worker_unlock(worker);
    worker->on_header(worker->on_header_arg, &incoming);
    tmsg_worker_lock(worker);
    tmsg_callback_leave(&callback);
    return incoming.refusal == TMSG_OK
               ? TMSG_OK
               : tmsg_error_set(incoming.refusal, "%s", incoming.why);
}
