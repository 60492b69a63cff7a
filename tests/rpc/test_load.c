/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls where much goes on: many in flight, a server's threads, replies that
 * wait and then cannot be sent, a session that breaks. Each ends once. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/server.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

enum { MANY = 600 };

typedef struct {
    joined_t joined;
    pair_t *pair;
    tmsg_server_t *server;
    tmsg_task_t *tasks[MANY];
    tmsg_call_t *calls[MANY];
    atomic_uint seen, runs[MANY], overs, ends;
    atomic_int inside, most; /* handlers of "narrow" */
} scene_t;

static unsigned number_of(const tmsg_map_t *map)
{
    int64_t number;

    must(tmsg_map_get_i64(map, "number", &number));
    must_true(number >= 0 && number < MANY);
    return (unsigned)number;
}

static void on_over(void *arg, tmsg_task_t *task, tmsg_status_t status)
{
    must_be(status, TMSG_ERR_CANCELED);
    must_be(tmsg_task_status(task), TMSG_ERR_CANCELED);
    atomic_fetch_add(&((scene_t *)arg)->overs, 1);
}

static void keep(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    unsigned number = number_of(tmsg_task_map(task));

    tmsg_task_on_over(task, on_over, scene);
    scene->tasks[number] = tmsg_task_keep(task);
    must_eq(atomic_fetch_add(&scene->runs[number], 1), 0);
    atomic_fetch_add(&scene->seen, 1);
}

static void echo(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    unsigned number = number_of(tmsg_task_map(task));

    must_eq(atomic_fetch_add(&scene->runs[number], 1), 0);
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

/* Its method takes two at once. */
static void narrow(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    int inside = atomic_fetch_add(&scene->inside, 1) + 1;
    int most = atomic_load(&scene->most);

    while (most < inside &&
           !atomic_compare_exchange_weak(&scene->most, &most, inside)) {
    }
    sched_yield();
    atomic_fetch_sub(&scene->inside, 1); /* it counts until it returns */
    echo(arg, task);
}

static void serve(scene_t *scene, const tmsg_server_params_t *params)
{
    const tmsg_method_params_t two = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY, .concurrency = 2};

    scene->pair = &scene->joined.pair;
    must(tmsg_server_create(scene->pair->a.worker, params, &scene->server));
    must(tmsg_server_register(scene->server, "keep", keep, scene, NULL));
    must(tmsg_server_register(scene->server, "echo", echo, scene, NULL));
    must(tmsg_server_register(scene->server, "narrow", narrow, scene, &two));
}

/* Two sides that are driven so, of which a serves; to be freed. */
static scene_t *open_scene(drive_t drive, const tmsg_server_params_t *params)
{
    scene_t *scene = calloc(1, sizeof(*scene));

    pair_open(&scene->joined.pair, LINK_SHM, drive, NULL, NULL);
    serve(scene, params);
    return scene;
}

static void ended(void *arg, tmsg_call_t *call)
{
    must_true(tmsg_call_status(call) != TMSG_IN_PROGRESS);
    atomic_fetch_add(&((scene_t *)arg)->ends, 1);
}

static void start(scene_t *scene, const char *method, unsigned number)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_DONE,
                                       .on_done = ended,
                                       .on_done_arg = scene};
    tmsg_map_t *map = sample_bytes(number, 100 + number % 7 * 3000);

    must(tmsg_map_set_i64(map, "number", number));
    must(tmsg_endpoint_call(scene->pair->to_a, method, map, &params,
                            &scene->calls[number]));
    tmsg_map_destroy(map);
}

static void check(scene_t *scene, unsigned number)
{
    const tmsg_call_t *call = scene->calls[number];

    must_be(tmsg_call_status(call), TMSG_OK);
    must_eq(number_of(tmsg_call_reply(call)), number);
    must_eq(scene->runs[number], 1);
}

static void destroy_calls(scene_t *scene)
{
    for (unsigned i = 0; i < MANY; i++) {
        tmsg_call_destroy(scene->calls[i]);
    }
}

static bool are_all_here(void *arg) { return ((scene_t *)arg)->seen == MANY; }
static bool have_all_ended(void *arg) { return ((scene_t *)arg)->ends == MANY; }

static void shuffle(unsigned *order, uint64_t seed)
{
    for (unsigned i = 0; i < MANY; i++) {
        unsigned at = (unsigned)(sample_random(&seed) % (i + 1));

        order[i] = order[at];
        order[at] = i;
    }
}

Test(load, many_calls_in_flight_end_in_any_order_by_answer_or_cancel)
{
    scene_t *scene = open_scene(DRIVE_POLLING, NULL);
    unsigned order[MANY];

    for (unsigned i = 0; i < MANY; i++) {
        start(scene, "keep", i);
    }
    pair_await(scene->pair, are_all_here, scene, "all calls");
    shuffle(order, 1);
    for (unsigned i = 0; i < MANY; i++) {
        unsigned number = order[i];
        tmsg_task_t *task = scene->tasks[number];

        if (i % 2 == 0) {
            tmsg_call_cancel(scene->calls[number]);
        } else {
            must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
        }
    }
    pair_await(scene->pair, have_all_ended, scene, "the end of all calls");
    for (unsigned i = 0; i < MANY; i++) {
        if (i % 2 == 0) {
            must_be(tmsg_call_status(scene->calls[order[i]]),
                    TMSG_ERR_CANCELED);
        } else {
            check(scene, order[i]);
        }
    }
    while (scene->overs < MANY / 2) {
        tmsg_worker_progress(scene->pair->a.worker);
    }
    for (unsigned i = 0; i < MANY; i++) {
        tmsg_task_destroy(scene->tasks[i]);
    }
    destroy_calls(scene);
    must(tmsg_server_drain(scene->server, 20000));
    tmsg_server_destroy(scene->server);
    pair_close(scene->pair);
    free(scene);
}

Test(load, the_threads_of_a_server_answer_all_and_keep_to_a_methods_bound)
{
    const tmsg_server_params_t params = {
        .field_mask = TMSG_SERVER_PARAM_THREADS, .threads = 4};
    scene_t *scene = open_scene(DRIVE_THREAD, &params);

    for (unsigned i = 0; i < MANY; i++) {
        start(scene, i % 3 == 0 ? "narrow" : "echo", i);
    }
    pair_await(scene->pair, have_all_ended, scene, "the end of all calls");
    for (unsigned i = 0; i < MANY; i++) {
        check(scene, i);
    }
    must_true(scene->most >= 1 && scene->most <= 2);
    destroy_calls(scene);
    tmsg_server_destroy(scene->server);
    pair_close(scene->pair);
    free(scene);
}

static bool are_four_inside(void *arg)
{
    return ((scene_t *)arg)->server->load.inside == 4;
}

static bool is_one_kept(void *arg)
{
    const scene_t *scene = arg;

    return scene->tasks[0] != NULL || scene->tasks[1] != NULL ||
           scene->tasks[2] != NULL;
}

/* The one of these that has its turn. */
static void answer_kept(scene_t *scene)
{
    pair_await(scene->pair, is_one_kept, scene, "a call");
    for (unsigned i = 0; i < 3; i++) {
        if (scene->tasks[i] != NULL) {
            must(tmsg_task_reply(scene->tasks[i],
                                 tmsg_task_map(scene->tasks[i]), NULL));
            tmsg_task_destroy(scene->tasks[i]);
            scene->tasks[i] = NULL;
        }
    }
}

static bool are_three_seen(void *arg) { return ((scene_t *)arg)->seen == 3; }
static bool have_four_ended(void *arg) { return ((scene_t *)arg)->ends == 4; }

Test(load, a_method_with_many_calls_lets_another_have_its_turn)
{
    const tmsg_server_params_t one = {
        .field_mask = TMSG_SERVER_PARAM_CONCURRENCY, .concurrency = 1};
    scene_t *scene = open_scene(DRIVE_POLLING, &one);

    for (unsigned i = 0; i < 4; i++) {
        start(scene, i < 3 ? "keep" : "echo", i);
    }
    pair_await(scene->pair, are_four_inside, scene, "all calls");
    answer_kept(scene);
    answer_kept(scene);
    pair_await(scene->pair, are_three_seen, scene, "the third call");
    must_eq(scene->runs[3], 1);
    answer_kept(scene);
    pair_await(scene->pair, have_four_ended, scene, "the end of all calls");
    destroy_calls(scene);
    tmsg_server_destroy(scene->server);
    pair_close(scene->pair);
    free(scene);
}

/* The caller takes few replies ahead and messages of 1 MiB at most. */
static void open_narrow(scene_t *scene)
{
    const side_options_t b = {
        .limits = {.field_mask = TMSG_LIMIT_MESSAGE_BYTES,
                   .message_bytes = 1 << 20},
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 2}};

    pair_open(&scene->joined.pair, LINK_SHM, DRIVE_POLLING, NULL, &b);
    serve(scene, NULL);
}

static bool are_eight_here(void *arg) { return ((scene_t *)arg)->seen == 8; }
static bool have_eight_ended(void *arg) { return ((scene_t *)arg)->ends == 8; }

Test(load, a_reply_that_cannot_be_sent_when_its_turn_comes_ends_the_call)
{
    scene_t *scene = calloc(1, sizeof(*scene));
    tmsg_map_t *large = sample_bytes(1, 2 << 20);
    unsigned failed = 0;

    open_narrow(scene);
    for (unsigned i = 0; i < 8; i++) {
        start(scene, "keep", i);
    }
    pair_await(scene->pair, are_eight_here, scene, "all calls");
    for (unsigned i = 0; i < 8; i++) {
        bool fits = i % 2 == 0;
        tmsg_status_t status = tmsg_task_reply(
            scene->tasks[i], fits ? tmsg_task_map(scene->tasks[i]) : large,
            NULL);

        must_true(status == TMSG_OK || !fits);
        tmsg_task_destroy(scene->tasks[i]);
        failed += status != TMSG_OK;
    }
    must_true(failed < 4); /* some waited, and failed afterwards */
    pair_await(scene->pair, have_eight_ended, scene, "the end of all calls");
    for (unsigned i = 0; i < 8; i++) {
        if (i % 2 == 0) {
            check(scene, i);
        } else {
            must_be(tmsg_call_status(scene->calls[i]), TMSG_ERR_LIMIT_EXCEEDED);
            must_say(tmsg_call_error(scene->calls[i]), "2097152");
            must_true(tmsg_call_may_have_run(scene->calls[i]));
        }
    }
    destroy_calls(scene);
    tmsg_map_destroy(large);
    tmsg_server_destroy(scene->server);
    pair_close(scene->pair);
    free(scene);
}

static bool is_first_half_here(void *arg)
{
    return ((scene_t *)arg)->seen == 20;
}

static bool have_forty_ended(void *arg) { return ((scene_t *)arg)->ends == 40; }

/* Twenty are with the server when it breaks, twenty are made meanwhile. */
static void break_session(link_t link)
{
    const how_t how = {.link = link};
    scene_t *scene = calloc(1, sizeof(*scene));

    joined_open(&scene->joined, &how);
    serve(scene, NULL);
    for (unsigned i = 0; i < 20; i++) {
        start(scene, "keep", i);
    }
    pair_await(scene->pair, is_first_half_here, scene, "the first calls");
    for (unsigned i = 0; i < 5; i++) { /* on their way when it breaks */
        must(tmsg_task_reply(scene->tasks[i], tmsg_task_map(scene->tasks[i]),
                             NULL));
    }
    joined_break(&scene->joined);
    for (unsigned i = 20; i < 40; i++) {
        start(scene, "echo", i);
    }
    for (unsigned i = 5; i < 20; i++) {
        must_be(tmsg_task_status(scene->tasks[i]), TMSG_OK);
        must(tmsg_task_reply(scene->tasks[i], tmsg_task_map(scene->tasks[i]),
                             NULL));
    }
    must_true(scene->ends <= 5);
    joined_mend(&scene->joined);
    pair_await(scene->pair, have_forty_ended, scene, "the end of all calls");
    for (unsigned i = 0; i < 40; i++) {
        check(scene, i);
        tmsg_task_destroy(scene->tasks[i]);
    }
    destroy_calls(scene);
    must(tmsg_server_drain(scene->server, 20000));
    tmsg_server_destroy(scene->server);
    joined_close(&scene->joined);
    free(scene);
}

Test(load, a_session_that_breaks_answers_every_call_once)
{
    break_session(LINK_TCP);
}

Test(load, so_does_one_over_shared_memory) { break_session(LINK_SHM); }
