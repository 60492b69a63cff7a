/* SPDX-License-Identifier: BSD-3-Clause */
/* A budget of held_bytes that holds two messages, on a worker that several
 * threads drive; and an allocator that takes its time. UCX's keepalive and
 * heartbeats are put off, for they would wake whoever sleeps although there is
 * room. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "support/own_allocator.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { BYTES = 100000, BUDGET = 250000, EACH = 60, IN_TIME_MS = 20000 };

typedef struct {
    side_t us, peer;
    tmsg_endpoint_t *from[2]; /* ours */
    tmsg_endpoint_t *to[2];   /* the peer's */
    atomic_uint received, released;
    atomic_bool stop;
    pthread_mutex_t lock;
    tmsg_message_t *held[2 * EACH];
    unsigned held_count;
} scene_t;

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void open_scene(scene_t *scene, drive_t drive,
                       const tmsg_allocator_t *allocator,
                       tmsg_message_fn handler)
{
    const side_options_t theirs = {.drive = DRIVE_THREAD, .quiet = true};
    side_options_t ours = {
        .drive = drive,
        .quiet = true,
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = BUDGET},
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_SHARED}};

    if (handler != NULL) {
        ours.worker.field_mask |= TMSG_WORKER_PARAM_HANDLER;
        ours.worker.handler = handler;
        ours.worker.handler_arg = scene;
    }
    if (allocator != NULL) {
        ours.worker.field_mask |= TMSG_WORKER_PARAM_ALLOCATOR;
        ours.worker.allocator = allocator;
    }
    pthread_mutex_init(&scene->lock, NULL);
    side_open(&scene->us, &ours);
    side_open(&scene->peer, &theirs);
    side_listen(&scene->us, "tcp://:0");
    for (unsigned i = 0; i < 2; i++) {
        scene->to[i] = side_dial(&scene->peer, &scene->us);
        scene->from[i] = side_accept(&scene->us);
    }
}

static void close_scene(scene_t *scene)
{
    side_close(&scene->us);
    side_close(&scene->peer);
}

static void start(pthread_t *thread, void *(*body)(void *arg), scene_t *scene)
{
    must_eq(pthread_create(thread, NULL, body, scene), 0);
}

static void put(tmsg_endpoint_t *endpoint, uint64_t seed, size_t bytes)
{
    tmsg_request_destroy(send_map(endpoint, sample_bytes(seed, bytes), 0));
}

static void *receive(void *arg)
{
    scene_t *scene = arg;

    while (atomic_load(&scene->received) < 2 * EACH) {
        tmsg_message_t *message;
        tmsg_status_t status = tmsg_worker_recv(scene->us.worker, 20, &message);

        if (status == TMSG_ERR_TIMED_OUT) {
            continue;
        }
        must(status);
        atomic_fetch_add(&scene->received, 1);
        pthread_mutex_lock(&scene->lock);
        scene->held[scene->held_count++] = message;
        pthread_mutex_unlock(&scene->lock);
    }
    return NULL;
}

/* Releases elsewhere, where nobody drives. */
static void *release(void *arg)
{
    scene_t *scene = arg;

    while (atomic_load(&scene->released) < 2 * EACH) {
        tmsg_message_t *message = NULL;

        pthread_mutex_lock(&scene->lock);
        if (scene->held_count > 0) {
            message = scene->held[--scene->held_count];
        }
        pthread_mutex_unlock(&scene->lock);
        if (message != NULL) {
            tmsg_message_destroy(message);
            atomic_fetch_add(&scene->released, 1);
        } else {
            sched_yield();
        }
    }
    return NULL;
}

static void all_arrive_through_a_small_budget(drive_t drive)
{
    scene_t scene = {.held_count = 0};
    pthread_t receivers[2], releaser;
    uint64_t began = now_ms();

    open_scene(&scene, drive, NULL, NULL);
    start(&receivers[0], receive, &scene);
    start(&receivers[1], receive, &scene);
    start(&releaser, release, &scene);
    for (unsigned i = 0; i < EACH; i++) {
        put(scene.to[0], i, BYTES);
        put(scene.to[1], i, i % 2 ? BYTES : 100);
    }
    must_eq(pthread_join(receivers[0], NULL), 0);
    must_eq(pthread_join(receivers[1], NULL), 0);
    must_eq(pthread_join(releaser, NULL), 0);
    must_true(now_ms() - began < 20000);
    close_scene(&scene);
}

static void *drive(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->stop)) {
        tmsg_worker_wait(scene->us.worker, 5);
    }
    return NULL;
}

static void take(tmsg_endpoint_t *endpoint, uint64_t seed, size_t bytes)
{
    tmsg_message_t *message;

    must(tmsg_endpoint_recv(endpoint, IN_TIME_MS, &message));
    sample_check_bytes(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* The budget is the worker's: an endpoint that nobody pulls holds up another,
 * until it is pulled or destroyed. */
static void one_endpoint_is_not_pulled(bool destroyed)
{
    scene_t scene = {.held_count = 0};
    pthread_t drivers[2];
    tmsg_message_t *none;

    open_scene(&scene, DRIVE_POLLING, NULL, NULL);
    start(&drivers[0], drive, &scene);
    start(&drivers[1], drive, &scene);
    put(scene.to[0], 0, BYTES);
    put(scene.to[0], 1, BYTES);
    put(scene.to[1], 0, 100);
    take(scene.from[1], 0, 100);
    put(scene.to[0], 2, BYTES); /* no room for it, nor for what follows */
    put(scene.to[1], 1, BYTES);
    must_be(tmsg_endpoint_recv(scene.from[1], 100, &none), TMSG_ERR_TIMED_OUT);
    if (destroyed) {
        tmsg_endpoint_destroy(scene.from[0]);
    } else {
        take(scene.from[0], 0, BYTES);
        take(scene.from[0], 1, BYTES);
    }
    take(scene.from[1], 1, BYTES);
    atomic_store(&scene.stop, true);
    must_eq(pthread_join(drivers[0], NULL), 0);
    must_eq(pthread_join(drivers[1], NULL), 0);
    close_scene(&scene);
}

static void keep(void *arg, tmsg_message_t *message)
{
    scene_t *scene = arg;

    scene->held[scene->held_count++] = message;
}

/* Drives by the descriptor until so many have come, and arms after each
 * progress(), whatever that said. */
static void await_by_fd(scene_t *scene, unsigned count)
{
    struct pollfd fd = {tmsg_worker_fd(scene->us.worker), POLLIN, 0};

    while (scene->held_count < count) {
        if (tmsg_worker_arm(scene->us.worker) == TMSG_OK &&
            poll(&fd, 1, IN_TIME_MS) == 0) {
            die("slept on a message that there is room for");
        }
        tmsg_worker_progress(scene->us.worker);
    }
}

static void progress_for(scene_t *scene, uint64_t ms)
{
    for (uint64_t began = now_ms(); now_ms() - began < ms;) {
        tmsg_worker_progress(scene->us.worker);
    }
}

/* Two messages of the second connection fill the budget, one of the first waits
 * for room. */
static void open_full_scene(scene_t *scene)
{
    open_scene(scene, DRIVE_POLLING, NULL, keep);
    put(scene->to[1], 0, BYTES);
    put(scene->to[1], 1, BYTES);
    await_by_fd(scene, 2);
    put(scene->to[0], 0, BYTES);
    progress_for(scene, 50);
}

/* A message that waits for room ends with its connection: the next in line,
 * which there is room for, is not slept on. */
static void room_is_found_when_a_waiting_message_ends(bool here)
{
    scene_t scene = {.held_count = 0};

    open_full_scene(&scene);
    put(scene.to[1], 2, 1000); /* behind it */
    progress_for(&scene, 50);
    must_eq(scene.held_count, 2);
    tmsg_endpoint_destroy(here ? scene.from[0] : scene.to[0]);
    await_by_fd(&scene, 3);
    while (scene.held_count > 0) {
        tmsg_message_destroy(scene.held[--scene.held_count]);
    }
    close_scene(&scene);
}

/* One whose payload lies in its own record is not behind those that wait. */
static void a_small_message_waits_for_no_room(void)
{
    scene_t scene = {.held_count = 0};

    open_full_scene(&scene);
    put(scene.to[1], 2, 100);
    await_by_fd(&scene, 3);
    while (scene.held_count > 0) {
        tmsg_message_destroy(scene.held[--scene.held_count]);
    }
    await_by_fd(&scene, 1);
    tmsg_message_destroy(scene.held[0]);
    close_scene(&scene);
}

/* Memory that takes its time: until the peer has gone, and another thread has
 * progressed a while. */
typedef struct {
    sem_t asked, given;
    own_memory_t memory;
} slow_t;

static tmsg_status_t be_slow(void *arg)
{
    slow_t *slow = arg;

    sem_post(&slow->asked);
    must_eq(sem_wait(&slow->given), 0);
    return TMSG_OK;
}

static void peer_goes_amid_an_allocation(drive_t drives, size_t bytes)
{
    scene_t scene = {.held_count = 0};
    slow_t slow = {.memory = {.on_alloc = be_slow, .arg = &slow}};
    const tmsg_allocator_t allocator = own_memory_allocator(&slow.memory);
    tmsg_message_t *message;
    tmsg_status_t status;
    pthread_t driver;

    sem_init(&slow.asked, 0, 0);
    sem_init(&slow.given, 0, 0);
    open_scene(&scene, drives, &allocator, NULL);
    start(&driver, drive, &scene);
    put(scene.to[0], 0, bytes);
    must_eq(sem_wait(&slow.asked), 0);
    side_close(&scene.peer);
    /* A call that waited for the memory would not return. */
    for (uint64_t began = now_ms(); now_ms() - began < 1000;) {
        tmsg_worker_progress(scene.us.worker);
        must_be(tmsg_worker_recv(scene.us.worker, 0, &message),
                TMSG_ERR_TIMED_OUT);
        (void)tmsg_endpoint_status(scene.from[0]);
    }
    sem_post(&slow.given);
    for (unsigned i = 0; i < 2; i++) {
        status = tmsg_endpoint_recv(scene.from[i], IN_TIME_MS, &message);
        if (status == TMSG_OK) { /* it was all here */
            tmsg_message_destroy(message);
            status = tmsg_endpoint_recv(scene.from[i], IN_TIME_MS, &message);
        }
        /* or it ended before it knew that it was connected, and says so */
        must_true(status == TMSG_ERR_PEER_LOST || status == TMSG_ERR_CANCELED);
    }
    atomic_store(&scene.stop, true);
    must_eq(pthread_join(driver, NULL), 0);
    side_close(&scene.us);
    must_eq(atomic_load(&slow.memory.blocks), 0);
}

int main(void)
{
    alarm(290);
    all_arrive_through_a_small_budget(DRIVE_POLLING);
    all_arrive_through_a_small_budget(DRIVE_THREAD);
    one_endpoint_is_not_pulled(false);
    one_endpoint_is_not_pulled(true);
    puts("every message found room");
    peer_goes_amid_an_allocation(DRIVE_POLLING, 100);
    peer_goes_amid_an_allocation(DRIVE_POLLING, 3000000);
    peer_goes_amid_an_allocation(DRIVE_THREAD, 3000000);
    puts("peers went amid an allocation");
    a_small_message_waits_for_no_room();
    room_is_found_when_a_waiting_message_ends(true);
    room_is_found_when_a_waiting_message_ends(false);
    return 0;
}
