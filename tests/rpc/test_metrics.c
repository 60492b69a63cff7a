/* SPDX-License-Identifier: BSD-3-Clause */
/* What is counted of calls, and how it is told. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "rpc/metrics.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { MOST_BYTES = 1 << 20 }; /* that a holds */

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_task_t *task;
    unsigned fails;
} scene_t;

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void fail(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    if (scene->fails-- > 0) {
        must(tmsg_task_fail(task, TMSG_ERR_UNAVAILABLE, 1, "so", NULL));
    } else {
        must(tmsg_task_reply(task, NULL, NULL));
    }
}

static void keep(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->task = tmsg_task_keep(task);
}

static void leave(void *arg, tmsg_call_stream_t *stream)
{
    (void)arg;
    (void)stream;
}

static void open_scene(scene_t *scene)
{
    const side_options_t small = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = MOST_BYTES}};
    const tmsg_method_params_t others = {
        .field_mask = TMSG_METHOD_PARAM_PRINCIPALS, .principals = "alice"};
    const tmsg_method_params_t one = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE,
        .concurrency = 1,
        .queue = 0};

    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, &small, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, scene, NULL));
    must(tmsg_server_register(scene->server, "fail", fail, scene, NULL));
    must(tmsg_server_register(scene->server, "keep", keep, scene, &one));
    must(tmsg_server_register(scene->server, "others'", echo, NULL, &others));
    must(tmsg_server_register_stream(scene->server, "stream", leave, NULL,
                                     NULL));
    must(tmsg_metrics_start(scene->pair.a.worker));
    must(tmsg_metrics_start(scene->pair.b.worker));
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static tmsg_status_t call_by(scene_t *scene, const char *method, size_t bytes,
                             uint64_t field_mask)
{
    const tmsg_call_params_t params = {.field_mask = field_mask,
                                       .flags = TMSG_CALL_IDEMPOTENT,
                                       .retry = {3, 1, 1}};
    tmsg_map_t *map = sample_bytes(1, bytes);
    tmsg_status_t status;
    tmsg_call_t *made;

    must(tmsg_endpoint_call(scene->pair.to_a, method, map, &params, &made));
    tmsg_map_destroy(map);
    pair_await(&scene->pair, has_ended, made, "the end of a call");
    status = tmsg_call_status(made);
    tmsg_call_destroy(made);
    return status;
}

static tmsg_status_t call(scene_t *scene, const char *method, size_t bytes)
{
    return call_by(scene, method, bytes,
                   TMSG_CALL_PARAM_RETRY | TMSG_CALL_PARAM_FLAGS);
}

/* One that does not wait for a server to be ready. */
static tmsg_status_t call_once(scene_t *scene, const char *method)
{
    return call_by(scene, method, 10, 0);
}

static tmsg_call_metrics_t read_side(scene_t *scene, tmsg_side_t side,
                                     const char *method)
{
    tmsg_call_metrics_t counts;

    must(tmsg_metrics_read(side == TMSG_SIDE_SERVER ? scene->pair.a.worker
                                                    : scene->pair.b.worker,
                           side, method, &counts));
    return counts;
}

Test(metrics, count_calls_by_method_side_and_status)
{
    tmsg_call_metrics_t counts;
    scene_t scene;

    open_scene(&scene);
    for (int i = 0; i < 3; i++) {
        must(call(&scene, "echo", 1000));
    }
    scene.fails = 1;
    must(call(&scene, "fail", 10));
    must_be(call(&scene, "nothing", 10), TMSG_ERR_NOT_FOUND);
    for (int side = TMSG_SIDE_CALLER; side <= TMSG_SIDE_SERVER; side++) {
        counts = read_side(&scene, (tmsg_side_t)side, "echo");
        must_eq(counts.ended, 3);
        must_eq(counts.in_flight, 0);
        must_eq(counts.by_status[0], 3);
        must_eq(counts.sent_bytes, 3000);
        must_eq(counts.received_bytes, 3000);
        must_true(counts.latency_sum_ns >= counts.latency_most_ns);
        must_true(counts.latency_most_ns > 0);
    }
    counts = read_side(&scene, TMSG_SIDE_CALLER, "fail");
    must_eq(counts.ended, 1);
    must_eq(counts.retried, 1);
    must_eq(counts.sent_bytes, 20);
    counts = read_side(&scene, TMSG_SIDE_SERVER, "fail");
    must_eq(counts.ended, 2);
    must_eq(counts.by_status[-TMSG_ERR_UNAVAILABLE], 1);
    counts = read_side(&scene, TMSG_SIDE_CALLER, "nothing");
    must_eq(counts.by_status[-TMSG_ERR_NOT_FOUND], 1);
    must_be(
        tmsg_metrics_read(scene.pair.a.worker, (tmsg_side_t)3, "echo", &counts),
        TMSG_ERR_INVALID_PARAM);
    close_scene(&scene);
}

static bool is_kept(void *arg) { return ((scene_t *)arg)->task != NULL; }

Test(metrics, count_what_is_in_flight_and_what_was_rejected)
{
    tmsg_call_metrics_t counts;
    tmsg_call_t *first;
    scene_t scene;

    open_scene(&scene);
    must(tmsg_endpoint_call(scene.pair.to_a, "keep", NULL, NULL, &first));
    pair_await(&scene.pair, is_kept, &scene, "a task");
    must_eq(read_side(&scene, TMSG_SIDE_CALLER, "keep").in_flight, 1);
    must_eq(read_side(&scene, TMSG_SIDE_SERVER, "keep").in_flight, 1);
    must_be(call(&scene, "keep", 10), TMSG_ERR_RESOURCE_EXHAUSTED);
    counts = read_side(&scene, TMSG_SIDE_SERVER, "keep");
    must_eq(counts.rejected, 3);
    must_eq(counts.rejected_by_status[-TMSG_ERR_RESOURCE_EXHAUSTED], 3);
    must_eq(counts.ended, 0);
    tmsg_call_destroy(first);
    while (tmsg_task_status(scene.task) == TMSG_OK) {
        tmsg_worker_progress(scene.pair.a.worker);
        tmsg_worker_progress(scene.pair.b.worker);
    }
    tmsg_task_destroy(scene.task);
    counts = read_side(&scene, TMSG_SIDE_SERVER, "keep");
    must_eq(counts.in_flight, 0);
    must_eq(counts.by_status[-TMSG_ERR_CANCELED], 1);
    close_scene(&scene);
}

static const char *line_of(const char *text, const char *begin)
{
    const char *at = strstr(text, begin);

    if (at == NULL) {
        die("no %s in\n%s", begin, text);
    }
    return at + strlen(begin);
}

/* So often, and with nothing else, was a method's call refused. */
static void expect_refused(scene_t *scene, const char *method,
                           tmsg_status_t status, unsigned times)
{
    tmsg_call_metrics_t counts = read_side(scene, TMSG_SIDE_SERVER, method);

    must_eq(counts.rejected, times);
    must_eq(counts.rejected_by_status[-status], times);
    must_eq(counts.ended, 0);
    must_eq(counts.in_flight, 0);
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

static void open_stream(scene_t *scene, const char *method, size_t bytes,
                        tmsg_status_t wanted)
{
    tmsg_map_t *map = sample_bytes(1, bytes);
    tmsg_call_stream_t *stream;

    must(tmsg_endpoint_open_stream(scene->pair.to_a, method, map, NULL,
                                   &stream));
    tmsg_map_destroy(map);
    pair_await(&scene->pair, is_over, stream, "the end of a stream");
    must_be(tmsg_call_stream_status(stream), wanted);
    tmsg_call_stream_destroy(stream);
}

Test(metrics, count_what_the_server_refuses_by_method_and_status)
{
    scene_t scene;

    open_scene(&scene);
    must_be(call(&scene, "others'", 10), TMSG_ERR_REFUSED);
    expect_refused(&scene, "others'", TMSG_ERR_REFUSED, 1);
    must_be(call(&scene, "stream", 10), TMSG_ERR_NOT_FOUND);
    expect_refused(&scene, "stream", TMSG_ERR_NOT_FOUND, 1);
    open_stream(&scene, "keep", 1, TMSG_ERR_NOT_FOUND);
    expect_refused(&scene, "keep", TMSG_ERR_NOT_FOUND, 1);
    scene.pair.to_b->queue.answers = TMSG_CALLS_ANSWERS_MOST; /* as if */
    must_be(call(&scene, "fail", 10), TMSG_ERR_RESOURCE_EXHAUSTED);
    scene.pair.to_b->queue.answers = 0;
    expect_refused(&scene, "fail", TMSG_ERR_RESOURCE_EXHAUSTED, 3);
    must(tmsg_server_drain(scene.server, 0));
    must_be(call_once(&scene, "echo"), TMSG_ERR_UNAVAILABLE);
    expect_refused(&scene, "echo", TMSG_ERR_UNAVAILABLE, 1);
    close_scene(&scene);
}

Test(metrics, count_what_does_not_come_whole)
{
    tmsg_call_metrics_t counts;
    scene_t scene;

    open_scene(&scene);
    open_stream(&scene, "stream", MOST_BYTES + 1, TMSG_ERR_LIMIT_EXCEEDED);
    expect_refused(&scene, "stream", TMSG_ERR_LIMIT_EXCEEDED, 1);
    must_be(call(&scene, "echo", MOST_BYTES + 1), TMSG_ERR_LIMIT_EXCEEDED);
    counts = read_side(&scene, TMSG_SIDE_SERVER, "echo");
    must_eq(counts.by_status[-TMSG_ERR_LIMIT_EXCEEDED], 1); /* it had begun */
    must_eq(counts.rejected, 0);
    close_scene(&scene);
}

enum { STRANGE_NAMES = 300 };

Test(metrics, have_one_name_for_all_methods_that_there_are_not)
{
    char name[32];
    scene_t scene;
    char *text;

    open_scene(&scene);
    for (int i = 0; i < STRANGE_NAMES; i++) {
        snprintf(name, sizeof(name), "strange %d", i);
        must_be(call(&scene, name, 1), TMSG_ERR_NOT_FOUND);
    }
    open_stream(&scene, "strange", 1, TMSG_ERR_NOT_FOUND);
    expect_refused(&scene, "", TMSG_ERR_NOT_FOUND, STRANGE_NAMES + 1);
    must(tmsg_metrics_text(scene.pair.a.worker, &text));
    must_true(strstr(text, "strange") == NULL);
    must_eq(atoi(line_of(text, "tensormsg_calls_rejected_total{side=\"server\","
                               "method=\"\",status=\"not found\"} ")),
            STRANGE_NAMES + 1);
    tmsg_string_free(text);
    tmsg_server_destroy(scene.server); /* nobody serves there */
    scene.server = NULL;
    must_be(call_once(&scene, "echo"), TMSG_ERR_UNAVAILABLE);
    must_eq(read_side(&scene, TMSG_SIDE_SERVER, "")
                .rejected_by_status[-TMSG_ERR_UNAVAILABLE],
            1);
    close_scene(&scene);
}

Test(metrics, keep_latencies_within_their_error)
{
    size_t before = 0;

    for (uint64_t ns = 0; ns < UINT64_C(1) << 42; ns += 1 + ns / 97) {
        size_t step = tmsg_meter_step(ns);
        uint64_t from = tmsg_meter_from(step), to = tmsg_meter_from(step + 1);

        must_true(from <= ns && ns < to);
        must_true(step == before || step == before + 1);
        must_true(to - from == 32 || (to - from) * 32 <= from);
        before = step;
    }
    must_eq(before, TMSG_METER_STEPS - 1);
    must_eq(tmsg_meter_step(UINT64_MAX), TMSG_METER_STEPS - 1);
}

Test(metrics, tell_latencies)
{
    uint64_t ns = 1, most = 0;
    scene_t scene;

    open_scene(&scene);
    for (int i = 0; i < 20; i++) {
        must(call(&scene, "echo", 10));
    }
    for (uint32_t part = 0; part <= 1000000; part += 250000) {
        must(tmsg_metrics_latency(scene.pair.b.worker, TMSG_SIDE_CALLER, "echo",
                                  part, &ns));
        must_true(ns >= most && ns > 0);
        most = ns;
    }
    must_eq(most, read_side(&scene, TMSG_SIDE_CALLER, "echo").latency_most_ns);
    must_be(tmsg_metrics_latency(scene.pair.b.worker, TMSG_SIDE_CALLER, "echo",
                                 1000001, &ns),
            TMSG_ERR_INVALID_PARAM);
    close_scene(&scene);
}

/* Every line is a comment of its family or a sample of it; buckets rise. */
static void check_format(char *text)
{
    char family[100] = "";
    double bucket = 0;

    for (char *line = strtok(text, "\n"); line != NULL;
         line = strtok(NULL, "\n")) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            must_eq(sscanf(line + 7, "%99s", family), 1);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            must_true(strncmp(line + 7, family, strlen(family)) == 0);
        } else {
            const char *value = strrchr(line, ' ');
            char *end;
            double number;

            must_true(strncmp(line, family, strlen(family)) == 0);
            must_true(value != NULL);
            must_true(value[-1] == '}' || value == line + strlen(family));
            number = strtod(value + 1, &end);
            must_true(*end == '\0' && number >= 0);
            if (strstr(line, "_bucket{") != NULL) {
                must_true(number >= bucket);
                bucket = strstr(line, "+Inf") != NULL ? 0 : number;
            }
        }
    }
}

Test(metrics, are_told_to_prometheus)
{
    static const char odd[] = "a\"b\\c\nd\xc2\x9b\xe2\x80\xae";
    scene_t scene;
    char *text;

    open_scene(&scene);
    must(tmsg_metrics_text(scene.pair.a.worker, &text));
    must_eq(strlen(text), 0);
    tmsg_string_free(text);
    must(tmsg_server_register(scene.server, odd, echo, NULL, NULL));
    must(call(&scene, odd, 100));
    must(call(&scene, "echo", 100));
    must(tmsg_metrics_text(scene.pair.a.worker, &text));
    must_eq(atoi(line_of(
                text, "tensormsg_calls_total{side=\"server\",method="
                      "\"a\\\"b\\\\c\\nd\\\\x9b\\\\u202e\",status=\"ok\"} ")),
            1);
    must_eq(atoi(line_of(text, "_bytes_total{side=\"server\",method=\"echo\","
                               "direction=\"sent\"} ")),
            100);
    must_eq(atoi(line_of(text, "_seconds_bucket{side=\"server\",method="
                               "\"echo\",le=\"+Inf\"} ")),
            1);
    must_eq(atoi(line_of(text, "_seconds_bucket{side=\"server\",method="
                               "\"echo\",le=\"100.000000\"} ")),
            1);
    must_eq(atoi(line_of(text, "_seconds_count{side=\"server\",method="
                               "\"echo\"} ")),
            1);
    line_of(text, "# TYPE tensormsg_call_duration_seconds histogram\n");
    must_eq(text[strlen(text) - 1], '\n');
    check_format(text);
    tmsg_string_free(text);
    close_scene(&scene);
}

static void empty(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must_be(tmsg_task_reply(task, NULL, NULL), TMSG_ERR_INTERNAL);
}

Test(metrics, count_a_reply_that_is_not_what_the_method_gives_as_a_failure)
{
    const tmsg_method_params_t params = {
        .field_mask = TMSG_METHOD_PARAM_SIGNATURE,
        .signature = "() -> (out: float32[1])"};
    tmsg_call_metrics_t counts;
    scene_t scene;
    tmsg_call_t *made;

    open_scene(&scene);
    must(tmsg_server_register(scene.server, "empty", empty, NULL, &params));
    must(tmsg_endpoint_call(scene.pair.to_a, "empty", NULL, NULL, &made));
    pair_await(&scene.pair, has_ended, made, "the end of a call");
    must_be(tmsg_call_status(made), TMSG_ERR_INTERNAL);
    tmsg_call_destroy(made);
    counts = read_side(&scene, TMSG_SIDE_SERVER, "empty");
    must_eq(counts.by_status[TMSG_OK], 0);
    must_eq(counts.by_status[-TMSG_ERR_INTERNAL], 1);
    close_scene(&scene);
}
