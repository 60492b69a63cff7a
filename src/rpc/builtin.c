/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/builtin.h"

#include <stdlib.h>
#include <string.h>

#include <tensormsg/reflect.h>

#include "rpc/describe.h"
#include "rpc/method.h"
#include "rpc/offer.h"

static const struct {
    const char *name;
    tmsg_handler_fn handler;
} methods[] = {
    {TMSG_OFFER_FETCH, tmsg_offer_answer},
    {TMSG_OFFER_LIST, tmsg_offer_list},
    {TMSG_METHOD_DESCRIBE, tmsg_describe_answer},
};

#define METHOD_COUNT (sizeof(methods) / sizeof(methods[0]))

tmsg_method_t *tmsg_builtin_method(const char *name, tmsg_handler_fn handler,
                                   uint32_t flags)
{
    tmsg_method_t *method = calloc(1, sizeof(*method));

    if (method == NULL) {
        tmsg_error_memory("a method");
        return NULL;
    }
    method->handler = handler;
    method->flags = flags;
    method->is_ours = true;
    method->health = TMSG_HEALTH_SERVING;
    method->name_bytes = strlen(name);
    memcpy(method->name, name, method->name_bytes + 1);
    return method;
}

tmsg_status_t tmsg_list_begin(tmsg_task_t *task)
{
    tmsg_rpc_peer_t *peer = task->peer;
    bool room;

    tmsg_hub_lock(peer->hub);
    room = peer->lists < TMSG_LISTS_MOST;
    peer->lists += room;
    tmsg_hub_unlock(peer->hub);
    if (!room) {
        return tmsg_error_set(TMSG_ERR_RESOURCE_EXHAUSTED,
                              "%d lists are on their way to the caller "
                              "already: ask again when one has arrived",
                              TMSG_LISTS_MOST);
    }
    tmsg_calls_hold(peer->endpoint);
    return TMSG_OK;
}

static void drop_list(tmsg_rpc_peer_t *peer)
{
    tmsg_hub_lock(peer->hub);
    peer->lists--;
    tmsg_hub_unlock(peer->hub);
    tmsg_calls_drop(peer->endpoint);
}

/* Serves as on_done of the reply. */
static void list_done(void *peer, tmsg_status_t status, const char *error)
{
    (void)status;
    (void)error;
    drop_list(peer);
}

void tmsg_list_end(tmsg_task_t *task, tmsg_status_t status, tmsg_map_t *map)
{
    tmsg_rpc_peer_t *peer = task->peer;

    if (status == TMSG_OK) {
        task->how.on_done = list_done;
        task->how.on_done_arg = peer;
        status = tmsg_task_reply(task, map, NULL);
    } else {
        (void)tmsg_task_fail(task, status, 0, tmsg_error_message(), NULL);
    }
    if (status != TMSG_OK) {
        drop_list(peer);
    }
    tmsg_map_destroy(map);
}

/* Frees a server that was not begun. */
static void drop_methods(tmsg_server_t *server)
{
    while (server->methods != NULL) {
        tmsg_method_t *method = server->methods;

        server->methods = method->next;
        tmsg_method_free(method);
    }
    tmsg_table_free(&server->by_name);
    free(server);
}

static tmsg_server_t *make_server(tmsg_hub_t *hub)
{
    tmsg_server_t *server = calloc(1, sizeof(*server));

    if (server == NULL) {
        tmsg_error_memory("the library's own methods");
        return NULL;
    }
    server->refs = 1;
    server->health = TMSG_HEALTH_SERVING;
    server->hub = hub;
    for (size_t i = 0; i < METHOD_COUNT; i++) {
        tmsg_method_t *method = tmsg_builtin_method(
            methods[i].name, methods[i].handler, TMSG_METHOD_IDEMPOTENT);

        if (method == NULL) {
            drop_methods(server);
            return NULL;
        }
        (void)tmsg_server_add_held(server, method); /* no name comes twice */
    }
    return server;
}

tmsg_status_t tmsg_builtin_begin(tmsg_hub_t *hub)
{
    tmsg_server_t *server;

    if (hub->builtin != NULL) {
        return TMSG_OK;
    }
    if (atomic_load(&hub->over)) {
        return tmsg_error_set(TMSG_ERR_CLOSED, "the worker was destroyed");
    }
    if (hub->offers == NULL && tmsg_offers_create(&hub->offers) != TMSG_OK) {
        return TMSG_ERR_NO_MEMORY;
    }
    server = make_server(hub);
    if (server == NULL) {
        return TMSG_ERR_NO_MEMORY;
    }
    pthread_cond_init(&server->news, NULL);
    tmsg_hub_hold(hub);
    hub->builtin = server;
    return TMSG_OK;
}

void tmsg_builtin_leave(tmsg_hub_t *hub)
{
    tmsg_server_t *server;
    bool last;

    tmsg_hub_lock(hub);
    server = hub->builtin;
    hub->builtin = NULL;
    last = server != NULL && --server->refs == 0;
    tmsg_hub_unlock(hub);
    if (last) {
        tmsg_server_free(server);
    }
}

tmsg_method_t *tmsg_hub_method(const tmsg_hub_t *hub, const char *name,
                               size_t bytes)
{
    tmsg_method_t *method = NULL;

    if (hub->server != NULL) {
        method = tmsg_method_find(hub->server, name, bytes);
    }
    return method == NULL && hub->builtin != NULL
               ? tmsg_method_find(hub->builtin, name, bytes)
               : method;
}

static bool is_builtin(const char *name, size_t bytes)
{
    size_t i = 0;

    while (i < METHOD_COUNT && (strlen(methods[i].name) != bytes ||
                                memcmp(methods[i].name, name, bytes) != 0)) {
        i++;
    }
    return i < METHOD_COUNT;
}

tmsg_method_t *tmsg_hub_method_called(tmsg_hub_t *hub, const char *name,
                                      size_t bytes, tmsg_status_t *status_p)
{
    tmsg_method_t *method = NULL;

    if (hub->server != NULL) {
        method = tmsg_method_called(hub->server, name, bytes);
    }
    if (method == NULL && hub->builtin == NULL && is_builtin(name, bytes)) {
        *status_p = tmsg_builtin_begin(hub);
    }
    return method == NULL && hub->builtin != NULL
               ? tmsg_method_called(hub->builtin, name, bytes)
               : method;
}
