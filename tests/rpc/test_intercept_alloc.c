/* SPDX-License-Identifier: BSD-3-Clause */
/* Interceptors, and tracing, take no memory for each call; and where there is
 * none the call ends, and nothing is left. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "support/own_code_alloc.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define KEY "app.key"
#define CALLS 300

TestSuite(intercept_alloc, .init = watched_alloc_start);

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    bool gives;            /* metadata to each request */
    unsigned begins, ends;
} scene_t;

static tmsg_status_t begin(void *arg, tmsg_intercepted_t *call)
{
    scene_t *scene = arg;
    tmsg_status_t status =
        call->side == TMSG_SIDE_SERVER || !scene->gives
            ? TMSG_OK
            : tmsg_intercepted_set_string(call, KEY, "some value");

    scene->begins += status == TMSG_OK;
    return status;
}

static void end(void *arg, const tmsg_intercepted_t *call)
{
    (void)call;
    ((scene_t *)arg)->ends++;
}

static void reply(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_reply(task, NULL, NULL);
}

static void open_scene(scene_t *scene)
{
    *scene = (scene_t){.server = NULL};
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "reply", reply, NULL, NULL));
}

static tmsg_status_t intercept(scene_t *scene, bool traces)
{
    const tmsg_interceptor_t interceptor = {
        .field_mask = TMSG_INTERCEPTOR_BEGIN | TMSG_INTERCEPTOR_END,
        .begin = begin,
        .end = end,
        .arg = scene};
    tmsg_status_t status = tmsg_worker_intercept(
        scene->pair.b.worker, TMSG_SIDE_CALLER, &interceptor);

    if (status == TMSG_OK) {
        status = tmsg_worker_intercept(scene->pair.a.worker, TMSG_SIDE_SERVER,
                                       &interceptor);
    }
    if (status == TMSG_OK && traces) {
        status = tmsg_worker_trace(scene->pair.b.worker, NULL);
    }
    return status == TMSG_OK && traces
               ? tmsg_worker_trace(scene->pair.a.worker, NULL)
               : status;
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
    must_eq(scene->ends, scene->begins);
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static tmsg_status_t try_on(scene_t *scene, tmsg_endpoint_t *endpoint,
                            const tmsg_map_t *map)
{
    tmsg_call_t *call;
    tmsg_status_t status =
        tmsg_endpoint_call(endpoint, "reply", map, NULL, &call);

    if (status == TMSG_OK) {
        pair_await(&scene->pair, has_ended, call, "the end of a call");
        status = tmsg_call_status(call);
        tmsg_call_destroy(call);
    }
    return status;
}

static tmsg_status_t try_call(scene_t *scene, const tmsg_map_t *map)
{
    return try_on(scene, scene->pair.to_a, map);
}

/* How many allocations CALLS of them make. */
static unsigned long count(bool gives, bool traces)
{
    static const unsigned long many = 1ul << 40;
    tmsg_map_t *map;
    unsigned long made;
    scene_t scene;

    must(tmsg_map_create(&map));
    open_scene(&scene);
    scene.gives = gives;
    must(intercept(&scene, traces));
    for (int i = 0; i < CALLS; i++) {
        must(try_call(&scene, map));
    }
    watched_alloc_arm(many);
    for (int i = 0; i < CALLS; i++) {
        must(try_call(&scene, map));
    }
    made = many - watched_left;
    watched_alloc_disarm();
    fprintf(stderr, "%lu allocations in %d calls\n", made, CALLS);
    tmsg_map_destroy(map);
    close_scene(&scene);
    return made;
}

Test(intercept_alloc, no_call_takes_memory_once_the_first_have_gone)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("no record is kept, so that its use is seen");
#endif
    must_eq(count(false, false), 0);
    must_eq(count(true, false), 0);
    /* A header as long as that takes memory whoever makes it so. */
    must_true(count(true, true) <= CALLS);
}

/* False: there are not so many allocations. */
static bool fail_nth(unsigned long n)
{
    tmsg_map_t *map = sample_bytes(1, 100);
    tmsg_status_t status;
    scene_t scene;
    bool failed;

    open_scene(&scene);
    scene.gives = true;
    must(try_call(&scene, map)); /* what connections need is there then */
    watched_alloc_arm(n);
    status = intercept(&scene, true);
    if (status == TMSG_OK) {
        status = try_call(&scene, map);
    }
    failed = watched_alloc_disarm() != 0;
    must_true(status == TMSG_OK || (failed && status == TMSG_ERR_NO_MEMORY));
    /* A message without a record ends its connection. */
    must(try_on(&scene, side_dial(&scene.pair.b, &scene.pair.a), map));
    tmsg_map_destroy(map);
    tmsg_server_destroy(scene.server);
    pair_drop(&scene.pair);
    must_eq(scene.ends, scene.begins);
    return failed;
}

Test(intercept_alloc, any_that_fails_ends_that_call_alone)
{
    unsigned long n = 1;

    tmsg_log_set(TMSG_LOG_NONE, NULL, NULL);
    while (fail_nth(n)) {
        n++;
        must_true(n < 500);
    }
    fprintf(stderr, "%lu allocations failed in turn\n", n - 1);
    must_true(n > 3);
}

/* One call after many, with the n-th allocation of it failing: all of it, where
 * its server traces it; or of making it, where its caller does, as metadata
 * take memory of whoever receives them. False: there are not so many. */
static bool trace_one(unsigned long n, bool at_server)
{
    tmsg_map_t *map;
    tmsg_call_t *call;
    scene_t scene;
    bool failed = false;

    must(tmsg_map_create(&map));
    open_scene(&scene);
    for (int i = 0; i < CALLS; i++) {
        must(try_call(&scene, map));
    }
    must(tmsg_worker_trace(
        at_server ? scene.pair.a.worker : scene.pair.b.worker, NULL));
    watched_alloc_arm(n);
    must(tmsg_endpoint_call(scene.pair.to_a, "reply", map, NULL, &call));
    if (!at_server) {
        failed = watched_alloc_disarm() != 0;
    }
    pair_await(&scene.pair, has_ended, call, "the end of a call");
    if (at_server) {
        failed = watched_alloc_disarm() != 0;
    }
    must_be(tmsg_call_status(call), TMSG_OK);
    tmsg_call_destroy(call);
    must(try_call(&scene, map));
    tmsg_map_destroy(map);
    close_scene(&scene);
    return failed;
}

/* A call that takes no memory of its own does not fail for that of its span. */
Test(intercept_alloc, a_tracer_fails_no_call)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("no record is kept, so that a call takes memory");
#endif
    for (int at_server = 0; at_server < 2; at_server++) {
        unsigned long n = 1;

        while (trace_one(n, at_server)) {
            n++;
            must_true(n < 100);
        }
        fprintf(stderr, "%lu allocations failed in turn\n", n - 1);
        must_true(n > (at_server ? 1 : 3));
    }
}
