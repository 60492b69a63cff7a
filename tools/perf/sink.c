/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the receiving side of `tensormsg perf`. It takes every map, and does
 * with it what the sender asked for (control.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "control.h"
#include "credentials.h"
#include "measure/contents.h"
#include "signals.h"

typedef struct visitor visitor_t;

typedef struct {
    unsigned gone; /* senders that have come and gone */
    visitor_t *visitors;
} sink_t;

/* Holds the state of one connection. */
struct visitor {
    sink_t *sink;
    visitor_t *next;
    bool echo, verify, poll;
    uint64_t taken, wrong;          /* messages and calls since PERF_BEGIN */
    char words[CONTENTS_WHY_BYTES]; /* description of the first wrong one */
    tmsg_task_t *ending;            /* task of PERF_END, or NULL */
    uint64_t sent; /* number of messages that PERF_END announced */
};

static void answer_end(visitor_t *visitor)
{
    tmsg_map_t *map = NULL;

    if (visitor->ending == NULL || visitor->taken < visitor->sent) {
        return;
    }
    if (tmsg_map_create(&map) == TMSG_OK &&
        tmsg_map_set_i64(map, "wrong", (int64_t)visitor->wrong) == TMSG_OK &&
        tmsg_map_set_string(map, "words", visitor->words) == TMSG_OK) {
        (void)tmsg_task_reply(visitor->ending, map, NULL);
    }
    tmsg_map_destroy(map);
    tmsg_task_destroy(visitor->ending);
    visitor->ending = NULL;
}

static void check_visitor_map(visitor_t *visitor, const tmsg_map_t *map)
{
    char why[CONTENTS_WHY_BYTES];

    if (visitor->verify && !contents_check(map, why) && visitor->wrong++ == 0) {
        memcpy(visitor->words, why, sizeof(why));
    }
}

static void take_perf_map(void *arg, tmsg_message_t *message)
{
    tmsg_endpoint_t *endpoint = tmsg_message_endpoint(message);
    visitor_t *visitor = tmsg_endpoint_user(endpoint);

    (void)arg;
    if (visitor != NULL) {
        check_visitor_map(visitor, tmsg_message_map(message));
        if (visitor->echo) {
            /* A peer that does not take the echo has left. */
            (void)tmsg_endpoint_send(endpoint, tmsg_message_map(message), NULL,
                                     NULL);
        }
        visitor->taken++;
        answer_end(visitor);
    }
    tmsg_message_destroy(message);
}

static void on_hello(void *arg, tmsg_task_t *task)
{
    tmsg_map_t *map = NULL;

    (void)arg;
    if (tmsg_map_create(&map) == TMSG_OK &&
        tmsg_map_set_i64(map, "protocol", PERF_PROTOCOL) == TMSG_OK &&
        tmsg_map_set_string(map, "version", tmsg_version()) == TMSG_OK) {
        (void)tmsg_task_reply(task, map, NULL);
    }
    tmsg_map_destroy(map);
}

/* Checks that this side can use the sender's kind of memory. If not, the sender
 * is told before it sends any. */
static bool can_hold(tmsg_task_t *task, int64_t type, int64_t id)
{
    const tmsg_device_t device = {.type = (tmsg_device_type_t)type,
                                  .id = (int32_t)id};
    tmsg_status_t status =
        device.type == TMSG_DEVICE_CPU ? TMSG_OK : tmsg_domain_use(device);

    if (status != TMSG_OK) {
        (void)tmsg_task_fail(task, status, 0, tmsg_error_message(), NULL);
    }
    return status == TMSG_OK;
}

static void on_begin(void *arg, tmsg_task_t *task)
{
    visitor_t *visitor = tmsg_endpoint_user(tmsg_task_endpoint(task));
    const tmsg_map_t *map = tmsg_task_map(task);
    int64_t type = 0, id = 0;
    int echo = 0, verify = 0, poll = 0;

    (void)arg;
    if (visitor == NULL || tmsg_map_get_bool(map, "echo", &echo) != TMSG_OK ||
        tmsg_map_get_bool(map, "verify", &verify) != TMSG_OK ||
        tmsg_map_get_bool(map, "poll", &poll) != TMSG_OK ||
        tmsg_map_get_i64(map, "device_type", &type) != TMSG_OK ||
        tmsg_map_get_i64(map, "device_id", &id) != TMSG_OK) {
        (void)tmsg_task_fail(task, TMSG_ERR_MALFORMED, 0,
                             "no beginning of a measurement", NULL);
        return;
    }
    if (can_hold(task, type, id)) {
        visitor->echo = echo != 0;
        visitor->verify = verify != 0;
        visitor->poll = poll != 0;
        visitor->taken = visitor->wrong = 0;
        visitor->words[0] = '\0';
        (void)tmsg_task_reply(task, NULL, NULL);
    }
}

/* Calls overtake messages. So the reply waits until all messages have come. */
static void on_end(void *arg, tmsg_task_t *task)
{
    visitor_t *visitor = tmsg_endpoint_user(tmsg_task_endpoint(task));
    int64_t sent = 0;

    (void)arg;
    if (visitor == NULL || visitor->ending != NULL ||
        tmsg_map_get_i64(tmsg_task_map(task), "sent", &sent) != TMSG_OK) {
        (void)tmsg_task_fail(task, TMSG_ERR_MALFORMED, 0,
                             "no end of a measurement", NULL);
        return;
    }
    visitor->sent = (uint64_t)sent;
    visitor->ending = tmsg_task_keep(task);
    answer_end(visitor);
}

static void on_echo(void *arg, tmsg_task_t *task)
{
    visitor_t *visitor = tmsg_endpoint_user(tmsg_task_endpoint(task));

    (void)arg;
    if (visitor != NULL) {
        check_visitor_map(visitor, tmsg_task_map(task));
        visitor->taken++;
    }
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void remove_visitor(visitor_t *visitor)
{
    visitor_t **at = &visitor->sink->visitors;

    while (*at != visitor) {
        at = &(*at)->next;
    }
    *at = visitor->next;
    tmsg_task_destroy(visitor->ending);
    free(visitor);
}

static void visitor_closed(void *arg, tmsg_endpoint_t *endpoint,
                           tmsg_status_t status, const char *error)
{
    visitor_t *visitor = arg;

    (void)status;
    (void)error; /* the log has it */
    visitor->sink->gone++;
    tmsg_endpoint_set_user(endpoint, NULL);
    tmsg_endpoint_destroy(endpoint);
    remove_visitor(visitor);
}

static void visitor_accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    visitor_t *visitor = calloc(1, sizeof(*visitor));
    sink_t *sink = arg;

    if (visitor == NULL) {
        tmsg_endpoint_destroy(endpoint);
        return;
    }
    visitor->sink = sink;
    visitor->next = sink->visitors;
    sink->visitors = visitor;
    tmsg_endpoint_set_user(endpoint, visitor);
    tmsg_endpoint_on_closed(endpoint, visitor_closed, visitor);
}

static tmsg_status_t open_sink_server(tmsg_worker_t *worker,
                                      tmsg_server_t **server)
{
    static const struct {
        const char *name;
        tmsg_handler_fn handler;
    } methods[] = {
        {PERF_HELLO, on_hello},
        {PERF_BEGIN, on_begin},
        {PERF_END, on_end},
        {PERF_ECHO, on_echo},
    };
    tmsg_status_t status = tmsg_server_create(worker, NULL, server);

    for (size_t i = 0;
         i < sizeof(methods) / sizeof(methods[0]) && status == TMSG_OK; i++) {
        status = tmsg_server_register(*server, methods[i].name,
                                      methods[i].handler, NULL, NULL);
    }
    return status;
}

static bool sink_polls(const sink_t *sink)
{
    const visitor_t *visitor = sink->visitors;

    while (visitor != NULL && !visitor->poll) {
        visitor = visitor->next;
    }
    return visitor != NULL;
}

static int serve_visitors(const perf_options_t *options, tmsg_worker_t *worker,
                          const sink_t *sink)
{
    while (!signals_came() &&
           (options->count == 0 || sink->gone < options->count)) {
        tmsg_status_t status = perf_drive(worker, sink_polls(sink), NULL);

        credentials_look(&options->connection);
        if (status != TMSG_OK && status != TMSG_ERR_TIMED_OUT) {
            complain("%s", tmsg_error_message());
            return EXIT_FAILED;
        }
    }
    return EXIT_DONE;
}

int perf_listen(const perf_options_t *options)
{
    sink_t sink = {0};
    const tmsg_worker_params_t params = {
        .field_mask = TMSG_WORKER_PARAM_HANDLER,
        .handler = take_perf_map,
    };
    const tmsg_listener_params_t listening = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
        .on_accept = visitor_accepted,
        .on_accept_arg = &sink,
    };
    tmsg_context_t *context = NULL;
    tmsg_worker_t *worker = NULL;
    tmsg_server_t *server = NULL;
    tmsg_listener_t *listener = NULL;
    tmsg_status_t status;
    int code;

    if (signals_open(false) < 0) {
        complain("%s", strerror(errno));
        return EXIT_FAILED;
    }
    code = open_worker(&options->connection, &params, &context, &worker);
    if (code == EXIT_DONE) {
        status = open_sink_server(worker, &server);
        code = status == TMSG_OK ? start_listening(&options->connection, worker,
                                                   listening, &listener)
                                 : fail_by(status);
    }
    if (code == EXIT_DONE) {
        code = serve_visitors(options, worker, &sink);
    }
    tmsg_server_destroy(server);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    while (sink.visitors != NULL) {
        remove_visitor(sink.visitors);
    }
    return code;
}
