/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg health: a probe, which says whether a server is ready or alive. */
#include <stdlib.h>

#include "connection.h"
#include "reply.h"

#define CLOSE_MS 1000

enum { KEY_READY = 1000, KEY_LIVE };

static const struct argp_option option_list[] = {
    {"ready", KEY_READY, NULL, 0,
     "Check whether the server, or METHOD, is SERVING: the default", 0},
    {"live", KEY_LIVE, NULL, 0,
     "Check whether the library of a listening program answers", 0},
    {0},
};

typedef struct {
    connection_options_t connection;
    const char *method;
    bool ready, live;
} options_t;

static error_t parse_health_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case KEY_READY:
        options->ready = true;
        return 0;
    case KEY_LIVE:
        options->live = true;
        return 0;
    case ARGP_KEY_ARG:
        if (options->method != NULL) {
            return ARGP_ERR_UNKNOWN;
        }
        options->method = arg;
        return 0;
    case ARGP_KEY_END:
        if (options->live && (options->ready || options->method != NULL)) {
            argp_error(state, "--live takes a URL alone");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_health_option,
    .args_doc = "URL [METHOD]\n--live URL",
    .doc = "Check whether a server is ready, for probes. Exit codes: 0 it is "
           "ready (with --live: alive), 7 it is NOT_SERVING, STALLED or "
           "DRAINING, 4 nobody serves there or METHOD does not exist, 6 no "
           "answer within the time limit, 1 it cannot be reached.",
};

/* The peer's library answers if its worker is driven, whatever its handlers
 * do. */
static int ask_whether_live(tmsg_endpoint_t *endpoint, int timeout_ms)
{
    tmsg_request_t *pinged;
    tmsg_status_t status = tmsg_endpoint_ping(endpoint, &pinged);

    if (status == TMSG_OK) {
        if (wait_for(pinged, timeout_ms)) {
            status = tmsg_request_test(pinged);
        } else {
            status = TMSG_ERR_TIMED_OUT;
        }
        if (status == TMSG_ERR_TIMED_OUT) {
            complain("%s: no answer in time", tmsg_endpoint_peer(endpoint));
        } else if (status != TMSG_OK) {
            complain("%s", tmsg_request_error(pinged));
        }
        tmsg_request_destroy(pinged);
    } else if (status == TMSG_ERR_UNSUPPORTED) {
        status = TMSG_OK; /* an older peer, which has connected */
    } else {
        complain("%s", tmsg_error_message());
    }
    if (status == TMSG_OK) {
        puts("LIVE");
    }
    return status == TMSG_OK              ? EXIT_DONE
           : status == TMSG_ERR_TIMED_OUT ? EXIT_TIMED_OUT
                                          : EXIT_FAILED;
}

/* The time limit is for all of it. */
static int connect_and_ask(const options_t *options, tmsg_worker_t *worker)
{
    uint64_t deadline =
        now_ns() + (uint64_t)options->connection.timeout_ms * 1000000;
    tmsg_endpoint_t *endpoint = NULL;
    int code = connect_to(&options->connection, options->connection.url, worker,
                          &endpoint);

    if (code == EXIT_DONE) {
        int left_ms = ms_until(deadline);

        left_ms = left_ms < 1 ? 1 : left_ms;
        code = options->live ? ask_whether_live(endpoint, left_ms)
                             : reply_health(endpoint, options->method, left_ms);
        if (code != EXIT_TIMED_OUT) {
            left_ms = ms_until(deadline);
            close_in_order(endpoint, left_ms < CLOSE_MS ? left_ms : CLOSE_MS);
        }
    }
    tmsg_endpoint_destroy(endpoint);
    return code;
}

int health_main(int argc, char **argv)
{
    const tmsg_worker_params_t host = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                       .flags = TMSG_WORKER_HOST_ONLY};
    options_t options = {.method = NULL};
    tmsg_context_t *context = NULL;
    tmsg_worker_t *worker = NULL;
    int code;

    parse_command(&parser, CONNECTS | NEEDS_URL, argc, argv, &options,
                  &options.connection);
    code = open_worker(&options.connection, &host, &context, &worker);
    if (code == EXIT_DONE) {
        code = connect_and_ask(&options, worker);
    }
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return code;
}
