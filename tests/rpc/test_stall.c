/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that wait for their turn, and why: who waits hears it in words, and the
 * server's log, health and counts tell of it. A request that is kept after its
 * answer takes nobody's turn. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "support/peers.h"

enum {
    MANY = 12,
    KEPT_MOST = 100,
    MB = 1 << 20,
    LATE_MS = 250,
    LONG_MS = 20000
};

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_task_t *tasks[KEPT_MOST];
    tmsg_call_stream_t *stream;
    atomic_uint kept, ran;
} scene_t;

/* Answers, and keeps the request beyond that. */
static void answer_and_keep(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    unsigned index = atomic_load(&scene->kept);

    must_true(index < KEPT_MOST);
    scene->tasks[index] = tmsg_task_keep(task);
    atomic_store(&scene->kept, index + 1);
    must(tmsg_task_reply(task, NULL, NULL)); /* the test may end with it */
}

static void keep(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    unsigned index = atomic_load(&scene->kept);

    must_true(index < KEPT_MOST);
    scene->tasks[index] = tmsg_task_keep(task);
    atomic_store(&scene->kept, index + 1);
}

static void echo(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->ran++;
    must(tmsg_task_reply(task, NULL, NULL));
}

static void stream(void *arg, tmsg_call_stream_t *opened)
{
    ((scene_t *)arg)->ran++;
    must(tmsg_call_stream_end(opened, TMSG_OK, 0, NULL, NULL));
}

static void open_scene(scene_t *scene, const side_options_t *a,
                       const tmsg_server_params_t *params)
{
    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_THREAD, a, NULL);
    must(tmsg_server_create(scene->pair.a.worker, params, &scene->server));
    must(tmsg_server_register(scene->server, "push", answer_and_keep, scene,
                              NULL));
    must(tmsg_server_register(scene->server, "keep", keep, scene, NULL));
    must(tmsg_server_register(scene->server, "echo", echo, scene, NULL));
    must(tmsg_server_register_stream(scene->server, "stream", stream, scene,
                                     NULL));
}

static void close_scene(scene_t *scene)
{
    for (unsigned i = 0; i < KEPT_MOST; i++) {
        tmsg_task_destroy(scene->tasks[i]);
    }
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static tmsg_call_t *begin(const scene_t *scene, const char *method,
                          int timeout_ms, size_t bytes)
{
    static uint8_t data[2 * MB];
    const int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                       .timeout_ms = timeout_ms};
    tmsg_map_t *map;
    tmsg_call_t *call;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_endpoint_call(scene->pair.to_a, method, map, &params, &call));
    tmsg_map_destroy(map);
    return call;
}

static void expect(tmsg_call_t *call, tmsg_status_t status, const char *words)
{
    must_be(tmsg_call_wait(call, PEERS_BOUND_MS), status);
    must_say(tmsg_call_error(call), words);
    tmsg_call_destroy(call);
}

/* Calls until the server has said in time why the call's turn did not come: a
 * busy machine may be too late for that, and the caller's own clock ends it. */
static void expect_late(const scene_t *scene, const char *method, size_t bytes,
                        const char *words)
{
    tmsg_call_t *call = NULL;

    do {
        tmsg_call_destroy(call);
        call = begin(scene, method, LATE_MS, bytes);
        must_be(tmsg_call_wait(call, PEERS_BOUND_MS), TMSG_ERR_TIMED_OUT);
    } while (strstr(tmsg_call_error(call), "no reply in") != NULL);
    must_say(tmsg_call_error(call), words);
    must_say(tmsg_call_error(call), "no handler saw the call");
    must_eq(tmsg_call_may_have_run(call), 0);
    tmsg_call_destroy(call);
}

static tmsg_health_report_t report_of(const scene_t *scene, const char *method)
{
    tmsg_health_report_t report;

    must(tmsg_endpoint_health_report(scene->pair.to_a, method, PEERS_BOUND_MS,
                                     &report));
    return report;
}

static bool are_held(void *arg) { return report_of(arg, NULL).held == MANY; }

/* As many as the server takes were kept, before and after their answers. */
static void keep_answered(const tmsg_server_params_t *params)
{
    tmsg_health_report_t report;
    scene_t scene;

    open_scene(&scene, NULL, params);
    for (int i = 0; i < MANY; i++) {
        expect(begin(&scene, "push", PEERS_BOUND_MS, 100), TMSG_OK, "");
    }
    pair_await(&scene.pair, are_held, &scene, "the end of the handlers");
    report = report_of(&scene, NULL);
    must_eq(report.held, MANY);
    must_eq(report.running, 0);
    must_eq(report.health, TMSG_HEALTH_SERVING);
    must_eq(report_of(&scene, "push").held, MANY);
    must_eq(report_of(&scene, "keep").held, 0);
    for (int i = 0; i < MANY; i++) {
        tmsg_task_destroy(scene.tasks[i]);
        scene.tasks[i] = NULL;
    }
    must_eq(report_of(&scene, NULL).held, 0);
    close_scene(&scene);
}

Test(stall, a_request_that_is_kept_after_its_answer_takes_no_turn)
{
    const tmsg_server_params_t two = {
        .field_mask = TMSG_SERVER_PARAM_CONCURRENCY | TMSG_SERVER_PARAM_QUEUE,
        .concurrency = 2};

    keep_answered(&two);
}

Test(stall, nor_at_a_server_with_threads)
{
    const tmsg_server_params_t two = {
        .field_mask = TMSG_SERVER_PARAM_CONCURRENCY | TMSG_SERVER_PARAM_QUEUE |
                      TMSG_SERVER_PARAM_THREADS,
        .concurrency = 1,
        .queue = 1, /* the reply comes before its handler has returned */
        .threads = 1};

    keep_answered(&two);
}

typedef struct {
    scene_t *scene;
    unsigned count;
} seen_t;

static bool are_kept(void *arg)
{
    const seen_t *seen = arg;

    return seen->scene->kept >= seen->count;
}

/* Keeps one call, which takes the only place. */
static tmsg_call_t *occupy(scene_t *scene, int timeout_ms)
{
    tmsg_call_t *call = begin(scene, "keep", timeout_ms, 100);

    pair_await(&scene->pair, are_kept, &(seen_t){scene, 1}, "the first call");
    return call;
}

static const tmsg_server_params_t one = {
    .field_mask = TMSG_SERVER_PARAM_CONCURRENCY | TMSG_SERVER_PARAM_QUEUE,
    .concurrency = 1,
    .queue = 2};

Test(stall, a_call_whose_turn_does_not_come_is_told_why)
{
    const tmsg_call_stream_params_t params = {
        .field_mask = TMSG_CALL_STREAM_PARAM_TIMEOUT, .timeout_ms = LATE_MS};
    tmsg_call_stream_t *opened = NULL;
    tmsg_message_t *message;
    tmsg_call_t *first, *second, *third;
    scene_t scene;

    open_scene(&scene, NULL, &one);
    first = occupy(&scene, PEERS_BOUND_MS);
    expect_late(&scene, "keep", 100,
                "its turn had not come when its time was up: 1 calls of 'keep' "
                "run there, as many as may (concurrency) (no handler saw");
    expect_late(&scene, "echo", 100,
                "1 calls run there, as many as may (concurrency)");
    do {
        tmsg_call_stream_destroy(opened);
        must(tmsg_endpoint_open_stream(scene.pair.to_a, "stream", NULL, &params,
                                       &opened));
        must_be(tmsg_call_stream_recv(opened, PEERS_BOUND_MS, &message),
                TMSG_ERR_TIMED_OUT);
    } while (strstr(tmsg_call_stream_error(opened), "its turn had not come") ==
             NULL);
    tmsg_call_stream_destroy(opened);
    second = begin(&scene, "keep", PEERS_BOUND_MS, 100);
    expect_late(&scene, "keep", 100, "and 1 waited before it");
    third = begin(&scene, "keep", PEERS_BOUND_MS, 100);
    expect(begin(&scene, "echo", LATE_MS, 100), TMSG_ERR_RESOURCE_EXHAUSTED,
           "the server has as many calls as it takes: 1 run, 2 wait");
    for (unsigned i = 0; i < 3; i++) {
        pair_await(&scene.pair, are_kept, &(seen_t){&scene, i + 1}, "a call");
        must(tmsg_task_reply(scene.tasks[i], NULL, NULL));
    }
    expect(first, TMSG_OK, "");
    expect(second, TMSG_OK, "");
    expect(third, TMSG_OK, "");
    expect(begin(&scene, "echo", PEERS_BOUND_MS, 100), TMSG_OK, "");
    must_eq(scene.ran, 1);
    close_scene(&scene);
}

static void answer_late(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    while (atomic_load(&scene->ran) == 0) { /* until the test says so */
        struct timespec pause = {.tv_nsec = 1000000};

        nanosleep(&pause, NULL);
    }
    must(tmsg_task_reply(task, NULL, NULL));
}

Test(stall, nor_one_whose_thread_does_not_come)
{
    const tmsg_server_params_t params = {
        .field_mask = TMSG_SERVER_PARAM_THREADS, .threads = 1};
    tmsg_call_t *first, *second;
    scene_t scene;

    open_scene(&scene, NULL, &params);
    must(tmsg_server_register(scene.server, "late", answer_late, &scene, NULL));
    first = begin(&scene, "late", PEERS_BOUND_MS, 100);
    second = begin(&scene, "late", PEERS_BOUND_MS, 100);
    expect_late(&scene, "late", 100,
                "1 calls run there, and no thread is free for another, and 1 "
                "waited before it");
    scene.ran = 1;
    expect(first, TMSG_OK, "");
    expect(second, TMSG_OK, "");
    close_scene(&scene);
}

static atomic_uint lines;

/* A port that somebody listens at who says nothing; for the process's life. */
static int silent_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must_true(fd >= 0);
    must_eq(bind(fd, (struct sockaddr *)&address, bytes), 0);
    must_eq(listen(fd, 1), 0);
    must_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    return ntohs(address.sin_port);
}

static void note_line(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg;
    (void)level;
    lines += strstr(line, "method 'keep': 1 calls wait, and none has begun for "
                          "a second: 1 calls of 'keep' run there") != NULL;
}

static bool is_stalled(void *arg)
{
    return report_of(arg, NULL).health == TMSG_HEALTH_STALLED;
}

Test(stall, is_logged_and_told)
{
    tmsg_health_report_t report;
    tmsg_call_t *first, *second;
    tmsg_call_metrics_t metrics;
    char *json;
    scene_t scene;

    tmsg_log_set(TMSG_LOG_WARN, note_line, NULL);
    open_scene(&scene, NULL, &one);
    must(tmsg_metrics_start(scene.pair.a.worker));
    first = occupy(&scene, PEERS_BOUND_MS);
    must_eq(report_of(&scene, NULL).health, TMSG_HEALTH_SERVING);
    second = begin(&scene, "keep", PEERS_BOUND_MS, 100);
    pair_await(&scene.pair, is_stalled, &scene, "the stall");
    report = report_of(&scene, "keep");
    must_eq(report.health, TMSG_HEALTH_STALLED);
    must_eq(report.running, 1);
    must_eq(report.waiting, 1);
    must_eq(report.stalls, 1);
    must_say(report.why, "1 calls of 'keep' run there");
    must_eq(report_of(&scene, "echo").health, TMSG_HEALTH_SERVING);
    must(tmsg_server_report(scene.server, NULL, &report));
    must_eq(report.health, TMSG_HEALTH_STALLED);
    must_be(tmsg_server_report(scene.server, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must(tmsg_metrics_read(scene.pair.a.worker, TMSG_SIDE_SERVER, "keep",
                           &metrics));
    must_eq(metrics.running, 1);
    must_eq(metrics.waiting, 1);
    must_eq(metrics.held, 0);
    must_eq(metrics.stalls, 1);
    must(tmsg_metrics_text(scene.pair.a.worker, &json));
    must_say(json, "tensormsg_call_stalls_total{side=\"server\",method=\"keep\""
                   "} 1\n");
    tmsg_string_free(json);
    must(tmsg_worker_describe(scene.pair.a.worker, &json));
    must_say(json, "\"running_calls\":\t1,");
    must_say(json, "\"waiting_calls\":\t1,");
    must_say(json, "\"held_calls\":\t0,");
    must_say(json, "\"stalls\":\t1,");
    tmsg_string_free(json);
    must(tmsg_task_reply(scene.tasks[0], NULL, NULL));
    expect(first, TMSG_OK, "");
    report = report_of(&scene, NULL);
    must_eq(report.health, TMSG_HEALTH_SERVING);
    must_eq(report.held, 1);
    must_eq(report.stalls, 1);
    must_eq(report.why[0], 0);
    must_eq(lines, 1);
    close_scene(&scene);
    tmsg_call_destroy(second);
    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
}

static void put_off(void *arg, tmsg_task_t *task)
{
    keep(arg, task);
    tmsg_task_put_off(task);
}

static void put_off_stream(void *arg, tmsg_call_stream_t *opened)
{
    scene_t *scene = arg;

    tmsg_call_stream_put_off(opened);
    scene->stream = tmsg_call_stream_keep(opened);
    scene->ran++;
}

static bool has_run(void *arg) { return ((scene_t *)arg)->ran > 0; }

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

/* Whoever works on it never came, or came too late. */
Test(stall, a_task_that_its_handler_put_off_waits)
{
    const tmsg_call_stream_params_t params = {
        .field_mask = TMSG_CALL_STREAM_PARAM_TIMEOUT, .timeout_ms = LATE_MS};
    tmsg_call_stream_t *opened;
    tmsg_message_t *message;
    tmsg_call_t *call;
    unsigned kept;
    scene_t scene;

    open_scene(&scene, NULL, NULL);
    must(tmsg_server_register(scene.server, "queue", put_off, &scene, NULL));
    must(tmsg_server_register_stream(scene.server, "later", put_off_stream,
                                     &scene, NULL));
    call = begin(&scene, "queue", PEERS_BOUND_MS, 100);
    pair_await(&scene.pair, are_kept, &(seen_t){&scene, 1}, "the first call");
    must_eq(report_of(&scene, NULL).waiting, 1);
    must_eq(report_of(&scene, NULL).running, 0);
    must(tmsg_task_begin(scene.tasks[0]));
    must(tmsg_task_begin(scene.tasks[0]));
    must_eq(report_of(&scene, NULL).waiting, 0);
    must_eq(report_of(&scene, NULL).running, 1);
    must(tmsg_task_reply(scene.tasks[0], NULL, NULL));
    must_be(tmsg_task_begin(scene.tasks[0]), TMSG_ERR_ALREADY_EXISTS);
    expect(call, TMSG_OK, "");
    expect_late(&scene, "queue", 100,
                "0 calls run there, and no thread is free for another");
    must_be(tmsg_task_begin(scene.tasks[scene.kept - 1]), TMSG_ERR_TIMED_OUT);
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "later", NULL, &params,
                                   &opened));
    must_be(tmsg_call_stream_recv(opened, PEERS_BOUND_MS, &message),
            TMSG_ERR_TIMED_OUT);
    must(tmsg_call_stream_begin(opened));
    tmsg_call_stream_destroy(opened);
    pair_await(&scene.pair, has_run, &scene, "the stream");
    pair_await(&scene.pair, is_over, scene.stream, "the end of the stream");
    must_true(tmsg_call_stream_begin(scene.stream) != TMSG_OK);
    tmsg_call_stream_destroy(scene.stream);
    kept = scene.kept;
    call = begin(&scene, "queue", PEERS_BOUND_MS, 100);
    pair_await(&scene.pair, are_kept, &(seen_t){&scene, kept + 1},
               "the last call");
    must_be(tmsg_server_drain(scene.server, 0), TMSG_ERR_TIMED_OUT);
    expect(call, TMSG_ERR_UNAVAILABLE, "no handler saw the call");
    close_scene(&scene);
}

static void take_long(void *arg, tmsg_task_t *task)
{
    const struct timespec pause = {.tv_sec = 1, .tv_nsec = 100000000};

    (void)arg;
    nanosleep(&pause, NULL);
    must(tmsg_task_reply(task, NULL, NULL));
}

static void note_long(void *arg, tmsg_log_level_t level, const char *line)
{
    (void)arg;
    (void)level;
    lines += strstr(line, "method 'long': its handler has held the thread that "
                          "progresses for 1.") != NULL;
}

/* The library has a counter of the processor's for that. */
#if defined(__x86_64__) || defined(__aarch64__)
Test(stall, a_handler_that_holds_the_thread_is_named)
{
    tmsg_call_metrics_t metrics;
    scene_t scene;

    tmsg_log_set(TMSG_LOG_WARN, note_long, NULL);
    open_scene(&scene, NULL, NULL);
    must(tmsg_metrics_start(scene.pair.a.worker));
    must(tmsg_server_register(scene.server, "long", take_long, NULL, NULL));
    expect(begin(&scene, "long", PEERS_BOUND_MS, 100), TMSG_OK, "");
    expect(begin(&scene, "echo", PEERS_BOUND_MS, 100), TMSG_OK, "");
    must(tmsg_metrics_read(scene.pair.a.worker, TMSG_SIDE_SERVER, "long",
                           &metrics));
    must_eq(metrics.long_handlers, 1);
    must(tmsg_metrics_read(scene.pair.a.worker, TMSG_SIDE_SERVER, "echo",
                           &metrics));
    must_eq(metrics.long_handlers, 0);
    must_eq(lines, 1);
    must(tmsg_metrics_note_long(scene.pair.a.worker, "echo"));
    must(tmsg_metrics_read(scene.pair.a.worker, TMSG_SIDE_SERVER, "echo",
                           &metrics));
    must_eq(metrics.long_handlers, 1);
    must_be(tmsg_metrics_note_long(scene.pair.a.worker, "none"),
            TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "no method 'none' is served");
    must_be(tmsg_metrics_note_long(scene.pair.b.worker, "echo"),
            TMSG_ERR_NOT_FOUND);
    must_be(tmsg_metrics_note_long(scene.pair.a.worker, NULL),
            TMSG_ERR_INVALID_PARAM);
    close_scene(&scene);
    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
}
#endif

/* What a wait waits for is in its words, as far as this side knows it. */
Test(stall, a_time_out_says_what_was_waited_for)
{
    tmsg_endpoint_t *nowhere;
    tmsg_call_t *call;
    scene_t scene;
    char url[64];

    open_scene(&scene, NULL, &one);
    call = begin(&scene, "keep", LATE_MS, 100);
    must_be(tmsg_call_wait(call, PEERS_BOUND_MS), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_call_error(call), "its request was sent, and its handler has "
                                    "not answered");
    tmsg_call_destroy(call);
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", silent_port());
    must(tmsg_endpoint_connect(scene.pair.b.worker, url, NULL, &nowhere));
    must(tmsg_endpoint_call(
        nowhere, "keep", NULL,
        &(tmsg_call_params_t){.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                              .timeout_ms = LATE_MS},
        &call));
    must_be(tmsg_call_wait(call, PEERS_BOUND_MS), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_call_error(call), "the connection is not made yet");
    must_say(tmsg_call_error(call), "no handler saw the call");
    must_true(!tmsg_call_may_have_run(call));
    tmsg_call_destroy(call);
    tmsg_endpoint_destroy(nowhere);
    close_scene(&scene);
}

/* A drain whose time is up says what it has waited for. */
Test(stall, a_drain_says_what_is_left)
{
    tmsg_call_t *call;
    scene_t scene;

    open_scene(&scene, NULL, &one);
    call = occupy(&scene, PEERS_BOUND_MS);
    must_be(tmsg_server_drain(scene.server, 20), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), "drain: 1 calls are not answered in 20 ms, "
                                   "the oldest of 'keep'");
    expect(call, TMSG_ERR_UNAVAILABLE, "shut down");
    close_scene(&scene);
}

static bool is_unwanted(void *task)
{
    return tmsg_task_status(task) != TMSG_OK;
}

/* A handler that answers when nobody waits any more is done all the same. */
Test(stall, an_answer_in_vain_ends_a_turn)
{
    tmsg_call_t *first, *waiting;
    scene_t scene;

    open_scene(&scene, NULL, &one);
    first = occupy(&scene, LATE_MS);
    must_be(tmsg_call_wait(first, PEERS_BOUND_MS), TMSG_ERR_TIMED_OUT);
    waiting = begin(&scene, "echo", PEERS_BOUND_MS, 100);
    must_eq(report_of(&scene, NULL).running, 1);
    pair_await(&scene.pair, is_unwanted, scene.tasks[0], "the server's clock");
    must_true(tmsg_task_reply(scene.tasks[0], NULL, NULL) != TMSG_OK);
    expect(waiting, TMSG_OK, "");
    must_eq(report_of(&scene, NULL).held, 1);
    tmsg_call_destroy(first);
    close_scene(&scene);
}

/* Requests that are kept hold the memory that the next one waits for. Health is
 * told all the same. */
Test(stall, a_request_that_finds_no_memory_is_told_so)
{
    const side_options_t a = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 3 * MB}};
    scene_t scene;

    open_scene(&scene, &a, NULL);
    expect(begin(&scene, "push", PEERS_BOUND_MS, 2 * MB), TMSG_OK, "");
    expect_late(
        &scene, "push", 2 * MB,
        "its request had not come when its time was up; a message waits "
        "for memory");
    must_eq(report_of(&scene, NULL).held, 1);
    tmsg_task_destroy(scene.tasks[0]);
    scene.tasks[0] = NULL;
    expect(begin(&scene, "push", PEERS_BOUND_MS, 2 * MB), TMSG_OK, "");
    close_scene(&scene);
}

static bool is_serving(void *arg)
{
    return report_of(arg, NULL).health == TMSG_HEALTH_SERVING;
}

typedef struct {
    const scene_t *scene;
    int timeout_ms;
    tmsg_call_t *call;
} caller_t;

/* Whether the server is stalled, while one call after the other waits there. */
static bool stalls(void *arg)
{
    caller_t *caller = arg;

    if (tmsg_call_status(caller->call) != TMSG_IN_PROGRESS) {
        tmsg_call_destroy(caller->call);
        caller->call = begin(caller->scene, "push", caller->timeout_ms, 2 * MB);
    }
    return report_of(caller->scene, NULL).health == TMSG_HEALTH_STALLED;
}

/* The server is stalled until its application releases a request. */
static void starve(int timeout_ms)
{
    const side_options_t a = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 3 * MB}};
    tmsg_health_report_t report;
    caller_t caller;
    scene_t scene;

    open_scene(&scene, &a, NULL);
    expect(begin(&scene, "push", PEERS_BOUND_MS, 2 * MB), TMSG_OK, "");
    must_eq(report_of(&scene, NULL).health, TMSG_HEALTH_SERVING);
    caller = (caller_t){&scene, timeout_ms,
                        begin(&scene, "push", timeout_ms, 2 * MB)};
    pair_await(&scene.pair, stalls, &caller, "the stall");
    report = report_of(&scene, NULL);
    must_say(report.why, "a message waits for memory");
    must_say(report.why, "held_bytes");
    must(tmsg_server_report(scene.server, "tensormsg.health", &report));
    must_eq(report.health, TMSG_HEALTH_SERVING);
    tmsg_task_destroy(scene.tasks[0]);
    scene.tasks[0] = NULL;
    pair_await(&scene.pair, is_serving, &scene, "the end of the stall");
    must_eq(report_of(&scene, "push").health, TMSG_HEALTH_SERVING);
    must_eq(report_of(&scene, NULL).why[0], 0);
    tmsg_call_destroy(caller.call);
    close_scene(&scene);
}

Test(stall, also_of_callers_that_wait_for_less_than_a_second)
{
    starve(LATE_MS);
}
