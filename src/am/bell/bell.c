/* SPDX-License-Identifier: BSD-3-Clause */
#include "am/bell/bell.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/endpoint/channel.h"
#include "am/endpoint/dialect.h"
#include "am/recv/posted.h"
#include "am/send/send.h"
#include "am/send/stage_out.h"
#include "am/worker/lead.h"
#include "am/worker/request.h"
#include "core/device.h"
#include "core/error.h"
#include "core/map.h"
#include "core/params.h"

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_POLICY |               \
                TMSG_SEND_PARAM_CHANNEL | TMSG_SEND_PARAM_TIMEOUT |            \
                TMSG_SEND_PARAM_WAY))

static tmsg_status_t check_params(const tmsg_send_params_t *params)
{
    uint32_t flags;

    if (params == NULL) {
        return TMSG_OK;
    }
    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("bell", params->field_mask & ~PARAMS_KNOWN);
    }
    flags = params->field_mask & TMSG_SEND_PARAM_FLAGS ? params->flags : 0;
    if (flags & (TMSG_SEND_TRY | TMSG_SEND_LEND)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "bell: a bell cannot send with TMSG_SEND_%s",
                              flags & TMSG_SEND_TRY ? "TRY" : "LEND");
    }
    return tmsg_send_check_params(params);
}

static bool is_of_cpu(tmsg_device_t device)
{
    return device.type == TMSG_DEVICE_CPU ||
           device.type == TMSG_DEVICE_CUDA_HOST;
}

/* Finds the one device of a map; the CPU if there is none. */
static tmsg_status_t find_device(const tmsg_map_t *map, tmsg_device_t *device_p)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map), *first = NULL;

    *device_p = (tmsg_device_t){TMSG_DEVICE_CPU, 0};
    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const tmsg_map_entry_t *entry = &entries[i];

        if (is_of_cpu(entry->tensor.device)) {
            continue;
        }
        if (first != NULL &&
            !tmsg_device_is(first->tensor.device, entry->tensor.device)) {
            return tmsg_error_set(
                TMSG_ERR_INVALID_PARAM,
                "bell: tensors '%s' and '%s' are on different devices; make a "
                "bell for each device",
                tmsg_error_name(first->name, first->name_bytes).text,
                tmsg_error_name(entry->name, entry->name_bytes).text);
        }
        first = first == NULL ? entry : first;
        *device_p = entry->tensor.device;
    }
    return TMSG_OK;
}

static tmsg_status_t check_tensors(const tmsg_endpoint_t *endpoint,
                                   const tmsg_map_t *map)
{
    const tmsg_map_entry_t *entries = tmsg_map_entries(map);

    for (size_t i = 0; i < tmsg_map_size(map); i++) {
        const char *why = NULL;

        if (is_of_cpu(entries[i].tensor.device)) {
            continue;
        }
        if (!endpoint->dialect->answers) {
            why = "a ucx:// peer is sent memory of the CPU alone";
        } else if (tmsg_stage_out_detours(endpoint, &entries[i])) {
            why = "memory of a pool, mapped piece by piece or managed would be "
                  "copied on its device first, which may need what a waiting "
                  "kernel occupies; use memory of cudaMalloc()";
        }
        if (why != NULL) {
            return tmsg_error_set(
                TMSG_ERR_UNSUPPORTED, "bell: tensor '%s': %s",
                tmsg_error_name(entries[i].name, entries[i].name_bytes).text,
                why);
        }
    }
    return TMSG_OK;
}

static tmsg_status_t check_connected(const tmsg_endpoint_t *endpoint)
{
    switch (endpoint->state) {
    case TMSG_EP_OPEN:
        return endpoint->close_wanted
                   ? tmsg_error_set(TMSG_ERR_CLOSED,
                                    "%s: the endpoint is closed",
                                    endpoint->peer)
                   : TMSG_OK;
    case TMSG_EP_CLOSING:
        return tmsg_error_set(TMSG_ERR_CLOSED, "%s: the endpoint is closed",
                              endpoint->peer);
    case TMSG_EP_ENDED:
        return tmsg_error_set(endpoint->status, "%s", endpoint->error);
    default:
        return tmsg_error_set(TMSG_ERR_BUSY,
                              "%s: not connected yet: make the bell after "
                              "tmsg_endpoint_ready() has ended",
                              endpoint->peer);
    }
}

/* Lock held. */
static tmsg_status_t check_endpoint(tmsg_endpoint_t *endpoint,
                                    const tmsg_map_t *map,
                                    const tmsg_send_params_t *params)
{
    tmsg_channel_t *channel;
    tmsg_status_t status = check_connected(endpoint);

    if (status == TMSG_OK) {
        status = check_tensors(endpoint, map);
    }
    if (status == TMSG_OK && params != NULL &&
        params->field_mask & TMSG_SEND_PARAM_CHANNEL) {
        status = tmsg_channel_open(endpoint, params->channel, &channel);
    }
    return status;
}

/* Finds a bell that receives from this endpoint. Lock held. */
static bool has_receiver(const tmsg_endpoint_t *endpoint)
{
    for (tmsg_node_t *node = endpoint->worker->bells.all.head; node != NULL;
         node = node->next) {
        const tmsg_bell_t *bell = TMSG_CONTAINER_OF(node, tmsg_bell_t, node);

        if (bell->receives && bell->endpoint == endpoint) {
            return true;
        }
    }
    return false;
}

/* Lock held. `endpoint` is the handle's. */
static tmsg_status_t check_all(const tmsg_endpoint_t *endpoint,
                               const tmsg_map_t *map,
                               const tmsg_send_params_t *params, bool receives)
{
    tmsg_status_t status = tmsg_worker_check(endpoint->worker);

    if (status == TMSG_OK) {
        status = check_endpoint(tmsg_endpoint_now(endpoint), map, params);
    }
    if (status == TMSG_OK && receives && has_receiver(endpoint)) {
        status = tmsg_error_set(TMSG_ERR_BUSY,
                                "%s: another bell receives from this endpoint; "
                                "destroy it first",
                                endpoint->peer);
    }
    if (status == TMSG_OK && receives) {
        status = tmsg_posted_check(map);
    }
    return status;
}

void tmsg_bell_drop(tmsg_bell_t *bell)
{
    if (!tmsg_refs_drop(&bell->refs)) {
        return;
    }
    tmsg_map_destroy(bell->map);
    tmsg_posted_let_go(bell->held);
    tmsg_endpoint_drop(bell->endpoint);
    tmsg_life_drop(bell->life);
    free(bell->error);
    free(bell);
}

/* Lets the lock go: the driver may wait for all that its device does, and a
 * stream that waits for a bell needs the worker. */
static tmsg_status_t take_line(tmsg_worker_t *worker, const tmsg_map_t *map,
                               tmsg_line_t *line_p)
{
    tmsg_device_t device;
    tmsg_status_t status = find_device(map, &device);

    if (status == TMSG_OK) {
        tmsg_worker_unlock(worker);
        status = tmsg_line_take(&worker->context->lines, device, line_p);
        tmsg_worker_lock(worker);
    }
    return status;
}

/* Makes a bell that is in no list. Lock held. */
static tmsg_status_t make_bell(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               const tmsg_send_params_t *params,
                               const tmsg_line_t *line, tmsg_bell_t **bell_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_bell_t *bell = calloc(1, sizeof(*bell));
    tmsg_status_t status;

    if (bell == NULL) {
        return tmsg_error_memory("a bell");
    }
    status = tmsg_map_copy_ready(map, &bell->map);
    if (status != TMSG_OK) {
        free(bell);
        return status;
    }
    bell->line = *line;
    tmsg_refs_init(&bell->refs, 1);
    bell->worker = worker;
    bell->life = worker->life;
    tmsg_life_hold(bell->life);
    bell->endpoint = endpoint;
    tmsg_endpoint_hold(endpoint);
    bell->held = map;
    tmsg_map_hold(map);
    if (params != NULL) {
        bell->params = *params;
    }
    *bell_p = bell;
    return TMSG_OK;
}

static void list_bell(tmsg_bell_t *bell)
{
    tmsg_worker_t *worker = bell->worker;

    tmsg_refs_take(&bell->refs);
    tmsg_list_push(&worker->bells.all, &bell->node);
    bell->listed = true;
    worker->seldom |= TMSG_SELDOM_BELLS;
    tmsg_worker_changed(worker); /* whoever sleeps is to look at the bells */
}

static tmsg_status_t create_bell(tmsg_endpoint_t *endpoint,
                                 const tmsg_map_t *map,
                                 const tmsg_send_params_t *params,
                                 bool receives, tmsg_bell_t **bell_p)
{
    tmsg_worker_t *worker = endpoint->worker;
    tmsg_bell_t *bell = NULL;
    tmsg_line_t line;
    tmsg_status_t status = tmsg_endpoint_check_worker(endpoint);

    if (status != TMSG_OK) {
        return status;
    }
    if (map == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "bell: map is NULL");
    }
    tmsg_worker_enter(worker);
    endpoint = endpoint->face;
    tmsg_endpoint_hold(endpoint);
    status = check_all(endpoint, map, params, receives);
    if (status == TMSG_OK) {
        status = take_line(worker, map, &line);
    }
    if (status == TMSG_OK) { /* much may have happened meanwhile */
        status = check_all(endpoint, map, params, receives);
    }
    if (status == TMSG_OK) {
        status = make_bell(endpoint, map, params, &line, &bell);
    }
    if (status == TMSG_OK) {
        bell->receives = receives;
        list_bell(bell);
        *bell_p = bell;
    }
    tmsg_worker_leave(worker, true);
    tmsg_endpoint_drop(endpoint);
    return status;
}

tmsg_status_t tmsg_bell_create(tmsg_endpoint_t *endpoint, const tmsg_map_t *map,
                               const tmsg_send_params_t *params,
                               tmsg_bell_t **bell_p)
{
    tmsg_status_t status = check_params(params);

    return status == TMSG_OK ? create_bell(endpoint, map, params, false, bell_p)
                             : status;
}

tmsg_status_t tmsg_bell_receive(tmsg_endpoint_t *endpoint,
                                const tmsg_map_t *into, tmsg_bell_t **bell_p)
{
    tmsg_status_t status = tmsg_endpoint_check_pull(endpoint);

    return status == TMSG_OK ? create_bell(endpoint, into, NULL, true, bell_p)
                             : status;
}

tmsg_status_t tmsg_bell_status(const tmsg_bell_t *bell)
{
    return (tmsg_status_t)atomic_load_explicit(&bell->status,
                                               memory_order_acquire);
}

const char *tmsg_bell_error(const tmsg_bell_t *bell)
{
    tmsg_status_t status = tmsg_bell_status(bell);

    return status == TMSG_OK     ? ""
           : bell->error != NULL ? bell->error
                                 : tmsg_status_name(status);
}

/* Returns the bell's own status, with its words. */
static tmsg_status_t check_bell(const tmsg_bell_t *bell)
{
    tmsg_status_t status = tmsg_bell_status(bell);

    return status == TMSG_OK
               ? TMSG_OK
               : tmsg_error_set(status, "%s", tmsg_bell_error(bell));
}

/* The first use decides who rings the bell. Of a bell that receives the map may
 * be filled from then on; no stream is to find its word free before. */
static tmsg_status_t use_by(tmsg_bell_t *bell, tmsg_bell_form_t form)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int before;

    if (atomic_load_explicit(&bell->form, memory_order_acquire) == (int)form) {
        return TMSG_OK;
    }
    pthread_mutex_lock(&lock);
    before = atomic_load(&bell->form);
    if (before == TMSG_BELL_UNUSED) {
        if (form == TMSG_BELL_BY_STREAM && bell->receives) {
            __atomic_store_n((uint32_t *)bell->line.host, 1, __ATOMIC_RELEASE);
        }
        atomic_store(&bell->form, (int)form);
    }
    pthread_mutex_unlock(&lock);
    if (before != TMSG_BELL_UNUSED && before != (int)form) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "this bell is rung by a %s already",
            form == TMSG_BELL_BY_STREAM ? "kernel" : "stream");
    }
    return TMSG_OK;
}

typedef tmsg_status_t (*give_fn)(const tmsg_line_t *line, tmsg_stream_t stream);

static tmsg_status_t give_stream(tmsg_bell_t *bell, tmsg_stream_t stream,
                                 give_fn give)
{
    tmsg_status_t status = check_bell(bell);

    if (status == TMSG_OK) {
        status = use_by(bell, TMSG_BELL_BY_STREAM);
    }
    return status == TMSG_OK ? give(&bell->line, stream) : status;
}

tmsg_status_t tmsg_bell_ring(tmsg_bell_t *bell, tmsg_stream_t stream)
{
    return give_stream(bell, stream, tmsg_line_ring);
}

tmsg_status_t tmsg_bell_await(tmsg_bell_t *bell, tmsg_stream_t stream)
{
    return give_stream(bell, stream, tmsg_line_await);
}

tmsg_status_t tmsg_bell_device(tmsg_bell_t *bell, void **line_p)
{
    tmsg_status_t status = use_by(bell, TMSG_BELL_BY_KERNEL);

    if (status == TMSG_OK) {
        *line_p = bell->line.address != 0
                      ? (void *)(uintptr_t)bell->line.address
                      : bell->line.host;
    }
    return status;
}

static bool is_warm(void *arg)
{
    const tmsg_bell_t *bell = arg;

    return !bell->warming;
}

/* Begins to warm, or goes on. Lock held. */
static tmsg_status_t begin_warming(tmsg_bell_t *bell)
{
    tmsg_status_t status = check_bell(bell);

    if (status == TMSG_OK && !bell->warm &&
        atomic_load(&bell->form) != TMSG_BELL_UNUSED) {
        status = tmsg_error_set(
            TMSG_ERR_BUSY, "the bell is in use: warm it before its first ring");
    }
    if (status == TMSG_OK) {
        bell->warming = !bell->warm;
    }
    return status;
}

tmsg_status_t tmsg_bell_warm(tmsg_bell_t *bell, int timeout_ms)
{
    tmsg_worker_t *worker = bell->worker;
    tmsg_status_t status;

    if (atomic_load(&bell->life->over)) {
        return check_bell(bell);
    }
    tmsg_worker_enter(worker);
    status = begin_warming(bell);
    if (status == TMSG_OK) {
        status = tmsg_worker_until(
            worker, is_warm, bell, timeout_ms,
            bell->receives ? "no map to warm a bell with came from "
                           : "the map to warm a bell with is not sent to ",
            bell->endpoint->peer);
    }
    if (status == TMSG_OK) {
        status = check_bell(bell);
    }
    tmsg_worker_leave(worker, true);
    return status;
}

void tmsg_bell_destroy(tmsg_bell_t *bell)
{
    tmsg_request_t *request = NULL;

    if (bell == NULL) {
        return;
    }
    if (!atomic_load(&bell->life->over)) {
        tmsg_worker_t *worker = bell->worker;

        if (worker->pid != getpid()) {
            return; /* the bell is of the process that forked this one */
        }
        tmsg_worker_enter(worker);
        bell->ending = true;
        if (bell->request != NULL) {
            request = bell->request;
            tmsg_request_hold(request);
        }
        tmsg_bell_leave(bell);
        tmsg_worker_leave(worker, true);
    }
    if (request != NULL) {
        tmsg_request_cancel(request);
        tmsg_request_drop(request);
    }
    tmsg_bell_drop(bell);
}
