/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements the fetcher's part of tensormsg/offer.h. docs/reference/offers.md,
 * "What travels", has the messages. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/meta.h>

#include "core/map.h"
#include "core/params.h"
#include "core/utf8.h"
#include "rpc/caller.h"
#include "rpc/offer.h"

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_FETCH_PARAM_SLICES | TMSG_FETCH_PARAM_INTO |              \
                TMSG_FETCH_PARAM_TIMEOUT | TMSG_FETCH_PARAM_WAIT |             \
                TMSG_FETCH_PARAM_EPOCH | TMSG_FETCH_PARAM_ON_DONE |            \
                TMSG_FETCH_PARAM_FLAGS))

#define FLAGS_KNOWN ((uint32_t)TMSG_FETCH_BORROW)

/* Returns whether the reply may be a loan. What goes into memory of the
 * fetcher's is copied in any case. */
static bool borrows(const tmsg_fetch_params_t *params)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    return mask & TMSG_FETCH_PARAM_FLAGS && params->flags & TMSG_FETCH_BORROW &&
           !(mask & TMSG_FETCH_PARAM_INTO && params->into != NULL);
}

/* Of what is asked: a name, and a version. */
#define ABOUT_BYTES (TMSG_OFFER_NAME_MAX + 64)

bool tmsg_method_is_of_offers(const char *method)
{
    return strcmp(method, TMSG_OFFER_FETCH) == 0 ||
           strcmp(method, TMSG_OFFER_LIST) == 0;
}

/* Reads the parameters of the call that a fetch is. */
static void read_call_params(const tmsg_fetch_params_t *params,
                             tmsg_call_params_t *call)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    *call = (tmsg_call_params_t){.field_mask = 0};
    if (mask & TMSG_FETCH_PARAM_INTO && params->into != NULL) {
        call->field_mask |= TMSG_CALL_PARAM_REPLY_INTO;
        call->reply_into = params->into;
    }
    if (mask & TMSG_FETCH_PARAM_TIMEOUT) {
        call->field_mask |= TMSG_CALL_PARAM_TIMEOUT;
        call->timeout_ms = params->timeout_ms;
    }
    if (mask & TMSG_FETCH_PARAM_ON_DONE) {
        call->field_mask |= TMSG_CALL_PARAM_ON_DONE;
        call->on_done = params->on_done;
        call->on_done_arg = params->on_done_arg;
    }
}

/* Sends the request, with the slices that the parameters ask for. `about` says
 * what is fetched, or is NULL. */
static tmsg_status_t send_fetch(tmsg_endpoint_t *endpoint, tmsg_map_t *request,
                                const tmsg_fetch_params_t *params,
                                const char *about, tmsg_call_t **call_p)
{
    tmsg_call_params_t call;
    tmsg_status_t status = TMSG_OK;

    if (params != NULL && params->field_mask & TMSG_FETCH_PARAM_SLICES) {
        status = tmsg_slices_write(params, request);
    }
    if (status == TMSG_OK && borrows(params)) {
        status = tmsg_map_set_bool(request, TMSG_FETCH_LOAN, true);
    }
    if (status != TMSG_OK) {
        return status;
    }
    read_call_params(params, &call);
    return tmsg_call_about(endpoint, TMSG_OFFER_FETCH, request, &call, about,
                           borrows(params), call_p);
}

static tmsg_status_t check_params(const tmsg_fetch_params_t *params)
{
    uint64_t unknown = params == NULL ? 0 : params->field_mask & ~PARAMS_KNOWN;

    if (unknown) {
        return tmsg_params_unknown("fetch", unknown);
    }
    if (params != NULL && params->field_mask & TMSG_FETCH_PARAM_FLAGS &&
        params->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "fetch: unknown flags 0x%x", params->flags);
    }
    if (params != NULL && params->field_mask & TMSG_FETCH_PARAM_WAIT &&
        params->wait_ms < -1) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "fetch: wait_ms %d is below -1", params->wait_ms);
    }
    return TMSG_OK;
}

/* Adds the key, which the request owns. */
static tmsg_status_t add_key(tmsg_map_t *request, const tmsg_offer_key_t *key)
{
    static const int64_t shape[] = {TMSG_OFFER_KEY_BYTES};
    uint8_t *bytes = malloc(sizeof(key->bytes));
    const tmsg_tensor_t tensor = {.data = bytes,
                                  .device = {TMSG_DEVICE_CPU, 0},
                                  .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                  .ndim = 1,
                                  .shape = shape};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = bytes};
    tmsg_status_t status;

    if (bytes == NULL) {
        return tmsg_error_memory("a fetch");
    }
    memcpy(bytes, key->bytes, sizeof(key->bytes));
    status = tmsg_map_add(request, TMSG_FETCH_KEY, &tensor, &params);
    if (status != TMSG_OK) {
        free(bytes);
    }
    return status;
}

static tmsg_status_t make_request(const tmsg_offer_key_t *key,
                                  tmsg_map_t **request_p)
{
    tmsg_map_t *request = NULL;
    tmsg_status_t status = tmsg_map_create(&request);

    if (status != TMSG_OK) {
        return status;
    }
    status = add_key(request, key);
    if (status != TMSG_OK) {
        tmsg_map_destroy(request);
        return status;
    }
    *request_p = request;
    return TMSG_OK;
}

/* Takes the request that the last fetch by key left, or makes one. Lock not
 * held. */
static tmsg_status_t take_request(tmsg_hub_t *hub, const tmsg_offer_key_t *key,
                                  tmsg_map_t **request_p)
{
    tmsg_map_t *request = NULL;

    tmsg_hub_lock(hub);
    request = hub->fetch_kept;
    hub->fetch_kept = NULL;
    tmsg_hub_unlock(hub);
    if (request == NULL) {
        return make_request(key, request_p);
    }
    memcpy(tmsg_map_entries(request)->tensor.data, key->bytes,
           sizeof(key->bytes));
    *request_p = request;
    return TMSG_OK;
}

/* Keeps a request for the next fetch, if nothing reads it any more and it has
 * the key alone. Lock not held. */
static void keep_request(tmsg_hub_t *hub, tmsg_map_t *request)
{
    bool kept = false;

    if (tmsg_map_is_idle(request) && tmsg_map_size(request) == 1 &&
        tmsg_map_meta_size(request) == 0) {
        tmsg_hub_lock(hub);
        kept = hub->fetch_kept == NULL;
        if (kept) {
            hub->fetch_kept = request;
        }
        tmsg_hub_unlock(hub);
    }
    if (!kept) {
        tmsg_map_destroy(request);
    }
}

/* Refuses what a fetch by key would not heed. */
static tmsg_status_t check_by_key(const tmsg_fetch_params_t *params)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    if (mask & TMSG_FETCH_PARAM_EPOCH) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "fetch: epoch goes with a name: a key has its own");
    }
    if (mask & TMSG_FETCH_PARAM_WAIT && params->wait_ms != 0) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "fetch: wait_ms %d: a fetch by key does not wait",
                              params->wait_ms);
    }
    return TMSG_OK;
}

tmsg_status_t tmsg_endpoint_fetch(tmsg_endpoint_t *endpoint,
                                  const tmsg_offer_key_t *key,
                                  const tmsg_fetch_params_t *params,
                                  tmsg_call_t **call_p)
{
    tmsg_map_t *request = NULL;
    tmsg_hub_t *hub = NULL;
    void *peer;
    tmsg_status_t status = check_params(params);

    if (status == TMSG_OK && (endpoint == NULL || key == NULL)) {
        status = tmsg_error_set(TMSG_ERR_INVALID_PARAM, "fetch: %s is NULL",
                                endpoint == NULL ? "endpoint" : "key");
    }
    if (status == TMSG_OK) {
        status = check_by_key(params);
    }
    if (status == TMSG_OK) {
        status = tmsg_calls_peer(endpoint, &tmsg_hub_ops, &peer);
    }
    if (status == TMSG_OK) {
        hub = ((tmsg_rpc_peer_t *)peer)->hub;
        tmsg_hub_hold(hub); /* the peer may go */
        tmsg_calls_drop(((tmsg_rpc_peer_t *)peer)->endpoint);
        status = take_request(hub, key, &request);
    }
    if (status == TMSG_OK) {
        status = send_fetch(endpoint, request, params, NULL, call_p);
        keep_request(hub, request);
    }
    if (hub != NULL) {
        tmsg_hub_drop(hub);
    }
    return status;
}

static tmsg_status_t check_name(const char *name, uint64_t at_least)
{
    size_t bytes = name == NULL ? 0 : strlen(name);

    if (bytes == 0 || bytes > TMSG_OFFER_NAME_MAX ||
        !tmsg_utf8_valid(name, bytes)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "fetch: a name is 1 to %d bytes of UTF-8",
                              TMSG_OFFER_NAME_MAX);
    }
    return at_least <= INT64_MAX
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "fetch: at_least %" PRIu64 " is above 2^63 - 1",
                                at_least);
}

/* Writes what a fetch by name asks for. */
static tmsg_status_t write_name(tmsg_map_t *request, const char *name,
                                uint64_t at_least,
                                const tmsg_fetch_params_t *params)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;
    tmsg_status_t status = tmsg_map_set_string(request, TMSG_FETCH_NAME, name);

    if (status == TMSG_OK && at_least > 0) {
        status =
            tmsg_map_set_i64(request, TMSG_FETCH_AT_LEAST, (int64_t)at_least);
    }
    if (status == TMSG_OK && mask & TMSG_FETCH_PARAM_EPOCH) {
        status =
            tmsg_map_set_i64(request, TMSG_FETCH_EPOCH, (int64_t)params->epoch);
    }
    if (status == TMSG_OK && mask & TMSG_FETCH_PARAM_WAIT &&
        params->wait_ms != 0) {
        status = tmsg_map_set_i64(request, TMSG_FETCH_WAIT, params->wait_ms);
    }
    return status;
}

/* Says what a fetch by name asks for. */
static void write_about(const char *name, uint64_t at_least,
                        char about[ABOUT_BYTES])
{
    int bytes = snprintf(about, ABOUT_BYTES, "fetching '%s'", name);

    if (at_least > 0) {
        snprintf(about + bytes, ABOUT_BYTES - (size_t)bytes,
                 ", version %" PRIu64 " or higher", at_least);
    }
}

tmsg_status_t tmsg_endpoint_fetch_name(tmsg_endpoint_t *endpoint,
                                       const char *name, uint64_t at_least,
                                       const tmsg_fetch_params_t *params,
                                       tmsg_call_t **call_p)
{
    char about[ABOUT_BYTES];
    tmsg_map_t *request = NULL;
    tmsg_status_t status = check_params(params);

    if (status == TMSG_OK && endpoint == NULL) {
        status =
            tmsg_error_set(TMSG_ERR_INVALID_PARAM, "fetch: endpoint is NULL");
    }
    if (status == TMSG_OK) {
        status = check_name(name, at_least);
    }
    if (status == TMSG_OK) {
        status = tmsg_map_create(&request);
    }
    if (status != TMSG_OK) {
        return status;
    }
    status = write_name(request, name, at_least, params);
    if (status == TMSG_OK) {
        write_about(name, at_least, about);
        status = send_fetch(endpoint, request, params, about, call_p);
    }
    tmsg_map_destroy(request);
    return status;
}
