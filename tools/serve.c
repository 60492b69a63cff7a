/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg serve: answers calls, to try `tensormsg call`, or a client. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "connect.h"
#include "key.h"
#include "output.h"
#include "signals.h"
#include "tool.h"

#define DRAIN_MS 3000

enum { KEY_ECHO = 1000, KEY_ALLOW, KEY_KEY };

static const struct argp_option option_list[] = {
    {"echo", KEY_ECHO, NULL, 0,
     "Answer the method 'echo' with the map that it was called with", 0},
    {"listen", 'l', "URL", 0,
     "tcp://HOST:PORT (port 0: any) or unix:///PATH; default "
     "tcp://127.0.0.1:0",
     0},
    {"key", KEY_KEY, "FILE", 0, KEY_HELP, 0},
    {"allow-unauthenticated", KEY_ALLOW, NULL, 0,
     "Listen on an address that strangers reach (see docs/security.md)", 0},
    {0},
};

typedef struct {
    const char *url;
    const char *key; /* file of keys, or NULL */
    bool echo;
    bool allow_unauthenticated;
} options_t;

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case KEY_ECHO:
        options->echo = true;
        return 0;
    case 'l':
        options->url = arg;
        return 0;
    case KEY_KEY:
        options->key = arg;
        return 0;
    case KEY_ALLOW:
        options->allow_unauthenticated = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is one argument too many", arg);
        return EINVAL;
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
    .parser = parse_option,
    .doc = "Answer calls. The URL to call is the first line on standard "
           "output. Ends by SIGINT or SIGTERM, when the calls that are under "
           "way are answered.",
};

/* One that cannot be sent ends the call at its caller. */
static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

/* The listener keeps what it is not asked for. */
static tmsg_status_t open_server(const options_t *options,
                                 tmsg_worker_t *worker, tmsg_server_t **server,
                                 tmsg_listener_t **listener)
{
    const tmsg_listener_params_t listen = {
        .field_mask = TMSG_LISTENER_PARAM_ALLOW_UNAUTHENTICATED,
        .allow_unauthenticated = options->allow_unauthenticated,
    };
    const tmsg_method_params_t method = {
        .field_mask =
            TMSG_METHOD_PARAM_SIGNATURE | TMSG_METHOD_PARAM_DESCRIPTION,
        .signature = "(...) -> (...)",
        .description = "Answers with the map that it was called with",
    };
    tmsg_status_t status = tmsg_server_create(worker, NULL, server);

    if (status == TMSG_OK) {
        status = tmsg_server_register(*server, "echo", echo, NULL, &method);
    }
    return status == TMSG_OK
               ? tmsg_listener_create(worker, options->url, &listen, listener)
               : status;
}

/* Until a signal. What is no call is nobody's, and goes. */
static void serve(tmsg_worker_t *worker, int signals)
{
    struct pollfd fds[] = {
        {.fd = tmsg_worker_fd(worker), .events = POLLIN},
        {.fd = signals, .events = POLLIN},
    };

    while (!signals_came(signals)) {
        tmsg_message_t *message;

        while (tmsg_worker_progress(worker) > 0) {
            if (poll(&fds[1], 1, 0) == 1) {
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

static int run(const options_t *options, tmsg_worker_t *worker, int signals)
{
    tmsg_server_t *server = NULL;
    tmsg_listener_t *listener = NULL;
    tmsg_status_t status = open_server(options, worker, &server, &listener);
    int code = EXIT_DONE;

    if (status == TMSG_OK) {
        puts(tmsg_listener_url(listener));
        if (output_flush()) {
            serve(worker, signals);
        } else {
            code = EXIT_FAILED;
        }
        if (tmsg_server_drain(server, DRAIN_MS) != TMSG_OK) {
            complain("%s", tmsg_error_message());
        }
    } else {
        code = listen_failed(status);
    }
    tmsg_listener_destroy(listener);
    tmsg_server_destroy(server);
    return code;
}

int serve_main(int argc, char **argv)
{
    const tmsg_worker_params_t host = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                       .flags = TMSG_WORKER_HOST_ONLY};
    options_t options = {.url = "tcp://127.0.0.1:0"};
    tmsg_context_t *context = NULL;
    tmsg_worker_t *worker = NULL;
    int signals, code = EXIT_FAILED;
    tmsg_status_t status;

    argp_parse(&parser, argc, argv, 0, NULL, &options);
    signals = signals_open();
    if (signals < 0) {
        complain("%s", strerror(errno));
        return EXIT_FAILED;
    }
    status = create_context(options.key, NULL, &context);
    if (status == TMSG_OK) {
        status = tmsg_worker_create(context, &host, &worker);
    }
    code = status == TMSG_OK ? run(&options, worker, signals)
                             : listen_failed(status);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    close(signals);
    return code;
}
