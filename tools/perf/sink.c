/* SPDX-License-Identifier: BSD-3-Clause */
/* The side of `tensormsg perf` that receives: it takes every map, and sends
 * back those that ask for it. */
#include <signal.h>
#include <string.h>

#include "connect.h"
#include "key.h"
#include "output.h"
#include "perf.h"

#define LOOK_MS 100 /* how often for a signal */

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

typedef struct {
    unsigned gone; /* senders that came and went */
} sink_t;

static void take(void *arg, tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    tmsg_meta_t echo;

    (void)arg;
    if (tmsg_map_get_meta(map, PERF_ECHO, &echo) == TMSG_OK) {
        (void)tmsg_endpoint_send(tmsg_message_endpoint(message), map, NULL,
                                 NULL); /* who does not take it has left */
    }
    tmsg_message_destroy(message);
}

static void closed(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                   const char *error)
{
    sink_t *sink = arg;

    (void)status;
    (void)error; /* the log has it */
    sink->gone++;
    tmsg_endpoint_destroy(endpoint);
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_on_closed(endpoint, closed, arg);
}

static int serve(const perf_options_t *options, tmsg_worker_t *worker,
                 const sink_t *sink)
{
    while (!stopped && (options->count == 0 || sink->gone < options->count)) {
        tmsg_status_t status = tmsg_worker_wait(worker, LOOK_MS);

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
        .handler = take,
    };
    const tmsg_listener_params_t listening = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT |
                      TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED,
        .on_accept = accepted,
        .on_accept_arg = &sink,
        .allow_unauthenticated = options->allow_unauthenticated,
    };
    const struct sigaction action = {.sa_handler = stop};
    tmsg_context_t *context = NULL;
    tmsg_worker_t *worker = NULL;
    tmsg_listener_t *listener;
    tmsg_status_t status = create_context(options->key, NULL, &context);
    int code;

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (status == TMSG_OK) {
        status = tmsg_worker_create(context, &params, &worker);
    }
    if (status == TMSG_OK) {
        status = tmsg_listener_create(worker, options->listen, &listening,
                                      &listener);
    }
    if (status == TMSG_OK) {
        puts(tmsg_listener_url(listener));
        code = output_flush() ? serve(options, worker, &sink) : EXIT_FAILED;
    } else {
        code = listen_failed(status);
    }
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return code;
}
