/* SPDX-License-Identifier: BSD-3-Clause */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "am/ucx/config_check.h"
#include "am/worker/context.h"
#include "core/error.h"
#include "core/limits.h"
#include "core/params.h"
#include "memory/domain.h"

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_CONTEXT_PARAM_LIMITS | TMSG_CONTEXT_PARAM_UCX_CONFIG |    \
                TMSG_CONTEXT_PARAM_FLAGS | TMSG_CONTEXT_PARAM_PEER_TIMEOUT |   \
                TMSG_CONTEXT_PARAM_ON_TRACE | TMSG_CONTEXT_PARAM_CONFIG_FILE | \
                TMSG_CONTEXT_PARAM_DEVICE_TABLE | TMSG_CONTEXT_PARAM_KEYRING))

#define FLAGS_KNOWN                                                            \
    ((uint32_t)(TMSG_CONTEXT_NO_THREAD | TMSG_CONTEXT_REQUIRE_PATH))

#define PEER_TIMEOUT_MS 5000
#define PEER_TIMEOUT_LEAST_MS 200
#define HEARTBEATS_A_TIMEOUT 4

/* Reads the number of an environment variable. If the variable is not set, or
 * empty, *value_p stays as it is. */
static tmsg_status_t read_variable(const char *name, uint32_t most,
                                   uint32_t *value_p)
{
    const char *text = getenv(name);
    unsigned long value;
    char *end;

    if (text == NULL || *text == '\0') {
        return TMSG_OK;
    }
    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno != 0 || *end != '\0' || !isdigit((unsigned char)*text) ||
        value > most) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "%s='%s' is not a number from 0 to %u", name,
                              tmsg_error_name(text, strlen(text)).text, most);
    }
    *value_p = (uint32_t)value;
    return TMSG_OK;
}

static tmsg_status_t read_context_carrier(tmsg_context_t *context)
{
    static const char variable[] = "TENSORMSG_CARRIER";
    const char *text = getenv(variable);

    context->carrier = context->settings.carrier;
    return text == NULL || *text == '\0' ||
                   tmsg_carrier_read(text, &context->carrier)
               ? TMSG_OK
               : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "%s='%s' is not auto, ucx or stream", variable,
                                tmsg_error_name(text, strlen(text)).text);
}

static tmsg_status_t read_context_flags(const tmsg_context_params_t *params,
                                        tmsg_context_t *context)
{
    if (!(params->field_mask & TMSG_CONTEXT_PARAM_FLAGS)) {
        uint32_t no_thread = context->settings.no_thread;
        uint32_t require_path = context->settings.require_path;
        tmsg_status_t status =
            read_variable("TENSORMSG_NO_THREAD", 1, &no_thread);

        if (status == TMSG_OK) {
            status = read_variable("TENSORMSG_REQUIRE_PATH", 1, &require_path);
        }
        context->flags = (no_thread ? TMSG_CONTEXT_NO_THREAD : 0) |
                         (require_path ? TMSG_CONTEXT_REQUIRE_PATH : 0);
        return status;
    }
    if (params->flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "context: unknown flags 0x%x",
                              params->flags & ~FLAGS_KNOWN);
    }
    context->flags = params->flags;
    return TMSG_OK;
}

static tmsg_status_t
read_context_peer_timeout(const tmsg_context_params_t *params,
                          tmsg_context_t *context)
{
    tmsg_status_t status = TMSG_OK;

    if (params->field_mask & TMSG_CONTEXT_PARAM_PEER_TIMEOUT) {
        context->peer_timeout_ms = params->peer_timeout_ms;
    } else {
        if (context->settings.has_peer_timeout) {
            context->peer_timeout_ms = context->settings.peer_timeout_ms;
        }
        status = read_variable("TENSORMSG_PEER_TIMEOUT_MS", INT32_MAX,
                               &context->peer_timeout_ms);
    }
    if (status == TMSG_OK && context->peer_timeout_ms != 0 &&
        (context->peer_timeout_ms < PEER_TIMEOUT_LEAST_MS ||
         context->peer_timeout_ms > INT32_MAX)) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "context: peer_timeout_ms %u is neither 0 nor "
                              "within %d to %d",
                              context->peer_timeout_ms, PEER_TIMEOUT_LEAST_MS,
                              INT32_MAX);
    }
    return status;
}

static tmsg_status_t read_context_huge_pages(tmsg_context_t *context)
{
    context->huge_page_bytes = context->settings.has_huge_pages
                                   ? context->settings.huge_page_bytes
                                   : TMSG_HUGE_LEAST;
    return read_variable("TENSORMSG_HUGE_PAGE_BYTES", UINT32_MAX,
                         &context->huge_page_bytes);
}

static tmsg_status_t read_context_bulk(tmsg_context_t *context)
{
    context->bulk_connections = context->settings.bulk_connections;
    return read_variable("TENSORMSG_BULK_CONNECTIONS",
                         TMSG_BULK_CONNECTIONS_MOST,
                         &context->bulk_connections);
}

static tmsg_status_t read_observers(tmsg_context_t *context)
{
    const char *names = getenv("TENSORMSG_OBSERVERS");

    if (names != NULL && *names != '\0') {
        context->observers = strdup(names);
        if (context->observers == NULL) {
            return tmsg_error_memory("the observers");
        }
    }
    return TMSG_OK;
}

static tmsg_status_t add_tuning(const char *text, const char *source,
                                tmsg_tuning_t *tuning)
{
    tmsg_status_t status =
        text == NULL ? TMSG_OK : tmsg_tuning_read(text, tuning);

    return status == TMSG_OK
               ? TMSG_OK
               : tmsg_error_set(status, "%s: %s", source, tmsg_error_message());
}

static tmsg_status_t read_tuning(tmsg_context_t *context)
{
    const char *variable = "TENSORMSG_THRESHOLDS";
    tmsg_status_t status;

    context->tuning = tmsg_tuning_usual();
    status = add_tuning(context->settings.thresholds, context->settings.path,
                        &context->tuning);
    return status == TMSG_OK
               ? add_tuning(getenv(variable), variable, &context->tuning)
               : status;
}

uint32_t tmsg_context_peer_timeout_ms(const tmsg_context_t *context)
{
    return context->peer_timeout_ms == 0 ? PEER_TIMEOUT_MS
                                         : context->peer_timeout_ms;
}

uint32_t tmsg_context_heartbeat_ms(const tmsg_context_t *context)
{
    if (context->flags & TMSG_CONTEXT_NO_THREAD) {
        return 0;
    }
    return context->peer_timeout_ms == 0
               ? TMSG_HEARTBEAT_NEVER
               : context->peer_timeout_ms / HEARTBEATS_A_TIMEOUT;
}

static tmsg_status_t read_context_limits(const tmsg_context_params_t *params,
                                         tmsg_context_t *context)
{
    tmsg_status_t status =
        tmsg_limits_merge(&context->settings.limits, &context->limits);

    if (status != TMSG_OK) {
        return tmsg_error_set(status, "%s: %s", context->settings.path,
                              tmsg_error_message());
    }
    if (!(params->field_mask & TMSG_CONTEXT_PARAM_LIMITS) ||
        params->limits == NULL) {
        return TMSG_OK;
    }
    return tmsg_limits_merge(params->limits, &context->limits);
}

tmsg_ucx_given_t tmsg_context_ucx(const tmsg_context_t *context)
{
    return (tmsg_ucx_given_t){.code = context->ucx_config,
                              .file = context->settings.ucx,
                              .path = context->settings.path};
}

static tmsg_status_t read_context_ucx(const tmsg_context_params_t *params,
                                      tmsg_context_t *context)
{
    tmsg_ucx_given_t given;
    tmsg_status_t status;

    if ((params->field_mask & TMSG_CONTEXT_PARAM_UCX_CONFIG) &&
        params->ucx_config != NULL) {
        context->ucx_config = strdup(params->ucx_config);
        if (context->ucx_config == NULL) {
            return tmsg_error_memory("the UCX configuration");
        }
    }
    if (context->ucx_config == NULL && context->settings.ucx == NULL) {
        return TMSG_OK;
    }
    given = tmsg_context_ucx(context);
    status = tmsg_ucx_config_check(&given);
    return status == TMSG_OK ? tmsg_ucx_check_keys_early(&given) : status;
}

/* Reads the device table, if there is one. Looking for devices takes time,
 * which only applications that number them pay. */
static tmsg_status_t read_devices(const tmsg_context_params_t *params,
                                  tmsg_context_t *context)
{
    tmsg_devices_params_t devices = {.field_mask = TMSG_DEVICES_PARAM_TABLE};

    devices.table = params->field_mask & TMSG_CONTEXT_PARAM_DEVICE_TABLE
                        ? params->device_table
                        : getenv("TENSORMSG_DEVICE_TABLE");
    return devices.table == NULL || *devices.table == '\0'
               ? TMSG_OK
               : tmsg_devices_create(&devices, &context->devices);
}

tmsg_status_t tmsg_context_device(const tmsg_context_t *context, uint32_t index,
                                  tmsg_device_t *device_p)
{
    tmsg_device_info_t info;
    tmsg_status_t status;

    if (context == NULL || device_p == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "%s is NULL",
                              context == NULL ? "context" : "device_p");
    }
    if (context->devices == NULL) {
        return tmsg_error_set(TMSG_ERR_NOT_FOUND,
                              "index %u: the context has no device table",
                              index);
    }
    status = tmsg_devices_find(context->devices, index, &info);
    if (status == TMSG_OK && info.device.id < 0) {
        status = tmsg_error_set(
            TMSG_ERR_UNSUPPORTED,
            "index %u of the device table, %s %s, is shown by no driver "
            "here%s%s",
            index, tmsg_device_kind_name(info.kind), info.bus_id,
            info.kind == TMSG_DEVICE_KIND_CUDA ? ": " : "",
            info.kind == TMSG_DEVICE_KIND_CUDA ? tmsg_cuda_report() : "");
    }
    if (status == TMSG_OK) {
        *device_p = info.device;
    }
    return status;
}

static tmsg_status_t read_context_params(const tmsg_context_params_t *params,
                                         tmsg_context_t *context)
{
    bool named = params->field_mask & TMSG_CONTEXT_PARAM_CONFIG_FILE;
    tmsg_status_t status;

    if (params->field_mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("context",
                                   params->field_mask & ~PARAMS_KNOWN);
    }
    if (params->field_mask & TMSG_CONTEXT_PARAM_ON_TRACE) {
        context->on_trace = params->on_trace;
        context->on_trace_arg = params->on_trace_arg;
    }
    if ((params->field_mask & TMSG_CONTEXT_PARAM_KEYRING) &&
        params->keyring != NULL) {
        tmsg_keyring_hold(params->keyring);
        context->keyring = params->keyring;
    }
    status = tmsg_settings_read(named ? params->config_file : NULL,
                                &context->settings);
    if (status == TMSG_OK) {
        status = read_context_limits(params, context);
    }
    if (status == TMSG_OK) {
        status = read_context_flags(params, context);
    }
    if (status == TMSG_OK) {
        status = read_context_peer_timeout(params, context);
    }
    if (status == TMSG_OK) {
        status = read_context_huge_pages(context);
    }
    if (status == TMSG_OK) {
        status = read_context_carrier(context);
    }
    if (status == TMSG_OK) {
        status = read_context_bulk(context);
    }
    if (status == TMSG_OK) {
        status = read_devices(params, context);
    }
    if (status == TMSG_OK) {
        status = read_observers(context);
    }
    return status == TMSG_OK ? read_context_ucx(params, context) : status;
}

tmsg_status_t tmsg_context_create(const tmsg_context_params_t *params,
                                  tmsg_context_t **context_p)
{
    static const tmsg_context_params_t defaults = {.field_mask = 0};
    tmsg_context_t *context = calloc(1, sizeof(*context));
    tmsg_status_t status;

    if (context == NULL) {
        return tmsg_error_memory("a context");
    }
    tmsg_refs_init(&context->refs, 1);
    tmsg_lines_init(&context->lines);
    context->limits = tmsg_limits_usual();
    context->peer_timeout_ms = PEER_TIMEOUT_MS;
    status = read_context_params(params == NULL ? &defaults : params, context);
    if (status == TMSG_OK) {
        status = read_tuning(context);
    }
    tmsg_keepalive_open(&context->keepalive, context->peer_timeout_ms);
    if (status == TMSG_OK &&
        getrandom(context->instance_id, TMSG_INSTANCE_BYTES, 0) !=
            TMSG_INSTANCE_BYTES) {
        status = tmsg_error_errno(TMSG_ERR_IO, "getrandom");
    }
    if (status != TMSG_OK) {
        tmsg_context_destroy(context);
        return status;
    }
    *context_p = context;
    return TMSG_OK;
}

void tmsg_context_hold(tmsg_context_t *context)
{
    tmsg_refs_take(&context->refs);
}

void tmsg_context_destroy(tmsg_context_t *context)
{
    if (context != NULL && tmsg_refs_drop(&context->refs)) {
        tmsg_keepalive_close(&context->keepalive);
        tmsg_lines_end(&context->lines);
        free(context->ucx_config);
        free(context->observers);
        tmsg_settings_free(&context->settings);
        tmsg_devices_destroy(context->devices);
        tmsg_keyring_destroy(context->keyring);
        free(context);
    }
}
