/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg call: calls a method of a server, and prints the reply. */
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "fault.h"
#include "output.h"
#include "reply.h"
#include "values.h"

#define CLOSE_MS 3000

enum { KEY_LIST = 1000, KEY_HEALTH, KEY_META, KEY_JSON };

static const struct argp_option option_list[] = {
    {"list", KEY_LIST, NULL, 0,
     "List the methods with their parameters and results", 0},
    {"health", KEY_HEALTH, NULL, 0,
     "Show the health of the server, or of METHOD", 0},
    {"meta", KEY_META, "KEY=VALUE", 0,
     "Metadata: true, false, an integer, a number, else text; \"7\" in quotes "
     "is text",
     0},
    {"out", 'o', "DIR", 0,
     "Write each tensor of the reply as DIR/NAME.npy, or, where DIR ends in "
     ".npz or .safetensors, all into that file; metadata are kept in the last "
     "alone",
     0},
    {"force", 'f', NULL, 0, "Replace existing files", 0},
    {"json", KEY_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};

typedef struct {
    connection_options_t connection;
    const char *method;
    tmsg_map_t *map;
    reply_options_t reply;
    int words; /* arguments after the URL, METHOD included */
    bool list;
    bool health;
    bool bad; /* an argument was bad, which has been printed */
} options_t;

static error_t parse_word(options_t *options, char *word)
{
    if (options->words++ == 0) {
        options->method = word;
        return 0;
    }
    if (options->list || options->health) {
        return ARGP_ERR_UNKNOWN;
    }
    options->bad = !values_add(options->map, word) || options->bad;
    return 0;
}

static error_t check_words(const options_t *options, struct argp_state *state)
{
    if (options->list && options->health) {
        argp_error(state, "--list and --health exclude each other");
    } else if (options->list && options->words > 0) {
        argp_error(state, "--list takes a URL alone");
    } else if (options->health && options->words > 1) {
        argp_error(state, "--health takes a URL and a METHOD");
    } else if (options->words == 0 && !options->list && !options->health) {
        argp_error(state, "the METHOD to call is missing");
    }
    return 0;
}

static error_t parse_call_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case KEY_LIST:
        options->list = true;
        return 0;
    case KEY_HEALTH:
        options->health = true;
        return 0;
    case KEY_META:
        options->bad = !values_add_meta(options->map, arg) || options->bad;
        return 0;
    case 'o':
        options->reply.out = arg;
        return 0;
    case 'f':
        options->reply.force = true;
        return 0;
    case KEY_JSON:
        options->reply.json = true;
        return 0;
    case ARGP_KEY_ARG:
        return parse_word(options, arg);
    case ARGP_KEY_END:
        return check_words(options, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_call_option,
    .args_doc = "URL METHOD [NAME=FILE|NAME=VALUE|FILE]...\nURL --list\n"
                "URL --health [METHOD]",
    .doc = "Call a method of a server. The map consists of .npy files, tensors "
           "of .npz and .safetensors files, and values such as "
           "x=[1,2,3]:float32 or t=0.5. Exit codes: 0 a reply came, 3 the "
           "method failed, 4 the method does not exist, 5 the method takes "
           "another map, 6 the time limit passed, 7 the server is full, not "
           "ready or shutting down, or nobody serves there.",
};

int exit_code_of(tmsg_status_t status)
{
    switch (status) {
    case TMSG_OK:
        return EXIT_DONE;
    case TMSG_ERR_APPLICATION:
        return EXIT_APPLICATION;
    case TMSG_ERR_NOT_FOUND:
    case TMSG_ERR_UNSUPPORTED:
        return EXIT_NO_METHOD;
    case TMSG_ERR_INVALID_PARAM:
        return EXIT_OTHER_MAP;
    case TMSG_ERR_TIMED_OUT:
        return EXIT_TIMED_OUT;
    case TMSG_ERR_RESOURCE_EXHAUSTED:
    case TMSG_ERR_UNAVAILABLE:
        return EXIT_UNAVAILABLE;
    default:
        return EXIT_FAILED;
    }
}

/* Prints why the server did not do what was asked, and returns the exit
 * code. */
static int refuse_call(tmsg_status_t status, const char *why)
{
    complain("%s", why);
    return exit_code_of(status);
}

static int make_call(const options_t *options, tmsg_endpoint_t *endpoint)
{
    const tmsg_call_params_t params = {
        .field_mask = TMSG_CALL_PARAM_TIMEOUT | TMSG_CALL_PARAM_FLAGS,
        .timeout_ms = options->connection.timeout_ms,
        .flags = options->connection.wait ? TMSG_CALL_WAIT : 0};
    tmsg_call_t *made;
    tmsg_status_t status = tmsg_endpoint_call(endpoint, options->method,
                                              options->map, &params, &made);
    const char *path, *changed;
    int code;

    if (status != TMSG_OK) {
        return refuse_call(status, tmsg_error_message());
    }
    /* The call has a timeout of its own. */
    status = tmsg_call_wait(made, -1);
    changed = fault_changed(&path);
    if (changed != NULL) {
        complain("%s: %s; no reply is kept", path, changed);
        code = EXIT_FAILED;
    } else {
        code = reply_take(&options->reply, made) ? exit_code_of(status)
                                                 : EXIT_FAILED;
    }
    tmsg_call_destroy(made);
    return code;
}

static int list_server_methods(const options_t *options,
                               tmsg_endpoint_t *endpoint)
{
    tmsg_methods_t *methods;
    tmsg_status_t status = tmsg_endpoint_methods(
        endpoint, options->connection.timeout_ms, &methods);

    if (status != TMSG_OK) {
        return refuse_call(status, tmsg_error_message());
    }
    reply_list(&options->reply, methods);
    tmsg_methods_destroy(methods);
    return EXIT_DONE;
}

int reply_health(tmsg_endpoint_t *endpoint, const char *method, int timeout_ms)
{
    tmsg_health_t health;
    tmsg_status_t status =
        tmsg_endpoint_health(endpoint, method, timeout_ms, &health);

    if (status != TMSG_OK) {
        return refuse_call(status, tmsg_error_message());
    }
    puts(tmsg_health_name(health));
    return health == TMSG_HEALTH_SERVING     ? EXIT_DONE
           : health == TMSG_HEALTH_NOT_FOUND ? EXIT_NO_METHOD
                                             : EXIT_UNAVAILABLE;
}

static int connect_and_call(const options_t *options, tmsg_worker_t *worker)
{
    tmsg_endpoint_t *endpoint = NULL;
    int code = connect_to(&options->connection, options->connection.url, worker,
                          &endpoint);

    if (code == EXIT_DONE) {
        code = options->list     ? list_server_methods(options, endpoint)
               : options->health ? reply_health(endpoint, options->method,
                                                options->connection.timeout_ms)
                                 : make_call(options, endpoint);
        if (code != EXIT_TIMED_OUT) {
            close_in_order(endpoint, CLOSE_MS);
        }
    }
    tmsg_endpoint_destroy(endpoint);
    return code;
}

int call_main(int argc, char **argv)
{
    const tmsg_worker_params_t host = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                       .flags = TMSG_WORKER_HOST_ONLY};
    options_t options = {.map = NULL};
    tmsg_context_t *context = NULL;
    tmsg_worker_t *worker = NULL;
    tmsg_status_t status = tmsg_map_create(&options.map);
    int code = EXIT_USAGE;

    if (status != TMSG_OK) {
        complain("%s", tmsg_error_message());
        return EXIT_FAILED;
    }
    parse_command(&parser, CONNECTS | NEEDS_URL, argc, argv, &options,
                  &options.connection);
    if (!options.bad && reply_check(&options.reply)) {
        code = open_worker(&options.connection, &host, &context, &worker);
        if (code == EXIT_DONE) {
            code = connect_and_call(&options, worker);
        }
    }
    tmsg_map_destroy(options.map);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return code;
}
