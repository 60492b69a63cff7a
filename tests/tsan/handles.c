/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles on calls that have ended are given back on another thread, as it may
 * on a worker that is not shared, while that makes further calls and serves
 * them; of records that were given back so, and of others. Each call ends once,
 * and each reply is read on the other thread. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { CALLS = 3000, AT_ONCE = 32 };

typedef struct {
    pair_t pair;
    tmsg_server_t *server;
    tmsg_call_t *_Atomic under_way[AT_ONCE]; /* NULL: to be used again */
    atomic_uint given_back, replies, failures;
    unsigned made, dones;
} scene_t;

/* Every third is refused. */
static void answer(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    static unsigned served;

    if (++served % 3 == 0) {
        must(tmsg_task_fail(task, TMSG_ERR_REFUSED, 1, "not this one", NULL));
    } else {
        must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
    }
    must_true(served <= scene->made);
}

static void note_done(void *arg, tmsg_call_t *call)
{
    must_true(tmsg_call_status(call) != TMSG_IN_PROGRESS);
    ((scene_t *)arg)->dones++;
}

/* On the other thread. */
static bool give_back(scene_t *scene, tmsg_call_t *call)
{
    tmsg_status_t status = tmsg_call_status(call);

    if (status == TMSG_IN_PROGRESS) {
        return false;
    }
    if (status == TMSG_OK) {
        must_true(tmsg_map_size(tmsg_call_reply(call)) > 0);
        atomic_fetch_add(&scene->replies, 1);
    } else {
        must_be(status, TMSG_ERR_REFUSED);
        must_eq(tmsg_call_code(call), 1);
        atomic_fetch_add(&scene->failures, 1);
    }
    tmsg_call_destroy(call);
    atomic_fetch_add(&scene->given_back, 1);
    return true;
}

static void *give_all_back(void *arg)
{
    scene_t *scene = arg;

    while (atomic_load(&scene->given_back) < CALLS) {
        for (unsigned i = 0; i < AT_ONCE; i++) {
            tmsg_call_t *call = atomic_load(&scene->under_way[i]);

            if (call != NULL && give_back(scene, call)) {
                atomic_store(&scene->under_way[i], NULL);
            }
        }
        sched_yield();
    }
    return NULL;
}

static void make(scene_t *scene, const tmsg_map_t *map, unsigned place)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_DONE,
                                       .on_done = note_done,
                                       .on_done_arg = scene};
    tmsg_call_t *call;

    scene->made++;
    must(tmsg_endpoint_call(scene->pair.to_a, "mostly", map, &params, &call));
    atomic_store(&scene->under_way[place], call);
}

static bool are_all_back(void *arg)
{
    return atomic_load(&((scene_t *)arg)->given_back) == CALLS;
}

/* One of the few that are free, if any is, is made before each turn. */
static void make_all(scene_t *scene, const tmsg_map_t *map)
{
    for (unsigned i = 0; scene->made < CALLS; i = (i + 1) % AT_ONCE) {
        if (atomic_load(&scene->under_way[i]) == NULL) {
            make(scene, map, i);
        }
        tmsg_worker_progress(scene->pair.a.worker);
        tmsg_worker_progress(scene->pair.b.worker);
    }
    pair_await(&scene->pair, are_all_back, scene, "the last handles");
}

int main(void)
{
    static scene_t scene;
    const sample_t small = {
        .tensors = 8, .shape = SAMPLE_VECTOR, .without_metadata = true};
    tmsg_map_t *map = sample_make(&small);
    pthread_t other;

    pair_open(&scene.pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene.pair.a.worker, NULL, &scene.server));
    must(tmsg_server_register(scene.server, "mostly", answer, &scene, NULL));
    must_eq(pthread_create(&other, NULL, give_all_back, &scene), 0);
    make_all(&scene, map);
    must_eq(pthread_join(other, NULL), 0);
    must_eq(atomic_load(&scene.replies), CALLS - CALLS / 3);
    must_eq(atomic_load(&scene.failures), CALLS / 3);
    must_true(scene.dones <= CALLS);
    tmsg_server_destroy(scene.server);
    pair_close(&scene.pair);
    tmsg_map_destroy(map);
    return 0;
}
