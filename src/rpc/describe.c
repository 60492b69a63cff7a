/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers peers that ask what goes on in this process. docs/reference/calls.md,
 * "What travels", has the messages. */
#include <stdlib.h>
#include <string.h>

#include <tensormsg/metrics.h>

#include "rpc/builtin.h"
#include "rpc/describe.h"
#include "rpc/principal.h"
#include "rpc/reflect.h"

/* Checks whether a peer may be told: whoever has connected without a key,
 * unless there are names of who may. A peer that this side dialled may lack a
 * key where the listeners here ask for one. Errors: REFUSED. */
static tmsg_status_t check_observer(const tmsg_task_t *task)
{
    const char *observers = tmsg_calls_observers(task->server->hub->calls);

    if (observers == NULL ? tmsg_endpoint_principal(task->endpoint) == NULL &&
                                tmsg_calls_was_accepted(task->endpoint)
                          : tmsg_principals_allow(observers, task->endpoint)) {
        return TMSG_OK;
    }
    return tmsg_error_set(TMSG_ERR_REFUSED,
                          "only principals that TENSORMSG_OBSERVERS lists in "
                          "that process may ask for this");
}

/* Adds a text as a tensor, which frees it; it frees it also if it fails. */
static tmsg_status_t add_text(tmsg_map_t *map, const char *name, char *text)
{
    const int64_t shape[] = {(int64_t)strlen(text)};
    const tmsg_tensor_t tensor = {
        text, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = text};
    tmsg_status_t status = tmsg_map_add(map, name, &tensor, &params);

    if (status != TMSG_OK) {
        free(text);
    }
    return status;
}

/* Adds the health of the application's server, if there is one, as of
 * TMSG_METHOD_HEALTH. */
static tmsg_status_t add_health(tmsg_hub_t *hub, tmsg_map_t *map)
{
    tmsg_health_report_t report;
    tmsg_status_t status;
    tmsg_server_t *server;
    bool last;

    tmsg_hub_lock(hub);
    server = hub->server;
    if (server != NULL) {
        server->refs++;
    }
    tmsg_hub_unlock(hub);
    if (server == NULL) {
        return TMSG_OK;
    }
    status = tmsg_server_report(server, NULL, &report);
    tmsg_hub_lock(hub);
    last = --server->refs == 0;
    tmsg_hub_unlock(hub);
    if (last) {
        tmsg_server_free(server);
    }
    return status == TMSG_OK ? tmsg_report_write(&report, map) : status;
}

static tmsg_status_t describe(tmsg_task_t *task, tmsg_map_t *map)
{
    tmsg_hub_t *hub = task->server->hub;
    tmsg_worker_t *worker = tmsg_calls_worker(hub->calls);
    char *text;
    tmsg_status_t status = add_health(hub, map);

    if (status == TMSG_OK) {
        status = tmsg_worker_overview(worker, &text);
    }
    if (status == TMSG_OK) {
        status = add_text(map, TMSG_DESCRIBED_PROCESS, text);
    }
    if (status == TMSG_OK) { /* who asks again gets what was counted since */
        status = tmsg_metrics_start(worker);
    }
    if (status == TMSG_OK) {
        status = tmsg_metrics_text(worker, &text);
    }
    return status == TMSG_OK ? add_text(map, TMSG_DESCRIBED_METRICS, text)
                             : status;
}

void tmsg_describe_answer(void *arg, tmsg_task_t *task)
{
    tmsg_map_t *map = NULL;
    tmsg_status_t status = check_observer(task);

    (void)arg;
    if (status == TMSG_OK) {
        status = tmsg_list_begin(task);
    }
    if (status != TMSG_OK) {
        (void)tmsg_task_fail(task, status, 0, tmsg_error_message(), NULL);
        return;
    }
    status = tmsg_map_create(&map);
    if (status == TMSG_OK) {
        status = describe(task, map);
    }
    tmsg_list_end(task, status, map);
}
