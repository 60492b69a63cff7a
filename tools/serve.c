/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg serve: answers calls, to try `tensormsg call` or a client. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "signals.h"

#define DRAIN_MS 3000

enum { KEY_ECHO = 1000 };

static const struct argp_option option_list[] = {
    {"echo", KEY_ECHO, NULL, 0,
     "Answer the method 'echo' with the map that it was called with", 0},
    {0},
};

typedef struct {
    connection_options_t connection;
    bool echo;
} options_t;

static error_t parse_serve_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    (void)arg;
    switch (key) {
    case KEY_ECHO:
        options->echo = true;
        return 0;
    case ARGP_KEY_END:
        if (!options->echo) {
            argp_error(state, "nothing to serve: --echo is what there is");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_serve_option,
    .doc = "Answer calls. The URL to call is the first line on standard "
           "output. Listens at " LISTEN_DEFAULT
           " by default. Ends by SIGINT or SIGTERM, when the calls that are "
           "under way are answered.",
};

/* A reply that cannot be sent ends the call at the caller. */
static void answer_echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static tmsg_status_t open_echo_server(tmsg_worker_t *worker,
                                      tmsg_server_t **server)
{
    const tmsg_method_params_t method = {
        .field_mask =
            TMSG_METHOD_PARAM_SIGNATURE | TMSG_METHOD_PARAM_DESCRIPTION,
        .signature = "(...) -> (...)",
        .description = "Answers with the map that it was called with",
    };
    tmsg_status_t status = tmsg_server_create(worker, NULL, server);

    if (status == TMSG_OK) {
        status =
            tmsg_server_register(*server, "echo", answer_echo, NULL, &method);
    }
    return status;
}

/* Answers calls until a signal comes. Messages that are not calls are
 * destroyed. */
static void serve_calls(tmsg_worker_t *worker)
{
    struct pollfd fds[] = {
        {.fd = tmsg_worker_fd(worker), .events = POLLIN},
        {.fd = signals_fd(), .events = POLLIN},
    };

    while (!signals_came()) {
        tmsg_message_t *message;

        while (tmsg_worker_progress(worker) > 0) {
            if (signals_came()) {
                break;
            }
        }
        if (tmsg_worker_recv(worker, 0, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        } else if (tmsg_worker_arm(worker) == TMSG_OK) {
            poll(fds, sizeof(fds) / sizeof(fds[0]), -1);
        }
    }
}

static int run_serve(const options_t *options, tmsg_worker_t *worker)
{
    tmsg_server_t *server = NULL;
    tmsg_listener_t *listener = NULL;
    tmsg_status_t status = open_echo_server(worker, &server);
    int code = status == TMSG_OK
                   ? start_listening(&options->connection, worker,
                                     (tmsg_listener_params_t){0}, &listener)
                   : fail_by(status);

    if (code == EXIT_DONE) {
        serve_calls(worker);
        if (tmsg_server_drain(server, DRAIN_MS) != TMSG_OK) {
            complain("%s", tmsg_error_message());
        }
    }
    tmsg_listener_destroy(listener);
    tmsg_server_destroy(server);
    return code;
}

int serve_main(int argc, char **argv)
{
    const tmsg_worker_params_t host = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                       .flags = TMSG_WORKER_HOST_ONLY};
    options_t options = {.connection.listen = LISTEN_DEFAULT};
    tmsg_context_t *context = NULL;
    tmsg_worker_t *worker = NULL;
    int code;

    parse_command(&parser, LISTENS | SANDBOXES, argc, argv, &options,
                  &options.connection);
    if (signals_open(true) < 0) {
        complain("%s", strerror(errno));
        return EXIT_FAILED;
    }
    code = open_worker(&options.connection, &host, &context, &worker);
    if (code == EXIT_DONE) {
        code = run_serve(&options, worker);
    }
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return code;
}
