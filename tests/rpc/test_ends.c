/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: twice */
/* Calls that end in another way than by an answer: deadlines, cancels, drains,
 * connections that end. What comes too late harms nobody. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_task_t *task;     /* the newest that was kept */
    unsigned seen;
    tmsg_status_t over; /* what on_over said */
    unsigned overs, ends;
} scene_t;

static void on_over(void *arg, tmsg_task_t *task, tmsg_status_t status)
{
    scene_t *scene = arg;

    must_be(tmsg_task_status(task), status);
    scene->over = status;
    scene->overs++;
}

static void keep(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    scene->task = tmsg_task_keep(task);
    scene->seen++;
    tmsg_task_on_over(task, on_over, scene);
}

static void echo(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->seen++;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void open_with(scene_t *scene, const tmsg_server_params_t *params,
                      const tmsg_method_params_t *method)
{
    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, params, &scene->server));
    must(tmsg_server_register(scene->server, "keep", keep, scene, method));
    must(tmsg_server_register(scene->server, "echo", echo, scene, NULL));
}

static void open_scene(scene_t *scene) { open_with(scene, NULL, NULL); }

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static void done(void *arg, tmsg_call_t *call)
{
    (void)call;
    ((scene_t *)arg)->ends++;
}

static tmsg_call_t *start(scene_t *scene, const char *method,
                          int32_t timeout_ms)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT |
                                                     TMSG_CALL_PARAM_ON_DONE,
                                       .timeout_ms = timeout_ms,
                                       .on_done = done,
                                       .on_done_arg = scene};
    tmsg_map_t *map = sample_bytes(1, 100);
    tmsg_call_t *call;

    must(tmsg_endpoint_call(scene->pair.to_a, method, map, &params, &call));
    tmsg_map_destroy(map);
    return call;
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

static bool is_seen(void *arg) { return ((scene_t *)arg)->task != NULL; }
static bool is_over(void *arg) { return ((scene_t *)arg)->overs > 0; }
static bool is_told(void *arg) { return ((scene_t *)arg)->ends > 0; }

static tmsg_call_t *start_kept(scene_t *scene, int32_t timeout_ms)
{
    tmsg_call_t *call = start(scene, "keep", timeout_ms);

    pair_await(&scene->pair, is_seen, scene, "a call");
    return call;
}

/* The server still works, and has room. */
static void check_alive(scene_t *scene)
{
    tmsg_call_t *call = start(scene, "echo", 20000);

    must_be(finish(scene, call), TMSG_OK);
    sample_check_bytes(1, 100, tmsg_call_reply(call));
    tmsg_call_destroy(call);
}

/* Answers of all kinds to a task that is over say why, and do nothing. */
static void answer_late(scene_t *scene, tmsg_status_t status)
{
    must_be(tmsg_task_status(scene->task), status);
    must_be(tmsg_task_reply(scene->task, tmsg_task_map(scene->task), NULL),
            status);
    must_be(tmsg_task_fail(scene->task, TMSG_ERR_REFUSED, 1, "late", NULL),
            status);
    tmsg_task_destroy(scene->task);
    scene->task = NULL;
}

Test(ends, a_deadline_ends_the_call_on_both_sides)
{
    scene_t scene;
    tmsg_call_t *call;
    int left;

    open_scene(&scene);
    call = start_kept(&scene, 1500);
    left = tmsg_task_remaining_ms(scene.task);
    must_true(left >= 0 && left <= 1500);
    must_be(finish(&scene, call), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_call_error(call), "no reply in 1500 ms");
    must_true(tmsg_call_may_have_run(call));
    pair_await(&scene.pair, is_over, &scene, "the server's side of it");
    if (scene.over == TMSG_ERR_TIMED_OUT) { /* it was up here first */
        must_eq(tmsg_task_remaining_ms(scene.task), 0);
    } else {
        must_be(scene.over, TMSG_ERR_CANCELED);
    }
    answer_late(&scene, scene.over);
    pair_await(&scene.pair, is_told, &scene, "on_done");
    must_eq(scene.ends, 1);
    must_eq(scene.overs, 1);
    tmsg_call_destroy(call);
    check_alive(&scene);
    close_scene(&scene);
}

Test(ends, a_cancel_ends_the_call_on_both_sides)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    call = start_kept(&scene, -1);
    tmsg_call_cancel(call);
    must_be(tmsg_call_status(call), TMSG_ERR_CANCELED);
    tmsg_call_cancel(call);
    pair_await(&scene.pair, is_over, &scene, "the server's side of it");
    must_be(scene.over, TMSG_ERR_CANCELED);
    answer_late(&scene, TMSG_ERR_CANCELED);
    must_eq(scene.ends, 1);
    tmsg_call_destroy(call);
    check_alive(&scene);
    close_scene(&scene);
}

Test(ends, a_handle_that_is_destroyed_cancels_and_is_told_nothing)
{
    scene_t scene;

    open_scene(&scene);
    tmsg_call_destroy(start_kept(&scene, -1));
    pair_await(&scene.pair, is_over, &scene, "the server's side of it");
    answer_late(&scene, TMSG_ERR_CANCELED);
    check_alive(&scene);
    must_eq(scene.ends, 1); /* of that */
    close_scene(&scene);
}

Test(ends, a_cancel_before_it_was_sent_leaves_nothing)
{
    scene_t scene;
    tmsg_endpoint_t *endpoint;
    tmsg_call_t *call;

    open_scene(&scene);
    endpoint = side_dial(&scene.pair.b, &scene.pair.a);
    must(tmsg_endpoint_call(endpoint, "echo", NULL, NULL, &call));
    tmsg_call_cancel(call);
    check_alive(&scene);
    must_eq(scene.seen, 1);
    tmsg_call_destroy(call);
    tmsg_endpoint_destroy(endpoint);
    close_scene(&scene);
}

Test(ends, the_end_of_the_server_ends_what_is_not_answered)
{
    scene_t scene;
    tmsg_call_t *call, *late;

    open_scene(&scene);
    call = start_kept(&scene, -1);
    must_be(tmsg_server_drain(scene.server, 0), TMSG_ERR_TIMED_OUT);
    pair_await(&scene.pair, is_over, &scene, "the server's side of it");
    answer_late(&scene, TMSG_ERR_UNAVAILABLE);
    must_be(finish(&scene, call), TMSG_ERR_UNAVAILABLE);
    must_true(tmsg_call_may_have_run(call));
    tmsg_call_destroy(call);
    late = start(&scene, "echo", -1);
    must_be(finish(&scene, late), TMSG_ERR_UNAVAILABLE);
    must_say(tmsg_call_error(late), "shut down");
    must_true(!tmsg_call_may_have_run(late));
    tmsg_call_destroy(late);
    must(tmsg_server_drain(scene.server, -1));
    close_scene(&scene);
}

Test(ends, a_task_outlives_its_server_and_its_worker)
{
    scene_t scene;
    tmsg_call_t *call;
    tmsg_task_t *task;

    open_scene(&scene);
    call = start_kept(&scene, -1);
    task = scene.task;
    tmsg_server_destroy(scene.server);
    must_be(tmsg_task_reply(task, NULL, NULL), TMSG_ERR_UNAVAILABLE);
    must_be(finish(&scene, call), TMSG_ERR_UNAVAILABLE);
    pair_close(&scene.pair);
    must_be(tmsg_task_reply(task, NULL, NULL), TMSG_ERR_UNAVAILABLE);
    sample_check_bytes(1, 100, tmsg_task_map(task));
    tmsg_task_destroy(task);
    must_be(tmsg_call_status(call), TMSG_ERR_UNAVAILABLE);
    tmsg_call_destroy(call);
}

Test(ends, a_call_outlives_its_worker)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    call = start_kept(&scene, -1);
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
    must_true(tmsg_call_status(call) < 0);
    must_be(tmsg_call_wait(call, 0), tmsg_call_status(call));
    tmsg_call_cancel(call);
    tmsg_call_destroy(call);
    tmsg_task_destroy(scene.task);
}

typedef struct {
    tmsg_task_t *first;
    unsigned answers;
} answered_t;

static void answer_first(void *arg, tmsg_task_t *task, tmsg_status_t status)
{
    answered_t *that = arg;

    must_be(status, TMSG_ERR_CANCELED);
    must(tmsg_task_reply(that->first, NULL, NULL));
    tmsg_task_destroy(that->first);
    tmsg_task_destroy(task);
    that->answers++;
}

/* A cancel that comes meanwhile has the other call answered, behind which the
 * third has its turn. */
Test(ends, a_server_that_is_drained_waits_for_the_answers)
{
    const tmsg_server_params_t params = {
        .field_mask = TMSG_SERVER_PARAM_CONCURRENCY, .concurrency = 2};
    answered_t that = {.answers = 0};
    scene_t scene;
    tmsg_call_t *call, *canceled, *waiting, *health;

    open_with(&scene, &params, NULL);
    call = start_kept(&scene, -1);
    that.first = scene.task;
    scene.task = NULL;
    canceled = start_kept(&scene, -1);
    tmsg_task_on_over(scene.task, answer_first, &that);
    waiting = start(&scene, "echo", -1);
    must(tmsg_endpoint_call(scene.pair.to_a, "tensormsg.health", NULL, NULL,
                            &health));
    must_be(finish(&scene, health), TMSG_OK); /* so that one is here, too */
    tmsg_call_cancel(canceled);
    side_await(&scene.pair.b, is_told, &scene, "on_done");
    must_eq(that.answers, 0);
    must(tmsg_server_drain(scene.server, 20000));
    must_eq(that.answers, 1);
    must_eq(scene.seen, 3);
    must_be(finish(&scene, call), TMSG_OK);
    must_be(finish(&scene, waiting), TMSG_OK);
    tmsg_call_destroy(call);
    tmsg_call_destroy(canceled);
    tmsg_call_destroy(waiting);
    tmsg_call_destroy(health);
    close_scene(&scene);
}

Test(ends, a_lost_connection_says_that_the_call_may_have_run)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    call = start_kept(&scene, -1);
    must(tmsg_endpoint_abort(scene.pair.to_b, TMSG_ERR_PEER_LOST, "gone"));
    must_be(finish(&scene, call), TMSG_ERR_PEER_LOST);
    must_true(tmsg_call_may_have_run(call));
    pair_await(&scene.pair, is_over, &scene, "the server's side of it");
    answer_late(&scene, TMSG_ERR_PEER_LOST);
    must_be(tmsg_endpoint_call(scene.pair.to_a, "echo", NULL, NULL, NULL),
            TMSG_ERR_PEER_LOST);
    tmsg_call_destroy(call);
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
}

Test(ends, what_never_left_did_not_run)
{
    side_t silent, side;
    tmsg_endpoint_t *endpoint;
    tmsg_call_t *call;

    side_open(&silent, NULL);
    side_listen(&silent, "tcp://127.0.0.1:0"); /* and nobody drives it */
    side_open(&side, NULL);
    endpoint = side_dial(&side, &silent);
    must(tmsg_endpoint_call(endpoint, "echo", NULL, NULL, &call));
    must(tmsg_endpoint_abort(endpoint, TMSG_ERR_REFUSED, "no more"));
    must_be(tmsg_call_wait(call, 20000), TMSG_ERR_CANCELED);
    must_say(tmsg_call_error(call), "no handler saw the call");
    must_true(!tmsg_call_may_have_run(call));
    tmsg_call_destroy(call);
    side_close(&side);
    side_close(&silent);
}

Test(ends, more_calls_than_a_method_takes_end_at_once)
{
    const tmsg_method_params_t one = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE,
        .concurrency = 1,
        .queue = 1};
    scene_t scene;
    tmsg_call_t *first, *second, *third;
    tmsg_task_t *task;

    open_with(&scene, NULL, &one);
    first = start_kept(&scene, -1);
    task = scene.task;
    second = start(&scene, "keep", -1);
    third = start(&scene, "keep", -1);
    must_be(finish(&scene, third), TMSG_ERR_RESOURCE_EXHAUSTED);
    must_say(tmsg_call_error(third), "the method has as many calls");
    must_true(!tmsg_call_may_have_run(third));
    must_eq(scene.seen, 1);
    check_alive(&scene); /* another method */
    scene.task = NULL;
    must(tmsg_task_reply(task, NULL, NULL));
    tmsg_task_destroy(task);
    must_be(finish(&scene, first), TMSG_OK);
    pair_await(&scene.pair, is_seen, &scene, "the second call");
    must(tmsg_task_reply(scene.task, NULL, NULL));
    tmsg_task_destroy(scene.task);
    must_be(finish(&scene, second), TMSG_OK);
    tmsg_call_destroy(first);
    tmsg_call_destroy(second);
    tmsg_call_destroy(third);
    close_scene(&scene);
}

Test(ends, a_call_that_expires_while_it_waits_never_runs)
{
    const tmsg_server_params_t one = {
        .field_mask = TMSG_SERVER_PARAM_CONCURRENCY, .concurrency = 1};
    scene_t scene;
    tmsg_call_t *first, *second;

    open_with(&scene, &one, NULL);
    first = start_kept(&scene, -1);
    second = start(&scene, "echo", 100);
    must_be(finish(&scene, second), TMSG_ERR_TIMED_OUT);
    must(tmsg_task_reply(scene.task, NULL, NULL));
    tmsg_task_destroy(scene.task);
    must_be(finish(&scene, first), TMSG_OK);
    check_alive(&scene);
    must_eq(scene.seen, 2); /* the first, and this one */
    tmsg_call_destroy(first);
    tmsg_call_destroy(second);
    close_scene(&scene);
}
