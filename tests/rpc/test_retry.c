/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that are made again: when, how often, and when not. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "rpc/caller.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_task_t *task;     /* that was kept */
    unsigned seen, fails;  /* of "weak", which fails so often first */
    unsigned ends, releases;
} scene_t;

static void weak(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;

    if (scene->seen++ < scene->fails) {
        must(tmsg_task_fail(task, TMSG_ERR_UNAVAILABLE, 7, "not now", NULL));
    } else {
        must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
    }
}

static void keep(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->task = tmsg_task_keep(task);
    ((scene_t *)arg)->seen++;
}

static void open_scene(scene_t *scene)
{
    const tmsg_method_params_t safe = {.field_mask = TMSG_METHOD_PARAM_FLAGS,
                                       .flags = TMSG_METHOD_IDEMPOTENT};
    const tmsg_method_params_t one = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE,
        .concurrency = 1,
        .queue = 0};

    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "weak", weak, scene, NULL));
    must(tmsg_server_register(scene->server, "safe", weak, scene, &safe));
    must(tmsg_server_register(scene->server, "keep", keep, scene, &one));
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

static void on_done(void *arg, tmsg_call_t *call)
{
    must_true(tmsg_call_status(call) != TMSG_IN_PROGRESS);
    ((scene_t *)arg)->ends++;
}

static void on_release(void *arg) { ((scene_t *)arg)->releases++; }

static tmsg_call_t *start(scene_t *scene, const char *method, uint32_t flags,
                          tmsg_retry_t retry, int32_t timeout_ms)
{
    const tmsg_call_params_t params = {
        .field_mask = TMSG_CALL_PARAM_TIMEOUT | TMSG_CALL_PARAM_ON_DONE |
                      TMSG_CALL_PARAM_ON_RELEASE | TMSG_CALL_PARAM_FLAGS |
                      TMSG_CALL_PARAM_RETRY,
        .timeout_ms = timeout_ms,
        .on_done = on_done,
        .on_done_arg = scene,
        .on_release = on_release,
        .on_release_arg = scene,
        .flags = flags,
        .retry = retry};
    tmsg_map_t *map = sample_bytes(1, 3000);
    tmsg_call_t *call;

    must(tmsg_endpoint_call(scene->pair.to_a, method, map, &params, &call));
    tmsg_map_destroy(map);
    return call;
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static bool is_given_back(void *arg)
{
    const scene_t *scene = arg;

    return scene->ends > 0 && scene->releases > 0;
}

/* Its end, with all that goes with it, once. */
static void finish(scene_t *scene, tmsg_call_t *call, tmsg_status_t status,
                   uint32_t attempts)
{
    pair_await(&scene->pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), status);
    if (attempts > 0) {
        must_eq(tmsg_call_attempts(call), attempts);
    }
    pair_await(&scene->pair, is_given_back, scene, "what was lent");
    must_eq(scene->ends, 1);
    must_eq(scene->releases, 1);
    scene->ends = scene->releases = 0;
    tmsg_call_destroy(call);
}

static const tmsg_retry_t quick = {5, 1, 4};

Test(retry, what_did_not_run_is_made_again)
{
    scene_t scene;
    tmsg_call_t *first, *second;

    open_scene(&scene);
    first = start(&scene, "keep", 0, quick, -1);
    while (scene.task == NULL) {
        tmsg_worker_progress(scene.pair.a.worker);
        tmsg_worker_progress(scene.pair.b.worker);
    }
    second = start(&scene, "keep", 0, (tmsg_retry_t){100, 1, 10}, 20000);
    while (tmsg_call_attempts(second) < 3) {
        tmsg_worker_progress(scene.pair.a.worker);
        tmsg_worker_progress(scene.pair.b.worker);
    }
    must(tmsg_task_reply(scene.task, NULL, NULL));
    tmsg_task_destroy(scene.task);
    scene.task = NULL;
    finish(&scene, first, TMSG_OK, 1);
    while (scene.task == NULL) {
        tmsg_worker_progress(scene.pair.a.worker);
        tmsg_worker_progress(scene.pair.b.worker);
    }
    must_eq(scene.seen, 2);
    must(tmsg_task_reply(scene.task, NULL, NULL));
    tmsg_task_destroy(scene.task);
    finish(&scene, second, TMSG_OK, 0);
    close_scene(&scene);
}

Test(retry, what_may_have_run_only_where_that_is_as_once)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    scene.fails = 2;
    finish(&scene, start(&scene, "weak", 0, quick, -1), TMSG_ERR_UNAVAILABLE,
           1);
    must_eq(scene.seen, 1);
    scene.seen = 0;
    finish(&scene, start(&scene, "weak", TMSG_CALL_IDEMPOTENT, quick, -1),
           TMSG_OK, 3);
    scene.seen = 0;
    finish(&scene, start(&scene, "safe", 0, quick, -1), TMSG_OK, 3);
    scene.seen = 0;
    scene.fails = 1000;
    must(tmsg_endpoint_set_retry_budget(scene.pair.to_a, 0, 0));
    call = start(&scene, "safe", 0, quick, -1);
    pair_await(&scene.pair, has_ended, call, "the end of a call");
    must_say(tmsg_call_error(call), "not now (5 attempts)");
    must_eq(tmsg_call_code(call), 7);
    must_true(tmsg_call_may_have_run(call));
    finish(&scene, call, TMSG_ERR_UNAVAILABLE, 5);
    must_eq(scene.seen, 5);
    close_scene(&scene);
}

Test(retry, none_begins_after_the_deadline)
{
    scene_t scene;

    open_scene(&scene);
    scene.fails = 1000;
    finish(&scene,
           start(&scene, "safe", 0, (tmsg_retry_t){5, 60000, 60000}, 20000),
           TMSG_ERR_UNAVAILABLE, 1);
    close_scene(&scene);
}

Test(retry, the_budget_of_the_endpoint_ends_them)
{
    scene_t scene;

    open_scene(&scene);
    scene.fails = 3;
    must(tmsg_endpoint_set_retry_budget(scene.pair.to_a, 4, 1000));
    /* Three tokens are more than half, two are not. */
    finish(&scene, start(&scene, "safe", 0, quick, -1), TMSG_ERR_UNAVAILABLE,
           2);
    finish(&scene, start(&scene, "safe", 0, quick, -1), TMSG_ERR_UNAVAILABLE,
           1);
    for (int i = 0; i < 3; i++) { /* give one back each: four are most */
        finish(&scene, start(&scene, "safe", 0, quick, -1), TMSG_OK, 1);
    }
    scene.seen = 2;
    finish(&scene, start(&scene, "safe", 0, quick, -1), TMSG_OK, 2);
    must_be(tmsg_endpoint_set_retry_budget(scene.pair.to_a, 1001, 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_set_retry_budget(scene.pair.to_a, 1, 1000001),
            TMSG_ERR_INVALID_PARAM);
    close_scene(&scene);
}

static bool has_been_seen(void *arg) { return ((scene_t *)arg)->seen > 0; }

/* It waits for its second attempt for longer than the test. */
static tmsg_call_t *start_waiting(scene_t *scene, int32_t timeout_ms)
{
    tmsg_call_t *call;

    scene->fails = 1000;
    call =
        start(scene, "safe", 0, (tmsg_retry_t){5, 100000, 100000}, timeout_ms);
    pair_await(&scene->pair, has_been_seen, scene, "an attempt");
    return call;
}

/* How long it would wait behind that many attempts, as a part of `full`. */
static double wait_of(tmsg_call_t *call, unsigned attempts, uint64_t full_ms)
{
    uint64_t now = tmsg_calls_now_ns();

    tmsg_hub_forgo(call->peer->hub, &call->backoff);
    atomic_store(&call->attempts, attempts);
    must_true(tmsg_call_again(call, TMSG_ERR_BUSY, false, false));
    return (double)(call->backoff.at_ns - now) / 1e6 / (double)full_ms;
}

Test(retry, waits_twice_as_long_each_time_up_to_a_bound_and_not_all_alike)
{
    static const uint64_t full_ms[] = {100000, 200000, 400000, 500000, 500000};
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    must(tmsg_endpoint_set_retry_budget(scene.pair.to_a, 0, 0));
    scene.fails = 1000;
    call = start(&scene, "safe", 0, (tmsg_retry_t){100, 100000, 500000}, -1);
    pair_await(&scene.pair, has_been_seen, &scene, "an attempt");
    while (call->backoff.at_ns == 0) {
        tmsg_worker_progress(scene.pair.b.worker);
    }
    for (unsigned i = 0; i < 5; i++) {
        double least = 2, most = 0;

        for (int n = 0; n < 100; n++) {
            double part = wait_of(call, i + 1, full_ms[i]);

            least = part < least ? part : least;
            most = part > most ? part : most;
        }
        must_true(least >= 0.5 && most < 1.01);
        must_true(most - least > 0.25); /* of a half, by chance */
    }
    atomic_store(&call->attempts, 1);
    tmsg_call_cancel(call);
    finish(&scene, call, TMSG_ERR_CANCELED, 1);
    close_scene(&scene);
}

Test(retry, a_call_that_waits_for_its_next_attempt_can_be_canceled)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    call = start_waiting(&scene, -1);
    for (int i = 0; i < 1000; i++) {
        tmsg_worker_progress(scene.pair.b.worker);
    }
    must_be(tmsg_call_status(call), TMSG_IN_PROGRESS);
    tmsg_call_cancel(call);
    finish(&scene, call, TMSG_ERR_CANCELED, 1);
    close_scene(&scene);
}

Test(retry, a_call_that_waits_for_its_next_attempt_ends_with_its_connection)
{
    scene_t scene;
    tmsg_call_t *call;

    open_scene(&scene);
    call = start_waiting(&scene, -1);
    must(tmsg_endpoint_abort(scene.pair.to_b, TMSG_ERR_PEER_LOST, "gone"));
    finish(&scene, call, TMSG_ERR_PEER_LOST, 1);
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
}

/* A call that waits for a server, without further attempts. */
static tmsg_call_t *start_to_wait(scene_t *scene, const char *method,
                                  int32_t timeout_ms)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT |
                                                     TMSG_CALL_PARAM_FLAGS,
                                       .timeout_ms = timeout_ms,
                                       .flags = TMSG_CALL_WAIT};
    tmsg_call_t *call;

    must(tmsg_endpoint_call(scene->pair.to_a, method, NULL, &params, &call));
    return call;
}

static bool was_made_thrice(void *arg) { return tmsg_call_attempts(arg) >= 3; }

static void finish_waiting(scene_t *scene, tmsg_call_t *call,
                           tmsg_status_t status, const char *words)
{
    pair_await(&scene->pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), status);
    if (words != NULL) {
        must_say(tmsg_call_error(call), words);
        must_true(!tmsg_call_may_have_run(call));
    }
    tmsg_call_destroy(call);
}

/* More attempts find it not ready than the call and its endpoint have. */
Test(retry, waits_for_a_server_that_is_not_ready)
{
    const tmsg_server_params_t unready = {.field_mask = TMSG_SERVER_PARAM_FLAGS,
                                          .flags = TMSG_SERVER_NOT_READY};
    tmsg_call_t *call, *waiting;
    scene_t scene;

    open_scene(&scene);
    tmsg_server_destroy(scene.server);
    must(tmsg_endpoint_set_retry_budget(scene.pair.to_a, 2, 0));
    call = start(&scene, "weak", 0, (tmsg_retry_t){2, 1, 4}, -1);
    waiting = start_to_wait(&scene, "weak", -1);
    pair_await(&scene.pair, was_made_thrice, call, "attempts");
    pair_await(&scene.pair, was_made_thrice, waiting, "attempts");
    must(tmsg_server_create(scene.pair.a.worker, &unready, &scene.server));
    atomic_store(&call->attempts, 1);
    pair_await(&scene.pair, was_made_thrice, call, "attempts");
    must_eq(scene.seen, 0);
    must(tmsg_server_register(scene.server, "weak", weak, &scene, NULL));
    must(tmsg_server_set_health(scene.server, NULL, TMSG_HEALTH_SERVING));
    finish(&scene, call, TMSG_OK, 0);
    finish_waiting(&scene, waiting, TMSG_OK, NULL);
    must_eq(scene.seen, 2);
    close_scene(&scene);
}

Test(retry, who_waits_for_a_server_is_told_that_there_is_none)
{
    tmsg_call_t *call;
    scene_t scene;

    open_scene(&scene);
    tmsg_server_destroy(scene.server);
    call = start_to_wait(&scene, "weak", 300);
    pair_await(&scene.pair, has_ended, call, "the end of a call");
    must_true(tmsg_call_attempts(call) > 3);
    finish_waiting(&scene, call, TMSG_ERR_UNAVAILABLE, "nobody serves here (");
    call = start_to_wait(&scene, "weak", -1);
    pair_await(&scene.pair, was_made_thrice, call, "attempts");
    call->unready_ns -= 60 * 1000000000ULL; /* it began a minute ago */
    finish_waiting(&scene, call, TMSG_ERR_UNAVAILABLE, "nobody serves here (");
    must(tmsg_server_create(scene.pair.a.worker, NULL, &scene.server));
    close_scene(&scene);
}

/* Only that is waited for. */
Test(retry, who_waits_for_a_server_is_told_that_it_is_busy)
{
    tmsg_call_t *call;
    scene_t scene;

    open_scene(&scene);
    call = start_to_wait(&scene, "keep", -1);
    pair_await(&scene.pair, has_been_seen, &scene, "the first call");
    finish_waiting(&scene, start_to_wait(&scene, "keep", -1),
                   TMSG_ERR_RESOURCE_EXHAUSTED, "");
    must(tmsg_task_reply(scene.task, NULL, NULL));
    tmsg_task_destroy(scene.task);
    finish_waiting(&scene, call, TMSG_OK, NULL);
    finish_waiting(&scene, start_to_wait(&scene, "none", -1),
                   TMSG_ERR_NOT_FOUND, "none");
    scene.fails = 1000;
    finish_waiting(&scene, start_to_wait(&scene, "weak", -1),
                   TMSG_ERR_UNAVAILABLE, NULL);
    close_scene(&scene);
}

static void refuse(tmsg_endpoint_t *endpoint, tmsg_call_params_t params,
                   const char *words)
{
    must_be(tmsg_endpoint_call(endpoint, "weak", NULL, &params, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), words);
}

Test(retry, refuses_what_makes_no_sense)
{
    const tmsg_method_params_t method = {.field_mask = TMSG_METHOD_PARAM_FLAGS,
                                         .flags = 1 << 7};
    scene_t scene;

    open_scene(&scene);
    refuse(scene.pair.to_a,
           (tmsg_call_params_t){.field_mask = TMSG_CALL_PARAM_RETRY,
                                .retry = {.attempts = 1}},
           "attempts 1");
    refuse(scene.pair.to_a,
           (tmsg_call_params_t){.field_mask = TMSG_CALL_PARAM_RETRY,
                                .retry = {2, -1, 0}},
           "backoff -1");
    refuse(scene.pair.to_a,
           (tmsg_call_params_t){.field_mask = TMSG_CALL_PARAM_FLAGS,
                                .flags = 1 << 9},
           "flags 0x200");
    must_be(tmsg_server_register(scene.server, "x", weak, NULL, &method),
            TMSG_ERR_INVALID_PARAM);
    close_scene(&scene);
}

/* As where an attempt's reply is forged, which another thread takes in before
 * the attempt has its number. */
Test(retry, a_number_that_comes_late_takes_the_place_of_the_other)
{
    scene_t scene;
    const tmsg_rpc_peer_t *peer;
    tmsg_call_t *call;

    open_scene(&scene);
    call = start(&scene, "keep", 0, quick, -1);
    pair_await(&scene.pair, has_been_seen, &scene, "the call");
    peer = call->peer;
    must_eq(peer->calls_by_message.count, 0); /* until one is refused */
    finish(&scene, start(&scene, "nobody", 0, quick, -1), TMSG_ERR_NOT_FOUND,
           1);
    must_eq(peer->calls_by_message.count, 1);
    atomic_fetch_add(&call->number, 1000);
    tmsg_call_began(call);
    must_eq(peer->calls_by_message.count, 1);
    must_true(tmsg_table_find(&peer->calls_by_message, call->number) ==
              &call->by_message);
    tmsg_call_cancel(call);
    must_eq(peer->calls_by_message.count, 0);
    finish(&scene, call, TMSG_ERR_CANCELED, 1);
    tmsg_task_destroy(scene.task);
    close_scene(&scene);
}
