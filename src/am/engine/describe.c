/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells, as JSON for people and scripts, which settings are in force and why,
 * and what was counted. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <tensormsg/version.h>

#include "am/connect/carrier.h"
#include "am/connect/paths.h"
#include "am/endpoint/consumer_struct.h"
#include "am/endpoint/credit.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/session.h"
#include "am/endpoint/transport.h"
#include "am/engine/describe.h"
#include "am/listen/listener.h"
#include "am/path/bulk.h"
#include "am/path/cma.h"
#include "am/path/fastboxes.h"
#include "am/path/ipc.h"
#include "am/path/loans.h"
#include "am/path/shared.h"
#include "am/recv/fetch_queue.h"
#include "am/send/queue.h"
#include "am/staging/copy.h"
#include "am/tls/tls.h"
#include "am/ucx/backing.h"
#include "am/ucx/reads.h"
#include "am/ucx/survey.h"
#include "am/worker/staging.h"
#include "core/shown.h"
#include "memory/domain.h"
#include "serialize/json.h"

#define NS_PER_MS UINT64_C(1000000)

/* A survey of UCX takes fewer descriptors than this. */
#define DESCRIPTORS 16

static bool add_figure(cJSON *object, const char *key, uint64_t value)
{
    return tmsg_json_add(object, key, tmsg_json_unsigned(value));
}

static bool add_words(cJSON *object, const char *key, const char *text)
{
    return cJSON_AddStringToObject(object, key, text) != NULL;
}

/* Adds a variable of the environment. The variable may hold any bytes, but JSON
 * is UTF-8. */
static bool add_variable(cJSON *array, const char *variable)
{
    const char *value = strchr(variable, '=') + 1;
    size_t room = 4 * strlen(variable) + 1; /* of escapes alone */
    char *text = malloc(room);
    cJSON *entry = cJSON_CreateObject();
    bool ok = tmsg_json_add(array, NULL, entry) && text != NULL;

    if (ok) {
        tmsg_shown_format(text, room, "%.*s", (int)(value - 1 - variable),
                          variable);
        ok = add_words(entry, "name", text);
        tmsg_shown_format(text, room, "%s", value);
        ok = ok && add_words(entry, "value", text) &&
             add_words(entry, "origin",
                       tmsg_ucx_origin_name(TMSG_ORIGIN_ENVIRONMENT));
    }
    free(text);
    return ok;
}

/* Adds UCX's variables that this library has no part in: UCX reads them all the
 * same. */
static bool add_variables(cJSON *array, const tmsg_ucx_keys_t *keys)
{
    bool ok = true;

    for (char **at = environ; at != NULL && *at != NULL && ok; at++) {
        char name[sizeof(keys->keys[0].name)];
        const char *end = strchr(*at, '=');

        if (strncmp(*at, "UCX_", 4) != 0 || end == NULL) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(end - *at), *at);
        if (tmsg_ucx_config_key(keys, name) == NULL) {
            ok = add_variable(array, *at);
        }
    }
    return ok;
}

static bool add_keys(cJSON *object, const tmsg_ucx_keys_t *keys)
{
    cJSON *array = cJSON_AddArrayToObject(object, "ucx_keys");
    bool ok = array != NULL;

    for (size_t i = 0; i < keys->count && ok; i++) {
        const tmsg_ucx_key_t *key = &keys->keys[i];
        char value[sizeof(key->value)];
        cJSON *entry = cJSON_CreateObject();

        tmsg_shown_format(value, sizeof(value), "%s", key->value);
        ok = tmsg_json_add(array, NULL, entry) &&
             add_words(entry, "name", key->name) &&
             add_words(entry, "value", value) &&
             add_words(entry, "origin", tmsg_ucx_origin_name(key->origin)) &&
             (key->why == NULL || add_words(entry, "why", key->why));
    }
    return ok && add_variables(array, keys);
}

static bool add_limits(cJSON *object, const tmsg_limits_t *limits)
{
    cJSON *entry = cJSON_AddObjectToObject(object, "limits");

    return entry != NULL && add_figure(entry, "tensors", limits->tensors) &&
           add_figure(entry, "ndim", limits->ndim) &&
           add_figure(entry, "name_bytes", limits->name_bytes) &&
           add_figure(entry, "metadata_bytes", limits->metadata_bytes) &&
           add_figure(entry, "header_bytes", limits->header_bytes) &&
           add_figure(entry, "message_bytes", limits->message_bytes) &&
           add_figure(entry, "held_bytes", limits->held_bytes) &&
           add_figure(entry, "metadata_keys", limits->metadata_keys) &&
           add_figure(entry, "lent_bytes", limits->lent_bytes);
}

/* Adds the thresholds of each transport. A threshold that nothing reaches is
 * null. */
static bool add_thresholds(cJSON *object, const tmsg_tuning_t *tuning)
{
    cJSON *all = cJSON_AddObjectToObject(object, "thresholds");
    bool ok = all != NULL;

    for (int i = 0; i < TMSG_TRANSPORT_COUNT && ok; i++) {
        const char *name = tmsg_transport_name((tmsg_transport_t)i);
        cJSON *of = cJSON_AddObjectToObject(all, name);
        uint64_t value;

        ok = of != NULL;
        for (size_t j = 0; ok && (name = tmsg_threshold_at(&tuning->of[i], j,
                                                           &value)) != NULL;
             j++) {
            ok = value == TMSG_THRESHOLD_NEVER
                     ? cJSON_AddNullToObject(of, name) != NULL
                     : add_figure(of, name, value);
        }
    }
    return ok;
}

/* Adds UCX's transports, and "cma" for what this library does itself without
 * UCX. */
static bool add_transports(cJSON *object, const tmsg_ucx_keys_t *keys,
                           char *transports)
{
    cJSON *array = cJSON_AddArrayToObject(object, "transports");
    char *rest, *name = strtok_r(transports, "\n", &rest);
    bool ok = array != NULL;

    for (; name != NULL && ok; name = strtok_r(NULL, "\n", &rest)) {
        ok = tmsg_json_add(array, NULL, cJSON_CreateString(name));
    }
    if (ok && tmsg_cma_is_wanted(keys) && tmsg_cma_is_possible()) {
        ok = tmsg_json_add(array, NULL, cJSON_CreateString("cma"));
    }
    return ok;
}

static bool add_info(cJSON *entry, const tmsg_device_info_t *info)
{
    char device[TMSG_DEVICE_NAME_MAX], title[sizeof(info->title)];

    tmsg_shown_format(title, sizeof(title), "%s", info->title);
    tmsg_device_format(info->device, device, sizeof(device));
    return add_words(entry, "device", device) &&
           add_words(entry, "kind", tmsg_device_kind_name(info->kind)) &&
           tmsg_json_add(entry, "index", tmsg_json_integer(info->index)) &&
           add_words(entry, "title", title) &&
           add_words(entry, "uuid", info->uuid) &&
           add_words(entry, "bus_id", info->bus_id) &&
           tmsg_json_add(entry, "numa_node",
                         tmsg_json_integer(info->numa_node)) &&
           add_words(entry, "nic", info->nic);
}

static bool add_devices(cJSON *object, const tmsg_context_t *context)
{
    const tmsg_devices_params_t without = {
        .field_mask = TMSG_DEVICES_PARAM_TABLE, .table = ""};
    cJSON *array = cJSON_AddArrayToObject(object, "devices");
    tmsg_devices_t *devices = context->devices;
    bool ok =
        array != NULL &&
        (devices != NULL || tmsg_devices_create(&without, &devices) == TMSG_OK);

    for (size_t i = 0; ok && i < tmsg_devices_size(devices); i++) {
        cJSON *entry = cJSON_CreateObject();
        tmsg_device_info_t info;

        ok = tmsg_devices_at(devices, i, &info) == TMSG_OK &&
             tmsg_json_add(array, NULL, entry) && add_info(entry, &info);
    }
    if (devices != context->devices) {
        tmsg_devices_destroy(devices);
    }
    return ok;
}

/* Adds the kinds of memory that UCX reads and writes itself, by UCX's names. */
static bool add_memory_types(cJSON *object, uint64_t types)
{
    cJSON *array = cJSON_AddArrayToObject(object, "ucx_memory_types");
    bool ok = array != NULL;

    for (size_t i = 0; ok && i < TMSG_UCX_MEMORY_TYPES; i++) {
        if (types & 1ULL << tmsg_ucx_memory_types[i].type) {
            ok = tmsg_json_add(
                array, NULL, cJSON_CreateString(tmsg_ucx_memory_types[i].name));
        }
    }
    return ok;
}

/* Adds how tensors of each kind of memory travel, and why. */
static bool add_domain(cJSON *array, const tmsg_domain_t *domain,
                       const tmsg_ucx_t *ucx)
{
    static const tmsg_device_t device = {TMSG_DEVICE_CUDA, 0};
    const bool is_cuda = domain == &tmsg_domain_cuda;
    cJSON *entry = cJSON_CreateObject();
    char how[400];
    int type;

    if (tmsg_domain_is_plain(domain)) {
        snprintf(how, sizeof(how), "as it is: UCX reads and writes it");
    } else if (is_cuda && !tmsg_cuda_is_ready()) {
        snprintf(how, sizeof(how), "not here: %s", tmsg_cuda_report());
    } else if (tmsg_ucx_reaches(ucx, domain, device, &type)) {
        snprintf(
            how, sizeof(how),
            "as it is, in fragments of its own: UCX reads and writes it%s%s",
            is_cuda ? "; " : "", is_cuda ? tmsg_cuda_report() : "");
    } else {
        snprintf(how, sizeof(how), "through %shost buffers: UCX %s%s%s",
                 domain->pin == NULL ? "" : "pinned ",
                 domain->transport == NULL ? "knows no such memory"
                                           : "was built without its support",
                 is_cuda ? "; " : "", is_cuda ? tmsg_cuda_report() : "");
    }
    return tmsg_json_add(array, NULL, entry) &&
           add_words(entry, "domain", domain->name) &&
           add_words(entry, "how", how);
}

static bool add_domains(cJSON *object, uint64_t memory_types)
{
    const tmsg_ucx_t ucx = {.memory_types = memory_types};
    cJSON *array = cJSON_AddArrayToObject(object, "domains");
    bool ok = array != NULL;
    const tmsg_domain_t *domain;

    for (size_t i = 0; ok && (domain = tmsg_domain_at(i)) != NULL; i++) {
        ok = add_domain(array, domain, &ucx);
    }
    return ok;
}

static bool add_failure(cJSON *object, const char *why)
{
    return cJSON_AddArrayToObject(object, "transports") != NULL &&
           add_words(object, "ucx_error", why);
}

/* Checks that there are enough descriptors: UCX aborts the process if it finds
 * none for its thread. */
static tmsg_status_t check_survey_descriptors(void)
{
    int any = eventfd(0, EFD_CLOEXEC);
    tmsg_status_t status = tmsg_ucx_check_descriptors(any, DESCRIPTORS);

    if (any >= 0) {
        close(any);
    }
    return status;
}

/* Opens UCX as an unrestricted worker would, only to see what it finds. The
 * keys come first: if UCX does not open, they are the reason. */
static bool add_ucx(cJSON *object, const tmsg_context_t *context,
                    uint64_t *memory_types_p)
{
    static const tmsg_ucx_scope_t everything = {.device = "all"};
    const tmsg_ucx_given_t given = tmsg_context_ucx(context);
    char room[TMSG_BACKING_BYTES];
    tmsg_ucx_keys_t keys;
    tmsg_ucx_survey_t survey = {.transports = NULL};
    bool ok;
    tmsg_status_t status = tmsg_ucx_config_resolve(&given, &everything, &keys);

    ok = add_keys(object, &keys) &&
         (status != TMSG_OK || tmsg_backing_suffices(&keys) ||
          add_words(object, "shared_memory",
                    tmsg_backing_text(&keys, room, sizeof(room))));
    if (status == TMSG_OK) {
        status = check_survey_descriptors();
    }
    if (status == TMSG_OK) {
        status = tmsg_ucx_survey(&keys, &survey);
    }
    *memory_types_p = survey.memory_types;
    if (ok && survey.memory_types != 0) {
        ok = add_memory_types(object, survey.memory_types);
    }
    if (status == TMSG_OK) {
        ok = ok && add_transports(object, &keys, survey.transports);
    } else {
        ok = ok && status != TMSG_ERR_NO_MEMORY &&
             add_failure(object, tmsg_error_message());
    }
    free(survey.transports);
    return ok;
}

tmsg_status_t tmsg_context_describe(tmsg_context_t *context, char **json_p)
{
    tmsg_ucx_version_t version = tmsg_ucx_version();
    cJSON *object = cJSON_CreateObject();
    uint64_t memory_types = 0;
    char ucx[48];
    bool ok = object != NULL;

    snprintf(ucx, sizeof(ucx), "%u.%u.%u", version.major, version.minor,
             version.patch);
    ok = ok && add_words(object, "version", tmsg_version()) &&
         add_figure(object, "wire_version", TMSG_WIRE_VERSION) &&
         add_words(object, "ucx_version", ucx) &&
         add_words(object, "tls", tmsg_tls_version()) &&
         add_words(object, "config_file",
                   context->settings.path == NULL ? ""
                                                  : context->settings.path) &&
         add_figure(object, "peer_timeout_ms", context->peer_timeout_ms) &&
         cJSON_AddBoolToObject(object, "heartbeats",
                               !(context->flags & TMSG_CONTEXT_NO_THREAD)) !=
             NULL &&
         add_limits(object, &context->limits) &&
         add_figure(object, "huge_page_bytes", context->huge_page_bytes) &&
         add_figure(object, "bulk_connections", context->bulk_connections) &&
         add_thresholds(object, &context->tuning) &&
         add_ucx(object, context, &memory_types) &&
         add_domains(object, memory_types) && add_devices(object, context) &&
         add_words(object, "cuda_driver", tmsg_cuda_report()) &&
         add_words(object, "nvml", tmsg_nvml_report());
    return tmsg_json_finish(object, ok, json_p);
}

static bool add_session(cJSON *object, const tmsg_resume_t *resume)
{
    return cJSON_AddBoolToObject(object, "reconnects",
                                 resume != NULL && resume->agreed) != NULL &&
           add_figure(object, "reconnected",
                      resume == NULL ? 0 : resume->times) &&
           add_figure(object, "sessions",
                      resume == NULL ? 1 : resume->sessions);
}

/* Adds what the drivers did not do for the buffers between host and devices. */
static bool add_pinning(cJSON *object, const tmsg_staging_t *stage)
{
    return add_figure(object, "unpinned_buffers", stage->unpinned) &&
           (stage->unpinned == 0 ||
            add_words(object, "unpinned_why", stage->why_unpinned));
}

static bool count_endpoints(cJSON *object, const tmsg_worker_t *worker,
                            tmsg_stats_t *stats)
{
    uint64_t connecting = 0, open = 0, ended = worker->past.endpoints;
    uint64_t waiting = 0;
    const tmsg_endpoint_t *endpoint;
    uint32_t i = 0;

    while ((endpoint = tmsg_endpoint_next(worker, NULL, &i)) != NULL) {
        if (tmsg_endpoint_now(endpoint) !=
            endpoint) { /* another stands for it */
            tmsg_stats_add(stats, &endpoint->stats);
            continue;
        }
        connecting += endpoint->state == TMSG_EP_CONNECTING ||
                      endpoint->state == TMSG_EP_AWAY;
        ended += endpoint->state == TMSG_EP_ENDED;
        open += endpoint->state == TMSG_EP_OPEN ||
                endpoint->state == TMSG_EP_CLOSING;
        waiting += endpoint->channels.queued;
        tmsg_stats_add(stats, &endpoint->stats);
    }
    return add_figure(object, "connecting_endpoints", connecting) &&
           add_figure(object, "open_endpoints", open) &&
           add_figure(object, "ended_endpoints", ended) &&
           add_figure(object, "waiting_messages", waiting) &&
           add_figure(object, "ready_messages", worker->ready.count);
}

/* Adds what received messages take, and what may yet come before anybody is
 * asked. */
static bool add_memory(cJSON *object, const tmsg_worker_t *worker)
{
    return add_figure(object, "held_bytes", tmsg_budget_held(worker->budget)) &&
           add_figure(object, "header_bytes",
                      tmsg_budget_noted(worker->budget)) &&
           add_figure(object, "ahead_bytes", tmsg_credit_given(worker)) &&
           add_figure(object, "unfetched_messages",
                      tmsg_fetch_count(worker) +
                          worker->fetch.in[TMSG_FETCH_GAPPED].count);
}

/* Adds what the worker offers to its peers, and what it serves. */
static bool add_served(cJSON *object, const tmsg_worker_t *worker)
{
    tmsg_calls_counts_t counts = {0};

    if (worker->calls != NULL) {
        worker->calls->ops->count(worker->calls->start, &counts);
    }
    return add_figure(object, "offers", counts.offers) &&
           add_figure(object, "offered_bytes", counts.offered_bytes) &&
           add_figure(object, "lent_bytes", counts.lent_bytes) &&
           add_figure(object, "fetches", counts.fetches) &&
           add_figure(object, "waiting_fetches", counts.waiting_fetches) &&
           add_figure(object, "fetched_maps", counts.fetched_maps) &&
           add_figure(object, "fetched_bytes", counts.fetched_bytes) &&
           add_figure(object, "running_calls", counts.running_calls) &&
           add_figure(object, "waiting_calls", counts.waiting_calls) &&
           add_figure(object, "held_calls", counts.held_calls) &&
           add_figure(object, "stalls", counts.stalls);
}

/* Adds what the worker lends to its peers. */
static bool add_loans(cJSON *object, tmsg_worker_t *worker)
{
    tmsg_loans_counts_t counts;

    tmsg_loans_count(worker, &counts);
    return add_figure(object, "loans", counts.loans) &&
           add_figure(object, "loan_copies", counts.copies) &&
           add_figure(object, "loan_copy_bytes", counts.copied_bytes);
}

bool tmsg_describe_worker(cJSON *object, tmsg_worker_t *worker)
{
    tmsg_stats_t stats;
    bool ok;

    tmsg_worker_lock(worker);
    stats = worker->past.stats;
    ok = count_endpoints(object, worker, &stats) &&
         add_memory(object, worker) && add_served(object, worker) &&
         add_loans(object, worker) && add_pinning(object, &worker->stage);
    tmsg_worker_unlock(worker);
    return ok && tmsg_stats_describe(object, &stats);
}

tmsg_status_t tmsg_worker_describe(tmsg_worker_t *worker, char **json_p)
{
    cJSON *object = cJSON_CreateObject();

    return tmsg_json_finish(
        object, object != NULL && tmsg_describe_worker(object, worker), json_p);
}

/* Adds the channels if there are more than channel 0. Channel 0 alone has all
 * the figures of the endpoint. */
static bool add_channels(cJSON *object, const tmsg_endpoint_t *endpoint)
{
    const tmsg_channel_t *channel = &endpoint->channels.zero;
    cJSON *array = NULL;
    bool ok = true;

    if (endpoint->channels.count > 1) {
        array = cJSON_AddArrayToObject(object, "channels");
        ok = array != NULL;
    }
    for (; array != NULL && channel != NULL && ok; channel = channel->next) {
        uint32_t credits = channel->tx_window - channel->tx_sequence;
        cJSON *entry = cJSON_CreateObject();

        ok = tmsg_json_add(array, NULL, entry) &&
             add_figure(entry, "channel", channel->number) &&
             add_figure(entry, "waiting_messages", channel->queued.count) &&
             add_figure(entry, "sent_messages", channel->sent_messages) &&
             add_figure(entry, "received_messages",
                        channel->received_messages) &&
             add_figure(entry, "credits", credits);
    }
    return ok;
}

static bool add_refused(cJSON *object, const tmsg_listener_t *listener)
{
    static const char *const names[TMSG_TURNED_COUNT] = {
        [TMSG_TURNED_OTHERWISE] = "otherwise",
        [TMSG_TURNED_NO_KEY] = "no_key",
        [TMSG_TURNED_WRONG_KEY] = "wrong_key",
        [TMSG_TURNED_OLDER] = "older",
        [TMSG_TURNED_TOO_MANY] = "too_many"};
    cJSON *refused = cJSON_AddObjectToObject(object, "refused");
    bool ok = refused != NULL &&
              add_figure(refused, "timed_out", listener->timed_out) &&
              add_figure(refused, "too_long", listener->too_long);

    for (int i = 0; i < TMSG_TURNED_COUNT && ok; i++) {
        ok = add_figure(refused, names[i], listener->turned[i]);
    }
    return ok;
}

tmsg_status_t tmsg_listener_describe(const tmsg_listener_t *listener,
                                     char **json_p)
{
    cJSON *object = cJSON_CreateObject();
    bool ok;

    tmsg_worker_lock(listener->worker);
    ok = object != NULL &&
         add_words(object, "url", tmsg_listener_url(listener)) &&
         cJSON_AddBoolToObject(object, "asks_for_key",
                               listener->keyring != NULL ||
                                   listener->tls != NULL) != NULL &&
         add_figure(object, "handshakes", listener->handshakes) &&
         add_figure(object, "accepted", listener->accepted) &&
         add_figure(object, "connected", listener->connected) &&
         add_refused(object, listener) && add_served(object, listener->worker);
    tmsg_worker_unlock(listener->worker);
    return tmsg_json_finish(object, ok, json_p);
}

static bool add_lending(cJSON *object, const tmsg_endpoint_t *endpoint)
{
    char words[200];

    return add_words(object, "loans",
                     tmsg_loans_words(endpoint, words, sizeof(words))) &&
           add_figure(object, "lent_segment_bytes",
                      tmsg_loans_lent_bytes(endpoint)) &&
           add_figure(object, "borrowed_segment_bytes",
                      tmsg_loans_borrowed_bytes(endpoint));
}

tmsg_status_t tmsg_endpoint_describe(const tmsg_endpoint_t *endpoint,
                                     char **json_p)
{
    const char *cipher;
    tmsg_status_t state = tmsg_endpoint_status(endpoint);
    const tmsg_hello_t *peer;
    cJSON *object = cJSON_CreateObject();
    char transports[TMSG_TRANSPORTS_BYTES];
    char ucx[48], reads[256], ipc[256];
    bool ok = object != NULL;
    tmsg_status_t gone;

    gone = tmsg_endpoint_check_worker(endpoint);
    if (gone != TMSG_OK) {
        cJSON_Delete(object);
        return gone;
    }
    tmsg_worker_lock(endpoint->worker);
    endpoint = tmsg_endpoint_now(endpoint);
    peer = &endpoint->peer_hello;
    cipher = endpoint->link.fd < 0 ? NULL
                                   : tmsg_secure_cipher(&endpoint->link.stream);
    tmsg_transport_list(endpoint, transports, sizeof(transports));
    snprintf(ucx, sizeof(ucx), "%u.%u.%u", peer->ucx_major, peer->ucx_minor,
             peer->ucx_patch);
    ok =
        ok && add_words(object, "peer", endpoint->peer) &&
        add_words(object, "state",
                  state == TMSG_OK ? "connected" : tmsg_status_name(state)) &&
        add_words(object, "error", state < 0 ? endpoint->error : "") &&
        add_words(object, "transports", transports) &&
        add_words(object, "carrier",
                  tmsg_carrier_is_stream(endpoint) ? "stream" : "ucx") &&
        add_words(object, "why", endpoint->why) &&
        (cipher == NULL || add_words(object, "cipher", cipher)) &&
        (endpoint->admit.principal == NULL ||
         add_words(object, "principal", endpoint->admit.principal)) &&
        add_words(object, "transport",
                  tmsg_transport_name(endpoint->transport)) &&
        add_words(object, "bulk", tmsg_bulk_words(endpoint)) &&
        add_figure(object, "bulk_connections", tmsg_bulk_subflows(endpoint)) &&
        add_words(object, "fastbox", tmsg_fastboxes_words(endpoint)) &&
        add_words(object, "reads",
                  tmsg_cma_words(endpoint, reads, sizeof(reads))) &&
        add_words(object, "device_ipc",
                  tmsg_ipc_words(endpoint, ipc, sizeof(ipc))) &&
        add_lending(object, endpoint) &&
        add_words(object, "shared_memory", tmsg_shared_words(endpoint)) &&
        add_figure(object, "peer_wire_version", peer->wire_version) &&
        add_words(object, "peer_ucx_version", ucx) &&
        cJSON_AddBoolToObject(object, "heartbeats",
                              endpoint->link.pulse.stream != NULL) != NULL &&
        add_figure(object, "unacknowledged_ms",
                   tmsg_paths_unacked_ns(endpoint) / NS_PER_MS) &&
        add_figure(object, "waiting_messages", endpoint->channels.queued) &&
        tmsg_stats_describe(object, &endpoint->stats) &&
        add_session(object, endpoint->resume) &&
        tmsg_queue_describe(object, endpoint) &&
        add_figure(object, "deferred_payloads", endpoint->credit.tx_deferred) &&
        add_channels(object, endpoint);
    if (ok && endpoint->ucx != NULL) {
        ok = add_keys(object, &endpoint->ucx->keys);
    }
    tmsg_worker_unlock(endpoint->worker);
    return tmsg_json_finish(object, ok, json_p);
}
