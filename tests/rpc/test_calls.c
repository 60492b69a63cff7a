/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: twice */
/* Calls and their answers, at once and later, good and bad. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { MANY = 100 };

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void fail(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_fail(task, TMSG_ERR_APPLICATION, 42,
                        "the model is \xc3\xbcn", tmsg_task_map(task)));
}

static void forget(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)task;
}

typedef struct {
    tmsg_task_t *tasks[MANY];
    unsigned count;
} kept_t;

static void keep(void *arg, tmsg_task_t *task)
{
    kept_t *kept = arg;

    must_true(kept->count < MANY);
    kept->tasks[kept->count++] = tmsg_task_keep(task);
}

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    kept_t kept;
} scene_t;

static void open_with(scene_t *scene, link_t link, drive_t drive,
                      const tmsg_server_params_t *params)
{
    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, link, drive, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, params, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, NULL, NULL));
    must(tmsg_server_register(scene->server, "fail", fail, NULL, NULL));
    must(tmsg_server_register(scene->server, "forget", forget, NULL, NULL));
    must(tmsg_server_register(scene->server, "keep", keep, &scene->kept, NULL));
}

static void open_scene(scene_t *scene)
{
    open_with(scene, LINK_SHM, DRIVE_POLLING, NULL);
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

static tmsg_status_t finish(scene_t *scene, tmsg_call_t *call)
{
    pair_await(&scene->pair, has_ended, call, "the end of a call");
    return tmsg_call_status(call);
}

static bool is_kept(void *arg)
{
    const scene_t *scene = arg;

    return scene->kept.count > 0;
}

static tmsg_call_t *start(scene_t *scene, const char *method, uint64_t seed,
                          size_t bytes, int32_t timeout_ms)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                       .timeout_ms = timeout_ms};
    tmsg_map_t *map = sample_bytes(seed, bytes);
    tmsg_call_t *call;

    must(tmsg_endpoint_call(scene->pair.to_a, method, map, &params, &call));
    tmsg_map_destroy(map);
    return call;
}

static void echo_over(link_t link, drive_t drive)
{
    static const size_t sizes[] = {0, 1, 64, 5000, 300000, 5000000};
    scene_t scene;

    open_with(&scene, link, drive, NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        tmsg_call_t *call = start(&scene, "echo", i, sizes[i], -1);

        must_be(finish(&scene, call), TMSG_OK);
        sample_check_bytes(i, sizes[i], tmsg_call_reply(call));
        cr_assert(eq(str, (char *)tmsg_call_error(call), ""));
        tmsg_call_destroy(call);
    }
    close_scene(&scene);
}

Test(calls, answer_with_a_map_over_shared_memory)
{
    echo_over(LINK_SHM, DRIVE_POLLING);
}

Test(calls, answer_with_a_map_over_tcp) { echo_over(LINK_TCP, DRIVE_FD); }

Test(calls, answer_with_a_map_over_a_unix_socket)
{
    echo_over(LINK_UNIX, DRIVE_THREAD);
}

Test(calls, answer_with_a_map_to_a_blob)
{
    echo_over(LINK_BLOB, DRIVE_POLLING);
}

Test(calls, take_no_map_and_answer_with_none)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    must(tmsg_endpoint_call(scene.pair.to_a, "echo", NULL, NULL, &call));
    must_be(finish(&scene, call), TMSG_OK);
    must_eq(tmsg_map_size(tmsg_call_reply(call)), 0);
    tmsg_call_destroy(call);
    close_scene(&scene);
}

Test(calls, go_both_ways_over_one_connection)
{
    tmsg_server_t *other;
    scene_t scene;
    tmsg_call_t *there, *back;

    open_scene(&scene);
    must(tmsg_server_create(scene.pair.b.worker, NULL, &other));
    must(tmsg_server_register(other, "echo", echo, NULL, NULL));
    there = start(&scene, "echo", 1, 100, -1);
    must(tmsg_endpoint_call(scene.pair.to_b, "echo", NULL, NULL, &back));
    must_be(finish(&scene, there), TMSG_OK);
    must_be(finish(&scene, back), TMSG_OK);
    tmsg_call_destroy(there);
    tmsg_call_destroy(back);
    tmsg_server_destroy(other);
    close_scene(&scene);
}

Test(calls, are_beside_messages_and_reach_no_handler)
{
    scene_t scene;
    tmsg_call_t *call;
    tmsg_request_t *sent;
    tmsg_message_t *message;

    open_scene(&scene);
    sent = send_map(scene.pair.to_a, sample_bytes(7, 100), TMSG_SEND_ACKED);
    call = start(&scene, "echo", 8, 100, -1);
    must_be(finish(&scene, call), TMSG_OK);
    message = pair_take(&scene.pair, &scene.pair.a);
    sample_check_bytes(7, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&scene.pair, sent));
    must_be(tmsg_worker_recv(scene.pair.a.worker, 0, &message),
            TMSG_ERR_TIMED_OUT);
    tmsg_call_destroy(call);
    close_scene(&scene);
}

Test(calls, fail_with_the_status_code_words_and_details_of_the_handler)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    call = start(&scene, "fail", 9, 100, -1);
    must_be(finish(&scene, call), TMSG_ERR_APPLICATION);
    must_eq(tmsg_call_code(call), 42);
    must_say(tmsg_call_error(call), "method 'fail': the model is \xc3\xbcn");
    must_say(tmsg_call_error(call), tmsg_endpoint_peer(scene.pair.to_a));
    must_true(tmsg_call_may_have_run(call));
    sample_check_bytes(9, 100, tmsg_call_reply(call));
    tmsg_call_destroy(call);
    close_scene(&scene);
}

Test(calls, end_with_internal_where_the_handler_forgets_them)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    call = start(&scene, "forget", 0, 100, -1);
    must_be(finish(&scene, call), TMSG_ERR_INTERNAL);
    must_say(tmsg_call_error(call), "without an answer");
    tmsg_call_destroy(call);
    close_scene(&scene);
}

Test(calls, to_a_method_that_there_is_not_say_so)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    call = start(&scene, "nothing", 0, 5000000, -1);
    must_be(finish(&scene, call), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_call_error(call), "method 'nothing'");
    must_say(tmsg_call_error(call), "no handler saw the call");
    must_true(!tmsg_call_may_have_run(call));
    must_true(tmsg_call_reply(call) == NULL);
    tmsg_call_destroy(call);
    close_scene(&scene);
}

Test(calls, where_nobody_serves_say_so)
{
    tmsg_call_t *call;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_call(pair.to_a, "echo", NULL, NULL, &call));
    pair_await(&pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_ERR_UNAVAILABLE);
    must_say(tmsg_call_error(call), "nobody serves here");
    must_true(!tmsg_call_may_have_run(call));
    tmsg_call_destroy(call);
    pair_close(&pair);
}

Test(calls, are_answered_later_and_in_any_order)
{
    tmsg_call_t *calls[MANY];
    scene_t scene;

    open_scene(&scene);
    for (unsigned i = 0; i < MANY; i++) {
        calls[i] = start(&scene, "keep", i, 10 + i, -1);
        while (scene.kept.count <= i) {
            pair_await(&scene.pair, is_kept, &scene, "a call");
            tmsg_worker_progress(scene.pair.a.worker);
        }
    }
    for (unsigned i = MANY; i-- > 0;) {
        tmsg_task_t *task = scene.kept.tasks[i];

        must_be(tmsg_task_status(task), TMSG_OK);
        must_eq(tmsg_task_remaining_ms(task), -1);
        must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
        must_be(tmsg_task_status(task), TMSG_ERR_ALREADY_EXISTS);
        must_be(tmsg_task_reply(task, NULL, NULL), TMSG_ERR_ALREADY_EXISTS);
        must_be(tmsg_task_fail(task, TMSG_ERR_REFUSED, 0, NULL, NULL),
                TMSG_ERR_ALREADY_EXISTS);
        tmsg_task_destroy(task);
    }
    for (unsigned i = 0; i < MANY; i++) {
        must_be(finish(&scene, calls[i]), TMSG_OK);
        sample_check_bytes(i, 10 + i, tmsg_call_reply(calls[i]));
        tmsg_call_destroy(calls[i]);
    }
    close_scene(&scene);
}

static void note(void *arg, tmsg_call_t *call)
{
    must_true(tmsg_call_status(call) != TMSG_IN_PROGRESS);
    ++*(unsigned *)arg;
}

static bool is_noted(void *arg) { return *(unsigned *)arg > 0; }

static void note_release(void *arg) { ++*(unsigned *)arg; }

Test(calls, tell_of_their_end_without_a_handle_and_give_back_what_was_lent)
{
    uint8_t data[100] = {1};
    const int64_t shape[] = {100};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    unsigned ends = 0, releases = 0;
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_DONE |
                                                     TMSG_CALL_PARAM_ON_RELEASE,
                                       .on_done = note,
                                       .on_done_arg = &ends,
                                       .on_release = note_release,
                                       .on_release_arg = &releases};
    scene_t scene;
    tmsg_map_t *map;

    open_scene(&scene);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    must(tmsg_endpoint_call(scene.pair.to_a, "echo", map, &params, NULL));
    pair_await(&scene.pair, is_noted, &ends, "the end of a call");
    must_eq(ends, 1);
    must_eq(releases, 1);
    must(tmsg_map_clear(map));
    tmsg_map_destroy(map);
    close_scene(&scene);
}

Test(calls, may_be_made_before_the_connection_stands)
{
    scene_t scene;
    tmsg_endpoint_t *endpoint;
    tmsg_call_t *call;

    open_scene(&scene);
    endpoint = side_dial(&scene.pair.b, &scene.pair.a);
    must(tmsg_endpoint_call(endpoint, "echo", NULL, NULL, &call));
    must_be(finish(&scene, call), TMSG_OK);
    tmsg_call_destroy(call);
    tmsg_endpoint_destroy(endpoint);
    close_scene(&scene);
}

static void refuse_params(tmsg_endpoint_t *endpoint, const char *method,
                          uint64_t mask, int32_t timeout_ms, const char *words)
{
    const tmsg_call_params_t params = {.field_mask = mask,
                                       .timeout_ms = timeout_ms};
    tmsg_call_t *call = NULL;

    must_be(tmsg_endpoint_call(endpoint, method, NULL, &params, &call),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), words);
    must_true(call == NULL);
}

Test(calls, refuse_what_they_cannot_take)
{
    char longest[TMSG_METHOD_BYTES_MAX + 2];
    scene_t scene;
    tmsg_server_t *second = NULL;
    const tmsg_server_params_t none = {.field_mask =
                                           TMSG_SERVER_PARAM_CONCURRENCY};
    const tmsg_server_params_t threads = {
        .field_mask = TMSG_SERVER_PARAM_THREADS, .threads = 1};
    const tmsg_method_params_t method = {.field_mask =
                                             TMSG_METHOD_PARAM_CONCURRENCY};

    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    open_scene(&scene);
    refuse_params(scene.pair.to_a, NULL, 0, 0, "not NULL");
    refuse_params(scene.pair.to_a, "", 0, 0, "1 to 128 bytes");
    refuse_params(scene.pair.to_a, longest, 0, 0, "1 to 128 bytes");
    refuse_params(scene.pair.to_a, "\xff", 0, 0, "UTF-8");
    refuse_params(scene.pair.to_a, "echo", 1 << 20, 0,
                  "field_mask bits 0x100000");
    refuse_params(scene.pair.to_a, "echo", TMSG_CALL_PARAM_TIMEOUT, 0,
                  "timeout_ms 0");
    refuse_params(scene.pair.to_a, "echo", TMSG_CALL_PARAM_TIMEOUT, -2,
                  "timeout_ms -2");
    must_be(tmsg_server_register(scene.server, "echo", echo, NULL, NULL),
            TMSG_ERR_ALREADY_EXISTS);
    must_be(tmsg_server_register(scene.server, "tensormsg.x", echo, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_server_register(scene.server, "x", NULL, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_server_register(scene.server, "x", echo, NULL, &method),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_server_create(scene.pair.a.worker, NULL, &second),
            TMSG_ERR_ALREADY_EXISTS);
    must_be(tmsg_server_create(scene.pair.b.worker, &none, &second),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_server_create(scene.pair.b.worker, &threads, &second),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "TMSG_WORKER_SHARED");
    close_scene(&scene);
}

Test(calls, are_not_reached_by_the_channels_of_messages)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                       .channel = 1024};
    tmsg_map_t *map = sample_bytes(0, 10);
    scene_t scene;

    open_scene(&scene);
    must_be(tmsg_endpoint_send(scene.pair.to_a, map, &params, NULL),
            TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "channel 1024");
    tmsg_map_destroy(map);
    close_scene(&scene);
}
