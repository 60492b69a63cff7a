/* SPDX-License-Identifier: BSD-3-Clause */
/* publisher.c - publishers as Go holds them. */
#include "publisher.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

tmsggo_result_t tmsggo_publisher(tmsggo_hub_t *hub,
                                 tmsg_publisher_params_t params,
                                 tmsg_subscriber_params_t subscriber,
                                 tmsg_publisher_t **publisher_p)
{
    params.field_mask |= TMSG_PUBLISHER_PARAM_SUBSCRIBER;
    params.subscriber = &subscriber;
    return tmsggo_result(
        tmsg_publisher_create(tmsggo_worker(hub), &params, publisher_p));
}

tmsggo_result_t tmsggo_publisher_listen(tmsggo_hub_t *hub, const char *url,
                                        tmsg_listener_params_t params,
                                        int peers, tmsg_publisher_t *publisher,
                                        tmsggo_door_t **door_p)
{
    params.field_mask |= TMSG_LISTENER_PARAM_ON_ACCEPT;
    params.on_accept = tmsg_publisher_accept;
    params.on_accept_arg = publisher;
    return tmsggo_listen(hub, url, params, 1, peers, door_p);
}

tmsggo_result_t tmsggo_publisher_add(tmsg_publisher_t *publisher,
                                     tmsg_endpoint_t *endpoint,
                                     tmsg_subscriber_params_t params)
{
    return tmsggo_result(tmsg_publisher_add(
        publisher, endpoint, params.field_mask != 0 ? &params : NULL));
}

tmsggo_result_t tmsggo_publisher_remove(tmsg_publisher_t *publisher,
                                        tmsg_endpoint_t *endpoint)
{
    return tmsggo_result(tmsg_publisher_remove(publisher, endpoint));
}

tmsggo_sent_t tmsggo_publish(tmsg_publisher_t *publisher, const tmsg_map_t *map,
                             uint32_t flags, uint16_t channel)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL,
        .flags = flags | TMSG_SEND_TRY,
        .channel = channel,
    };
    tmsg_request_t *request = NULL;
    tmsg_status_t status =
        tmsg_publisher_publish(publisher, map, &params, &request);
    if (status != TMSG_ERR_WOULD_BLOCK) {
        return tmsggo_sent(status, request);
    }
    tmsggo_sent_t sent = {tmsggo_result(status), NULL};
    status = tmsg_publisher_ready(publisher, &sent.request);
    if (status != TMSG_OK) {
        free(sent.result.words);
        sent.result = tmsggo_result(status);
    }
    return sent;
}

tmsggo_result_t tmsggo_publisher_close(tmsg_publisher_t *publisher,
                                       tmsg_request_t **request_p)
{
    return tmsggo_result(tmsg_publisher_close(publisher, request_p));
}

char *tmsggo_describe_publisher(const tmsg_publisher_t *publisher)
{
    char *json = NULL;
    tmsg_status_t status = tmsg_publisher_describe(publisher, &json);
    return tmsggo_described(status, json);
}

tmsggo_crowd_t *tmsggo_crowd(const tmsg_publisher_t *publisher, size_t least)
{
    tmsggo_crowd_t *crowd = malloc(sizeof(*crowd));
    if (crowd != NULL) {
        *crowd = (tmsggo_crowd_t){publisher, least};
    }
    return crowd;
}

int tmsggo_crowd_is_complete(const tmsggo_crowd_t *crowd)
{
    return crowd->publisher == NULL ||
           tmsg_publisher_size(crowd->publisher) >= crowd->least;
}

tmsggo_result_t tmsggo_tensor_bytes(const tmsg_tensor_t *tensor,
                                    uint64_t *bytes_p)
{
    return tmsggo_result(tmsg_tensor_bytes(tensor, bytes_p));
}

tmsggo_result_t tmsggo_tensor_pack(const tmsg_tensor_t *tensor, void *buffer)
{
    return tmsggo_result(tmsg_tensor_pack(tensor, buffer));
}

enum { ALIGNMENT = 64 };

/* The memory of a copied map, which goes with the last of its tensors. */
typedef struct {
    _Alignas(ALIGNMENT) atomic_size_t tensors;
} copied_t;

static void let_go(void *arg)
{
    copied_t *copied = arg;
    if (atomic_fetch_sub(&copied->tensors, 1) == 1) {
        free(copied);
    }
}

/* Where the next tensor begins; SIZE_MAX: beyond all memory. */
static size_t after(size_t at, uint64_t bytes)
{
    if (at > SIZE_MAX - ALIGNMENT || bytes > SIZE_MAX - ALIGNMENT - at) {
        return SIZE_MAX;
    }
    return (at + (size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static tmsg_status_t copy_size(const tmsg_map_t *map, size_t *size_p)
{
    size_t size = sizeof(copied_t);
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        tmsg_tensor_t tensor;
        uint64_t bytes;
        tmsg_status_t status = tmsg_map_at(map, i, NULL, &tensor);
        if (status == TMSG_OK) {
            status = tmsg_tensor_bytes(&tensor, &bytes);
        }
        if (status != TMSG_OK) {
            return status;
        }
        size = after(size, bytes);
    }
    *size_p = size;
    return TMSG_OK;
}

/* Adds a tensor's copy, in C order, at `at`. */
static tmsg_status_t copy_tensor(tmsg_map_t *to, const tmsg_map_t *map,
                                 size_t index, copied_t *copied, size_t *at)
{
    const char *name;
    tmsg_tensor_t tensor;
    uint64_t bytes;
    tmsg_status_t status = tmsg_map_at(map, index, &name, &tensor);
    if (status == TMSG_OK) {
        status = tmsg_tensor_bytes(&tensor, &bytes);
    }
    char *data = (char *)copied + *at;
    if (status == TMSG_OK) {
        status = tmsg_tensor_pack(&tensor, data);
    }
    if (status != TMSG_OK) {
        return status;
    }
    tensor.data = data;
    tensor.strides = NULL;
    const tmsg_map_add_params_t owned = {
        .field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
        .release = let_go,
        .release_arg = copied,
    };
    atomic_fetch_add(&copied->tensors, 1);
    status = tmsg_map_add(to, name, &tensor, &owned);
    if (status != TMSG_OK) {
        let_go(copied);
    }
    *at = after(*at, bytes);
    return status;
}

static tmsg_status_t copy_all(tmsg_map_t *to, const tmsg_map_t *map,
                              copied_t *copied)
{
    tmsg_status_t status = TMSG_OK;
    size_t at = sizeof(*copied);
    for (size_t i = 0; i < tmsg_map_size(map) && status == TMSG_OK; i++) {
        status = copy_tensor(to, map, i, copied, &at);
    }
    for (size_t i = 0; i < tmsg_map_meta_size(map) && status == TMSG_OK; i++) {
        const char *key;
        tmsg_meta_t value;
        status = tmsg_map_meta_at(map, i, &key, &value);
        if (status == TMSG_OK) {
            status = tmsg_map_set_meta(to, key, &value);
        }
    }
    return status;
}

tmsggo_result_t tmsggo_copy(const tmsg_map_t *map, tmsg_map_t **copy_p)
{
    size_t size = 0;
    tmsg_map_t *to = NULL;
    tmsg_status_t status = copy_size(map, &size);
    if (status == TMSG_OK) {
        status = tmsg_map_create(&to);
    }
    if (status != TMSG_OK) {
        return tmsggo_result(status);
    }
    copied_t *copied = aligned_alloc(ALIGNMENT, size);
    if (copied == NULL) {
        tmsg_map_destroy(to);
        return (tmsggo_result_t){TMSG_ERR_NO_MEMORY, NULL};
    }
    atomic_init(&copied->tensors, 1); /* until here they are all added */
    status = copy_all(to, map, copied);
    tmsggo_result_t answer = tmsggo_result(status);
    if (status == TMSG_OK) {
        *copy_p = to;
    } else {
        tmsg_map_destroy(to);
    }
    let_go(copied);
    return answer;
}
