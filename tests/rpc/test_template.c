/* SPDX-License-Identifier: BSD-3-Clause */
/* Small calls that are like the last one: they go the short way, and nobody
 * sees anything of it but the counters. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define BYTES 200

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_task_t *task;     /* that was kept */
    int remaining_ms;      /* of the last call */
    atomic_uint released;  /* replies */
} scene_t;

static void released(void *arg) { ++*(atomic_uint *)arg; }

static void echo(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    const tmsg_reply_params_t params = {.field_mask =
                                            TMSG_REPLY_PARAM_ON_RELEASE,
                                        .on_release = released,
                                        .on_release_arg = &scene->released};

    scene->remaining_ms = tmsg_task_remaining_ms(task);
    must(tmsg_task_reply(task, tmsg_task_map(task), &params));
}

static void fail(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_fail(task, TMSG_ERR_APPLICATION, 42, "so",
                        tmsg_task_map(task)));
}

/* The second time it is no more than told so. */
static void twice(void *arg, tmsg_task_t *task)
{
    echo(arg, task);
    must_be(tmsg_task_reply(task, tmsg_task_map(task), NULL),
            TMSG_ERR_ALREADY_EXISTS);
    must_say(tmsg_error_message(), "answered before");
    must_be(tmsg_task_fail(task, TMSG_ERR_APPLICATION, 42, "so", NULL),
            TMSG_ERR_ALREADY_EXISTS);
    must_say(tmsg_error_message(), "answered before");
}

static void keep(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->task = tmsg_task_keep(task);
}

/* `a`: the server's side; may be NULL. */
static void open_scene_with(scene_t *scene, link_t link, drive_t drive,
                            const side_options_t *a)
{
    const tmsg_method_params_t one = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY | TMSG_METHOD_PARAM_QUEUE,
        .concurrency = 1};

    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, link, drive, a, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, scene, NULL));
    must(tmsg_server_register(scene->server, "twice", twice, scene, NULL));
    must(tmsg_server_register(scene->server, "fail", fail, NULL, NULL));
    must(tmsg_server_register(scene->server, "keep", keep, scene, &one));
}

static void open_scene(scene_t *scene, link_t link, drive_t drive)
{
    open_scene_with(scene, link, drive, NULL);
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

static tmsg_map_t *make(uint64_t seed)
{
    const sample_t sample = sample_plain(seed, BYTES);

    return sample_make(&sample);
}

static void check(uint64_t seed, const tmsg_map_t *map)
{
    const sample_t sample = sample_plain(seed, BYTES);

    sample_check(&sample, map);
}

/* Its map is gone when this returns. */
static tmsg_call_t *begin(scene_t *scene, const char *method, uint64_t seed,
                          const tmsg_call_params_t *params)
{
    tmsg_map_t *map = make(seed);
    tmsg_call_t *call;

    must(tmsg_endpoint_call(scene->pair.to_a, method, map, params, &call));
    tmsg_map_destroy(map);
    return call;
}

static tmsg_call_t *call(scene_t *scene, const char *method, uint64_t seed,
                         const tmsg_call_params_t *params)
{
    tmsg_call_t *made = begin(scene, method, seed, params);

    pair_await(&scene->pair, has_ended, made, "the end of a call");
    return made;
}

/* One that is answered with what it brought. */
static void echoes(scene_t *scene, uint64_t seed)
{
    tmsg_call_t *made = call(scene, "echo", seed, NULL);

    must_be(tmsg_call_status(made), TMSG_OK);
    check(seed, tmsg_call_reply(made));
    tmsg_call_destroy(made);
}

/* So many messages took the short way to the server, and so many from it. */
static uint64_t requests(const scene_t *scene)
{
    return scene->pair.to_b->stats.received_by_template;
}

static uint64_t replies(const scene_t *scene)
{
    return scene->pair.to_a->stats.received_by_template;
}

static void warm_up(scene_t *scene)
{
    uint64_t requested = requests(scene), replied = replies(scene);

    for (uint64_t i = 0;
         requests(scene) < requested + 2 || replies(scene) < replied + 2; i++) {
        must_true(i < 1000);
        echoes(scene, i);
    }
}

static void go_on(link_t link, drive_t drive)
{
    enum { CALLS = 1000 };
    uint64_t received;
    scene_t scene;

    open_scene(&scene, link, drive);
    warm_up(&scene);
    received = scene.pair.to_b->stats.received_messages;
    for (uint64_t i = 0; i < CALLS; i++) {
        echoes(&scene, i);
    }
    must_eq(scene.pair.to_b->stats.received_messages, received + CALLS);
    /* All but those that a window delayed. */
    cr_expect(ge(u64, requests(&scene), CALLS / 2));
    cr_expect(ge(u64, replies(&scene), CALLS / 2));
    received = scene.pair.to_b->stats.received_messages;
    close_scene(&scene);
    must_eq(atomic_load(&scene.released), received);
}

Test(repeat, many_over_shared_memory) { go_on(LINK_SHM, DRIVE_POLLING); }
Test(repeat, many_over_tcp) { go_on(LINK_TCP, DRIVE_FD); }
Test(repeat, many_by_threads) { go_on(LINK_SHM, DRIVE_THREAD); }
Test(repeat, many_by_blob) { go_on(LINK_BLOB, DRIVE_POLLING); }

/* Many at once, of two methods by turns of every length. */
Test(repeat, in_flight_together)
{
    enum { ROUNDS = 40, CALLS = 16 };
    tmsg_call_t *made[CALLS];
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < CALLS; i++) {
            made[i] = begin(&scene, i % (round + 1) == round ? "fail" : "echo",
                            round * CALLS + i, NULL);
        }
        for (uint64_t i = 0; i < CALLS; i++) {
            bool fails = i % (round + 1) == round;

            pair_await(&scene.pair, has_ended, made[i], "the end of a call");
            must_be(tmsg_call_status(made[i]),
                    fails ? TMSG_ERR_APPLICATION : TMSG_OK);
            must_eq(tmsg_call_code(made[i]), fails ? 42 : 0);
            must_true(!fails || strstr(tmsg_call_error(made[i]), "so") != NULL);
            check(round * CALLS + i, tmsg_call_reply(made[i]));
            tmsg_call_destroy(made[i]);
        }
    }
    must_true(requests(&scene) > 0 && replies(&scene) > 0);
    close_scene(&scene);
}

Test(repeat, each_has_its_own_time)
{
    tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT};
    uint64_t before;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    warm_up(&scene);
    before = requests(&scene);
    for (int minutes = 1; minutes < 10; minutes++) {
        tmsg_call_t *made;

        params.timeout_ms = minutes * 60000;
        made = call(&scene, "echo", 1, &params);
        must_be(tmsg_call_status(made), TMSG_OK);
        must_true(scene.remaining_ms <= minutes * 60000 &&
                  scene.remaining_ms > (minutes - 1) * 60000);
        tmsg_call_destroy(made);
        echoes(&scene, 2);
        must_eq(scene.remaining_ms, -1);
    }
    must_true(requests(&scene) >= before + 9);
    close_scene(&scene);
}

static void count_done(void *arg, tmsg_call_t *made)
{
    (void)made;
    ++*(unsigned *)arg;
}

/* Records of calls are used again. */
Test(repeat, what_one_asks_for_is_not_the_next_ones)
{
    enum { TIMES = 20 };
    unsigned done = 0;
    atomic_uint freed = 0;
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_DONE |
                                                     TMSG_CALL_PARAM_ON_RELEASE,
                                       .on_done = count_done,
                                       .on_done_arg = &done,
                                       .on_release = released,
                                       .on_release_arg = &freed};
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    warm_up(&scene);
    for (unsigned i = 0; i < TIMES; i++) {
        tmsg_call_destroy(call(&scene, "echo", i, &params));
        must_eq(done, i + 1);
        for (int more = 0; more < 3; more++) { /* its record among theirs */
            echoes(&scene, i);
        }
        must_eq(done, i + 1);
        must_true(atomic_load(&freed) <= i + 1);
        tmsg_call_destroy(call(&scene, "fail", i, NULL));
    }
    close_scene(&scene);
    must_eq(done, TIMES);
    must_eq(atomic_load(&freed), TIMES);
}

/* So many calls that nobody has a handle of, made at once and ended. */
static void end_unseen(scene_t *scene, unsigned calls)
{
    unsigned done = 0;
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_DONE,
                                       .on_done = count_done,
                                       .on_done_arg = &done};
    tmsg_map_t *map = make(1);

    for (unsigned i = 0; i < calls; i++) {
        must(tmsg_endpoint_call(scene->pair.to_a, "echo", map, &params, NULL));
    }
    for (int i = 0; done < calls; i++) {
        must_true(i < 1000000);
        tmsg_worker_progress(scene->pair.a.worker);
        tmsg_worker_progress(scene->pair.b.worker);
    }
    tmsg_map_destroy(map);
}

/* What a reply takes may be given back later than its call ends: by the next
 * turn of the worker, or before that sleeps; or it goes with the worker. */
static void gives_back(unsigned calls, bool sleeps)
{
    scene_t scene;
    uint64_t held;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    warm_up(&scene);
    tmsg_worker_progress(scene.pair.b.worker);
    held = tmsg_budget_held(scene.pair.b.worker->budget);
    end_unseen(&scene, calls);
    if (sleeps) {
        (void)tmsg_worker_arm(scene.pair.b.worker);
    } else {
        tmsg_worker_progress(scene.pair.b.worker);
    }
    must_eq(tmsg_budget_held(scene.pair.b.worker->budget), held);
    end_unseen(&scene, calls);
    close_scene(&scene);
}

Test(repeat, a_reply_is_given_back_by_the_next_turn) { gives_back(1, false); }
Test(repeat, each_reply_is_given_back_by_the_next_turn)
{
    gives_back(16, false);
}
Test(repeat, a_reply_is_given_back_before_its_worker_sleeps)
{
    gives_back(1, true);
}

/* Also those that took the short way before that was asked for. */
Test(repeat, each_is_counted_once_counts_are_wanted)
{
    enum { CALLS = 20 };
    tmsg_call_metrics_t counts;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    warm_up(&scene);
    must(tmsg_metrics_start(scene.pair.b.worker));
    for (uint64_t i = 0; i < CALLS; i++) {
        echoes(&scene, i);
    }
    must(tmsg_metrics_read(scene.pair.b.worker, TMSG_SIDE_CALLER, "echo",
                           &counts));
    must_eq(counts.ended, CALLS);
    must_eq(counts.in_flight, 0);
    close_scene(&scene);
}

/* Though the one before was of another, with a name as long. */
Test(repeat, each_is_of_the_method_it_names)
{
    tmsg_call_t *made = NULL;
    tmsg_map_t *map = make(1);
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    must_be(tmsg_endpoint_call(scene.pair.to_a, "", map, NULL, &made),
            TMSG_ERR_INVALID_PARAM);
    warm_up(&scene);
    for (uint64_t i = 0; i < 20; i++) {
        echoes(&scene, i);
        made = call(&scene, "fail", i, NULL);
        must_be(tmsg_call_status(made), TMSG_ERR_APPLICATION);
        must_eq(tmsg_call_code(made), 42);
        tmsg_call_destroy(made);
        must_be(tmsg_endpoint_call(scene.pair.to_a, "", map, NULL, &made),
                TMSG_ERR_INVALID_PARAM);
        must_be(tmsg_endpoint_call(scene.pair.to_a, NULL, map, NULL, &made),
                TMSG_ERR_INVALID_PARAM);
        made = call(&scene, "echoes", i, NULL);
        must_be(tmsg_call_status(made), TMSG_ERR_NOT_FOUND);
        tmsg_call_destroy(made);
    }
    tmsg_map_destroy(map);
    close_scene(&scene);
}

/* A reply that has a place waiting for it goes there. */
Test(repeat, between_replies_that_are_received_into)
{
    tmsg_map_t *into = make(0);
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_REPLY_INTO,
                                       .reply_into = into};
    tmsg_tensor_t mine, tensor;
    scene_t scene;

    must(tmsg_map_at(into, 0, NULL, &mine));
    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    for (uint64_t i = 0; i < 20; i++) {
        tmsg_call_t *made;

        warm_up(&scene);
        made = call(&scene, "echo", i, &params);
        must_be(tmsg_call_status(made), TMSG_OK);
        must(tmsg_map_at(tmsg_call_reply(made), 0, NULL, &tensor));
        must_true(tensor.data == mine.data);
        check(i, into);
        tmsg_call_destroy(made);
    }
    tmsg_map_destroy(into);
    close_scene(&scene);
}

static bool is_kept(void *arg) { return ((scene_t *)arg)->task != NULL; }

Test(repeat, is_answered_once)
{
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    warm_up(&scene);
    for (uint64_t i = 0; i < 20; i++) {
        uint64_t received = scene.pair.to_a->stats.received_messages;
        tmsg_call_t *made = call(&scene, "twice", i, NULL);

        must_be(tmsg_call_status(made), TMSG_OK);
        check(i, tmsg_call_reply(made));
        tmsg_call_destroy(made);
        echoes(&scene, i);
        must_eq(scene.pair.to_a->stats.received_messages, received + 2);
    }
    close_scene(&scene);
}

/* The method runs one and keeps none. */
static void hold_it(scene_t *scene, tmsg_call_t **held_p)
{
    scene->task = NULL;
    *held_p = begin(scene, "keep", 0, NULL);
    pair_await(&scene->pair, is_kept, scene, "a task");
}

static void answer_it(scene_t *scene, tmsg_task_t *task, tmsg_call_t *made)
{
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
    tmsg_task_destroy(task);
    pair_await(&scene->pair, has_ended, made, "the end of a call");
    must_be(tmsg_call_status(made), TMSG_OK);
    tmsg_call_destroy(made);
}

/* A method that runs one at a time has the next one wait for it. */
Test(repeat, each_runs_in_its_turn)
{
    const tmsg_method_params_t one = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY, .concurrency = 1};
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    must(tmsg_server_register(scene.server, "turn", keep, &scene, &one));
    warm_up(&scene);
    for (uint64_t i = 0; i < 20; i++) {
        tmsg_call_t *first = begin(&scene, "turn", i, NULL), *second;
        tmsg_task_t *task;

        scene.task = NULL;
        pair_await(&scene.pair, is_kept, &scene, "a task");
        task = scene.task;
        scene.task = NULL;
        second = begin(&scene, "turn", i, NULL);
        echoes(&scene, i); /* it has come, too */
        must_true(scene.task == NULL);
        answer_it(&scene, task, first);
        pair_await(&scene.pair, is_kept, &scene, "the next task");
        answer_it(&scene, scene.task, second);
    }
    close_scene(&scene);
}

/* No call was before, so that its number is where the short way left it. */
Test(repeat, the_first_that_is_refused_is_found_by_its_number)
{
    tmsg_call_t *held, *made;
    uint64_t before;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    for (int i = 0; i < 50; i++) {
        hold_it(&scene, &held);
        answer_it(&scene, scene.task, held);
    }
    hold_it(&scene, &held);
    before = scene.pair.to_a->stats.sent_by_template;
    made = call(&scene, "keep", 1, NULL);
    must_eq(scene.pair.to_a->stats.sent_by_template, before + 1);
    must_be(tmsg_call_status(made), TMSG_ERR_RESOURCE_EXHAUSTED);
    tmsg_call_destroy(made);
    answer_it(&scene, scene.task, held);
    close_scene(&scene);
}

typedef struct {
    tmsg_task_t *tasks[4]; /* as they had their turns */
    size_t count;
} turns_t;

static void keep_all(void *arg, tmsg_task_t *task)
{
    turns_t *turns = arg;

    turns->tasks[turns->count++] = tmsg_task_keep(task);
}

static void answer_two(void *arg, tmsg_message_t *message)
{
    const turns_t *turns = arg;

    for (size_t i = 0; i < 2; i++) {
        must(tmsg_task_reply(turns->tasks[i], tmsg_task_map(turns->tasks[i]),
                             NULL));
        tmsg_task_destroy(turns->tasks[i]);
    }
    tmsg_message_destroy(message);
}

static bool are_two(void *arg) { return ((turns_t *)arg)->count == 2; }
static bool are_four(void *arg) { return ((turns_t *)arg)->count == 4; }

/* Of two calls for which there is room in one step the one that came first,
 * though it had to wait. */
Test(repeat, none_runs_before_who_waited)
{
    const tmsg_method_params_t two = {
        .field_mask = TMSG_METHOD_PARAM_CONCURRENCY, .concurrency = 2};
    turns_t turns;
    const side_options_t answers = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = answer_two,
                   .handler_arg = &turns}};
    tmsg_map_t *map = make(1);
    scene_t scene;

    open_scene_with(&scene, LINK_SHM, DRIVE_POLLING, &answers);
    must(tmsg_server_register(scene.server, "turns", keep_all, &turns, &two));
    for (uint64_t round = 0; round < 20; round++) {
        tmsg_call_t *made[4];

        turns.count = 0;
        warm_up(&scene);
        made[0] = begin(&scene, "turns", 0, NULL);
        made[1] = begin(&scene, "turns", 1, NULL);
        pair_await(&scene.pair, are_two, &turns, "two tasks");
        made[2] = begin(&scene, "turns", 2, NULL);
        echoes(&scene, 9); /* it has come, too */
        must_eq(turns.count, 2);
        must(tmsg_endpoint_send(scene.pair.to_a, map, NULL, NULL));
        made[3] = begin(&scene, "turns", 3, NULL);
        pair_await(&scene.pair, are_four, &turns, "the other tasks");
        check(2, tmsg_task_map(turns.tasks[2]));
        check(3, tmsg_task_map(turns.tasks[3]));
        answer_it(&scene, turns.tasks[2], made[2]);
        answer_it(&scene, turns.tasks[3], made[3]);
        for (size_t i = 0; i < 2; i++) {
            pair_await(&scene.pair, has_ended, made[i], "the end of a call");
            tmsg_call_destroy(made[i]);
        }
    }
    tmsg_map_destroy(map);
    close_scene(&scene);
}

Test(repeat, one_that_is_refused_is_that_calls_alone)
{
    tmsg_call_t *held;
    uint64_t before;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    warm_up(&scene); /* so that the layout is known */
    hold_it(&scene, &held);
    before = scene.pair.to_a->stats.sent_by_template;
    for (uint64_t i = 0; i < 100; i++) {
        tmsg_call_t *made = call(&scene, "keep", i, NULL);

        must_be(tmsg_call_status(made), TMSG_ERR_RESOURCE_EXHAUSTED);
        must_say(tmsg_call_error(made), "no handler saw the call");
        tmsg_call_destroy(made);
    }
    must_true(scene.pair.to_a->stats.sent_by_template >= before + 50);
    answer_it(&scene, scene.task, held);
    warm_up(&scene);
    close_scene(&scene);
}

/* Nobody waits for it any more; what comes behind is not disturbed. */
Test(repeat, a_reply_that_comes_too_late)
{
    scene_t scene;
    uint64_t late;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    for (uint64_t i = 0; i < 20; i++) {
        tmsg_call_t *held;

        warm_up(&scene);
        hold_it(&scene, &held);
        (void)tmsg_task_reply(scene.task, tmsg_task_map(scene.task), NULL);
        tmsg_call_cancel(held); /* while the reply is under way */
        tmsg_task_destroy(scene.task);
        must_be(tmsg_call_status(held), TMSG_ERR_CANCELED);
        must_true(tmsg_call_reply(held) == NULL);
        tmsg_call_destroy(held);
    }
    warm_up(&scene);
    must(tmsg_metrics_late_replies(scene.pair.b.worker, &late));
    must_eq(late, 20);
    must_be(tmsg_metrics_late_replies(scene.pair.b.worker, NULL),
            TMSG_ERR_INVALID_PARAM);
    close_scene(&scene);
}

/* The calls' channel is no way for others: not by having been used, either. */
Test(repeat, the_channel_of_calls_is_not_the_applications)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_CHANNEL |
                                                     TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_UNORDERED,
                                       .channel = 1024};
    tmsg_map_t *map = make(1);
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    warm_up(&scene);
    must_be(tmsg_endpoint_send(scene.pair.to_a, map, &params, NULL),
            TMSG_ERR_UNSUPPORTED);
    warm_up(&scene);
    tmsg_map_destroy(map);
    close_scene(&scene);
}
