/* SPDX-License-Identifier: BSD-3-Clause */
/* offers.c - offers as Go holds them, and fetches. */
#include "offers.h"

#include <stdatomic.h>
#include <stdlib.h>

struct tmsggo_offered {
    atomic_int lent; /* first: TMSGGO_LENT */
    atomic_int live;
    tmsg_offer_t *offer;
};

static void over(void *arg, tmsg_offer_t *offer, tmsg_status_t status)
{
    tmsggo_offered_t *offered = arg;
    (void)offer;
    (void)status;
    atomic_store(&offered->live, 0);
}

static void released(void *arg)
{
    tmsggo_offered_t *offered = arg;
    atomic_store(&offered->lent, 0);
}

tmsggo_result_t tmsggo_offered_create(tmsggo_hub_t *hub, const tmsg_map_t *map,
                                      tmsg_offer_params_t params,
                                      tmsggo_offered_t **offered_p)
{
    tmsggo_offered_t *offered = calloc(1, sizeof(*offered));
    if (offered == NULL) {
        return (tmsggo_result_t){TMSG_ERR_NO_MEMORY, NULL};
    }
    atomic_store(&offered->lent, 1);
    atomic_store(&offered->live, 1);
    params.field_mask |= TMSG_OFFER_PARAM_ON_OVER | TMSG_OFFER_PARAM_ON_RELEASE;
    params.on_over = over;
    params.on_over_arg = offered;
    params.on_release = released;
    params.on_release_arg = offered;
    tmsggo_result_t answer = tmsggo_result(
        tmsg_offer_create(tmsggo_worker(hub), map, &params, &offered->offer));
    if (answer.status == TMSG_OK) {
        *offered_p = offered;
    } else {
        free(offered);
    }
    return answer;
}

tmsg_offer_key_t tmsggo_offered_key(const tmsggo_offered_t *offered)
{
    tmsg_offer_key_t key;
    tmsg_offer_key(offered->offer, &key);
    return key;
}

tmsg_offer_stats_t tmsggo_offered_stats(const tmsggo_offered_t *offered)
{
    tmsg_offer_stats_t stats;
    tmsg_offer_stats(offered->offer, &stats);
    return stats;
}

int tmsggo_offered_is_live(const tmsggo_offered_t *offered)
{
    return atomic_load(&offered->live);
}

int tmsggo_offered_is_lent(const tmsggo_offered_t *offered)
{
    return atomic_load(&offered->lent);
}

void tmsggo_offered_end(tmsggo_offered_t *offered, int timeout_ms)
{
    (void)tmsg_offer_end(offered->offer, timeout_ms);
}

void tmsggo_offered_destroy(tmsggo_offered_t *offered)
{
    tmsg_offer_destroy(offered->offer);
    free(offered);
}

static tmsg_slice_t *slices_of(const tmsggo_slice_t *from, size_t count,
                               const int64_t *dims, const char *bytes)
{
    tmsg_slice_t *slices = calloc(count, sizeof(*slices));
    for (size_t i = 0; slices != NULL && i < count; i++) {
        slices[i].name = bytes + from[i].name;
        slices[i].as = bytes + from[i].as;
        slices[i].ndim = from[i].ndim;
        if (from[i].ndim > 0) {
            slices[i].start = dims + from[i].dims;
            slices[i].count = slices[i].start + from[i].ndim;
        }
    }
    return slices;
}

tmsggo_result_t tmsggo_fetch(tmsg_endpoint_t *endpoint, const char *name,
                             tmsggo_fetch_t fetch, const tmsggo_slice_t *slices,
                             const int64_t *dims, const char *bytes,
                             const tmsg_map_t *into, tmsggo_call_t **call_p)
{
    tmsg_fetch_params_t params = {
        .field_mask = TMSG_FETCH_PARAM_TIMEOUT | TMSG_FETCH_PARAM_FLAGS,
        .timeout_ms = fetch.timeout_ms,
        .flags = fetch.flags,
    };
    tmsg_slice_t *asked = NULL;
    if (fetch.count > 0) {
        asked = slices_of(slices, fetch.count, dims, bytes);
        if (asked == NULL) {
            return (tmsggo_result_t){TMSG_ERR_NO_MEMORY, NULL};
        }
        params.field_mask |= TMSG_FETCH_PARAM_SLICES;
        params.slices = asked;
        params.slice_count = (uint32_t)fetch.count;
    }
    if (into != NULL) {
        params.field_mask |= TMSG_FETCH_PARAM_INTO;
        params.into = into;
    }
    if (fetch.wait_ms != 0) {
        params.field_mask |= TMSG_FETCH_PARAM_WAIT;
        params.wait_ms = fetch.wait_ms;
    }
    if (fetch.has_epoch) {
        params.field_mask |= TMSG_FETCH_PARAM_EPOCH;
        params.epoch = fetch.epoch;
    }
    tmsg_call_t *call = NULL;
    tmsg_status_t status =
        fetch.by_key ? tmsg_endpoint_fetch(endpoint, &fetch.key, &params, &call)
                     : tmsg_endpoint_fetch_name(endpoint, name, fetch.at_least,
                                                &params, &call);
    tmsggo_result_t answer = tmsggo_result(status);
    if (status == TMSG_OK && (*call_p = tmsggo_call_of(call)) == NULL) {
        answer.status = TMSG_ERR_NO_MEMORY;
    }
    free(asked);
    return answer;
}

struct tmsggo_into {
    atomic_int lent; /* first: TMSGGO_LENT. Tensors that the map has */
    tmsg_map_t *map;
};

static void let_go(void *arg)
{
    tmsggo_into_t *into = arg;
    atomic_fetch_sub(&into->lent, 1);
}

static tmsg_map_add_params_t owned(tmsggo_into_t *into, tmsg_stream_t stream)
{
    tmsg_map_add_params_t params = {
        .field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
        .release = let_go,
        .release_arg = into,
        .stream = stream,
    };
    if (stream.kind != TMSG_STREAM_NONE) {
        params.field_mask |= TMSG_MAP_ADD_PARAM_STREAM;
    }
    return params;
}

tmsggo_result_t tmsggo_into_create(const tmsggo_tensor_t *tensors, size_t count,
                                   const int64_t *dims, const char *bytes,
                                   tmsggo_into_t **into_p)
{
    tmsggo_into_t *into = calloc(1, sizeof(*into));
    if (into == NULL) {
        return (tmsggo_result_t){TMSG_ERR_NO_MEMORY, NULL};
    }
    tmsg_status_t status = tmsg_map_create(&into->map);
    for (size_t i = 0; status == TMSG_OK && i < count; i++) {
        tmsg_map_add_params_t params = owned(into, tensors[i].stream);
        tmsg_tensor_t tensor = tmsggo_tensor_of(&tensors[i], dims);
        status =
            tmsg_map_add(into->map, bytes + tensors[i].name, &tensor, &params);
        if (status == TMSG_OK) {
            atomic_fetch_add(&into->lent, 1);
        }
    }
    tmsggo_result_t answer = tmsggo_result(status);
    if (status == TMSG_OK) {
        *into_p = into;
    } else {
        tmsg_map_destroy(into->map);
        free(into);
    }
    return answer;
}

const tmsg_map_t *tmsggo_into_map(const tmsggo_into_t *into)
{
    return into->map;
}

tmsggo_result_t tmsggo_into_set(tmsggo_into_t *into, size_t index,
                                uintptr_t data, tmsg_stream_t stream)
{
    tmsg_map_add_params_t params = owned(into, stream);
    tmsg_status_t status =
        tmsg_map_set_data(into->map, index, (void *)data, &params);
    if (status == TMSG_OK) { /* the tensor before it was let go */
        atomic_fetch_add(&into->lent, 1);
    }
    return tmsggo_result(status);
}

void tmsggo_into_leave(tmsggo_into_t *into) { tmsg_map_destroy(into->map); }

int tmsggo_into_is_lent(const tmsggo_into_t *into)
{
    return atomic_load(&into->lent) != 0;
}

void tmsggo_into_free(tmsggo_into_t *into) { free(into); }
