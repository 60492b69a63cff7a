/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once: make soak has the whole by both */
/* A peer that stands still is lost in time; a peer that is alive and not driven
 * is never lost. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

/* To find a loss late is no failure, because the machine may be busy; to find
 * it too early is one. So the timeout is longer than a thread may have to wait
 * for the processor. */
enum {
    TIMEOUT_MS = 2500,
    AT_LEAST_MS = TIMEOUT_MS / 2,
    LONGER_MS = TIMEOUT_MS * 3 / 2,
    LARGE = 6 << 20
};

static const side_options_t brief = {.peer_timeout_ms = TIMEOUT_MS};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Stands for a program that computes, and does not call the library. */
static void compute(int ms) { poll(NULL, 0, ms); }

typedef struct {
    link_t link;
    side_options_t options;
    int compute_ms;       /* after its first message; 0: it does not */
    tmsg_status_t wanted; /* the end of its connection */
} receiver_t;

static void check(uint64_t seed, const tmsg_message_t *message)
{
    tmsg_tensor_t tensor;
    size_t bytes;

    must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
    bytes = (size_t)tensor.shape[0];
    must_eq(sample_compare(seed, tensor.data, bytes), bytes);
}

static void be_receiver(pipes_t *pipes, void *arg)
{
    const receiver_t *receiver = arg;
    tmsg_message_t *message;
    unsigned count = 0;
    side_t side;

    side_open(&side, &receiver->options);
    side_listen_link(&side, receiver->link);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    side_accept(&side);
    while (tmsg_endpoint_recv(side.accepted, PEERS_BOUND_MS, &message) ==
           TMSG_OK) {
        check(++count, message);
        tmsg_message_destroy(message);
        if (count == 1 && receiver->compute_ms > 0) {
            compute(receiver->compute_ms);
        }
    }
    must_be(tmsg_endpoint_status(side.accepted), receiver->wanted);
    side_close(&side);
}

static void stop(child_t *child)
{
    must_eq(kill(child->pid, SIGSTOP), 0);
    while (!child_is_stopped(child)) {
        compute(1);
    }
}

/* Opens a connection to a child, which has then taken the first message. */
static tmsg_endpoint_t *open_to(child_t *child, side_t *side,
                                const side_options_t *options,
                                const receiver_t *receiver)
{
    tmsg_endpoint_t *endpoint;
    char url[256];

    child_start(child, be_receiver, (void *)(uintptr_t)receiver);
    line_get(child->in, url, sizeof(url));
    side_open(side, options);
    endpoint = side_connect(side, url);
    must(side_finish(side,
                     send_map(endpoint, sample_bytes(1, 10), TMSG_SEND_ACKED)));
    return endpoint;
}

static void close_to(child_t *child, side_t *side, tmsg_endpoint_t *endpoint)
{
    tmsg_request_t *closed;

    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(side, closed));
    child_join(child);
    side_close(side);
}

/* The receiver stands still in the midst of a rendezvous: it is lost in time,
 * and when it goes on it delivers nothing that was overwritten meanwhile. */
static void lose(link_t link, const char *tls, const side_options_t *options,
                 uint64_t most_ms)
{
    const receiver_t receiver = {
        .link = link, .options = *options, .wanted = TMSG_ERR_PEER_LOST};
    const int64_t shape[] = {LARGE};
    const tmsg_tensor_t tensor = {
        malloc(LARGE), {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
        NULL};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    uint64_t began, took;
    tmsg_map_t *map;
    child_t child;
    side_t side;

    if (tls != NULL) {
        setenv("UCX_TLS", tls, 1);
    }
    endpoint = open_to(&child, &side, options, &receiver);
    stop(&child);
    began = now_ms();
    sample_fill(2, tensor.data, LARGE);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    sent = send_map(endpoint, map, 0);
    must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    took = now_ms() - began;
    must_true(took >= AT_LEAST_MS && took <= most_ms);
    must_say(tmsg_endpoint_error(endpoint), "no sign of life for ");
    must_be(side_finish(&side, sent), TMSG_ERR_PEER_LOST);
    memset(tensor.data, 0, LARGE); /* ours again */
    must_eq(kill(child.pid, SIGCONT), 0);
    child_join(&child);
    side_close(&side);
    free(tensor.data);
}

/* `make soak`, which runs nothing beside, asks for the default's 5 seconds. */
static void lose_stopped(link_t link, const char *tls)
{
    const side_options_t usual = {.ucx_config = NULL};

    lose(link, tls, &brief, PEERS_BOUND_MS);
    if (whole_run()) {
        lose(link, tls, &usual, 5000);
    }
}

Test(silence, a_stopped_peer_is_lost_shm) { lose_stopped(LINK_SHM, NULL); }

Test(silence, a_stopped_peer_is_lost_unix) { lose_stopped(LINK_UNIX, NULL); }

Test(silence, a_stopped_peer_is_lost_tcp)
{
    lose_stopped(LINK_SHM, "tcp,self");
}

/* The child computes, and this side waits for it. */
static void keep(link_t link, const side_options_t *options, int compute_ms)
{
    const receiver_t receiver = {.link = link,
                                 .options = *options,
                                 .compute_ms = compute_ms,
                                 .wanted = TMSG_ERR_CLOSED};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    endpoint = open_to(&child, &side, options, &receiver);
    must(side_finish(
        &side, send_map(endpoint, sample_bytes(2, LARGE), TMSG_SEND_ACKED)));
    close_to(&child, &side, endpoint);
}

/* `make soak` waits four times as long as a peer may be silent by default. */
static void keep_computing(link_t link)
{
    const side_options_t usual = {.ucx_config = NULL};

    keep(link, &brief, LONGER_MS);
    if (whole_run()) {
        keep(link, &usual, 20000);
    }
}

Test(silence, a_peer_that_computes_is_kept_tcp) { keep_computing(LINK_TCP); }

Test(silence, a_peer_that_computes_is_kept_shm) { keep_computing(LINK_SHM); }

Test(silence, a_peer_that_computes_is_kept_unix) { keep_computing(LINK_UNIX); }

/* This side computes. The child, which waits, must not drop it, and this side
 * must not take the child for dead because it did not look. */
Test(silence, who_computes_keeps_its_peers)
{
    const receiver_t receiver = {
        .link = LINK_UNIX, .options = brief, .wanted = TMSG_ERR_CLOSED};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    endpoint = open_to(&child, &side, &brief, &receiver);
    compute(LONGER_MS);
    must(side_finish(
        &side, send_map(endpoint, sample_bytes(2, LARGE), TMSG_SEND_ACKED)));
    close_to(&child, &side, endpoint);
}

/* The peer's BYE lies at the socket, with heartbeats behind it, while this side
 * computes. */
Test(silence, who_computes_while_the_peer_closes_keeps_it)
{
    const side_options_t options = {.peer_timeout_ms = TIMEOUT_MS};
    tmsg_request_t *closed;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    must(tmsg_endpoint_close(pair.to_a, &closed));
    for (uint64_t end = now_ms() + LONGER_MS; now_ms() < end;) {
        tmsg_worker_progress(pair.b.worker);
        compute(1);
    }
    must_be(tmsg_request_test(closed), TMSG_IN_PROGRESS);
    must(pair_finish(&pair, closed));
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_CLOSED);
    pair_drop(&pair);
}

/* Both sides stand still, and one goes on before the other: neither was silent
 * while the other listened. */
static void be_sender(pipes_t *pipes, void *arg)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *closed;
    char url[256];
    side_t side;

    (void)arg;
    side_open(&side, &brief);
    line_get(pipes->in, url, sizeof(url));
    endpoint = side_connect(&side, url);
    line_put(pipes->out, "connected");
    for (uint64_t end = now_ms() + 2 * LONGER_MS; now_ms() < end;) {
        tmsg_worker_progress(side.worker);
        compute(1);
    }
    must(tmsg_endpoint_close(endpoint, &closed));
    must(side_finish(&side, closed));
    side_close(&side);
}

Test(silence, a_standstill_of_both_harms_neither)
{
    const receiver_t receiver = {
        .link = LINK_SHM, .options = brief, .wanted = TMSG_ERR_CLOSED};
    child_t children[2];
    char line[256];

    child_start(&children[0], be_receiver, (void *)(uintptr_t)&receiver);
    child_start(&children[1], be_sender, NULL);
    line_get(children[0].in, line, sizeof(line));
    line_put(children[1].out, line);
    line_get(children[1].in, line, sizeof(line));
    for (int i = 0; i < 2; i++) {
        stop(&children[i]);
    }
    compute(LONGER_MS);
    for (int i = 0; i < 2; i++) {
        must_eq(kill(children[i].pid, SIGCONT), 0);
        compute(TIMEOUT_MS / 4);
    }
    for (int i = 0; i < 2; i++) {
        child_join(&children[i]);
    }
}

/* A side that does not watch its peers lets them stand still. */
static void let_stand(const side_options_t *ours, const side_options_t *theirs)
{
    const receiver_t receiver = {
        .link = LINK_SHM, .options = *theirs, .wanted = TMSG_ERR_CLOSED};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    endpoint = open_to(&child, &side, ours, &receiver);
    stop(&child);
    for (uint64_t end = now_ms() + LONGER_MS; now_ms() < end;) {
        tmsg_worker_progress(side.worker);
        compute(1);
    }
    must(tmsg_endpoint_status(endpoint));
    must_eq(kill(child.pid, SIGCONT), 0);
    must(side_finish(
        &side, send_map(endpoint, sample_bytes(2, LARGE), TMSG_SEND_ACKED)));
    close_to(&child, &side, endpoint);
}

static const side_options_t no_thread = {.peer_timeout_ms = TIMEOUT_MS,
                                         .flags = TMSG_CONTEXT_NO_THREAD};

Test(silence, without_its_thread_a_peer_is_not_judged)
{
    let_stand(&brief, &no_thread);
}

Test(silence, without_a_thread_nobody_judges) { let_stand(&no_thread, &brief); }

/* This side has a timeout of 0, and sends heartbeats. The child watches it. */
Test(silence, a_timeout_of_0_judges_nobody)
{
    const side_options_t never = {.quiet = true};

    let_stand(&never, &brief);
}

/* A side with a timeout of 0 is watched by its peers. */
Test(silence, a_timeout_of_0_is_for_its_own_peers_alone)
{
    const receiver_t receiver = {.link = LINK_SHM,
                                 .options = {.quiet = true},
                                 .wanted = TMSG_ERR_PEER_LOST};
    tmsg_endpoint_t *endpoint;
    child_t child;
    side_t side;

    endpoint = open_to(&child, &side, &brief, &receiver);
    for (uint64_t end = now_ms() + LONGER_MS; now_ms() < end;) {
        tmsg_worker_progress(side.worker);
        compute(1);
    }
    must(tmsg_endpoint_status(endpoint));
    stop(&child);
    must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    must_eq(kill(child.pid, SIGCONT), 0);
    child_join(&child);
    side_close(&side);
}

/* Nothing is under way but the end itself. */
Test(silence, a_peer_that_stops_before_the_end_is_lost)
{
    const receiver_t receiver = {
        .link = LINK_UNIX, .options = brief, .wanted = TMSG_ERR_PEER_LOST};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *closed;
    child_t child;
    side_t side;

    endpoint = open_to(&child, &side, &brief, &receiver);
    stop(&child);
    must(tmsg_endpoint_close(endpoint, &closed));
    must_be(side_finish(&side, closed), TMSG_ERR_PEER_LOST);
    must_eq(kill(child.pid, SIGCONT), 0);
    child_join(&child);
    side_close(&side);
}

/* Leaves a child process behind, which has its descriptors. */
static void be_forked(pipes_t *pipes, void *arg)
{
    side_t side;
    char byte;

    side_open(&side, &brief);
    side_listen_link(&side, *(link_t *)arg);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    side_accept(&side);
    if (fork() == 0) {
        while (read(pipes->in, &byte, 1) > 0) {
        }
    }
    _exit(0);
}

static void lose_forked(link_t link)
{
    tmsg_endpoint_t *endpoint;
    child_t child;
    char url[256];
    side_t side;

    child_start(&child, be_forked, &link);
    line_get(child.in, url, sizeof(url));
    side_open(&side, &brief);
    endpoint = side_connect(&side, url);
    must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    child_join(&child);
    side_close(&side);
}

/* A test each: a child that is slow to end leaves UCX in use (fork_guard.h). */
Test(silence, a_fork_does_not_keep_a_dead_peer_alive_tcp)
{
    lose_forked(LINK_TCP);
}

Test(silence, a_fork_does_not_keep_a_dead_peer_alive_unix)
{
    lose_forked(LINK_UNIX);
}

/* The last frames of a peer that gave up are still unread. */
Test(silence, a_heartbeat_does_not_hide_the_end_behind_it)
{
    static const uint8_t beat[] = {0, 0, 0, 0, TMSG_FRAME_HEARTBEAT};
    tmsg_endpoint_t endpoint;
    int fds[2];

    memset(&endpoint, 0, sizeof(endpoint));
    must_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    endpoint.link.fd = fds[0];
    must_true(tmsg_link_alive(&endpoint));
    must_eq(write(fds[1], beat, sizeof(beat)), sizeof(beat));
    must_true(tmsg_link_alive(&endpoint));
    must_eq(shutdown(fds[1], SHUT_WR), 0);
    must_true(!tmsg_link_alive(&endpoint));
    close(fds[0]);
    close(fds[1]);
}

/* The others on that worker go on. */
Test(silence, the_loss_of_one_is_not_that_of_another)
{
    const receiver_t lost = {
        .link = LINK_SHM, .options = brief, .wanted = TMSG_ERR_PEER_LOST};
    const receiver_t kept = {
        .link = LINK_SHM, .options = brief, .wanted = TMSG_ERR_CLOSED};
    tmsg_endpoint_t *endpoints[2];
    tmsg_request_t *ready;
    child_t children[2];
    char url[256];
    side_t side;

    child_start(&children[1], be_receiver, (void *)(uintptr_t)&kept);
    endpoints[0] = open_to(&children[0], &side, &brief, &lost);
    line_get(children[1].in, url, sizeof(url));
    endpoints[1] = side_connect(&side, url);
    must(tmsg_endpoint_ready(endpoints[1], &ready));
    must(side_finish(&side, ready));
    must(side_finish(
        &side, send_map(endpoints[1], sample_bytes(1, 10), TMSG_SEND_ACKED)));
    stop(&children[0]);
    must_be(side_end_of(&side, endpoints[0]), TMSG_ERR_PEER_LOST);
    must(side_finish(&side, send_map(endpoints[1], sample_bytes(2, LARGE),
                                     TMSG_SEND_ACKED)));
    must_eq(kill(children[0].pid, SIGCONT), 0);
    child_join(&children[0]);
    close_to(&children[1], &side, endpoints[1]);
}

/* A thread that sleeps on the descriptor hears of the loss, too. */
Test(silence, a_sleeper_is_woken_for_it)
{
    const receiver_t receiver = {
        .link = LINK_SHM, .options = brief, .wanted = TMSG_ERR_PEER_LOST};
    const side_options_t thread = {.drive = DRIVE_THREAD,
                                   .peer_timeout_ms = TIMEOUT_MS};
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;
    child_t child;
    side_t side;

    endpoint = open_to(&child, &side, &thread, &receiver);
    stop(&child);
    must_be(tmsg_endpoint_recv(endpoint, PEERS_BOUND_MS, &message),
            TMSG_ERR_PEER_LOST);
    must_eq(kill(child.pid, SIGCONT), 0);
    child_join(&child);
    side_close(&side);
}

static void must_refuse(const tmsg_context_params_t *params, const char *words)
{
    tmsg_context_t *context;

    must_be(tmsg_context_create(params, &context), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), words);
}

Test(silence, parameters_are_checked)
{
    tmsg_context_params_t params = {
        .field_mask = TMSG_CONTEXT_PARAM_PEER_TIMEOUT, .peer_timeout_ms = 199};

    must_refuse(&params, "peer_timeout_ms 199");
    params.peer_timeout_ms = 1u << 31;
    must_refuse(&params, "peer_timeout_ms 2147483648");
    params.field_mask = TMSG_CONTEXT_PARAM_FLAGS;
    params.flags = 1u << 2;
    must_refuse(&params, "unknown flags 0x4");
}

Test(silence, variables_are_checked)
{
    static const char *const bad[] = {
        "5s", "-1", " 1", "100", "4294967296", "99999999999999999999", "\xff"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("TENSORMSG_PEER_TIMEOUT_MS", bad[i], 1);
        must_refuse(NULL, strcmp(bad[i], "100") == 0
                              ? "peer_timeout_ms 100"
                              : "TENSORMSG_PEER_TIMEOUT_MS='");
    }
    unsetenv("TENSORMSG_PEER_TIMEOUT_MS");
    setenv("TENSORMSG_NO_THREAD", "2", 1);
    must_refuse(NULL, "TENSORMSG_NO_THREAD='2'");
}

static void must_describe(const tmsg_context_params_t *params, const char *what)
{
    tmsg_context_t *context;
    char *json;

    must(tmsg_context_create(params, &context));
    must(tmsg_context_describe(context, &json));
    must_say(json, what);
    tmsg_string_free(json);
    tmsg_context_destroy(context);
}

Test(silence, code_outranks_variables)
{
    const tmsg_context_params_t params = {.field_mask =
                                              TMSG_CONTEXT_PARAM_PEER_TIMEOUT |
                                              TMSG_CONTEXT_PARAM_FLAGS,
                                          .peer_timeout_ms = 700};

    must_describe(NULL, "\"peer_timeout_ms\":\t5000");
    setenv("TENSORMSG_PEER_TIMEOUT_MS", "900", 1);
    must_describe(NULL, "\"peer_timeout_ms\":\t900");
    must_describe(&params, "\"peer_timeout_ms\":\t700");
    setenv("TENSORMSG_PEER_TIMEOUT_MS", "0", 1);
    must_describe(NULL, "\"peer_timeout_ms\":\t0");
    setenv("TENSORMSG_NO_THREAD", "1", 1);
    must_describe(NULL, "\"heartbeats\":\tfalse");
    must_describe(&params, "\"heartbeats\":\ttrue");
}
