/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer of the command that misbehaves, for test_cli_ends.py: "odd_peer MODE"
 * listens and prints its URL, "odd_peer MODE URL" connects. A mute one stops
 * calling the library, which goes on with its heartbeats; a lying one keeps on
 * calling it and says what is not so. It is killed by the test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "transfer.h"

static tmsg_context_t *context;
static tmsg_worker_t *worker;
static tmsg_endpoint_t *peer; /* the last one that connected, or ours */

static void must(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "odd_peer: %s\n", tmsg_error_message());
        exit(1);
    }
}

static void fall_mute(void)
{
    puts("mute");
    fflush(stdout);
    for (;;) {
        pause();
    }
}

static void drive_for(int ms)
{
    uint64_t end = now_ns() + (uint64_t)ms * 1000000;

    while (now_ns() < end) {
        (void)tmsg_worker_wait(worker, 5);
    }
}

static void live_on(void)
{
    for (;;) {
        tmsg_message_t *message;

        drive_for(1000);
        while (tmsg_worker_recv(worker, 0, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        }
    }
}

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static tmsg_map_t *make_map(int64_t count, bool named)
{
    static float data[20000];
    const int64_t shape[] = {count};
    const tmsg_tensor_t tensor = {
        .data = data,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_FLOAT, .bits = 32, .lanes = 1},
        .ndim = 1,
        .shape = shape,
    };
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    if (named) {
        must(tmsg_map_set_string(map, TMSG_META_FILE_NAME, "a.npy"));
        must(tmsg_map_set_string(map, TMSG_META_FILE_FORMAT, "npy"));
    }
    return map;
}

/* --- those that listen --- */

static bool mute_at_once;

static void keep_peer(void *arg, tmsg_endpoint_t *endpoint)
{
    (void)arg;
    peer = endpoint;
    if (mute_at_once) {
        fall_mute();
    }
}

static void listen_and_tell(void)
{
    const tmsg_listener_params_t params = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT, .on_accept = keep_peer};
    tmsg_listener_t *listener;

    must(tmsg_listener_create(worker, "tcp://127.0.0.1:0", &params, &listener));
    puts(tmsg_listener_url(listener));
    fflush(stdout);
}

static void await_message(void)
{
    tmsg_message_t *message;

    must(tmsg_worker_recv(worker, -1, &message));
    tmsg_message_destroy(message);
}

static void say(int64_t number, transfer_state_t state)
{
    const transfer_reply_t words = {
        .number = number,
        .state = state,
        .file = "",
        .error = "no",
        .checked = true,
    };

    (void)transfer_send_reply(peer, &words, NULL);
}

static void say_again_and_again(int64_t number, transfer_state_t state)
{
    for (;;) {
        tmsg_message_t *message;

        say(number, state);
        drive_for(10);
        while (tmsg_worker_recv(worker, 0, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        }
    }
}

static void listen_mute(void)
{
    await_message();
    fall_mute();
}

static void listen_mute_at_once(void)
{
    mute_at_once = true;
    live_on();
}

static void listen_go_mute(void)
{
    await_message();
    say(1, TRANSFER_GO);
    drive_for(100);
    fall_mute();
}

static void listen_alive(void)
{
    await_message();
    say_again_and_again(1, TRANSFER_ALIVE);
}

static void listen_noise(void)
{
    await_message();
    say_again_and_again(77, TRANSFER_ALIVE);
}

static void listen_go(void)
{
    await_message();
    say_again_and_again(1, TRANSFER_GO);
}

/* Says that it works on the file, for ever. */
static void listen_works(void)
{
    await_message();
    say(1, TRANSFER_GO);
    await_message();
    say_again_and_again(1, TRANSFER_ALIVE);
}

/* Takes one file, and is mute afterwards. */
static void listen_done_mute(void)
{
    await_message();
    say(1, TRANSFER_GO);
    await_message(); /* the map */
    await_message(); /* the verdict */
    say(1, TRANSFER_DONE);
    fall_mute();
}

static void listen_leaves(void)
{
    tmsg_request_t *closed;

    await_message();
    say(1, TRANSFER_GO);
    await_message();
    await_message(); /* the verdict */
    must(tmsg_endpoint_close(peer, &closed));
    live_on();
}

static void serve_mute(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)task;
    fall_mute();
}

static void reply_hello(void *arg, tmsg_task_t *task)
{
    tmsg_map_t *map;

    (void)arg;
    must(tmsg_map_create(&map));
    must(tmsg_map_set_i64(map, "protocol", 1));
    must(tmsg_map_set_string(map, "version", "odd"));
    (void)tmsg_task_reply(task, map, NULL);
    tmsg_map_destroy(map);
}

static void reply_nothing(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_reply(task, NULL, NULL);
}

/* Keeps the call open. */
static void reply_never(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_keep(task);
}

static void open_server(void)
{
    tmsg_server_t *server;

    must(tmsg_server_create(worker, NULL, &server));
    must(tmsg_server_register(server, "mute", serve_mute, NULL, NULL));
    must(tmsg_server_register(server, "never", reply_never, NULL, NULL));
    must(tmsg_server_register(server, "perf.hello", reply_hello, NULL, NULL));
    must(tmsg_server_register(server, "perf.begin", reply_nothing, NULL, NULL));
    must(tmsg_server_register(server, "perf.end", reply_never, NULL, NULL));
}

/* Sends two maps for each that comes, and never says how many came. */
static void listen_twice(void)
{
    tmsg_map_t *map = make_map(1, false);

    for (;;) {
        await_message();
        (void)tmsg_endpoint_send(peer, map, NULL, NULL);
        (void)tmsg_endpoint_send(peer, map, NULL, NULL);
    }
}

/* Takes part in a measurement, and is mute in the middle of it. */
static void listen_echo_mute(void)
{
    for (int i = 0; i < 300; i++) {
        tmsg_message_t *message;

        while (tmsg_worker_recv(worker, 0, &message) != TMSG_OK) {
            tmsg_worker_progress(worker);
        }
        (void)tmsg_endpoint_send(peer, tmsg_message_map(message), NULL, NULL);
        tmsg_message_destroy(message);
    }
    fall_mute();
}

/* --- those that connect --- */

static void dial(const char *url)
{
    tmsg_request_t *ready;

    must(tmsg_endpoint_connect(worker, url, NULL, &peer));
    must(tmsg_endpoint_ready(peer, &ready));
    must(tmsg_request_wait(ready, -1));
    tmsg_request_destroy(ready);
}

static void offer(int64_t number, const char *name)
{
    const transfer_offer_t words = {.number = number,
                                    .bytes = 4,
                                    .name = name,
                                    .format = "npy",
                                    .checked = true};

    must(transfer_send_offer(peer, &words));
}

static void send_map(int64_t count, bool named)
{
    tmsg_map_t *map = make_map(count, named);

    must(tmsg_endpoint_send(peer, map, NULL, NULL));
    tmsg_map_destroy(map);
}

static void dial_mute(void)
{
    offer(1, "a.npy");
    await_message();
    fall_mute();
}

static void dial_offers(void)
{
    offer(1, "a.npy");
    await_message();
    puts("go");
    fflush(stdout);
    live_on();
}

static void dial_without_verdict(void)
{
    offer(1, "a.npy");
    await_message();
    send_map(1, true);
    live_on();
}

static void dial_and_leave(void)
{
    tmsg_request_t *closed;

    offer(1, "a.npy");
    await_message();
    must(tmsg_endpoint_close(peer, &closed));
    (void)tmsg_request_wait(closed, 10000);
}

/* Connects, and offers nothing. */
static void dial_idle(void)
{
    puts("idle");
    fflush(stdout);
    live_on();
}

/* Offers four bytes, and sends 80,000. */
static void dial_more(void)
{
    const transfer_verdict_t same = {.number = 1};

    offer(1, "a.npy");
    await_message();
    send_map(20000, true);
    must(transfer_send_verdict(peer, &same));
    live_on();
}

/* Is refused 100 times. */
static void dial_refused(void)
{
    tmsg_request_t *closed;

    for (int64_t i = 1; i <= 100; i++) {
        offer(i, ".hidden.npy");
        await_message();
    }
    must(tmsg_endpoint_close(peer, &closed));
    (void)tmsg_request_wait(closed, 10000);
}

/* Offers as fast as it can, and has 64 offers under way. */
static void dial_flood(void)
{
    const transfer_offer_t words = {
        .number = 1, .bytes = 4, .name = ".hidden.npy", .format = "npy"};

    puts("flood");
    fflush(stdout);
    for (int open = 0;;) {
        tmsg_message_t *message;

        for (; open < 64; open++) {
            (void)transfer_send_offer(peer, &words);
        }
        while (tmsg_worker_recv(worker, 0, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
            open--;
        }
    }
}

static const struct {
    const char *name;
    bool listens;
    void (*run)(void);
} modes[] = {
    {"mute", true, listen_mute},
    {"mute-at-once", true, listen_mute_at_once},
    {"go-mute", true, listen_go_mute},
    {"alive", true, listen_alive},
    {"noise", true, listen_noise},
    {"go", true, listen_go},
    {"works", true, listen_works},
    {"done-mute", true, listen_done_mute},
    {"leaves", true, listen_leaves},
    {"live", true, live_on},
    {"twice", true, listen_twice},
    {"echo-mute", true, listen_echo_mute},
    {"dial-idle", false, dial_idle},
    {"dial-mute", false, dial_mute},
    {"dial-offers", false, dial_offers},
    {"dial-without-verdict", false, dial_without_verdict},
    {"dial-and-leave", false, dial_and_leave},
    {"dial-more", false, dial_more},
    {"dial-flood", false, dial_flood},
    {"dial-refused", false, dial_refused},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (argc < 2 || strcmp(argv[1], modes[i].name) != 0) {
            continue;
        }
        must(tmsg_context_create(NULL, &context));
        must(tmsg_worker_create(context, NULL, &worker));
        open_server();
        if (modes[i].listens) {
            listen_and_tell();
        } else {
            dial(argv[2]);
        }
        modes[i].run();
        _exit(0); /* what is left is no leak */
    }
    fprintf(stderr, "odd_peer: no such mode\n");
    return 2;
}
