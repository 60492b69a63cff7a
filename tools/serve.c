/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg serve: answers calls, to try `tensormsg call` or a client. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "credentials.h"
#include "signals.h"

#define GRACE_MS 10000
#define GOODBYE_MS 3000 /* for the goodbyes of peers, once all is answered */
#define SLICE_MS 20
#define DELAYED_THREADS 64 /* answers that may be put off at once */

enum { KEY_ECHO = 1000, KEY_GRACE, KEY_DELAY };

static const struct argp_option option_list[] = {
    {"echo", KEY_ECHO, NULL, 0,
     "Answer the method 'echo' with the map that it was called with", 0},
    {"delay", KEY_DELAY, "S", 0,
     "Answer S seconds after the call, 64 calls at once", 0},
    {"grace", KEY_GRACE, "S", 0,
     "After the first signal, let calls go on for S seconds; default 10", 0},
    {0},
};

typedef struct {
    connection_options_t connection;
    bool echo;
    int delay_ms; /* 0: none */
    int grace_ms;
} options_t;

/* What the callbacks and the handlers share. */
typedef struct {
    int delay_ms;
    atomic_uint replies; /* that may still be read from memory */
    tmsg_endpoint_t **peers;
    size_t count, room;
} serving_t;

static error_t parse_serve_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case KEY_ECHO:
        options->echo = true;
        return 0;
    case KEY_DELAY:
        options->delay_ms = parse_seconds(arg, state);
        return 0;
    case KEY_GRACE:
        options->grace_ms = parse_seconds(arg, state);
        return 0;
    case ARGP_KEY_END:
        if (!options->echo) {
            argp_error(state, "nothing to serve: give --echo");
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
           " by default. After SIGINT or SIGTERM it takes no further calls. "
           "Exit codes: 0 the calls under way were answered, 8 some were cut "
           "at the end of the grace time.",
};

static void reply_is_gone(void *arg)
{
    atomic_fetch_sub((atomic_uint *)arg, 1);
}

/* A handler that waits looks now and then whether its answer is wanted. */
static void put_off(const tmsg_task_t *task, int delay_ms)
{
    uint64_t until = now_ns() + (uint64_t)delay_ms * 1000000;
    int left;

    while ((left = ms_until(until)) > 0 && tmsg_task_status(task) == TMSG_OK) {
        poll(NULL, 0, left < SLICE_MS ? left : SLICE_MS);
    }
}

/* A reply that cannot be sent ends the call at the caller. */
static void answer_echo(void *arg, tmsg_task_t *task)
{
    serving_t *serving = arg;
    const tmsg_reply_params_t params = {
        .field_mask = TMSG_REPLY_PARAM_ON_RELEASE,
        .on_release = reply_is_gone,
        .on_release_arg = &serving->replies,
    };

    put_off(task, serving->delay_ms);
    atomic_fetch_add(&serving->replies, 1);
    if (tmsg_task_reply(task, tmsg_task_map(task), &params) != TMSG_OK) {
        atomic_fetch_sub(&serving->replies, 1);
    }
}

static tmsg_status_t open_echo_server(tmsg_worker_t *worker, serving_t *serving,
                                      tmsg_server_t **server)
{
    const tmsg_server_params_t params = {
        .field_mask = serving->delay_ms > 0 ? TMSG_SERVER_PARAM_THREADS : 0,
        .threads = DELAYED_THREADS,
    };
    const tmsg_method_params_t method = {
        .field_mask =
            TMSG_METHOD_PARAM_SIGNATURE | TMSG_METHOD_PARAM_DESCRIPTION,
        .signature = "(...) -> (...)",
        .description = "Answers with the map that it was called with",
    };
    tmsg_status_t status = tmsg_server_create(worker, &params, server);

    if (status == TMSG_OK) {
        status = tmsg_server_register(*server, "echo", answer_echo, serving,
                                      &method);
    }
    return status;
}

static void peer_left(void *arg, tmsg_endpoint_t *peer, tmsg_status_t status,
                      const char *error)
{
    serving_t *serving = arg;
    tmsg_endpoint_t **place = tmsg_endpoint_user(peer);
    tmsg_endpoint_t *last = serving->peers[--serving->count];

    (void)status;
    (void)error;
    *place = last;
    tmsg_endpoint_set_user(last, place);
    tmsg_endpoint_destroy(peer);
}

/* Moves the list, and tells each peer its place in it. */
static bool make_room(serving_t *serving)
{
    size_t room = serving->room == 0 ? 16 : 2 * serving->room;
    tmsg_endpoint_t **peers =
        realloc(serving->peers, room * sizeof(*serving->peers));

    if (peers == NULL) {
        return false;
    }
    for (size_t i = 0; i < serving->count; i++) {
        tmsg_endpoint_set_user(peers[i], &peers[i]);
    }
    serving->peers = peers;
    serving->room = room;
    return true;
}

static void peer_came(void *arg, tmsg_endpoint_t *peer)
{
    serving_t *serving = arg;

    if (serving->count == serving->room && !make_room(serving)) {
        tmsg_endpoint_abort(peer, TMSG_ERR_NO_MEMORY, "no memory");
        tmsg_endpoint_destroy(peer);
        return;
    }
    serving->peers[serving->count] = peer;
    tmsg_endpoint_set_user(peer, &serving->peers[serving->count++]);
    tmsg_endpoint_on_closed(peer, peer_left, serving);
}

/* Answers calls until a signal comes. Messages that are not calls are
 * destroyed. */
static void serve_calls(const options_t *options, tmsg_worker_t *worker)
{
    struct pollfd fds[] = {
        {.fd = tmsg_worker_fd(worker), .events = POLLIN},
        {.fd = signals_fd(), .events = POLLIN},
        {.fd = signals_hangup_fd(), .events = POLLIN},
    };

    while (!signals_came()) {
        tmsg_message_t *message;

        credentials_look(&options->connection);
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

static bool all_have_ended(const serving_t *serving)
{
    size_t i = 0;

    while (i < serving->count &&
           tmsg_endpoint_status(serving->peers[i]) < TMSG_OK) {
        i++;
    }
    return i == serving->count;
}

/* Says goodbye to the peers, so that they have all that was sent. on_closed
 * does not tell of ends that this side began. */
static void close_peers(tmsg_worker_t *worker, const serving_t *serving)
{
    uint64_t deadline = now_ns() + GOODBYE_MS * 1000000ULL;
    int left;

    for (size_t i = 0; i < serving->count; i++) {
        (void)tmsg_endpoint_close(serving->peers[i], NULL);
    }
    while (!all_have_ended(serving) && (left = ms_until(deadline)) > 0) {
        tmsg_worker_wait(worker, left < SLICE_MS ? left : SLICE_MS);
    }
}

/* Lets what is under way end within the grace time. */
static int finish_calls(const options_t *options, tmsg_worker_t *worker,
                        tmsg_server_t *server, serving_t *serving)
{
    uint64_t deadline = now_ns() + (uint64_t)options->grace_ms * 1000000;
    bool whole = tmsg_server_drain(server, options->grace_ms) == TMSG_OK;
    int left;

    while (whole && atomic_load(&serving->replies) > 0) {
        left = ms_until(deadline);
        whole = left > 0;
        tmsg_worker_wait(worker, left < SLICE_MS ? left : SLICE_MS);
    }
    if (!whole) {
        complain("%g s after the signal calls were under way; they are cut",
                 options->grace_ms / 1000.0);
    }
    close_peers(worker, serving);
    return whole ? EXIT_DONE : EXIT_CUT;
}

static int run_serve(const options_t *options, tmsg_worker_t *worker,
                     serving_t *serving)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
        .on_accept = peer_came,
        .on_accept_arg = serving,
    };
    tmsg_server_t *server = NULL;
    tmsg_listener_t *listener = NULL;
    int code = start_listening(&options->connection, worker, params, &listener);

    if (code == EXIT_DONE) {
        /* A sandbox is entered by now, and the server's threads are in it.
         * Nobody is heard before serve_calls(). */
        tmsg_status_t status = open_echo_server(worker, serving, &server);

        code = status == TMSG_OK ? EXIT_DONE : fail_by(status);
    }
    if (code == EXIT_DONE) {
        serve_calls(options, worker);
        code = finish_calls(options, worker, server, serving);
    }
    tmsg_listener_destroy(listener);
    tmsg_server_destroy(server);
    return code;
}

int serve_main(int argc, char **argv)
{
    tmsg_worker_params_t host = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                 .flags = TMSG_WORKER_HOST_ONLY};
    options_t options = {.connection.listen = LISTEN_DEFAULT,
                         .grace_ms = GRACE_MS};
    serving_t serving = {.count =
                             0}; /* callbacks use it while there is a worker */
    tmsg_context_t *context = NULL;
    tmsg_worker_t *worker = NULL;
    int code;

    parse_command(&parser, LISTENS | SANDBOXES, argc, argv, &options,
                  &options.connection);
    if (signals_open(true) < 0) {
        complain("%s", strerror(errno));
        return EXIT_FAILED;
    }
    if (options.delay_ms > 0) {
        host.flags |= TMSG_WORKER_SHARED;
    }
    code = open_worker(&options.connection, &host, &context, &worker);
    if (code == EXIT_DONE) {
        serving.delay_ms = options.delay_ms;
        code = run_serve(&options, worker, &serving);
    }
    tmsg_worker_destroy(worker);
    free(serving.peers);
    tmsg_context_destroy(context);
    return code;
}
