/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that send into a queue that blocks or drops, others that cancel what
 * those sent, and one that ends the connection under them: each send ends once,
 * and each buffer comes back once. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { ROUNDS = 6, SENDERS = 3, CANCELERS = 2, MAPS = 80, SLOTS = 16 };

typedef struct {
    pthread_mutex_t lock; /* nobody cancels what somebody destroys */
    tmsg_request_t *request;
} slot_t;

typedef struct {
    side_t a, b;
    tmsg_endpoint_t *endpoint; /* b's */
    slot_t slots[SLOTS];
    atomic_uint begun, released, done, acked, canceled, dropped, lost;
    atomic_uint taken, refused, cancels;
    atomic_bool over;
} scene_t;

static uint8_t payload[3][100000];
static const size_t sizes[] = {10, 3000, 100000};

static void take(void *arg, tmsg_message_t *message)
{
    scene_t *scene = arg;

    atomic_fetch_add(&scene->taken, 1);
    tmsg_message_destroy(message);
}

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    scene_t *scene = arg;

    (void)channel;
    (void)endpoint;
    (void)sequence;
    (void)error;
    must_true(status == TMSG_ERR_CANCELED || status == TMSG_ERR_TIMED_OUT ||
              status == TMSG_ERR_PEER_LOST); /* ended amid it */
    atomic_fetch_add(&scene->refused, 1);
}

static void on_release(void *arg)
{
    atomic_fetch_add(&((scene_t *)arg)->released, 1);
}

static void on_done(void *arg, tmsg_status_t status, const char *error)
{
    scene_t *scene = arg;

    (void)error;
    atomic_fetch_add(&scene->done, 1);
    switch (status) {
    case TMSG_OK:
        atomic_fetch_add(&scene->acked, 1);
        break;
    case TMSG_ERR_CANCELED:
    case TMSG_ERR_TIMED_OUT:
        atomic_fetch_add(&scene->canceled, 1);
        break;
    case TMSG_ERR_DROPPED:
        atomic_fetch_add(&scene->dropped, 1);
        break;
    default:
        must_be(status, TMSG_ERR_PEER_LOST);
        atomic_fetch_add(&scene->lost, 1);
    }
}

/* Borrows, so that a cancel may have to wait for UCX. */
static tmsg_map_t *make_map(unsigned size)
{
    const int64_t shape[] = {(int64_t)sizes[size]};
    const tmsg_tensor_t tensor = {
        payload[size], {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
        NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    return map;
}

static void put(scene_t *scene, unsigned index, tmsg_request_t *request)
{
    slot_t *slot = &scene->slots[index % SLOTS];

    pthread_mutex_lock(&slot->lock);
    tmsg_request_destroy(slot->request);
    slot->request = request;
    pthread_mutex_unlock(&slot->lock);
}

static void *send_all(void *arg)
{
    scene_t *scene = arg;
    uint64_t random = (uint64_t)(uintptr_t)&scene;

    for (unsigned i = 0; i < MAPS; i++) {
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_ON_DONE |
                          TMSG_SEND_PARAM_ON_RELEASE | TMSG_SEND_PARAM_TIMEOUT,
            .flags = TMSG_SEND_ACKED,
            .on_done = on_done,
            .on_done_arg = scene,
            .on_release = on_release,
            .on_release_arg = scene,
            .timeout_ms = i % 5 == 0 ? 3 : 20000};
        tmsg_map_t *map = make_map(i % 3);
        tmsg_request_t *request;
        tmsg_status_t status =
            tmsg_endpoint_send(scene->endpoint, map, &params, &request);

        tmsg_map_destroy(map);
        if (i % 4 == 0) { /* where the queue drops: let some go */
            tmsg_worker_wait(scene->b.worker, 2);
        }
        if (status == TMSG_OK) {
            atomic_fetch_add(&scene->begun, 1);
            put(scene, (unsigned)sample_random(&random), request);
        } else {
            must_true(status == TMSG_ERR_TIMED_OUT ||
                      status == TMSG_ERR_CLOSED);
        }
    }
    return NULL;
}

static void *cancel_some(void *arg)
{
    scene_t *scene = arg;
    uint64_t random = (uint64_t)(uintptr_t)&random;

    while (!atomic_load(&scene->over)) {
        slot_t *slot = &scene->slots[sample_random(&random) % SLOTS];

        pthread_mutex_lock(&slot->lock);
        if (slot->request != NULL &&
            tmsg_request_test(slot->request) == TMSG_IN_PROGRESS) {
            tmsg_request_cancel(slot->request);
            tmsg_request_wait(slot->request, 0);
            atomic_fetch_add(&scene->cancels, 1);
        }
        pthread_mutex_unlock(&slot->lock);
        tmsg_worker_wait(scene->b.worker, 1);
    }
    return NULL;
}

static void open_scene(scene_t *scene, bool thread, unsigned round)
{
    const side_options_t a = {
        .drive = DRIVE_THREAD,
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER |
                                 TMSG_WORKER_PARAM_ON_REFUSED |
                                 TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 4,
                   .handler = take,
                   .handler_arg = scene,
                   .on_refused = on_refused,
                   .on_refused_arg = scene}};
    const side_options_t b = {
        .drive = thread ? DRIVE_THREAD : DRIVE_POLLING,
        .worker = {.field_mask =
                       TMSG_WORKER_PARAM_FLAGS | TMSG_WORKER_PARAM_SEND_QUEUE,
                   .flags = TMSG_WORKER_SHARED,
                   .send_queue = {.field_mask = TMSG_QUEUE_PARAM_MESSAGES |
                                                TMSG_QUEUE_PARAM_POLICY,
                                  .messages = 3,
                                  .policy = round % 2 == 0
                                                ? TMSG_QUEUE_BLOCK
                                                : TMSG_QUEUE_DROP_OLDEST}}};

    side_open(&scene->a, &a);
    side_listen_link(&scene->a, LINK_SHM);
    side_open(&scene->b, &b);
    scene->endpoint =
        side_connect(&scene->b, tmsg_listener_url(scene->a.listener));
    for (int i = 0; i < SLOTS; i++) {
        pthread_mutex_init(&scene->slots[i].lock, NULL);
    }
}

static void run(bool thread, unsigned round)
{
    pthread_t senders[SENDERS], cancelers[CANCELERS];
    static scene_t scene;

    scene = (scene_t){0};
    open_scene(&scene, thread, round);
    for (int i = 0; i < SENDERS; i++) {
        must_eq(pthread_create(&senders[i], NULL, send_all, &scene), 0);
    }
    for (int i = 0; i < CANCELERS; i++) {
        must_eq(pthread_create(&cancelers[i], NULL, cancel_some, &scene), 0);
    }
    while (round % 3 == 2 && atomic_load(&scene.taken) < 20 &&
           atomic_load(&scene.done) < SENDERS * MAPS / 2) {
        sched_yield();
    }
    if (round % 3 == 2) {
        must(tmsg_endpoint_abort(scene.endpoint, TMSG_ERR_REFUSED, "enough"));
    }
    for (int i = 0; i < SENDERS; i++) {
        pthread_join(senders[i], NULL);
    }
    atomic_store(&scene.over, true);
    for (int i = 0; i < CANCELERS; i++) {
        pthread_join(cancelers[i], NULL);
    }
    side_close(&scene.b); /* what is left is canceled */
    side_close(&scene.a);
    for (unsigned i = 0; i < SLOTS; i++) {
        put(&scene, i, NULL);
        pthread_mutex_destroy(&scene.slots[i].lock);
    }
    printf("%s, round %u: %u begun, %u acked, %u canceled or too late by %u "
           "cancels, %u dropped, %u lost; %u taken, %u refused\n",
           thread ? "thread" : "shared", round, atomic_load(&scene.begun),
           atomic_load(&scene.acked), atomic_load(&scene.canceled),
           atomic_load(&scene.cancels), atomic_load(&scene.dropped),
           atomic_load(&scene.lost), atomic_load(&scene.taken),
           atomic_load(&scene.refused));
    must_eq(atomic_load(&scene.done), atomic_load(&scene.begun));
    must_eq(atomic_load(&scene.released), atomic_load(&scene.begun));
    must_true(atomic_load(&scene.taken) >= atomic_load(&scene.acked));
}

int main(void)
{
    alarm(290);
    for (unsigned round = 0; round < ROUNDS; round++) {
        run(false, round);
        run(true, round);
    }
    return 0;
}
