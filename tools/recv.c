/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg recv: listens, and saves or prints the maps that come. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "connection.h"
#include "credentials.h"
#include "output.h"
#include "receiver.h"
#include "signals.h"

#define QUEUE_DEPTH 4    /* small, because maps that wait take memory */
#define SPIN_NS 50000    /* time without an event before the loop sleeps */
#define TURN_NS 10000000 /* limit before other work has its turn */
#define STEPS_MOST 16    /* messages before what is due has its turn */

enum {
    KEY_CAPTURE = 1000,
    KEY_JSON,
};

static const struct argp_option option_list[] = {
    {"out", 'o', "DIR", 0, "Write each map into DIR, as the sender's file", 0},
    {"count", 'n', "N", 0, "End after N maps; default: on SIGINT or SIGTERM",
     0},
    {"timeout", 't', "S", 0,
     "With --count: wait S seconds for an offered file, plus a second for each "
     "64 KiB of it, and S seconds for another sender after one failed; then "
     "end with 1; default 10",
     0},
    {"force", 'f', NULL, 0, "Replace existing files", 0},
    {"capture", KEY_CAPTURE, "DIR", 0,
     "Write the header of each map as DIR/header-000001.tmsg, for dump", 0},
    {"verbose", 'v', NULL, 0, "List the tensors also with --out", 0},
    {"json", KEY_JSON, NULL, 0,
     "A line of JSON a map, after the first line, which is the URL", 0},
    {0},
};

typedef struct {
    recv_options_t recv;
    store_t store;
} options_t;

static error_t parse_recv_option(int key, char *arg, struct argp_state *state)
{
    options_t *options = state->input;

    switch (key) {
    case 'o':
        options->store.dir = arg;
        return 0;
    case 'n':
        options->recv.count = parse_count(arg, state);
        return 0;
    case 't':
        options->recv.timeout_ms = parse_seconds(arg, state);
        return 0;
    case 'f':
        options->store.force = true;
        return 0;
    case 'v':
        options->recv.verbose = true;
        return 0;
    case KEY_CAPTURE:
        options->recv.capture = arg;
        return 0;
    case KEY_JSON:
        options->recv.json = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = option_list,
    .parser = parse_recv_option,
    .doc = "Receive tensor maps. The URL to send to is the first line on "
           "standard output. Listens at " LISTEN_DEFAULT
           " by default; --listen ucx://HOST:PORT takes the messages of "
           "programs that use UCXX.",
};

static int open_receiver(receiver_t *receiver)
{
    const recv_options_t *options = receiver->options;
    tmsg_worker_params_t worker = {
        .field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH | TMSG_WORKER_PARAM_FLAGS,
        .flags = TMSG_WORKER_HOST_ONLY |
                 (options->capture == NULL ? 0 : (unsigned)TMSG_WORKER_CAPTURE),
        .queue_depth = QUEUE_DEPTH,
    };
    const tmsg_listener_params_t listener = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
        .on_accept = receiver_accept,
        .on_accept_arg = receiver,
    };
    const tmsg_allocator_t allocator = store_allocator(&receiver->store);
    int code;

    if (receiver->store.dir != NULL) {
        worker.field_mask |= TMSG_WORKER_PARAM_ALLOCATOR;
        worker.allocator = &allocator;
    }
    code = open_worker(&options->connection, &worker, &receiver->context,
                       &receiver->worker);
    return code == EXIT_DONE
               ? start_listening(&options->connection, receiver->worker,
                                 listener, &receiver->listener)
               : code;
}

static void sleep_until_something(receiver_t *receiver, int ms)
{
    struct pollfd fds[] = {
        {.fd = tmsg_worker_fd(receiver->worker), .events = POLLIN},
        {.fd = receiver->stopping ? -1 : signals_fd(), .events = POLLIN},
        {.fd = signals_hangup_fd(), .events = POLLIN},
        {.fd = receiver->job.done_fd, .events = POLLIN},
    };

    if (tmsg_worker_arm(receiver->worker) == TMSG_OK) {
        poll(fds, sizeof(fds) / sizeof(fds[0]), ms);
    }
}

/* Tells whether nothing more is to be received. If so, *code_p is the exit
 * code. *why_p is the reason for senders whose file is under way. */
static bool receiving_is_over(receiver_t *receiver, int *code_p,
                              const char **why_p)
{
    unsigned count = receiver->options->count;

    if (receiver->message != NULL) {
        return false;
    }
    if (receiver->output_lost &&
        (receiver->options->json || receiver->store.dir == NULL)) {
        *why_p = "the receiver cannot report what it receives";
        *code_p = EXIT_FAILED;
        return true;
    }
    if (receiver_is_done(receiver)) {
        *why_p = "the receiver had all the maps it wanted";
        *code_p = EXIT_DONE;
        return true;
    }
    if (receiver->stopping) {
        *why_p = "the receiver was stopped";
        if (count > 0) {
            complain("stopped when %u of %u maps had come", receiver->done,
                     count);
        }
        *code_p = count > 0 ? EXIT_FAILED : EXIT_DONE;
        return true;
    }
    if (receiver_is_left_alone(receiver)) {
        complain("%u of %u maps came, and no other sender in time",
                 receiver->done, count);
        *code_p = EXIT_FAILED;
        return true;
    }
    return false;
}

/* Polls for a while before the loop sleeps. Sleeping costs more than polling
 * while bytes come in. */
static void drive_until_idle(tmsg_worker_t *worker)
{
    uint64_t start = now_ns(), last = start, now = start;

    while (now - last < SPIN_NS && now - start < TURN_NS) {
        unsigned handled = tmsg_worker_progress(worker);

        now = now_ns();
        last = handled > 0 ? now : last;
    }
}

static int run_receiver(receiver_t *receiver, const char **why_p)
{
    unsigned steps = 0;
    int code;

    for (;;) {
        bool busy;

        if (signals_came()) {
            receiver->stopping = true;
        }
        credentials_look(&receiver->options->connection);
        drive_until_idle(receiver->worker);
        busy = receiver_step(receiver);
        if (busy && ++steps % STEPS_MOST != 0) {
            continue;
        }
        receiver_say_held(receiver);
        if (receiving_is_over(receiver, &code, why_p)) {
            return code;
        }
        if (busy) {
            receiver_do_due(receiver);
        } else {
            sleep_until_something(receiver, receiver_do_due(receiver));
        }
    }
}

static int receive_maps(receiver_t *receiver)
{
    const char *why = "the receiver ended";
    int code;

    receiver->job.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (receiver->job.done_fd < 0 || signals_open(true) < 0) {
        complain("%s", strerror(errno));
        return EXIT_FAILED;
    }
    code = open_receiver(receiver);
    if (code == EXIT_DONE) {
        if (receiver->store.dir != NULL && !receiver->options->json) {
            output_is_by_the_way();
        }
        code = run_receiver(receiver, &why);
    }
    tmsg_listener_destroy(receiver->listener);
    receiver_close(receiver, why);
    tmsg_worker_destroy(receiver->worker);
    receiver_say_rest(receiver);
    tmsg_context_destroy(receiver->context);
    close(receiver->job.done_fd);
    return code;
}

int recv_main(int argc, char **argv)
{
    options_t options = {
        .recv = {.connection.listen = LISTEN_DEFAULT, .timeout_ms = 10000},
    };
    /* The library may log while the process ends, about a peer that does not
     * hang up. */
    static receiver_t receiver = {
        .refused = {.what = "refused"},
        .lost = {.what = "lines about senders"},
    };

    receiver.options = &options.recv;
    receiver.thread = pthread_self();
    parse_command(&parser, LISTENS | LISTENS_TO_UCXX | SANDBOXES, argc, argv,
                  &options, &options.recv.connection);
    if ((options.store.dir != NULL && !store_open_dir(options.store.dir)) ||
        (options.recv.capture != NULL &&
         !store_open_dir(options.recv.capture))) {
        return EXIT_USAGE;
    }
    options.recv.connection.writes[0] = options.store.dir;
    options.recv.connection.writes[1] = options.recv.capture;
    if (getenv("TENSORMSG_LOG") == NULL) {
        tmsg_log_set(TMSG_LOG_WARN, receiver_hold, &receiver);
    }
    receiver.store = options.store;
    receiver.job.store = &receiver.store;
    receiver.job.sums =
        options.recv.verbose || options.recv.json || options.store.dir == NULL;
    return receive_maps(&receiver);
}
