/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and closes that return when they have ended, and what may be left out
 * of a program that uses them. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define SOON_MS 50

typedef struct {
    pair_t pair;                /* b waits; a is driven by a thread */
    atomic_uint taken;          /* by a's handler */
    atomic_uint done, released; /* of the last send, what b was told */
    unsigned wanted;            /* of taken */
    tmsg_status_t status;       /* of the send in a thread */
    char words[256];
} scene_t;

static void take(void *arg, tmsg_message_t *message)
{
    ((scene_t *)arg)->taken++;
    tmsg_message_destroy(message);
}

/* `takes`: a takes what comes; else it waits there. */
static void open_scene(scene_t *scene, link_t link, bool takes)
{
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS |
                                 (takes ? TMSG_WORKER_PARAM_HANDLER : 0u),
                   .flags = TMSG_WORKER_SHARED,
                   .handler = take,
                   .handler_arg = scene}};
    const side_options_t b = {.worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                         .flags = TMSG_WORKER_SHARED}};

    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, link, DRIVE_POLLING, &a, &b);
    must(tmsg_worker_start_thread(scene->pair.a.worker));
}

static bool has_taken(void *arg)
{
    const scene_t *scene = arg;

    return scene->taken >= scene->wanted;
}

/* A handler runs after the acknowledgement. */
static void expect_taken(scene_t *scene, unsigned wanted)
{
    scene->wanted = wanted;
    pair_await(&scene->pair, has_taken, scene, "the handler");
    must_eq(scene->taken, wanted);
}

static tmsg_status_t send_one(scene_t *scene, int timeout_ms)
{
    tmsg_map_t *map = sample_bytes(3, 100);
    tmsg_status_t status =
        tmsg_endpoint_send_wait(scene->pair.to_a, map, NULL, timeout_ms);

    tmsg_map_destroy(map);
    return status;
}

Test(endpoint_wait, a_send_ends_when_the_peer_has_it_and_a_close_in_order)
{
    for (link_t link = 0; link < LINKS; link++) {
        scene_t scene;

        open_scene(&scene, link, true);
        for (unsigned i = 1; i <= 3; i++) {
            must(send_one(&scene, PEERS_BOUND_MS));
            expect_taken(&scene, i);
        }
        must(tmsg_endpoint_close_wait(scene.pair.to_a, PEERS_BOUND_MS));
        must_be(tmsg_endpoint_status(scene.pair.to_a), TMSG_ERR_CLOSED);
        must(tmsg_endpoint_close_wait(scene.pair.to_a, 0));
        must_be(send_one(&scene, -1), TMSG_ERR_CLOSED);
        must_be(pair_end_of(&scene.pair, scene.pair.to_b), TMSG_ERR_CLOSED);
        pair_drop(&scene.pair);
    }
}

static void on_done(void *arg, tmsg_status_t status, const char *error)
{
    must_true((status == TMSG_OK) == (error[0] == '\0'));
    must_eq(((scene_t *)arg)->released, 1);
    ((scene_t *)arg)->done++;
}

static void on_release(void *arg) { ((scene_t *)arg)->released++; }

static tmsg_status_t send_told(scene_t *scene, const tmsg_map_t *map,
                               int timeout_ms)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_CHANNEL | TMSG_SEND_PARAM_ON_DONE |
                      TMSG_SEND_PARAM_ON_RELEASE | TMSG_SEND_PARAM_WAY |
                      TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_POLICY,
        .flags = TMSG_SEND_VERIFY,
        .policy = TMSG_POLICY_STRICT,
        .channel = 3,
        .way = TMSG_WAY_GATHER,
        .on_done = on_done,
        .on_done_arg = scene,
        .on_release = on_release,
        .on_release_arg = scene};

    scene->done = scene->released = 0;
    return tmsg_endpoint_send_wait(scene->pair.to_a, map, &params, timeout_ms);
}

Test(endpoint_wait, a_send_has_its_params_and_its_time)
{
    uint8_t *data = calloc(1, 1 << 20);
    const int64_t shape[] = {1 << 20};
    tmsg_map_t *map;
    scene_t scene;

    open_scene(&scene, LINK_TCP, false);
    must(tmsg_map_create(&map));
    must(tmsg_map_add_array(map, "data", data, "uint8", 1, shape));
    must_be(send_told(&scene, map, SOON_MS), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), tmsg_endpoint_peer(scene.pair.to_a));
    must_eq(scene.released, 1); /* the memory is ours */
    must_eq(scene.done, 1);
    must(tmsg_map_clear(map)); /* and the map */
    must(tmsg_map_add_array(map, "data", data, "uint8", 1, shape));
    pair_drop(&scene.pair);

    open_scene(&scene, LINK_TCP, true);
    must(send_told(&scene, map, -1));
    expect_taken(&scene, 1);
    must_eq(scene.done, 1);
    pair_drop(&scene.pair);
    tmsg_map_destroy(map);
    free(data);
}

Test(endpoint_wait, a_send_refuses_what_it_cannot_do)
{
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                 .timeout_ms = 1000};
    tmsg_endpoint_t *foreign;
    tmsg_map_t *map = sample_bytes(3, 100);
    scene_t scene;

    open_scene(&scene, LINK_UNIX, true);
    must_be(tmsg_endpoint_send_wait(scene.pair.to_a, map, &params, 1000),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "timeout_ms");
    params.field_mask = 1ull << 40;
    must_be(tmsg_endpoint_send_wait(scene.pair.to_a, map, &params, 1000),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "unknown field_mask bits");
    params.field_mask = TMSG_SEND_PARAM_FLAGS;
    params.flags = 1u << 31;
    must_be(tmsg_endpoint_send_wait(scene.pair.to_a, map, &params, 1000),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "unknown flags 0x80000000");
    must_be(tmsg_endpoint_send_wait(scene.pair.to_a, map, NULL, 0),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_endpoint_send_wait(scene.pair.to_a, NULL, NULL, -1),
            TMSG_ERR_INVALID_PARAM);
    must(tmsg_endpoint_connect(scene.pair.b.worker, "ucx://127.0.0.1:1", NULL,
                               &foreign));
    must_be(tmsg_endpoint_send_wait(foreign, map, NULL, -1),
            TMSG_ERR_UNSUPPORTED);
    must(tmsg_endpoint_connect(scene.pair.b.worker, "tcp://127.0.0.1:1", NULL,
                               &foreign));
    must_be(tmsg_endpoint_send_wait(foreign, map, NULL, -1),
            TMSG_ERR_UNREACHABLE);
    must_say(tmsg_error_message(), "127.0.0.1:1");
    must_be(tmsg_endpoint_close_wait(foreign, -1), TMSG_ERR_UNREACHABLE);
    must_eq(scene.taken, 0);
    tmsg_map_destroy(map);
    pair_drop(&scene.pair);
}

Test(endpoint_wait, a_close_that_runs_out_of_time_goes_on)
{
    const side_options_t shared = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_SHARED}};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &shared, &shared);
    for (int timeout_ms = 0; timeout_ms <= SOON_MS; timeout_ms += SOON_MS) {
        must_be(tmsg_endpoint_close_wait(pair.to_a, timeout_ms),
                TMSG_ERR_TIMED_OUT); /* nobody drives the peer */
        must_say(tmsg_error_message(), tmsg_endpoint_peer(pair.to_a));
        must_say(tmsg_error_message(), "did not end in order");
        must_true(pair.to_a->events.close == NULL); /* nothing is left */
    }
    must(tmsg_worker_start_thread(pair.a.worker));
    must(tmsg_endpoint_close_wait(pair.to_a, PEERS_BOUND_MS));
    pair_drop(&pair);
}

static void *send_many(void *arg)
{
    for (int i = 0; i < 20; i++) {
        must(send_one(arg, -1));
    }
    return NULL;
}

Test(endpoint_wait, threads_send_and_wait_side_by_side)
{
    pthread_t threads[3];
    scene_t scene;

    open_scene(&scene, LINK_SHM, true);
    for (size_t i = 0; i < 3; i++) {
        if (i == 2) { /* one more thread that drives */
            must(tmsg_worker_start_thread(scene.pair.b.worker));
        }
        must_eq(pthread_create(&threads[i], NULL, send_many, &scene), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    expect_taken(&scene, 60);
    must(tmsg_endpoint_close_wait(scene.pair.to_a, -1));
    pair_drop(&scene.pair);
}

/* A send that the peer does not take, in a thread. */
static void *wait_in_vain(void *arg)
{
    scene_t *scene = arg;

    scene->status = send_one(scene, -1);
    snprintf(scene->words, sizeof(scene->words), "%s", tmsg_error_message());
    return NULL;
}

static void begin_waiting(scene_t *scene, pthread_t *thread)
{
    tmsg_worker_t *worker = scene->pair.b.worker;
    bool waits = false;

    must_eq(pthread_create(thread, NULL, wait_in_vain, scene), 0);
    while (!waits) {
        sched_yield();
        tmsg_worker_lock(worker);
        waits = worker->lead.entered > 0;
        tmsg_worker_unlock(worker);
    }
}

Test(endpoint_wait, a_send_ends_with_its_peer)
{
    pthread_t thread;
    scene_t scene;

    open_scene(&scene, LINK_SHM, false);
    begin_waiting(&scene, &thread);
    tmsg_endpoint_destroy(scene.pair.to_b);
    pthread_join(thread, NULL);
    must_be(scene.status, TMSG_ERR_PEER_LOST);
    must_say(scene.words, "pid");
    must_be(tmsg_endpoint_close_wait(scene.pair.to_a, -1), TMSG_ERR_PEER_LOST);
    must_say(tmsg_error_message(), "pid");
    pair_drop(&scene.pair);
}

Test(endpoint_wait, a_send_ends_with_its_worker)
{
    pthread_t thread;
    scene_t scene;

    open_scene(&scene, LINK_SHM, false);
    begin_waiting(&scene, &thread);
    pair_drop(&scene.pair);
    pthread_join(thread, NULL);
    must_be(scene.status, TMSG_ERR_CLOSED);
    must_say(scene.words, "destroyed");
}

/* The receiver of a program that keeps no context and no listener. */
static void *answer(void *arg)
{
    tmsg_worker_t *worker = arg;
    tmsg_endpoint_t *peer;
    tmsg_message_t *message;
    tmsg_tensor_t got;

    must(tmsg_worker_recv(worker, PEERS_BOUND_MS, &message));
    must(tmsg_map_find_array(tmsg_message_map(message), "data", "int32", 1,
                             &got));
    must_eq(((const int32_t *)got.data)[1], 7);
    peer = tmsg_message_endpoint(message);
    must(tmsg_endpoint_close_wait(peer, PEERS_BOUND_MS));
    tmsg_message_destroy(message);
    tmsg_worker_destroy(worker);
    return NULL;
}

Test(endpoint_wait, a_program_needs_a_worker_alone)
{
    int32_t data[] = {3, 7};
    const int64_t shape[] = {2};
    char url[160];
    tmsg_worker_t *ours, *theirs;
    tmsg_endpoint_t *peer;
    tmsg_map_t *map;
    pthread_t thread;

    snprintf(url, sizeof(url), "unix://%s", scratch_path("alone"));
    must(tmsg_worker_create(NULL, NULL, &theirs));
    must(tmsg_listener_create(theirs, url, NULL, NULL));
    must_eq(pthread_create(&thread, NULL, answer, theirs), 0);
    must(tmsg_worker_create(NULL, NULL, &ours));
    must(tmsg_map_create(&map));
    must(tmsg_map_add_array(map, "data", data, "int32", 1, shape));
    must(tmsg_endpoint_connect(ours, url, NULL, &peer));
    must(tmsg_endpoint_send_wait(peer, map, NULL, PEERS_BOUND_MS));
    must(tmsg_endpoint_close_wait(peer, PEERS_BOUND_MS));
    pthread_join(thread, NULL);
    tmsg_map_destroy(map);
    tmsg_worker_destroy(ours);
}
