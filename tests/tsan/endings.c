/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers that end while other threads hold what came from them: messages are
 * released later, sends under way end once each, listeners and connections
 * come and go until just before. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { ROUNDS = 12, SENDERS = 3, MAPS = 60, HOLDERS = 2, VISITS = 6 };
enum { SENT = SENDERS * MAPS, ENOUGH = SENT / 2 + 5 };

typedef struct {
    side_t a, b;
    tmsg_endpoint_t *endpoint; /* b's */
    pthread_mutex_t lock;      /* of what is held */
    tmsg_message_t *held[SENT];
    unsigned held_count;
    atomic_uint received, destroyed, given_back, acked, lost;
    atomic_bool visited, stop_driving, no_more;
} scene_t;

static const size_t sizes[] = {10, 3000, 100, 100000};

static void keep(void *arg, tmsg_message_t *message)
{
    scene_t *scene = arg;

    pthread_mutex_lock(&scene->lock);
    scene->held[scene->held_count++] = message;
    pthread_mutex_unlock(&scene->lock);
    atomic_fetch_add(&scene->received, 1);
}

static tmsg_message_t *take(scene_t *scene)
{
    tmsg_message_t *message = NULL;

    pthread_mutex_lock(&scene->lock);
    if (scene->held_count > 0) {
        message = scene->held[--scene->held_count];
    }
    pthread_mutex_unlock(&scene->lock);
    return message;
}

/* Looks at messages and releases them, before their worker's end and after. */
static void *hold(void *arg)
{
    scene_t *scene = arg;

    for (;;) {
        bool last = atomic_load(&scene->no_more);
        tmsg_message_t *message = take(scene);
        tmsg_tensor_t tensor;

        if (message != NULL) {
            must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
            must_eq(sample_compare((uint64_t)tensor.shape[0], tensor.data,
                                   (size_t)tensor.shape[0]),
                    tensor.shape[0]);
            tmsg_message_destroy(message);
            atomic_fetch_add(&scene->destroyed, 1);
        } else if (last) {
            return NULL;
        } else {
            sched_yield();
        }
    }
}

static void count_done(void *arg, tmsg_status_t status, const char *error)
{
    scene_t *scene = arg;

    (void)error;
    atomic_fetch_add(status == TMSG_OK ? &scene->acked : &scene->lost, 1);
}

typedef struct {
    scene_t *scene;
    void *data;
} owned_t;

static void give_back(void *arg)
{
    owned_t *owned = arg;

    atomic_fetch_add(&owned->scene->given_back, 1);
    free(owned->data);
    free(owned);
}

static tmsg_map_t *make_map(scene_t *scene, size_t bytes)
{
    const int64_t shape[] = {(int64_t)bytes};
    owned_t *owned = malloc(sizeof(*owned));
    tmsg_tensor_t tensor = {.device = {TMSG_DEVICE_CPU, 0},
                            .dtype = {TMSG_DTYPE_UINT, 8, 1},
                            .ndim = 1,
                            .shape = shape};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = give_back,
                                          .release_arg = owned};
    tmsg_map_t *map;

    tensor.data = malloc(bytes);
    sample_fill(bytes, tensor.data, bytes);
    *owned = (owned_t){scene, tensor.data};
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, &params));
    return map;
}

/* Sends and lets go of everything at once. Whatever the send says, the map is
 * given back, and what it took ends once. */
static void *send_all(void *arg)
{
    scene_t *scene = arg;
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_ON_DONE,
        .flags = TMSG_SEND_ACKED,
        .on_done = count_done,
        .on_done_arg = scene,
    };

    for (unsigned i = 0; i < MAPS; i++) {
        tmsg_map_t *map = make_map(scene, sizes[i % 4]);
        tmsg_request_t *request;
        tmsg_status_t status;

        while (i == MAPS / 2 && !atomic_load(&scene->visited)) {
            sched_yield(); /* the other half is for the worker's end */
        }
        status = tmsg_endpoint_send(scene->endpoint, map, &params, &request);
        tmsg_map_destroy(map);
        if (status == TMSG_OK) {
            tmsg_request_destroy(request);
        } else {
            must_be(status, TMSG_ERR_PEER_LOST);
            atomic_fetch_add(&scene->lost, 1);
        }
    }
    return NULL;
}

/* Listeners come and go, with connections under way. */
static void *visit(void *arg)
{
    scene_t *scene = arg;

    for (unsigned i = 0; i < VISITS; i++) {
        tmsg_listener_t *listener;
        tmsg_endpoint_t *endpoint;
        tmsg_request_t *request;

        must(
            tmsg_listener_create(scene->a.worker, "tcp://:0", NULL, &listener));
        must(tmsg_endpoint_connect(scene->b.worker, tmsg_listener_url(listener),
                                   NULL, &endpoint));
        must(tmsg_endpoint_ready(endpoint, &request));
        if (i % 3 == 0) {
            must(tmsg_request_wait(request, PEERS_BOUND_MS));
        }
        if (i % 2) {
            tmsg_endpoint_destroy(endpoint);
            tmsg_listener_destroy(listener);
        } else {
            tmsg_listener_destroy(listener);
            tmsg_endpoint_destroy(endpoint);
        }
        tmsg_request_destroy(request);
    }
    return NULL;
}

static void *drive(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->stop_driving)) {
        tmsg_worker_wait(scene->a.worker, 5);
    }
    return NULL;
}

static void open_scene(scene_t *scene, drive_t how)
{
    side_options_t options = {
        .drive = how,
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = how == DRIVE_THREAD ? 0 : TMSG_WORKER_SHARED}};
    tmsg_request_t *ready;

    side_open(&scene->b, &options);
    options.worker.field_mask |= TMSG_WORKER_PARAM_HANDLER;
    options.worker.handler = keep;
    options.worker.handler_arg = scene;
    side_open(&scene->a, &options);
    must(tmsg_listener_create(scene->a.worker, "tcp://:0", NULL,
                              &scene->a.listener));
    must(tmsg_endpoint_connect(scene->b.worker,
                               tmsg_listener_url(scene->a.listener), NULL,
                               &scene->endpoint));
    must(tmsg_endpoint_ready(scene->endpoint, &ready));
    tmsg_request_destroy(ready);
}

static void start(pthread_t *thread, void *(*body)(void *arg), scene_t *scene)
{
    must_eq(pthread_create(thread, NULL, body, scene), 0);
}

/* The worker that receives ends in the midst of it. */
static void end_amid(scene_t *scene, bool driven)
{
    pthread_t visitor, driver;

    if (driven) {
        start(&driver, drive, scene);
    }
    start(&visitor, visit, scene);
    must_eq(pthread_join(visitor, NULL), 0);
    atomic_store(&scene->visited, true);
    while (atomic_load(&scene->received) < ENOUGH) {
        tmsg_worker_wait(scene->b.worker, 5);
    }
    if (driven) {
        atomic_store(&scene->stop_driving, true);
        must_eq(pthread_join(driver, NULL), 0);
    }
    side_close(&scene->a);
}

static scene_t the_scene;

static void run(drive_t how)
{
    scene_t *scene = &the_scene;
    pthread_t senders[SENDERS], holders[HOLDERS];

    *scene = (scene_t){.lock = PTHREAD_MUTEX_INITIALIZER};
    open_scene(scene, how);
    for (unsigned i = 0; i < HOLDERS; i++) {
        start(&holders[i], hold, scene);
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        start(&senders[i], send_all, scene);
    }
    end_amid(scene, how != DRIVE_THREAD);
    for (unsigned i = 0; i < SENDERS; i++) {
        must_eq(pthread_join(senders[i], NULL), 0);
    }
    while (atomic_load(&scene->acked) + atomic_load(&scene->lost) < SENT) {
        tmsg_worker_wait(scene->b.worker, 5);
    }
    tmsg_endpoint_destroy(scene->endpoint);
    side_close(&scene->b);
    atomic_store(&scene->no_more, true);
    for (unsigned i = 0; i < HOLDERS; i++) {
        must_eq(pthread_join(holders[i], NULL), 0);
    }
    must_eq(atomic_load(&scene->acked) + atomic_load(&scene->lost), SENT);
    must_eq(atomic_load(&scene->given_back), SENT);
    must_eq(atomic_load(&scene->destroyed), atomic_load(&scene->received));
    must_true(atomic_load(&scene->received) >= atomic_load(&scene->acked));
    printf("%u received, %u acknowledged, %u lost\n",
           atomic_load(&scene->received), atomic_load(&scene->acked),
           atomic_load(&scene->lost));
}

int main(void)
{
    alarm(290);
    for (unsigned i = 0; i < ROUNDS; i++) {
        run(i % 2 ? DRIVE_THREAD : DRIVE_POLLING);
    }
    return 0;
}
