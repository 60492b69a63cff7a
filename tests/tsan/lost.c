/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls and streams that are made while their connection ends: what was lent to
 * each that was taken is given back, once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

enum { FAILURES = 20, HEAD_START = 20 };

typedef struct {
    side_t a, b;
    tmsg_endpoint_t *to_a, *to_b;
    const tmsg_map_t *map;
    atomic_ulong lent, released;
    atomic_ulong made;
} scene_t;

static void on_release(void *arg)
{
    atomic_fetch_add(&((scene_t *)arg)->released, 1);
}

static tmsg_status_t call(scene_t *scene, bool retries)
{
    const tmsg_call_params_t params = {
        .field_mask = TMSG_CALL_PARAM_ON_RELEASE |
                      (retries ? (uint64_t)TMSG_CALL_PARAM_RETRY : 0),
        .on_release = on_release,
        .on_release_arg = scene,
        .retry = {3, 1, 1}};

    return tmsg_endpoint_call(scene->to_a, "none", scene->map, &params, NULL);
}

static tmsg_status_t open_one(scene_t *scene)
{
    const tmsg_call_stream_params_t params = {
        .field_mask = TMSG_CALL_STREAM_PARAM_ON_RELEASE,
        .on_release = on_release,
        .on_release_arg = scene};
    tmsg_call_stream_t *stream;
    tmsg_status_t status = tmsg_endpoint_open_stream(
        scene->to_a, "none", scene->map, &params, &stream);

    if (status == TMSG_OK) {
        tmsg_call_stream_destroy(stream);
    }
    return status;
}

static void *disconnect(void *arg)
{
    scene_t *scene = arg;

    while (atomic_load(&scene->made) < HEAD_START) {
    }
    must(tmsg_endpoint_abort(scene->to_a, TMSG_ERR_PEER_LOST, "so"));
    return NULL;
}

static bool is_given_back(void *arg)
{
    scene_t *scene = arg;

    return atomic_load(&scene->released) == atomic_load(&scene->lent);
}

/* Until some more fail, for that it has ended. */
static void make_many(scene_t *scene, unsigned kind)
{
    unsigned failures = 0;

    while (failures < FAILURES) {
        tmsg_status_t status =
            kind == 2 ? open_one(scene) : call(scene, kind == 1);

        if (status == TMSG_OK) {
            atomic_fetch_add(&scene->lent, 1);
        }
        failures += status == TMSG_ERR_PEER_LOST || status == TMSG_ERR_CLOSED;
        atomic_fetch_add(&scene->made, 1);
    }
}

static void run(scene_t *scene, unsigned kind)
{
    pthread_t thread;

    scene->to_a = side_dial(&scene->b, &scene->a);
    scene->to_b = side_accept(&scene->a);
    atomic_store(&scene->made, 0);
    must_eq(pthread_create(&thread, NULL, disconnect, scene), 0);
    make_many(scene, kind);
    pthread_join(thread, NULL);
    side_await(&scene->b, is_given_back, scene, "what was lent");
    tmsg_endpoint_destroy(scene->to_a);
    tmsg_endpoint_destroy(scene->to_b);
}

int main(void)
{
    const side_options_t shared = {.drive = DRIVE_THREAD};
    unsigned rounds = whole_run() ? 3000 : 90;
    tmsg_map_t *map = sample_bytes(1, 100);
    scene_t scene = {.map = map};

    side_open(&scene.a, &shared);
    side_open(&scene.b, &shared);
    side_listen(&scene.a, "tcp://127.0.0.1:0");
    for (unsigned i = 0; i < rounds; i++) {
        run(&scene, i % 3);
    }
    fprintf(stderr, "%u connections, %lu taken\n", rounds,
            atomic_load(&scene.lent));
    side_close(&scene.b);
    side_close(&scene.a);
    tmsg_map_destroy(map);
    return 0;
}
