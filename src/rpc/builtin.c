/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/builtin.h"

#include <stdlib.h>
#include <string.h>

#include "rpc/method.h"
#include "rpc/offer.h"

tmsg_status_t tmsg_builtin_add(tmsg_server_t *server, const char *name,
                               tmsg_handler_fn handler, uint32_t flags)
{
    tmsg_method_t *method = calloc(1, sizeof(*method));
    tmsg_status_t status;

    if (method == NULL) {
        return tmsg_error_memory("a method");
    }
    method->handler = handler;
    method->flags = flags;
    method->is_ours = true;
    method->health = TMSG_HEALTH_SERVING;
    method->name_bytes = strlen(name);
    memcpy(method->name, name, method->name_bytes + 1);
    status = tmsg_server_add(server, method);
    if (status != TMSG_OK) {
        tmsg_method_free(method);
    }
    return status;
}

tmsg_status_t tmsg_builtin_create(tmsg_hub_t *hub)
{
    tmsg_server_t *server = calloc(1, sizeof(*server));
    tmsg_status_t status;

    if (server == NULL) {
        return tmsg_error_memory("the library's own methods");
    }
    server->refs = 1;
    pthread_cond_init(&server->news, NULL);
    server->health = TMSG_HEALTH_SERVING;
    server->hub = hub;
    tmsg_hub_hold(hub);
    status = tmsg_builtin_add(server, TMSG_OFFER_FETCH, tmsg_offer_answer,
                              TMSG_METHOD_IDEMPOTENT);
    if (status == TMSG_OK) {
        status = tmsg_builtin_add(server, TMSG_OFFER_LIST, tmsg_offer_list,
                                  TMSG_METHOD_IDEMPOTENT);
    }
    if (status != TMSG_OK) {
        tmsg_server_free(server);
        return status;
    }
    hub->builtin = server;
    return TMSG_OK;
}

void tmsg_builtin_leave(tmsg_hub_t *hub)
{
    tmsg_server_t *server = hub->builtin;
    bool last;

    tmsg_hub_lock(hub);
    hub->builtin = NULL;
    last = --server->refs == 0;
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

tmsg_method_t *tmsg_hub_method_called(const tmsg_hub_t *hub, const char *name,
                                      size_t bytes)
{
    tmsg_method_t *method = NULL;

    if (hub->server != NULL) {
        method = tmsg_method_called(hub->server, name, bytes);
    }
    return method == NULL && hub->builtin != NULL
               ? tmsg_method_called(hub->builtin, name, bytes)
               : method;
}
