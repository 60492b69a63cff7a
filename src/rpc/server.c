/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/server.h"

#include <stdlib.h>
#include <string.h>

#include "rpc/pool.h"

#define CONCURRENCY_DEFAULT 1024
#define QUEUE_DEFAULT 1024
#define THREADS_MOST 1024

#define PARAMS_KNOWN                                                           \
    ((uint64_t)(TMSG_SERVER_PARAM_CONCURRENCY | TMSG_SERVER_PARAM_QUEUE |      \
                TMSG_SERVER_PARAM_THREADS))
#define METHOD_PARAMS_KNOWN                                                    \
    ((uint64_t)(TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE))

#define RESERVED "tensormsg."

static tmsg_status_t read_params(const tmsg_server_params_t *params,
                                 tmsg_server_t *server)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    if (mask & ~PARAMS_KNOWN) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "server: unknown field_mask bits 0x%llx",
                              (unsigned long long)(mask & ~PARAMS_KNOWN));
    }
    server->load.concurrency = mask & TMSG_SERVER_PARAM_CONCURRENCY
                                   ? params->concurrency
                                   : CONCURRENCY_DEFAULT;
    server->load.queue =
        mask & TMSG_SERVER_PARAM_QUEUE ? params->queue : QUEUE_DEFAULT;
    server->thread_count =
        mask & TMSG_SERVER_PARAM_THREADS ? params->threads : 0;
    if (server->load.concurrency == 0 || server->thread_count > THREADS_MOST) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM,
            "server: concurrency %u, threads %u: the first is "
            "1 or more, the second %d or less",
            server->load.concurrency, server->thread_count, THREADS_MOST);
    }
    return TMSG_OK;
}

void tmsg_server_drop(tmsg_server_t *server)
{
    if (atomic_fetch_sub_explicit(&server->refs, 1, memory_order_acq_rel) !=
        1) {
        return;
    }
    while (server->methods != NULL) {
        tmsg_method_t *method = server->methods;

        server->methods = method->next;
        free(method);
    }
    pthread_cond_destroy(&server->news);
    tmsg_hub_drop(server->hub);
    free(server->threads);
    free(server);
}

/* The worker serves from here on. */
static tmsg_status_t install(tmsg_server_t *server)
{
    tmsg_hub_t *hub = server->hub;
    tmsg_status_t status = TMSG_OK;

    tmsg_hub_lock(hub);
    if (hub->server != NULL) {
        status = tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                                "server: the worker has one already");
    } else {
        hub->server = server;
    }
    tmsg_hub_unlock(hub);
    return status;
}

static tmsg_status_t create(tmsg_server_t *server,
                            const tmsg_server_params_t *params)
{
    tmsg_status_t status = read_params(params, server);

    server->pooled = server->thread_count > 0;
    if (status == TMSG_OK && server->pooled &&
        !tmsg_calls_are_shared(server->hub->calls)) {
        status = tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                "server: threads take a worker that is shared");
    }
    if (status == TMSG_OK) {
        status = tmsg_pool_start(server);
    }
    if (status == TMSG_OK) {
        status = install(server);
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
    atomic_init(&server->refs, 1);
    pthread_cond_init(&server->news, NULL);
    server->hub = hub;
    tmsg_hub_hold(hub);
    status = create(server, params);
    if (status != TMSG_OK) {
        tmsg_server_drop(server);
        return status;
    }
    *server_p = server;
    return TMSG_OK;
}

static tmsg_status_t read_method(const tmsg_method_params_t *params,
                                 const tmsg_server_t *server, tmsg_load_t *load)
{
    uint64_t mask = params == NULL ? 0 : params->field_mask;

    if (mask & ~METHOD_PARAMS_KNOWN) {
        return tmsg_error_set(
            TMSG_ERR_INVALID_PARAM, "method: unknown field_mask bits 0x%llx",
            (unsigned long long)(mask & ~METHOD_PARAMS_KNOWN));
    }
    load->concurrency = mask & TMSG_METHOD_PARAM_CONCURRENCY
                            ? params->concurrency
                            : server->load.concurrency;
    load->queue =
        mask & TMSG_METHOD_PARAM_QUEUE ? params->queue : server->load.queue;
    return load->concurrency > 0 ? TMSG_OK
                                 : tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                                                  "method: concurrency is 0");
}

static tmsg_status_t add_method(tmsg_server_t *server, tmsg_method_t *method)
{
    tmsg_method_t **place = &server->methods;
    tmsg_status_t status = TMSG_OK;

    tmsg_hub_lock(server->hub);
    while (*place != NULL && strcmp((*place)->name, method->name) != 0) {
        place = &(*place)->next;
    }
    if (*place == NULL) {
        *place = method;
    } else {
        status =
            tmsg_error_set(TMSG_ERR_ALREADY_EXISTS,
                           "method '%s' is registered already", method->name);
    }
    tmsg_hub_unlock(server->hub);
    return status;
}

tmsg_status_t tmsg_server_register(tmsg_server_t *server, const char *name,
                                   tmsg_handler_fn handler, void *arg,
                                   const tmsg_method_params_t *params)
{
    tmsg_load_t load = {0};
    tmsg_method_t *method;
    size_t bytes;
    tmsg_status_t status = tmsg_method_check(name, &bytes);

    if (status == TMSG_OK &&
        (handler == NULL || strncmp(name, RESERVED, strlen(RESERVED)) == 0)) {
        status = tmsg_error_set(TMSG_ERR_INVALID_PARAM, "method '%s': %s", name,
                                handler == NULL ? "no handler"
                                                : "names of " RESERVED
                                                  " are reserved");
    }
    if (status == TMSG_OK) {
        status = read_method(params, server, &load);
    }
    if (status != TMSG_OK) {
        return status;
    }
    method = calloc(1, sizeof(*method));
    if (method == NULL) {
        return tmsg_error_memory("a method");
    }
    method->handler = handler;
    method->arg = arg;
    method->load = load;
    method->name_bytes = bytes;
    memcpy(method->name, name, bytes + 1);
    status = add_method(server, method);
    if (status != TMSG_OK) {
        free(method);
    }
    return status;
}

static bool has_slot(const tmsg_load_t *load)
{
    return load->running < load->concurrency;
}

static void give_turn(tmsg_server_t *server, tmsg_method_t *method)
{
    tmsg_task_t *task =
        TMSG_CONTAINER_OF(tmsg_list_pop(&method->waiting), tmsg_task_t, turn);

    task->running = true;
    server->load.running++;
    method->load.running++;
    task->queue = &server->ready;
    tmsg_list_push(&server->ready, &task->turn);
    pthread_cond_signal(&server->news);
}

/* Method by method, from behind the one that had a turn last. */
static tmsg_method_t *next_method(const tmsg_server_t *server)
{
    tmsg_method_t *first = NULL, *method = server->methods;
    bool behind = server->turn == NULL;

    for (; method != NULL; method = method->next) {
        if (method->waiting.count > 0 && has_slot(&method->load)) {
            if (behind) {
                return method;
            }
            first = first == NULL ? method : first;
        }
        behind = behind || method == server->turn;
    }
    return first;
}

bool tmsg_server_schedule(tmsg_server_t *server)
{
    tmsg_method_t *method;

    while (has_slot(&server->load) && (method = next_method(server)) != NULL) {
        give_turn(server, method);
        server->turn = method;
    }
    return server->ready.count > 0 && !server->pooled;
}

static tmsg_task_t *take_ready(tmsg_hub_t *hub)
{
    tmsg_server_t *server;
    tmsg_task_t *task = NULL;

    tmsg_hub_lock(hub);
    server = hub->server;
    if (server != NULL && !server->pooled) {
        task = tmsg_task_take(server);
    }
    tmsg_hub_unlock(hub);
    return task;
}

void tmsg_server_run(tmsg_hub_t *hub)
{
    tmsg_task_t *task;

    while ((task = take_ready(hub)) != NULL) {
        tmsg_task_run(task);
    }
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

tmsg_status_t tmsg_server_drain(tmsg_server_t *server, int timeout_ms)
{
    tmsg_hub_t *hub = server->hub;
    tmsg_status_t status = TMSG_OK;

    tmsg_hub_lock(hub);
    server->draining = true;
    tmsg_hub_unlock(hub);
    if (!is_drained(server)) {
        status =
            timeout_ms == 0
                ? tmsg_error_set(TMSG_ERR_TIMED_OUT,
                                 "drain: some calls are not answered")
                : tmsg_calls_until(hub->calls, is_drained, server, timeout_ms,
                                   "drain: some calls are not answered", "");
    }
    tmsg_tasks_turn_out(server);
    return status;
}

void tmsg_server_destroy(tmsg_server_t *server)
{
    tmsg_hub_t *hub;

    if (server == NULL) {
        return;
    }
    hub = server->hub;
    (void)tmsg_server_drain(server, 0);
    tmsg_pool_stop(server);
    tmsg_hub_lock(hub);
    hub->server = NULL;
    tmsg_hub_unlock(hub);
    tmsg_server_drop(server);
}
