/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams that end in another way than by their server's end: on both sides,
 * once, and their place on the endpoint is free again. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/stream_flow.h"

typedef struct {
    pair_t pair;
    tmsg_server_t *server;    /* a's */
    tmsg_call_stream_t *kept; /* the newest */
    unsigned seen, ends, overs;
    tmsg_status_t end, over; /* what the opener was told, and the server */
} scene_t;

static void on_over(void *arg, tmsg_call_stream_t *stream, tmsg_status_t status)
{
    scene_t *scene = arg;

    must_be(tmsg_call_stream_status(stream), status);
    scene->over = status;
    scene->overs++;
}

static void on_end(void *arg, tmsg_call_stream_t *stream, tmsg_status_t status)
{
    scene_t *scene = arg;

    must_be(tmsg_call_stream_status(stream), status);
    scene->end = status;
    scene->ends++;
}

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    const tmsg_call_stream_events_t events = {.field_mask =
                                                  TMSG_CALL_STREAM_EVENT_OVER,
                                              .on_over = on_over,
                                              .arg = arg};
    scene_t *scene = arg;

    scene->kept = tmsg_call_stream_keep(stream);
    scene->seen++;
    must(tmsg_call_stream_set_events(stream, &events));
}

static void echo(void *arg, tmsg_call_stream_t *stream)
{
    (void)arg;
    must(tmsg_call_stream_send(stream, tmsg_call_stream_map(stream), NULL,
                               NULL));
    must(tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL));
}

static void unary(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void open_with(scene_t *scene, const side_options_t *options,
                      const tmsg_method_params_t *method)
{
    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, options, options);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register_stream(scene->server, "keep", keep, scene,
                                     method));
    must(tmsg_server_register_stream(scene->server, "echo", echo, NULL, NULL));
    must(tmsg_server_register(scene->server, "unary", unary, NULL, NULL));
}

static void open_scene(scene_t *scene) { open_with(scene, NULL, NULL); }

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static tmsg_call_stream_t *open_timed(scene_t *scene, const char *method,
                                      int32_t timeout_ms)
{
    const tmsg_call_stream_params_t params = {
        .field_mask = TMSG_CALL_STREAM_PARAM_TIMEOUT, .timeout_ms = timeout_ms};
    const tmsg_call_stream_events_t events = {.field_mask =
                                                  TMSG_CALL_STREAM_EVENT_OVER,
                                              .on_over = on_end,
                                              .arg = scene};
    tmsg_map_t *map = sample_bytes(3, 300);
    tmsg_call_stream_t *stream;

    must(tmsg_endpoint_open_stream(scene->pair.to_a, method, map, &params,
                                   &stream));
    tmsg_map_destroy(map);
    must(tmsg_call_stream_set_events(stream, &events));
    return stream;
}

static bool is_seen(void *arg) { return ((scene_t *)arg)->kept != NULL; }
static bool is_told(void *arg)
{
    const scene_t *scene = arg;

    return scene->ends > 0 && scene->overs > 0;
}

static tmsg_call_stream_t *open_kept(scene_t *scene, int32_t timeout_ms)
{
    tmsg_call_stream_t *stream = open_timed(scene, "keep", timeout_ms);

    pair_await(&scene->pair, is_seen, scene, "a handler");
    return stream;
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

/* The server still serves, on the same place. */
static void check_alive(scene_t *scene)
{
    tmsg_call_stream_t *stream = open_timed(scene, "echo", -1);
    tmsg_message_t *message;

    pair_await(&scene->pair, is_over, stream, "the end of a stream");
    must(tmsg_call_stream_status(stream));
    must(tmsg_call_stream_try_recv(stream, &message));
    sample_check_bytes(3, 300, tmsg_message_map(message));
    tmsg_message_destroy(message);
    tmsg_call_stream_destroy(stream);
}

static void send_some(tmsg_call_stream_t *stream, unsigned count)
{
    tmsg_map_t *map = sample_bytes(1, 1000);

    for (unsigned i = 0; i < count; i++) {
        must(tmsg_call_stream_send(stream, map, NULL, NULL));
    }
    tmsg_map_destroy(map);
}

/* Each has heard of it once; nothing of it can be read, nothing be sent. */
static void expect_over(scene_t *scene, tmsg_call_stream_t *stream,
                        tmsg_status_t here, tmsg_status_t there)
{
    tmsg_message_t *message;

    pair_await(&scene->pair, is_told, scene, "both sides");
    must_be(scene->end, here);
    must_be(scene->over, there);
    must_eq(scene->ends + scene->overs, 2);
    must_be(tmsg_call_stream_try_recv(stream, &message), here);
    must_be(tmsg_call_stream_try_recv(scene->kept, &message), there);
    must_be(tmsg_call_stream_finish(stream), here);
    must_be(tmsg_call_stream_finish(scene->kept), there);
    must_be(tmsg_call_stream_end(scene->kept, TMSG_OK, 0, NULL, NULL), there);
    must_be(tmsg_call_stream_wait(stream, 0), here);
    tmsg_call_stream_destroy(stream);
    tmsg_call_stream_destroy(scene->kept);
    scene->kept = NULL;
}

Test(stream_ends, its_opener_cancels_one)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    stream = open_kept(&scene, -1);
    send_some(stream, 5);
    send_some(scene.kept, 5);
    tmsg_call_stream_cancel(stream);
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_CANCELED);
    expect_over(&scene, stream, TMSG_ERR_CANCELED, TMSG_ERR_CANCELED);
    check_alive(&scene);
    close_scene(&scene);
}

Test(stream_ends, its_server_cancels_one)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    stream = open_kept(&scene, -1);
    send_some(stream, 5);
    send_some(scene.kept, 5);
    tmsg_call_stream_cancel(scene.kept);
    must_be(tmsg_call_stream_status(scene.kept), TMSG_ERR_CANCELED);
    expect_over(&scene, stream, TMSG_ERR_CANCELED, TMSG_ERR_CANCELED);
    check_alive(&scene);
    close_scene(&scene);
}

Test(stream_ends, a_handle_that_is_destroyed_cancels)
{
    scene_t scene;
    unsigned overs;

    open_scene(&scene);
    for (overs = 1; overs < 20; overs++) {
        tmsg_call_stream_t *stream = open_kept(&scene, -1);

        send_some(stream, overs);
        tmsg_call_stream_destroy(stream);
        scene.overs = 0;
        scene.ends = 1;
        pair_await(&scene.pair, is_told, &scene, "the server");
        must_be(scene.over, TMSG_ERR_CANCELED);
        tmsg_call_stream_destroy(scene.kept);
        scene.kept = NULL;
    }
    check_alive(&scene);
    close_scene(&scene);
}

Test(stream_ends, a_cancel_before_it_was_sent_leaves_nothing)
{
    scene_t scene;
    tmsg_endpoint_t *endpoint;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    endpoint = side_dial(&scene.pair.b, &scene.pair.a);
    for (int i = 0; i < 3; i++) {
        must(tmsg_endpoint_open_stream(endpoint, "keep", NULL, NULL, &stream));
        send_some(stream, 3);
        tmsg_call_stream_cancel(stream);
        must_be(tmsg_call_stream_status(stream), TMSG_ERR_CANCELED);
        tmsg_call_stream_destroy(stream);
    }
    check_alive(&scene);
    must_eq(scene.seen, 0);
    tmsg_endpoint_destroy(endpoint);
    close_scene(&scene);
}

Test(stream_ends, a_deadline_ends_both_sides)
{
    scene_t scene;
    tmsg_call_stream_t *stream;
    int left;

    open_scene(&scene);
    stream = open_kept(&scene, 1500);
    left = tmsg_call_stream_remaining_ms(scene.kept);
    must_true(left >= 0 && left <= 1500);
    send_some(scene.kept, 5);
    pair_await(&scene.pair, is_told, &scene, "both sides");
    must_be(scene.end, TMSG_ERR_TIMED_OUT);
    if (scene.over != TMSG_ERR_CANCELED) { /* it was up there first */
        must_be(scene.over, TMSG_ERR_TIMED_OUT);
    }
    expect_over(&scene, stream, TMSG_ERR_TIMED_OUT, scene.over);
    check_alive(&scene);
    close_scene(&scene);
}

Test(stream_ends, the_end_of_the_server_ends_them)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    stream = open_kept(&scene, -1);
    must_be(tmsg_server_drain(scene.server, 0), TMSG_ERR_TIMED_OUT);
    pair_await(&scene.pair, is_told, &scene, "both sides");
    must_say(tmsg_call_stream_error(stream), "shut down");
    must_true(tmsg_call_stream_may_have_run(stream));
    expect_over(&scene, stream, TMSG_ERR_UNAVAILABLE, TMSG_ERR_UNAVAILABLE);
    stream = open_timed(&scene, "echo", -1);
    pair_await(&scene.pair, is_over, stream, "a refusal");
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_UNAVAILABLE);
    must_true(!tmsg_call_stream_may_have_run(stream));
    tmsg_call_stream_destroy(stream);
    close_scene(&scene);
}

Test(stream_ends, a_lost_connection_ends_them)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    stream = open_kept(&scene, -1);
    send_some(stream, 5);
    must(tmsg_endpoint_abort(scene.pair.to_b, TMSG_ERR_PEER_LOST, "gone"));
    expect_over(&scene, stream, TMSG_ERR_PEER_LOST, TMSG_ERR_PEER_LOST);
    must_be(
        tmsg_endpoint_open_stream(scene.pair.to_a, "echo", NULL, NULL, &stream),
        TMSG_ERR_PEER_LOST);
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
}

Test(stream_ends, an_endpoint_that_is_closed_ends_them)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    stream = open_kept(&scene, -1);
    send_some(stream, 256 + 63); /* which nobody reads */
    tmsg_server_destroy(scene.server);
    pair_close(&scene.pair);
    must_true(tmsg_call_stream_status(stream) < 0);
    must_true(tmsg_call_stream_status(scene.kept) < 0);
    tmsg_call_stream_destroy(stream);
    tmsg_call_stream_destroy(scene.kept);
}

Test(stream_ends, they_outlive_their_workers)
{
    scene_t scene;
    tmsg_call_stream_t *stream;
    tmsg_message_t *message;

    open_scene(&scene);
    stream = open_kept(&scene, -1);
    send_some(stream, 5);
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
    must_true(tmsg_call_stream_status(stream) < 0);
    must_be(tmsg_call_stream_recv(stream, 0, &message),
            tmsg_call_stream_status(stream));
    must_be(tmsg_call_stream_wait(stream, 0), tmsg_call_stream_status(stream));
    tmsg_call_stream_cancel(stream);
    tmsg_call_stream_destroy(stream);
    sample_check_bytes(3, 300, tmsg_call_stream_map(scene.kept));
    tmsg_call_stream_destroy(scene.kept);
}

static bool call_is_over(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static tmsg_status_t try_send(tmsg_call_stream_t *stream, const tmsg_map_t *map)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_TRY};

    return tmsg_call_stream_send(stream, map, &params, NULL);
}

/* Until there is no room. */
static unsigned fill(scene_t *scene, tmsg_call_stream_t *stream)
{
    tmsg_map_t *map = sample_bytes(1, 1000);
    unsigned count = 0;

    while (try_send(stream, map) == TMSG_OK) {
        tmsg_worker_progress(scene->pair.a.worker);
        tmsg_worker_progress(scene->pair.b.worker);
        count++;
        must_true(count < 10000);
    }
    must_be(try_send(stream, map), TMSG_ERR_WOULD_BLOCK);
    tmsg_map_destroy(map);
    return count;
}

/* One stuck stream, 15 others and calls beside it. */
Test(stream_ends, a_reader_that_does_not_read_stops_its_own_stream)
{
    enum { OTHERS = 15, MAPS = 700 };
    static flow_t here[OTHERS], there[OTHERS];
    scene_t scene;
    tmsg_call_stream_t *stuck, *stream;
    unsigned filled;
    char name[16];

    open_scene(&scene);
    stuck = open_kept(&scene, -1);
    filled = fill(&scene, stuck); /* a window, and its own queue */
    must_true(filled + 1 >= 256 + 64 && filled <= 256 + 64);
    fill(&scene, scene.kept);
    for (unsigned i = 0; i < OTHERS; i++) {
        flow_init(&here[i], 1000 * i, 500000 * i, MAPS);
        flow_init(&there[i], 500000 * i, 1000 * i, MAPS);
        there[i].serves = true;
        snprintf(name, sizeof(name), "flow%u", i);
        must(tmsg_server_register_stream(scene.server, name, flow_handler,
                                         &there[i], NULL));
        must(tmsg_endpoint_open_stream(scene.pair.to_a, name, NULL, NULL,
                                       &stream));
        flow_start(&here[i], stream);
    }
    for (unsigned i = 0; i < OTHERS; i++) {
        tmsg_call_t *call;

        must(tmsg_endpoint_call(scene.pair.to_a, "unary", NULL, NULL, &call));
        pair_await(&scene.pair, call_is_over, call, "a call");
        must(tmsg_call_status(call));
        tmsg_call_destroy(call);
        pair_await(&scene.pair, flow_is_over, &here[i], "a stream");
        must_be(here[i].status, TMSG_OK);
        must_eq(here[i].got + there[i].got, 2 * MAPS);
        flow_drop(&here[i]);
        flow_drop(&there[i]);
    }
    must_be(tmsg_call_stream_status(stuck), TMSG_IN_PROGRESS);
    must_eq(fill(&scene, stuck), 0);
    tmsg_call_stream_cancel(stuck);
    expect_over(&scene, stuck, TMSG_ERR_CANCELED, TMSG_ERR_CANCELED);
    check_alive(&scene);
    close_scene(&scene);
}

/* An end that waits for a reader is given up with the stream. */
Test(stream_ends, a_cancel_reaches_what_was_ended_behind_a_reader)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    stream = open_kept(&scene, -1);
    fill(&scene, scene.kept);
    must(tmsg_call_stream_end(scene.kept, TMSG_OK, 0, NULL, NULL));
    tmsg_call_stream_destroy(scene.kept);
    for (int i = 0; i < 100; i++) {
        tmsg_worker_progress(scene.pair.a.worker);
        tmsg_worker_progress(scene.pair.b.worker);
    }
    must_be(tmsg_call_stream_status(stream), TMSG_IN_PROGRESS);
    tmsg_call_stream_destroy(stream);
    check_alive(&scene);
    must(tmsg_server_drain(scene.server, 20000));
    close_scene(&scene);
}

Test(stream_ends, one_more_than_a_method_takes_is_refused)
{
    const tmsg_method_params_t two = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE,
        .concurrency = 1,
        .queue = 1};
    scene_t scene;
    tmsg_call_stream_t *first, *second, *third;

    open_with(&scene, NULL, &two);
    first = open_kept(&scene, -1);
    second = open_timed(&scene, "keep", -1);
    send_some(second, 3); /* which wait with it */
    third = open_timed(&scene, "keep", -1);
    pair_await(&scene.pair, is_over, third, "a refusal");
    must_be(tmsg_call_stream_status(third), TMSG_ERR_RESOURCE_EXHAUSTED);
    must_true(!tmsg_call_stream_may_have_run(third));
    must_eq(scene.seen, 1);
    must(tmsg_call_stream_end(scene.kept, TMSG_OK, 0, NULL, NULL));
    tmsg_call_stream_destroy(scene.kept);
    scene.kept = NULL;
    pair_await(&scene.pair, is_seen, &scene, "the second");
    must_be(tmsg_call_stream_status(second), TMSG_IN_PROGRESS);
    must(tmsg_call_stream_end(scene.kept, TMSG_OK, 0, NULL, NULL));
    tmsg_call_stream_destroy(scene.kept);
    pair_await(&scene.pair, is_over, second, "its end");
    must(tmsg_call_stream_status(second));
    tmsg_call_stream_destroy(first);
    tmsg_call_stream_destroy(second);
    tmsg_call_stream_destroy(third);
    close_scene(&scene);
}

Test(stream_ends, as_many_as_an_endpoint_takes)
{
    static tmsg_call_stream_t *streams[TMSG_STREAMS_OPEN_MOST];
    tmsg_call_stream_t *more;
    scene_t scene;

    open_scene(&scene);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < TMSG_STREAMS_OPEN_MOST; i++) {
            must(tmsg_endpoint_open_stream(scene.pair.to_a, "echo", NULL, NULL,
                                           &streams[i]));
        }
        must_be(tmsg_endpoint_open_stream(scene.pair.to_a, "echo", NULL, NULL,
                                          &more),
                TMSG_ERR_RESOURCE_EXHAUSTED);
        for (int i = 0; i < TMSG_STREAMS_OPEN_MOST; i++) {
            pair_await(&scene.pair, is_over, streams[i], "the end of one");
            must(tmsg_call_stream_status(streams[i]));
            tmsg_call_stream_destroy(streams[i]);
        }
    }
    check_alive(&scene);
    close_scene(&scene);
}

static bool request_is_over(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

/* One that is canceled while it waits is left out. */
Test(stream_ends, a_message_that_is_given_up_leaves_the_others)
{
    const uint32_t depth = 1;
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = depth}};
    scene_t scene;
    tmsg_call_stream_t *stream;
    tmsg_request_t *requests[3];
    tmsg_message_t *message;
    unsigned got = 0;

    open_with(&scene, &options, NULL);
    stream = open_kept(&scene, -1);
    for (unsigned i = 0; i < 3; i++) {
        tmsg_map_t *map = sample_bytes(i, 100);

        must(tmsg_call_stream_send(stream, map, NULL, &requests[i]));
        tmsg_map_destroy(map);
    }
    must_be(tmsg_request_cancel(requests[1]), TMSG_ERR_CANCELED);
    while (got < 2) {
        tmsg_worker_progress(scene.pair.a.worker);
        tmsg_worker_progress(scene.pair.b.worker);
        if (tmsg_call_stream_try_recv(scene.kept, &message) == TMSG_OK) {
            sample_check_bytes(2 * got++, 100, tmsg_message_map(message));
            tmsg_message_destroy(message);
        }
    }
    pair_await(&scene.pair, request_is_over, requests[2], "a send");
    for (int i = 0; i < 3; i++) {
        must_be(tmsg_request_test(requests[i]),
                i == 1 ? TMSG_ERR_CANCELED : TMSG_OK);
        tmsg_request_destroy(requests[i]);
    }
    must_be(tmsg_call_stream_status(stream), TMSG_IN_PROGRESS);
    tmsg_call_stream_destroy(stream);
    tmsg_call_stream_destroy(scene.kept);
    close_scene(&scene);
}

/* One that does not fit at the reader's ends the stream on both sides. */
Test(stream_ends, a_message_that_cannot_be_received_ends_it)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = 4 << 20}};
    scene_t scene;
    tmsg_call_stream_t *stream;
    tmsg_map_t *map = sample_bytes(1, 16 << 20);

    open_with(&scene, &options, NULL);
    stream = open_kept(&scene, -1);
    send_some(stream, 1);
    must(tmsg_call_stream_send(stream, map, NULL, NULL));
    tmsg_map_destroy(map);
    expect_over(&scene, stream, TMSG_ERR_LIMIT_EXCEEDED,
                TMSG_ERR_LIMIT_EXCEEDED);
    check_alive(&scene);
    close_scene(&scene);
}

static void destroy_it(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    scene->seen++;
    tmsg_call_stream_destroy(stream);
}

static void destroy_over(void *arg, tmsg_call_stream_t *stream,
                         tmsg_status_t status)
{
    must_be(status, TMSG_OK);
    destroy_it(arg, stream);
}

static bool was_destroyed(void *arg) { return ((scene_t *)arg)->seen > 0; }

Test(stream_ends, an_event_may_destroy_it)
{
    const tmsg_call_stream_events_t readable = {
        .field_mask =
            TMSG_CALL_STREAM_EVENT_READABLE | TMSG_CALL_STREAM_EVENT_OVER,
        .on_readable = destroy_it,
        .on_over = on_over};
    const tmsg_call_stream_events_t over = {
        .field_mask = TMSG_CALL_STREAM_EVENT_OVER, .on_over = destroy_over};
    scene_t scene;

    open_scene(&scene);
    for (int i = 0; i < 2; i++) {
        tmsg_call_stream_t *stream = open_timed(&scene, "echo", -1);
        tmsg_call_stream_events_t events = i == 0 ? readable : over;

        events.arg = &scene;
        scene.seen = 0;
        must(tmsg_call_stream_set_events(stream, &events));
        pair_await(&scene.pair, was_destroyed, &scene, "an event");
        must_eq(scene.seen, 1);
    }
    check_alive(&scene);
    must_eq(scene.overs, 0);
    close_scene(&scene);
}

static void not_asked_for(void *arg, tmsg_call_stream_t *stream)
{
    (void)arg;
    (void)stream;
    die("an event that field_mask does not name");
}

Test(stream_ends, events_are_those_that_field_mask_names)
{
    const tmsg_call_stream_events_t unknown = {.field_mask = 1 << 2};
    scene_t scene;
    tmsg_call_stream_t *stream;
    const tmsg_call_stream_events_t over = {.field_mask =
                                                TMSG_CALL_STREAM_EVENT_OVER,
                                            .on_readable = not_asked_for,
                                            .on_over = destroy_over,
                                            .arg = &scene};

    open_scene(&scene);
    stream = open_timed(&scene, "echo", -1);
    must(tmsg_call_stream_set_events(stream, &over));
    must_be(tmsg_call_stream_set_events(stream, &unknown),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "field_mask bits 0x4");
    pair_await(&scene.pair, was_destroyed, &scene, "an event");
    must_eq(scene.seen, 1);
    close_scene(&scene);
}

Test(stream_ends, waits_end_with_their_time_and_in_callbacks)
{
    scene_t scene;
    tmsg_call_stream_t *stream;
    tmsg_message_t *message;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                       .timeout_ms = 20};
    tmsg_map_t *map = sample_bytes(1, 10);

    open_scene(&scene);
    stream = open_kept(&scene, -1);
    must_be(tmsg_call_stream_recv(stream, 0, &message), TMSG_ERR_TIMED_OUT);
    must_be(tmsg_call_stream_recv(stream, 20, &message), TMSG_ERR_TIMED_OUT);
    must_be(tmsg_call_stream_wait(stream, 20), TMSG_ERR_TIMED_OUT);
    must_be(tmsg_call_stream_status(stream), TMSG_IN_PROGRESS);
    fill(&scene, stream);
    must_be(tmsg_call_stream_send(stream, map, &params, NULL),
            TMSG_ERR_TIMED_OUT);
    must_be(tmsg_call_stream_status(stream), TMSG_IN_PROGRESS);
    tmsg_map_destroy(map);
    tmsg_call_stream_destroy(stream);
    tmsg_call_stream_destroy(scene.kept);
    close_scene(&scene);
}

static atomic_int waited; /* what the handler's read said */
static atomic_uint begun; /* handlers */

static void wait_for_more(void *arg, tmsg_call_stream_t *stream)
{
    tmsg_message_t *message;
    tmsg_status_t status;

    (void)arg;
    begun++;
    do {
        message = NULL;
        status = tmsg_call_stream_recv(stream, -1, &message);
        tmsg_message_destroy(message);
    } while (status == TMSG_OK && message != NULL);
    waited = status;
}

static bool has_two_begun(void *arg)
{
    (void)arg;
    return begun == 2;
}

static bool has_begun(void *arg)
{
    (void)arg;
    return begun == 3;
}

static bool has_waited(void *arg)
{
    (void)arg;
    return waited != TMSG_IN_PROGRESS;
}

/* On a thread of the server's; by what ends its stream, and by its server's
 * end. */
Test(stream_ends, a_handler_that_waits_is_woken)
{
    const tmsg_server_params_t params = {
        .field_mask = TMSG_SERVER_PARAM_THREADS, .threads = 2};
    static scene_t scene;
    tmsg_call_stream_t *stream;

    pair_open(&scene.pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    must(tmsg_server_create(scene.pair.a.worker, &params, &scene.server));
    must(tmsg_server_register_stream(scene.server, "wait", wait_for_more,
                                     &scene, NULL));
    begun = 0;
    for (int i = 0; i < 2; i++) {
        waited = TMSG_IN_PROGRESS;
        must(tmsg_endpoint_open_stream(scene.pair.to_a, "wait", NULL, NULL,
                                       &stream));
        send_some(stream, 3);
        if (i == 0) {
            must(tmsg_call_stream_finish(stream));
            pair_await(&scene.pair, has_waited, NULL, "a handler");
            must_be((tmsg_status_t)waited, TMSG_OK);
            pair_await(&scene.pair, is_over, stream, "the end of a stream");
            must_be(tmsg_call_stream_status(stream), TMSG_ERR_INTERNAL);
        } else {
            pair_await(&scene.pair, has_two_begun, NULL, "a handler");
            tmsg_call_stream_cancel(stream);
            pair_await(&scene.pair, has_waited, NULL, "a handler");
            must_be((tmsg_status_t)waited, TMSG_ERR_CANCELED);
        }
        tmsg_call_stream_destroy(stream);
    }
    must(tmsg_endpoint_open_stream(scene.pair.to_a, "wait", NULL, NULL,
                                   &stream));
    send_some(stream, 3);
    pair_await(&scene.pair, has_begun, NULL, "a handler");
    tmsg_server_destroy(scene.server);
    pair_await(&scene.pair, is_over, stream, "the end of a stream");
    must_be(tmsg_call_stream_status(stream), TMSG_ERR_UNAVAILABLE);
    tmsg_call_stream_destroy(stream);
    pair_close(&scene.pair);
}

Test(stream_ends, a_peer_without_streams)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    scene.pair.to_a->peer_hello.features &= ~TMSG_FEATURE_STREAMS;
    must_be(
        tmsg_endpoint_open_stream(scene.pair.to_a, "echo", NULL, NULL, &stream),
        TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "this peer takes no streams");
    scene.pair.to_a->peer_hello.features |= TMSG_FEATURE_STREAMS;
    check_alive(&scene);
    close_scene(&scene);
}
