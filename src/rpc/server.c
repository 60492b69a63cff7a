/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/params.h"
#include "core/shown.h"
#include "core/ticks.h"
#include "rpc/method.h"
#include "rpc/pool.h"
#include "rpc/reflect.h"
#include "rpc/stall.h"

#define CONCURRENCY_DEFAULT 1024
#define QUEUE_DEFAULT 1024
#define THREADS_MOST 1024

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_SERVER_PARAM_CONCURRENCY | TMSG_SERVER_PARAM_QUEUE |      \
                TMSG_SERVER_PARAM_THREADS | TMSG_SERVER_PARAM_FLAGS))
#define METHOD_PARAMS_KNOWN                                                    \
    ((uint64_t)(TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE |      \
                TMSG_METHOD_PARAM_SIGNATURE | TMSG_METHOD_PARAM_DESCRIPTION |  \
                TMSG_METHOD_PARAM_PRINCIPALS | TMSG_METHOD_PARAM_FLAGS))
#define FLAGS_KNOWN                                                            \
    ((uint32_t)(TMSG_SERVER_NO_METHODS | TMSG_SERVER_NO_HEALTH |               \
                TMSG_SERVER_NOT_READY))

static tmsg_status_t read_server_params(const tmsg_server_params_t *params,
                                        tmsg_server_t *server)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    if (mask & ~PARAMS_KNOWN) {
        return tmsg_params_unknown("server", mask & ~PARAMS_KNOWN);
    }
    server->load.concurrency = mask & TMSG_SERVER_PARAM_CONCURRENCY
                                   ? params->concurrency
                                   : CONCURRENCY_DEFAULT;
    server->load.queue =
        mask & TMSG_SERVER_PARAM_QUEUE ? params->queue : QUEUE_DEFAULT;
    server->thread_count =
        mask & TMSG_SERVER_PARAM_THREADS ? params->threads : 0;
    if (server->load.concurrency == 0 || server->thread_count > THREADS_MOST) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "server: concurrency %u, threads %u: concurrency "
                              "must be 1 or more, threads %d or less",
                              server->load.concurrency, server->thread_count,
                              THREADS_MOST);
    }
    return TMSG_OK;
}

/* Reads the flags, and adds the library's own methods that the flags allow. */
static tmsg_status_t read_flags(const tmsg_server_params_t *params,
                                tmsg_server_t *server)
{
    uint32_t flags =
        params != NULL && params->field_mask & TMSG_SERVER_PARAM_FLAGS
            ? params->flags
            : 0;

    if (flags & ~FLAGS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "server: unknown flags 0x%x",
                              flags & ~FLAGS_KNOWN);
    }
    server->health = flags & TMSG_SERVER_NOT_READY ? TMSG_HEALTH_NOT_SERVING
                                                   : TMSG_HEALTH_SERVING;
    server->beginning = true;
    return tmsg_reflect_offer(server, flags);
}

void tmsg_server_free(tmsg_server_t *server)
{
    while (server->methods != NULL) {
        tmsg_method_t *method = server->methods;

        server->methods = method->next;
        tmsg_method_free(method);
    }
    tmsg_table_free(&server->by_name);
    pthread_cond_destroy(&server->news);
    tmsg_hub_drop(server->hub);
    free(server->threads);
    free(server);
}

/* Makes `server` the server of its worker: calls may come from now on. Takes
 * the hub's lock. Errors: ALREADY_EXISTS. */
static tmsg_status_t install_server(tmsg_server_t *server)
{
    tmsg_hub_t *hub = server->hub;
    tmsg_status_t status = TMSG_OK;

    tmsg_hub_lock(hub);
    if (hub->server != NULL) {
        status = tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                                "server: the worker has one already");
    } else {
        hub->server = server;
        atomic_store(&hub->leaves, false);
    }
    tmsg_hub_unlock(hub);
    return status;
}

static tmsg_status_t create_server(tmsg_server_t *server,
                                   const tmsg_server_params_t *params)
{
    tmsg_status_t status = read_server_params(params, server);

    if (status == TMSG_OK) {
        status = read_flags(params, server);
    }
    server->pooled = server->thread_count > 0;
    if (status == TMSG_OK && server->pooled &&
        !tmsg_calls_are_shared(server->hub->calls)) {
        status = tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "server: threads need a worker made with TMSG_WORKER_SHARED");
    }
    if (status == TMSG_OK) {
        status = tmsg_pool_start(server);
    }
    if (status == TMSG_OK) {
        status = install_server(server);
        if (status != TMSG_OK) {
            tmsg_pool_stop(server);
        }
    }
    return status;
}

tmsg_status_t tmsg_server_create(tmsg_worker_t *worker,
                                 const tmsg_server_params_t *params,
                                 tmsg_server_t **server_p)
{
    tmsg_server_t *server;
    void *hub;
    tmsg_status_t status = tmsg_calls_start(worker, &tmsg_hub_ops, &hub);

    if (status != TMSG_OK) {
        return status;
    }
    server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return tmsg_error_memory("a server");
    }
    server->refs = 1;
    server->ticks = tmsg_ticks();
    server->ticks_ns = tmsg_calls_now_ns();
    pthread_cond_init(&server->news, NULL);
    server->hub = hub;
    tmsg_hub_hold(hub);
    status = create_server(server, params);
    if (status != TMSG_OK) {
        tmsg_server_free(server);
        return status;
    }
    *server_p = server;
    return TMSG_OK;
}

static uint32_t flags_of(const tmsg_method_params_t *params)
{
    return params != NULL && params->field_mask & TMSG_METHOD_PARAM_FLAGS
               ? params->flags
               : 0;
}

static tmsg_status_t read_method_params(const tmsg_method_params_t *params,
                                        const tmsg_server_t *server,
                                        tmsg_load_t *load)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    if (mask & ~METHOD_PARAMS_KNOWN) {
        return tmsg_params_unknown("method", mask & ~METHOD_PARAMS_KNOWN);
    }
    load->concurrency = mask & TMSG_METHOD_PARAM_CONCURRENCY
                            ? params->concurrency
                            : server->load.concurrency;
    load->queue =
        mask & TMSG_METHOD_PARAM_QUEUE ? params->queue : server->load.queue;
    if (flags_of(params) & ~(uint32_t)TMSG_METHOD_IDEMPOTENT) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "method: unknown flags 0x%x", flags_of(params));
    }
    return load->concurrency > 0 ? TMSG_OK
                                 : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                                  "method: concurrency is 0");
}

static bool method_is_named(const tmsg_method_t *method, const char *name,
                            size_t bytes)
{
    return method->name_bytes == bytes &&
           tmsg_is_same(method->name, name, bytes);
}

tmsg_method_t *tmsg_method_find(const tmsg_server_t *server, const char *name,
                                size_t bytes)
{
    tmsg_keyed_t *item =
        tmsg_table_find(&server->by_name, tmsg_table_key(name, bytes));

    for (; item != NULL; item = tmsg_table_next(item)) {
        tmsg_method_t *method = TMSG_CONTAINER_OF(item, tmsg_method_t, by_name);

        if (method_is_named(method, name, bytes)) {
            return method;
        }
    }
    return NULL;
}

tmsg_method_t *tmsg_method_called(tmsg_server_t *server, const char *name,
                                  size_t bytes)
{
    tmsg_method_t *method = server->last;

    if (method == NULL || !method_is_named(method, name, bytes)) {
        method = tmsg_method_find(server, name, bytes);
        if (method != NULL) {
            server->last = method;
        }
    }
    return method;
}

tmsg_status_t tmsg_server_add_held(tmsg_server_t *server, tmsg_method_t *method)
{
    tmsg_method_t **place = &server->methods;

    if (tmsg_method_find(server, method->name, method->name_bytes) != NULL) {
        return tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                              "method '%s' is registered already",
                              method->name);
    }
    /* Methods are listed in the order in which they were registered. */
    while (*place != NULL) {
        place = &(*place)->next;
    }
    *place = method;
    server->beginning &=
        method->is_ours || server->health != TMSG_HEALTH_SERVING;
    method->server = server;
    tmsg_table_add(&server->by_name, &method->by_name,
                   tmsg_table_key(method->name, method->name_bytes));
    return TMSG_OK;
}

tmsg_status_t tmsg_server_add(tmsg_server_t *server, tmsg_method_t *method)
{
    tmsg_status_t status;

    tmsg_hub_lock(server->hub);
    status = tmsg_server_add_held(server, method);
    tmsg_hub_unlock(server->hub);
    return status;
}

/* Registers a method. `made` has one of the two handlers, and its argument. */
static tmsg_status_t register_method(tmsg_server_t *server, const char *name,
                                     const tmsg_method_t *made,
                                     const tmsg_method_params_t *params)
{
    bool handled = made->handler != NULL || made->stream_handler != NULL;
    tmsg_load_t load = {0};
    tmsg_method_t *method;
    size_t bytes;
    tmsg_status_t status = tmsg_method_check(name, &bytes);

    if (status == TMSG_OK &&
        (!handled || tmsg_method_is_reserved(name, bytes))) {
        status = tmsg_error_set(TMSG_ERR_INVALID_PARAM, "method '%s': %s", name,
                                !handled ? "the handler is NULL"
                                         : "names of " TMSG_METHOD_RESERVED
                                           " are reserved");
    }
    if (status == TMSG_OK) {
        status = read_method_params(params, server, &load);
    }
    if (status != TMSG_OK) {
        return status;
    }
    method = calloc(1, sizeof(*method));
    if (method == NULL) {
        return tmsg_error_memory("a method");
    }
    method->handler = made->handler;
    method->stream_handler = made->stream_handler;
    method->arg = made->arg;
    method->load = load;
    method->health = TMSG_HEALTH_SERVING;
    method->flags = flags_of(params);
    method->name_bytes = bytes;
    memcpy(method->name, name, bytes + 1);
    status = tmsg_method_declare(method, params);
    if (status == TMSG_OK) {
        status = tmsg_server_add(server, method);
    }
    if (status != TMSG_OK) {
        tmsg_method_free(method);
    }
    return status;
}

tmsg_status_t tmsg_server_register(tmsg_server_t *server, const char *name,
                                   tmsg_handler_fn handler, void *arg,
                                   const tmsg_method_params_t *params)
{
    const tmsg_method_t made = {.handler = handler, .arg = arg};

    return register_method(server, name, &made, params);
}

tmsg_status_t tmsg_server_register_stream(tmsg_server_t *server,
                                          const char *name,
                                          tmsg_stream_handler_fn handler,
                                          void *arg,
                                          const tmsg_method_params_t *params)
{
    const tmsg_method_t made = {.stream_handler = handler, .arg = arg};

    return register_method(server, name, &made, params);
}

static bool is_drained(void *arg)
{
    tmsg_server_t *server = arg;
    bool drained;

    tmsg_hub_lock(server->hub);
    drained = server->all.count == 0;
    tmsg_hub_unlock(server->hub);
    return drained;
}

/* Makes the error of a drain whose time is up. Takes the lock. */
static tmsg_status_t drained_late(tmsg_server_t *server, int timeout_ms)
{
    char method[TMSG_METHOD_BYTES_MAX + 1] = "";
    size_t count;

    tmsg_hub_lock(server->hub);
    count = server->all.count;
    if (count > 0) {
        strcpy(method, TMSG_CONTAINER_OF(server->all.head, tmsg_task_t, node)
                           ->method->name);
    }
    tmsg_hub_unlock(server->hub);
    return count == 0 ? TMSG_OK
                      : tmsg_error_set(
                            TMSG_ERR_TIMED_OUT,
                            "drain: %zu calls are not answered in %d ms, the "
                            "oldest of '%s'",
                            count, timeout_ms, tmsg_shown_short(method).text);
}

tmsg_status_t tmsg_server_drain(tmsg_server_t *server, int timeout_ms)
{
    tmsg_hub_t *hub = server->hub;
    tmsg_status_t status = TMSG_OK;

    tmsg_hub_lock(hub);
    server->draining = true;
    atomic_store(&hub->leaves, true);
    tmsg_hub_unlock(hub);
    if (!is_drained(server)) {
        status = timeout_ms == 0
                     ? TMSG_ERR_TIMED_OUT
                     : tmsg_calls_until(hub->calls, is_drained, server,
                                        timeout_ms, "drain", "");
    }
    if (status == TMSG_ERR_TIMED_OUT) {
        status = drained_late(server, timeout_ms); /* OK: just in time */
    }
    tmsg_tasks_turn_out(server);
    return status;
}

void tmsg_server_destroy(tmsg_server_t *server)
{
    tmsg_hub_t *hub;
    bool last;

    if (server == NULL) {
        return;
    }
    hub = server->hub;
    (void)tmsg_server_drain(server, 0);
    tmsg_pool_stop(server);
    tmsg_hub_lock(hub);
    hub->server = NULL;
    tmsg_stall_forget(server);
    last = --server->refs == 0;
    tmsg_hub_unlock(hub);
    if (last) {
        tmsg_server_free(server);
    }
}
