/* SPDX-License-Identifier: BSD-3-Clause */
/* Implements the methods by which a server describes itself.
 * docs/reference/calls.md, "What travels", has their messages. */
#include "rpc/reflect.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include <tensormsg/json.h>
#include <tensormsg/meta.h>

#include "rpc/builtin.h"
#include "rpc/method.h"
#include "rpc/stall.h"
#include "serialize/json.h"

static const char *const names[] = {
    "UNKNOWN", "SERVING", "NOT_SERVING", "DRAINING", "NOT_FOUND", "STALLED",
};

#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

const char *tmsg_health_name(tmsg_health_t health)
{
    return (size_t)health < NAME_COUNT ? names[health] : names[0];
}

tmsg_health_t tmsg_health_of(const char *word)
{
    size_t i = 1;

    while (i < NAME_COUNT && strcmp(word, names[i]) != 0) {
        i++;
    }
    return i < NAME_COUNT ? (tmsg_health_t)i : TMSG_HEALTH_UNKNOWN;
}

/* Returns the health of a method; NULL stands for the whole server. `starves`
 * is the answer of tmsg_stall_starves(). Lock held. */
static tmsg_health_t health_of(const tmsg_server_t *server,
                               const tmsg_method_t *method, bool starves)
{
    tmsg_health_t health = server->health;
    bool stalled =
        method == NULL ? tmsg_stall_find(server) != NULL : method->stalled;

    if (health == TMSG_HEALTH_SERVING && method != NULL) {
        health = method->health;
    }
    if (health == TMSG_HEALTH_SERVING &&
        (stalled || (starves && (method == NULL || !method->is_ours)))) {
        health = TMSG_HEALTH_STALLED;
    }
    return server->draining ? TMSG_HEALTH_DRAINING : health;
}

tmsg_status_t tmsg_server_report(tmsg_server_t *server, const char *name,
                                 tmsg_health_report_t *report)
{
    const tmsg_method_t *method = NULL, *stalled;
    char words[TMSG_HEALTH_WHY_MAX + 1];
    bool starves;

    if (server == NULL || report == NULL) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM,
                              "report: a pointer is NULL");
    }
    *report = (tmsg_health_report_t){.health = TMSG_HEALTH_NOT_FOUND};
    starves = tmsg_stall_starves(server, words, sizeof(words));
    tmsg_hub_lock(server->hub);
    if (name != NULL) {
        method = tmsg_method_find(server, name, strlen(name));
    }
    if (name == NULL || method != NULL) {
        tmsg_stall_report(server, method, report);
        report->health = (int32_t)health_of(server, method, starves);
    }
    stalled = method == NULL ? tmsg_stall_find(server) : method;
    if (report->health == TMSG_HEALTH_STALLED && starves) {
        strcpy(report->why, words);
    } else if (report->health == TMSG_HEALTH_STALLED) {
        tmsg_stall_why(stalled, report->why, sizeof(report->why));
    }
    tmsg_hub_unlock(server->hub);
    return TMSG_OK;
}

static bool add_text(cJSON *object, const char *key, const char *text)
{
    return text == NULL || tmsg_json_add(object, key, cJSON_CreateString(text));
}

/* Adds a figure if it is not 0: readers take a missing key for 0. */
static bool add_figure(cJSON *object, const char *key, uint64_t figure)
{
    return figure == 0 ||
           tmsg_json_add(object, key, tmsg_json_unsigned(figure));
}

/* Stores the JSON of a report's figures, which the caller frees with
 * cJSON_free(). Errors: NO_MEMORY. */
static tmsg_status_t describe_load(const tmsg_health_report_t *report,
                                   char **json_p)
{
    cJSON *object = cJSON_CreateObject();
    bool complete =
        object != NULL && add_figure(object, "running", report->running) &&
        add_figure(object, "waiting", report->waiting) &&
        add_figure(object, "held", report->held) &&
        add_figure(object, "stalls", report->stalls) &&
        (report->why[0] == '\0' || add_text(object, "why", report->why));
    char *printed = complete ? cJSON_PrintUnformatted(object) : NULL;

    cJSON_Delete(object);
    if (printed == NULL) {
        return tmsg_error_memory("a report");
    }
    *json_p = printed;
    return TMSG_OK;
}

tmsg_status_t tmsg_report_write(const tmsg_health_report_t *report,
                                tmsg_map_t *map)
{
    char *json = NULL;
    tmsg_status_t status = tmsg_map_set_string(
        map, TMSG_HEALTH_TOLD, tmsg_health_name((tmsg_health_t)report->health));

    if (status == TMSG_OK) {
        status = describe_load(report, &json);
    }
    if (status == TMSG_OK) {
        status = tmsg_map_set_string(map, TMSG_HEALTH_LOAD, json);
    }
    cJSON_free(json);
    return status;
}

/* Answers the task with `map`, or with the error that is the reason why there
 * is no map. Ignores a failure to answer, because there is no other way to tell
 * the caller. Destroys the map. */
static void send_answer(tmsg_task_t *task, tmsg_status_t status,
                        tmsg_map_t *map)
{
    if (status == TMSG_OK) {
        (void)tmsg_task_reply(task, map, NULL);
    } else {
        (void)tmsg_task_fail(task, status, 0, tmsg_error_message(), NULL);
    }
    tmsg_map_destroy(map);
}

/* Serves as the handler of TMSG_METHOD_HEALTH. */
static void tell_health(void *arg, tmsg_task_t *task)
{
    tmsg_health_report_t report;
    const char *name = NULL;
    tmsg_map_t *map = NULL;
    tmsg_status_t status =
        tmsg_map_get_string(tmsg_task_map(task), TMSG_HEALTH_ASKED, &name);

    (void)arg;
    if (status == TMSG_OK || status == TMSG_ERR_NOT_FOUND) {
        status = tmsg_map_create(&map);
    }
    if (status == TMSG_OK) {
        status = tmsg_server_report(task->server, name, &report);
    }
    if (status == TMSG_OK) {
        status = tmsg_report_write(&report, map);
    }
    send_answer(task, status, map);
}

/* Adds a key if `truth` is true: readers take a missing key for false. */
static bool add_truth(cJSON *object, const char *key, bool truth)
{
    return !truth || tmsg_json_add(object, key, cJSON_CreateTrue());
}

/* Stores the JSON of a method, which the caller frees with cJSON_free().
 * Errors: NO_MEMORY. */
static tmsg_status_t describe_method(const tmsg_method_t *method,
                                     tmsg_health_t health, char **json_p)
{
    cJSON *object = cJSON_CreateObject();
    bool complete =
        object != NULL &&
        add_text(object, "description", method->description) &&
        add_text(object, "signature", method->signature_text) &&
        tmsg_json_add(object, "concurrency",
                      tmsg_json_unsigned(method->load.concurrency)) &&
        tmsg_json_add(object, "queue",
                      tmsg_json_unsigned(method->load.queue)) &&
        add_text(object, "health", tmsg_health_name(health)) &&
        add_truth(object, "stream", method->stream_handler != NULL) &&
        add_truth(object, "idempotent",
                  method->flags & TMSG_METHOD_IDEMPOTENT) &&
        add_truth(object, "principal", method->principals != NULL);
    char *printed = complete ? cJSON_PrintUnformatted(object) : NULL;

    cJSON_Delete(object);
    if (printed == NULL) {
        return tmsg_error_memory("a list of methods");
    }
    *json_p = printed;
    return TMSG_OK;
}

static tmsg_status_t list_method(const tmsg_method_t *method,
                                 tmsg_health_t health, tmsg_map_t *map)
{
    char key[sizeof(TMSG_REFLECT_METHOD) + TMSG_METHOD_BYTES_MAX];
    char *json = NULL;
    tmsg_status_t status = describe_method(method, health, &json);

    if (status == TMSG_OK) {
        strcpy(key, TMSG_REFLECT_METHOD);
        strcat(key, method->name);
        status = tmsg_map_set_string(map, key, json);
    }
    cJSON_free(json);
    return status;
}

/* Returns the method after `method` (NULL: the first one) and stores its
 * health; NULL: there is none. Methods are never removed, so that `method` is
 * still in the list. Takes the lock. */
static const tmsg_method_t *method_after(const tmsg_server_t *server,
                                         const tmsg_method_t *method,
                                         bool starves, tmsg_health_t *health_p)
{
    tmsg_hub_lock(server->hub);
    method = method == NULL ? server->methods : method->next;
    *health_p = health_of(server, method, starves);
    tmsg_hub_unlock(server->hub);
    return method;
}

/* Serves as the handler of TMSG_METHOD_METHODS. */
static void list_methods(void *arg, tmsg_task_t *task)
{
    const tmsg_server_t *server = task->server;
    const tmsg_method_t *method = NULL;
    tmsg_health_t health;
    tmsg_map_t *map = NULL;
    tmsg_status_t status = tmsg_list_begin(task);
    char words[TMSG_HEALTH_WHY_MAX + 1];
    bool starves = tmsg_stall_starves(server, words, sizeof(words));

    (void)arg;
    if (status != TMSG_OK) {
        send_answer(task, status, NULL);
        return;
    }
    status = tmsg_map_create(&map);
    while (status == TMSG_OK &&
           (method = method_after(server, method, starves, &health)) != NULL) {
        if (!method->is_ours) {
            status = list_method(method, health, map);
        }
    }
    tmsg_list_end(task, status, map);
}

static tmsg_status_t offer_method(tmsg_server_t *server, const char *name,
                                  tmsg_handler_fn handler)
{
    tmsg_method_t *method = tmsg_builtin_method(name, handler, 0);

    return method == NULL ? TMSG_ERR_NO_MEMORY
                          : tmsg_server_add(server, method);
}

tmsg_status_t tmsg_reflect_offer(tmsg_server_t *server, uint32_t flags)
{
    tmsg_status_t status = TMSG_OK;

    if (!(flags & TMSG_SERVER_NO_METHODS)) {
        status = offer_method(server, TMSG_METHOD_METHODS, list_methods);
    }
    if (status == TMSG_OK && !(flags & TMSG_SERVER_NO_HEALTH)) {
        status = offer_method(server, TMSG_METHOD_HEALTH, tell_health);
    }
    return status;
}

tmsg_status_t tmsg_server_set_health(tmsg_server_t *server, const char *name,
                                     tmsg_health_t health)
{
    tmsg_method_t *method = NULL;
    tmsg_status_t status = TMSG_OK;

    if (server == NULL || health < TMSG_HEALTH_SERVING ||
        health > TMSG_HEALTH_DRAINING) {
        return tmsg_error_set(TMSG_ERR_INVALID_PARAM, "health: %s",
                              server == NULL ? "server is NULL"
                                             : "it is not one that can be set");
    }
    tmsg_hub_lock(server->hub);
    if (name == NULL) {
        server->health = health;
        server->beginning &= health != TMSG_HEALTH_SERVING;
    } else {
        method = tmsg_method_find(server, name, strlen(name));
        if (method != NULL && !method->is_ours) {
            method->health = health;
        } else {
            status = tmsg_error_set(TMSG_ERR_NOT_FOUND,
                                    "health: there is no method '%s'",
                                    tmsg_error_name(name, strlen(name)).text);
        }
    }
    tmsg_hub_unlock(server->hub);
    return status;
}
