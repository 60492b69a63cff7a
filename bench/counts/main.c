/* SPDX-License-Identifier: BSD-3-Clause */
/* tensormsg-counts: sends maps of a few shapes, over and over in one and the
 * same order, for what is counted and not timed. counts.py runs it: by itself
 * or under strace it prints what was allocated and copied, and marks its way
 * among the system calls; under callgrind it has the instructions of each side
 * written out.
 *
 * Both sides are one thread's workers, and the time stands still, so that no
 * progress call finds anything else in another run. What is left out by that:
 * looking at sockets and timers by the clock. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include <tensormsg/tensormsg.h>

#include "../bench.h"
#include "../payload.h"
#include "still.h"

#define CONNECT_TURNS 10000000
#define SETTLE_TURNS 600 /* progress calls that find nothing */
#define TICK_NS 10000000

typedef struct {
    const char *name;
    size_t tensors, tensor_bytes; /* or */
    const char *workload;         /* of bench/workloads */
    bool call, tcp, key;
    unsigned warm_up, messages; /* not counted, counted */
} shape_t;

static const shape_t shapes[] = {
    {"8x64B", 8, 64, NULL, false, false, false, 600, 256},
    {"8x64B, with keys", 8, 64, NULL, false, false, true, 600, 256},
    {"8x64B, tcp", 8, 64, NULL, false, true, false, 600, 256},
    {"32x64B", 32, 64, NULL, false, false, false, 600, 256},
    {"1x2KiB", 1, 2 << 10, NULL, false, false, false, 600, 256},
    {"200x64B", 200, 64, NULL, false, false, false, 64, 16},
    {"1x2MiB", 1, 2 << 20, NULL, false, false, false, 12, 4},
    {"64x256KiB", 64, 256 << 10, NULL, false, false, false, 6, 2},
    {"1000x1KiB", 1000, 1 << 10, NULL, false, false, false, 64, 16},
    {"tiny-10000", 0, 0, "tiny-10000", false, false, false, 16, 4},
    {"unary_8x64B", 8, 64, NULL, true, false, false, 600, 256},
};

/* A fetch of an offer, which is compared with the call above: test_counts.py.
 * It is counted only if it is named. */
static const shape_t fetch_shape = {"fetch_8x64B", 8,     64,  NULL, false,
                                    false,         false, 600, 256};

typedef enum { SENDER, RECEIVER, SIDES } side_t;

static const char *const side_names[SIDES] = {"sender", "receiver"};

typedef struct {
    const shape_t *shape;
    side_t collected; /* whose instructions */
    tmsg_context_t *contexts[SIDES];
    tmsg_worker_t *workers[SIDES];
    tmsg_endpoint_t *endpoints[SIDES];
    tmsg_server_t *server;
    tmsg_offer_t *offer;
    tmsg_offer_key_t key;
    workload_t workload;
    bench_payload_t payload;
    tmsg_map_t *map;
    unsigned received, in_flight;
} pair_t;

/* For strace: no such descriptor. */
static void mark(const char *text)
{
    syscall(SYS_write, -1, text, strlen(text));
}

static void arrived(void *arg, tmsg_message_t *message)
{
    tmsg_message_destroy(message);
    ((pair_t *)arg)->received++;
}

static void sent(void *arg, tmsg_status_t status, const char *error)
{
    ((pair_t *)arg)->in_flight--;
    if (status != TMSG_OK) {
        bench_die("a send failed: %s", error);
    }
}

static void replied(void *arg, tmsg_call_t *call)
{
    if (tmsg_call_status(call) != TMSG_OK) {
        bench_die("a call failed: %s", tmsg_call_error(call));
    }
    ((pair_t *)arg)->in_flight--;
}

static void serve(void *arg, tmsg_task_t *task)
{
    pair_t *pair = arg;

    bench_must(tmsg_task_reply(task, pair->map, NULL));
    pair->received++;
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    ((pair_t *)arg)->endpoints[RECEIVER] = endpoint;
}

static void send_one(pair_t *pair)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_ON_DONE,
                                       .on_done = sent,
                                       .on_done_arg = pair};
    const tmsg_call_params_t call_params = {.field_mask =
                                                TMSG_CALL_PARAM_ON_DONE,
                                            .on_done = replied,
                                            .on_done_arg = pair};
    const tmsg_fetch_params_t fetch_params = {.field_mask =
                                                  TMSG_FETCH_PARAM_ON_DONE,
                                              .on_done = replied,
                                              .on_done_arg = pair};

    pair->in_flight++;
    if (pair->shape->call) {
        bench_must(tmsg_endpoint_call(pair->endpoints[SENDER], "echo",
                                      pair->map, &call_params, NULL));
    } else if (pair->shape == &fetch_shape) {
        bench_must(tmsg_endpoint_fetch(pair->endpoints[SENDER], &pair->key,
                                       &fetch_params, NULL));
        pair->received++;
    } else {
        bench_must(tmsg_endpoint_send(pair->endpoints[SENDER], pair->map,
                                      &params, NULL));
    }
}

static void toggle(const pair_t *pair, side_t side)
{
    if (pair->collected == side) {
        CALLGRIND_TOGGLE_COLLECT;
    }
}

static unsigned progress(const pair_t *pair, side_t side)
{
    unsigned count;

    toggle(pair, side);
    count = tmsg_worker_progress(pair->workers[side]);
    toggle(pair, side);
    return count;
}

/* One message from hand to hand, and what follows from it. */
static void go(pair_t *pair)
{
    unsigned wanted = pair->received + 1;

    toggle(pair, SENDER);
    send_one(pair);
    toggle(pair, SENDER);
    while (pair->received < wanted || pair->in_flight > 0) {
        progress(pair, RECEIVER);
        progress(pair, SENDER);
    }
}

/* Until nothing comes any more, each side looked at its descriptors last. */
static void settle(const pair_t *pair)
{
    unsigned quiet = 0;

    still_stop_clock();
    for (int i = 0; i < 2; i++) {
        still_pass(TICK_NS);
        for (quiet = 0; quiet < SETTLE_TURNS; quiet++) {
            if (progress(pair, SENDER) + progress(pair, RECEIVER) > 0) {
                quiet = 0;
            }
        }
    }
    still_pass(TICK_NS);
    progress(pair, SENDER);
    progress(pair, RECEIVER);
}

static void open_side(pair_t *pair, side_t side, tmsg_keyring_t *keyring)
{
    const tmsg_context_params_t context_params = {
        .field_mask = TMSG_CONTEXT_PARAM_UCX_CONFIG | TMSG_CONTEXT_PARAM_FLAGS |
                      TMSG_CONTEXT_PARAM_PEER_TIMEOUT |
                      TMSG_CONTEXT_PARAM_KEYRING,
        .flags = TMSG_CONTEXT_NO_THREAD,
        .keyring = keyring,
        .ucx_config = pair->shape->tcp
                          ? "TLS=tcp,self;KEEPALIVE_INTERVAL=10m"
                          : "TLS=posix,cma,self;KEEPALIVE_INTERVAL=10m"};
    const tmsg_worker_params_t worker_params = {.field_mask =
                                                    TMSG_WORKER_PARAM_HANDLER,
                                                .handler = arrived,
                                                .handler_arg = pair};

    bench_must(tmsg_context_create(&context_params, &pair->contexts[side]));
    bench_must(tmsg_worker_create(pair->contexts[side], &worker_params,
                                  &pair->workers[side]));
}

static void connect_sides(pair_t *pair)
{
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = pair};
    tmsg_listener_t *listener;
    tmsg_request_t *ready;

    bench_must(tmsg_listener_create(pair->workers[RECEIVER],
                                    "tcp://127.0.0.1:0", &params, &listener));
    bench_must(tmsg_endpoint_connect(pair->workers[SENDER],
                                     tmsg_listener_url(listener), NULL,
                                     &pair->endpoints[SENDER]));
    bench_must(tmsg_endpoint_ready(pair->endpoints[SENDER], &ready));
    for (int i = 0; tmsg_request_test(ready) == TMSG_IN_PROGRESS ||
                    pair->endpoints[RECEIVER] == NULL;
         i++) {
        if (i == CONNECT_TURNS) {
            bench_die("no connection");
        }
        tmsg_worker_progress(pair->workers[SENDER]);
        tmsg_worker_progress(pair->workers[RECEIVER]);
    }
    bench_must(tmsg_request_test(ready));
    tmsg_request_destroy(ready);
}

static void make_map(pair_t *pair, const char *folder)
{
    const shape_t *shape = pair->shape;
    char path[512], why[WORKLOAD_WHY_BYTES];

    snprintf(path, sizeof(path), "%s/%s.json", folder,
             shape->workload == NULL ? "" : shape->workload);
    if (!(shape->workload == NULL
              ? workload_uniform(shape->tensors, shape->tensor_bytes,
                                 &pair->workload, why)
              : workload_read(path, &pair->workload, why))) {
        bench_die("%s", why);
    }
    bench_payload_create(&pair->workload.maps[0], false, &pair->payload);
    pair->map = bench_payload_map(&pair->payload);
}

static void open_pair(pair_t *pair, const char *folder)
{
    static const uint8_t key[TMSG_KEY_BYTES] = {1, 2, 3};
    tmsg_keyring_t *keyring = NULL;

    make_map(pair, folder);
    if (pair->shape->key) {
        bench_must(tmsg_keyring_create(&keyring));
        bench_must(tmsg_keyring_add(keyring, "us", key));
    }
    open_side(pair, SENDER, keyring);
    open_side(pair, RECEIVER, keyring);
    tmsg_keyring_destroy(keyring);
    if (pair->shape->call) {
        bench_must(
            tmsg_server_create(pair->workers[RECEIVER], NULL, &pair->server));
        bench_must(
            tmsg_server_register(pair->server, "echo", serve, pair, NULL));
    }
    if (pair->shape == &fetch_shape) {
        bench_must(tmsg_offer_create(pair->workers[RECEIVER], pair->map, NULL,
                                     &pair->offer));
        tmsg_offer_key(pair->offer, &pair->key);
    }
    connect_sides(pair);
}

static void close_pair(pair_t *pair)
{
    tmsg_server_destroy(pair->server);
    tmsg_offer_destroy(pair->offer);
    for (int i = 0; i < SIDES; i++) {
        tmsg_worker_destroy(pair->workers[i]);
        tmsg_context_destroy(pair->contexts[i]);
    }
    tmsg_map_destroy(pair->map);
    bench_payload_free(&pair->payload);
    workload_free(&pair->workload);
}

/* Counts `messages`, all that one costs at first or later. */
static void count(pair_t *pair, const char *phase, unsigned messages)
{
    unsigned long ours, in_ucx;
    still_copies_t copies;
    char label[128];

    snprintf(label, sizeof(label), "%s;%s;%s;%u", pair->shape->name, phase,
             side_names[pair->collected], messages);
    if (!RUNNING_ON_VALGRIND) {
        mark(label);
        bench_counts_start();
        still_copies_start();
    }
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    for (unsigned i = 0; i < messages; i++) {
        go(pair);
    }
    CALLGRIND_DUMP_STATS_AT(label);
    CALLGRIND_STOP_INSTRUMENTATION;
    if (!RUNNING_ON_VALGRIND) {
        still_copies_stop(&copies);
        bench_counts_stop(&ours, &in_ucx);
        mark("end");
        printf("%s;%zu;%lu;%lu;%lu;%lu\n", label, pair->payload.map->bytes,
               ours, in_ucx, (unsigned long)copies.ours,
               (unsigned long)copies.in_ucx);
    }
}

static void count_shape(const shape_t *shape, side_t collected,
                        const char *folder)
{
    pair_t pair = {.shape = shape, .collected = collected};

    open_pair(&pair, folder);
    settle(&pair);
    count(&pair, "first", 1);
    for (unsigned i = 0; i < shape->warm_up; i++) {
        go(&pair);
    }
    count(&pair, "steady", shape->messages);
    still_start_clock();
    close_pair(&pair);
}

static void count_sides(const shape_t *shape, const char *folder)
{
    for (side_t side = SENDER; side < SIDES; side++) {
        if (side == SENDER || RUNNING_ON_VALGRIND) {
            count_shape(shape, side, folder);
        }
    }
}

/* So many tensors of so many bytes: "20x64". */
static void count_other(const char *name, const char *folder)
{
    shape_t shape = {.name = name, .warm_up = 16, .messages = 4};

    if (sscanf(name, "%zux%zu", &shape.tensors, &shape.tensor_bytes) != 2) {
        bench_die("there is no shape %s", name);
    }
    count_sides(&shape, folder);
}

/* With what this was built and runs, on which the figures depend. */
static void tell_of_itself(void)
{
    const char *(*version)(void);
    char here[4] = "yes", there[4] = "no";
    const struct iovec from = {here, sizeof(here)}, to = {there, sizeof(there)};

    *(void **)&version = dlsym(RTLD_DEFAULT, "ucp_get_version_string");
    printf("ucx: %s\n", version == NULL ? "unknown" : version());
    printf("build: %s\n", COUNTS_BUILD);
    process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    printf("cma: %s\n", there);
}

int main(int argc, char **argv)
{
    bool found = false;

    if (argc < 2) {
        tell_of_itself();
        return 0;
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        if (argc == 2 || strcmp(argv[2], shapes[i].name) == 0) {
            count_sides(&shapes[i], argv[1]);
            found = true;
        }
    }
    if (argc > 2 && strcmp(argv[2], fetch_shape.name) == 0) {
        count_sides(&fetch_shape, argv[1]);
    } else if (!found) {
        count_other(argv[2], argv[1]);
    }
}
