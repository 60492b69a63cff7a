/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker that is destroyed while other threads wait on it in every way there
 * is: from outside, or inside a callback. Each wait ends with CLOSED, at once,
 * and who leaves last frees the worker. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "am/worker/worker.h"
#include "support/own_allocator.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { WAITERS = 5, ROUNDS = 4, AT_ONCE_MS = 20000 };

typedef enum {
    OUTSIDE,
    OUTSIDE_AMID_A_CALLBACK,
    IN_HANDLER,
    IN_ON_DONE,
    IN_ON_CLOSED,
    IN_ALLOC,
    PLACES
} place_t;

static const char *const place_names[PLACES] = {
    "outside",        "outside, amid a callback",
    "in the handler", "in on_done",
    "in on_closed",   "in alloc"};

typedef struct {
    place_t place;
    drive_t drive;
    side_t us, peer;
    tmsg_endpoint_t *endpoint, *theirs;
    tmsg_request_t *pending; /* never ends by itself */
    atomic_bool in_callback, callback_over;
    atomic_uint left; /* waiters that something else sent home */
    own_memory_t memory;
} scene_t;

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void called(scene_t *scene, place_t place)
{
    if (scene->place != place || atomic_exchange(&scene->in_callback, true)) {
        return;
    }
    tmsg_worker_destroy(scene->us.worker);
    must_be(tmsg_worker_wait(scene->us.worker, -1), TMSG_ERR_CLOSED);
    atomic_store(&scene->callback_over, true);
}

/* Returns when the worker is being destroyed, not before. */
static void linger(scene_t *scene)
{
    tmsg_status_t status;

    if (atomic_exchange(&scene->in_callback, true)) {
        return;
    }
    do {
        sched_yield();
        status = tmsg_worker_wait(scene->us.worker, 0);
    } while (status == TMSG_ERR_WOULD_BLOCK);
    must_be(status, TMSG_ERR_CLOSED);
    must_be(tmsg_endpoint_status(scene->endpoint), TMSG_OK);
    atomic_store(&scene->callback_over, true);
}

static void handle(void *arg, tmsg_message_t *message)
{
    scene_t *scene = arg;

    if (scene->place == OUTSIDE_AMID_A_CALLBACK) {
        linger(scene);
    }
    called(scene, IN_HANDLER);
    tmsg_message_destroy(message);
}

static void on_done(void *arg, tmsg_status_t status, const char *error)
{
    (void)status;
    (void)error;
    called(arg, IN_ON_DONE);
}

static void on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error)
{
    (void)endpoint;
    (void)status;
    (void)error;
    called(arg, IN_ON_CLOSED);
}

static tmsg_status_t on_alloc(void *arg)
{
    called(arg, IN_ALLOC);
    return TMSG_OK;
}

static bool is_pulled(const scene_t *scene)
{
    return scene->place != IN_HANDLER &&
           scene->place != OUTSIDE_AMID_A_CALLBACK;
}

typedef struct {
    scene_t *scene;
    unsigned number;
} waiter_t;

/* One wait, until it is turned away. */
static void *wait_once(void *arg)
{
    const waiter_t *waiter = arg;
    scene_t *scene = waiter->scene;
    tmsg_worker_t *worker = scene->us.worker;
    unsigned way = waiter->number % 4;
    tmsg_message_t *message;
    tmsg_status_t status;

    if (way == 0) {
        status = tmsg_worker_wait(worker, 60000);
        if (status == TMSG_OK) { /* there was something to handle */
            atomic_fetch_add(&scene->left, 1);
            return NULL;
        }
    } else if (way == 1 && is_pulled(scene)) {
        status = tmsg_worker_recv(worker, -1, &message);
    } else if (way == 2 && is_pulled(scene)) {
        status = tmsg_endpoint_recv(scene->endpoint, 60000, &message);
    } else {
        status = tmsg_request_wait(scene->pending, -1);
    }
    if (status == TMSG_ERR_PEER_LOST) {
        must_eq(scene->place, IN_ON_CLOSED);
    } else if (status != TMSG_ERR_CANCELED) { /* by who left last */
        must_be(status, TMSG_ERR_CLOSED);
    }
    atomic_fetch_add(&scene->left, 1);
    return NULL;
}

static void open_scene(scene_t *scene)
{
    const tmsg_allocator_t allocator = own_memory_allocator(&scene->memory);
    const side_options_t theirs = {.drive = DRIVE_THREAD};
    side_options_t ours = {.drive = scene->drive,
                           .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                      .flags = TMSG_WORKER_SHARED,
                                      .handler = handle,
                                      .handler_arg = scene,
                                      .allocator = &allocator}};
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_ON_DONE | TMSG_SEND_PARAM_FLAGS,
        .flags = TMSG_SEND_ACKED,
        .on_done = on_done,
        .on_done_arg = scene,
    };
    tmsg_map_t *map = sample_bytes(1, 10);

    if (!is_pulled(scene)) {
        ours.worker.field_mask |= TMSG_WORKER_PARAM_HANDLER;
    }
    if (scene->place == IN_ALLOC) {
        ours.worker.field_mask |= TMSG_WORKER_PARAM_ALLOCATOR;
    }
    side_open(&scene->us, &ours);
    side_open(&scene->peer, &theirs);
    side_listen(&scene->us, "tcp://:0");
    scene->theirs = side_dial(&scene->peer, &scene->us);
    scene->endpoint = side_accept(&scene->us);
    tmsg_endpoint_on_closed(scene->endpoint, on_closed, scene);
    must(tmsg_endpoint_send(scene->endpoint, map, &params, NULL));
    tmsg_map_destroy(map);
    scene->pending =
        send_map(scene->endpoint, sample_bytes(2, 10), TMSG_SEND_ACKED);
}

/* Until every waiter is inside its call, or back from it. */
static void see_all_inside(scene_t *scene)
{
    tmsg_worker_t *worker = scene->us.worker;
    unsigned own = scene->drive == DRIVE_THREAD ? 1 : 0;
    unsigned inside;

    do {
        sched_yield();
        pthread_mutex_lock(&worker->lock); /* wakes nobody */
        inside = worker->lead.entered - own;
        pthread_mutex_unlock(&worker->lock);
    } while (inside + atomic_load(&scene->left) < WAITERS);
}

static void provoke(scene_t *scene)
{
    tmsg_message_t *message;

    switch (scene->place) {
    case OUTSIDE:
        tmsg_worker_destroy(scene->us.worker);
        break;
    case OUTSIDE_AMID_A_CALLBACK:
        tmsg_request_destroy(send_map(scene->theirs, sample_bytes(1, 10), 0));
        while (!atomic_load(&scene->in_callback)) {
            sched_yield();
        }
        tmsg_worker_destroy(scene->us.worker);
        must_true(atomic_load(&scene->callback_over));
        break;
    case IN_ON_DONE:
        must(tmsg_worker_recv(scene->peer.worker, PEERS_BOUND_MS, &message));
        tmsg_message_destroy(message);
        break;
    case IN_ON_CLOSED:
        tmsg_endpoint_destroy(scene->theirs);
        break;
    default:
        tmsg_request_destroy(send_map(scene->theirs, sample_bytes(1, 10), 0));
        break;
    }
}

static void run(place_t place, drive_t drive)
{
    scene_t scene = {
        .place = place, .drive = drive, .memory = {.on_alloc = on_alloc}};
    pthread_t threads[WAITERS];
    waiter_t waiters[WAITERS];
    int thread_count;
    uint64_t began;

    scene.memory.arg = &scene;
    open_scene(&scene);
    thread_count = count_threads();
    for (unsigned i = 0; i < WAITERS; i++) {
        waiters[i] = (waiter_t){&scene, i};
        must_eq(pthread_create(&threads[i], NULL, wait_once, &waiters[i]), 0);
    }
    see_all_inside(&scene);
    began = now_ms();
    provoke(&scene);
    for (unsigned i = 0; i < WAITERS; i++) {
        must_eq(pthread_join(threads[i], NULL), 0);
    }
    while (place != OUTSIDE && !atomic_load(&scene.callback_over)) {
        sched_yield();
    }
    /* The worker's own thread frees it later, where nobody joins that. */
    while (drive == DRIVE_THREAD && count_threads() >= thread_count) {
        sched_yield();
    }
    if (now_ms() - began > AT_ONCE_MS) {
        die("destroyed %s: it took %llu ms", place_names[place],
            (unsigned long long)(now_ms() - began));
    }
    must_true(tmsg_request_test(scene.pending) != TMSG_IN_PROGRESS);
    tmsg_request_destroy(scene.pending);
    scene.us.worker = NULL;
    side_close(&scene.us);
    side_close(&scene.peer);
}

int main(void)
{
    alarm(290);
    for (place_t place = 0; place < PLACES; place++) {
        for (unsigned i = 0; i < ROUNDS; i++) {
            run(place, DRIVE_POLLING);
            run(place, DRIVE_THREAD);
        }
        printf("destroyed %s\n", place_names[place]);
        fflush(stdout);
    }
    return 0;
}
