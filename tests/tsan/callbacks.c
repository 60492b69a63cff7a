/* SPDX-License-Identifier: BSD-3-Clause */
/* Callbacks that call the library while other threads do the same: release
 * functions and an allocator that ask and progress, on_accept that sends,
 * on_closed that destroys, and endpoints that one thread destroys while
 * messages arrive for them and others wait. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/own_allocator.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { CHURNERS = 2, VISITS = 12, MAPS = 6, WELCOMES = 8 };

typedef struct {
    side_t us, peer;
    tmsg_endpoint_t *lasting; /* ours: outlives all the others */
    atomic_uint lent, given_back, sends, done;
    atomic_uint ended;   /* on_closed of ours */
    atomic_uint arrived; /* messages of ours */
    own_memory_t memory;
    atomic_bool stop;
} scene_t;

static const size_t sizes[] = {100, 3000, 100000};

/* What may be asked anywhere. */
static void use_library(scene_t *scene)
{
    char *json;

    must(tmsg_endpoint_status(scene->lasting));
    must_say(tmsg_endpoint_error(scene->lasting), "");
    must(tmsg_endpoint_describe(scene->lasting, &json));
    tmsg_string_free(json);
    tmsg_worker_progress(scene->us.worker);
}

static tmsg_status_t on_alloc(void *arg)
{
    scene_t *scene = arg;

    if (!atomic_load(&scene->stop)) { /* and not as the worker ends */
        tmsg_status_t status;

        use_library(scene);
        status = tmsg_worker_wait(scene->us.worker, -1);
        must_true(status == TMSG_ERR_WOULD_BLOCK || atomic_load(&scene->stop));
    }
    return TMSG_OK;
}

static void on_free(void *arg)
{
    scene_t *scene = arg;

    if (!atomic_load(&scene->stop)) { /* and not as the worker ends */
        use_library(scene);
    }
}

static void give_back(void *arg)
{
    scene_t *scene = arg;

    use_library(scene);
    atomic_fetch_add(&scene->given_back, 1);
}

static void count_done(void *arg, tmsg_status_t status, const char *error)
{
    scene_t *scene = arg;

    must_true(status == TMSG_OK || error[0] != '\0');
    use_library(scene);
    atomic_fetch_add(&scene->done, 1);
}

/* Its handle may be given back meanwhile by who made it: it is only asked. */
static void see_end(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                    const char *error)
{
    scene_t *scene = arg;

    must_true(status < 0 && error[0] != '\0');
    must_true(tmsg_endpoint_status(endpoint) < 0);
    use_library(scene);
    atomic_fetch_add(&scene->ended, 1);
}

/* The peer's: whatever ends is destroyed at once. */
static void destroy_ended(void *arg, tmsg_endpoint_t *endpoint,
                          tmsg_status_t status, const char *error)
{
    (void)arg;
    (void)status;
    (void)error;
    tmsg_endpoint_destroy(endpoint);
}

/* The peer's: sends at once, and breaks with every third. */
static void welcome(void *arg, tmsg_endpoint_t *endpoint)
{
    scene_t *scene = arg;
    unsigned number = scene->peer.accepts++;

    for (unsigned i = 0; i < WELCOMES; i++) {
        tmsg_map_t *map = sample_bytes(i, sizes[i % 3]);

        must(tmsg_endpoint_send(endpoint, map, NULL, NULL));
        tmsg_map_destroy(map);
    }
    tmsg_endpoint_on_closed(endpoint, destroy_ended, scene);
    if (number % 3 == 2) {
        tmsg_endpoint_destroy(endpoint);
    }
}

static void swallow(void *arg, tmsg_message_t *message)
{
    (void)arg;
    tmsg_message_destroy(message);
}

static void send_lent(scene_t *scene, tmsg_endpoint_t *endpoint, size_t bytes)
{
    static uint8_t data[100000];
    const int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_ON_DONE | TMSG_SEND_PARAM_FLAGS,
        .flags = bytes == sizes[1] ? TMSG_SEND_ACKED : 0,
        .on_done = count_done,
        .on_done_arg = scene,
    };
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(
        map, "lent", &tensor,
        &(tmsg_map_add_params_t){.field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
                                 .release = give_back,
                                 .release_arg = scene}));
    atomic_fetch_add(&scene->lent, 1);
    if (tmsg_endpoint_send(endpoint, map, &params, NULL) == TMSG_OK) {
        atomic_fetch_add(&scene->sends, 1);
    }
    tmsg_map_destroy(map);
}

/* Connections come, are asked while they connect, send, and are destroyed
 * while the peer's messages arrive. */
static void *churn(void *arg)
{
    scene_t *scene = arg;
    const char *url = tmsg_listener_url(scene->peer.listener);

    for (unsigned i = 0; i < VISITS; i++) {
        tmsg_endpoint_t *endpoint;
        tmsg_request_t *ready;
        tmsg_message_t *message;
        char *json;

        must(tmsg_endpoint_connect(scene->us.worker, url, NULL, &endpoint));
        tmsg_endpoint_on_closed(endpoint, see_end, scene);
        must(tmsg_endpoint_ready(endpoint, &ready));
        for (unsigned j = 0; j < MAPS; j++) {
            send_lent(scene, endpoint, sizes[j % 3]);
            must_say(tmsg_endpoint_peer(endpoint), "tcp://");
            must(tmsg_endpoint_describe(endpoint, &json));
            tmsg_string_free(json);
        }
        while (i % 4 == 1 && tmsg_request_test(ready) == TMSG_IN_PROGRESS) {
            must_say(tmsg_endpoint_peer(endpoint), "tcp://");
        }
        if (i % 4 != 0) { /* else it is destroyed as it connects */
            tmsg_request_wait(ready, PEERS_BOUND_MS);
        }
        if (i % 4 == 2 &&
            tmsg_endpoint_recv(endpoint, 50, &message) == TMSG_OK) {
            tmsg_message_destroy(message);
        }
        tmsg_request_destroy(ready);
        tmsg_endpoint_destroy(endpoint);
    }
    return NULL;
}

static void *pull(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->stop)) {
        tmsg_message_t *message;
        tmsg_status_t status = tmsg_worker_recv(scene->us.worker, 10, &message);

        if (status == TMSG_OK) {
            must_say(tmsg_endpoint_peer(tmsg_message_endpoint(message)),
                     "tcp://");
            (void)tmsg_endpoint_status(tmsg_message_endpoint(message));
            tmsg_message_destroy(message);
            atomic_fetch_add(&scene->arrived, 1);
        } else {
            must_be(status, TMSG_ERR_TIMED_OUT);
        }
    }
    return NULL;
}

static void *spin(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->stop)) {
        if (tmsg_worker_progress(scene->us.worker) == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static void open_scene(scene_t *scene, drive_t drive)
{
    const tmsg_allocator_t allocator = own_memory_allocator(&scene->memory);
    const side_options_t ours = {
        .drive = drive,
        .worker = {.field_mask =
                       TMSG_WORKER_PARAM_FLAGS | TMSG_WORKER_PARAM_ALLOCATOR,
                   .flags = TMSG_WORKER_SHARED,
                   .allocator = &allocator}};
    const side_options_t theirs = {
        .drive = DRIVE_THREAD,
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = swallow}};
    const tmsg_listener_params_t listening = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
        .on_accept = welcome,
        .on_accept_arg = scene,
    };
    tmsg_request_t *ready;

    side_open(&scene->us, &ours);
    side_open(&scene->peer, &theirs);
    must(tmsg_listener_create(scene->peer.worker, "tcp://:0", &listening,
                              &scene->peer.listener));
    scene->lasting = side_dial(&scene->us, &scene->peer);
    must(tmsg_endpoint_ready(scene->lasting, &ready));
    while (tmsg_request_test(ready) == TMSG_IN_PROGRESS) {
        tmsg_endpoint_status(scene->lasting);
        if (drive != DRIVE_THREAD) {
            tmsg_request_wait(ready, 1);
        }
    }
    must(tmsg_request_test(ready));
    tmsg_request_destroy(ready);
}

static void run(drive_t drive)
{
    scene_t scene = {.memory = {.on_alloc = on_alloc, .on_free = on_free}};
    pthread_t churners[CHURNERS], puller, spinner;

    scene.memory.arg = &scene;
    open_scene(&scene, drive);
    must_eq(pthread_create(&puller, NULL, pull, &scene), 0);
    must_eq(pthread_create(&spinner, NULL, spin, &scene), 0);
    for (unsigned i = 0; i < CHURNERS; i++) {
        must_eq(pthread_create(&churners[i], NULL, churn, &scene), 0);
    }
    for (unsigned i = 0; i < CHURNERS; i++) {
        must_eq(pthread_join(churners[i], NULL), 0);
    }
    while (atomic_load(&scene.given_back) < atomic_load(&scene.lent) ||
           atomic_load(&scene.done) < atomic_load(&scene.sends)) {
        sched_yield();
    }
    atomic_store(&scene.stop, true);
    must_eq(pthread_join(puller, NULL), 0);
    must_eq(pthread_join(spinner, NULL), 0);
    must(tmsg_endpoint_status(scene.lasting));
    side_close(&scene.us);
    side_close(&scene.peer);
    must_eq(atomic_load(&scene.memory.blocks), 0);
    must_eq(atomic_load(&scene.given_back), CHURNERS * VISITS * MAPS);
    must_eq(atomic_load(&scene.done), atomic_load(&scene.sends));
    printf("%u sends, %u messages, %u ends\n", atomic_load(&scene.sends),
           atomic_load(&scene.arrived), atomic_load(&scene.ended));
}

int main(void)
{
    alarm(290);
    for (unsigned i = 0; i < 3; i++) {
        run(DRIVE_POLLING);
        run(DRIVE_THREAD);
    }
    return 0;
}
