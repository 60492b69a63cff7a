/* SPDX-License-Identifier: BSD-3-Clause */
/* Nobody sleeps through what he waits for: what would wake him in the end,
 * UCX's keepalive and heartbeats, is put off, and every acknowledged send must
 * end in time, whoever drives the worker and whoever else sleeps on it. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "am/worker/worker.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum {
    SENDERS = 4,
    SENDS = 40,
    ROUNDS = 60,
    IN_TIME_MS = 20000,
    SLOW_US = 2000
};

/* What the senders do until each send has ended. */
typedef enum {
    HOLD_WAIT,  /* tmsg_request_wait() */
    HOLD_SLEEP, /* sleep until on_done: others drive */
    HOLD_MIXED, /* now one, now the other */
    HOLDS
} hold_t;

/* Who drives the worker all the while. */
typedef enum { BY_NOBODY, BY_SPINNING, BY_FD, BY_FD_AND_WAITING, BYS } by_t;

typedef struct {
    side_t a, b; /* b sends */
    tmsg_endpoint_t *endpoint;
    hold_t hold;
    pthread_barrier_t step;
    atomic_bool stop, over; /* the drivers; and then the peer */
} scene_t;

static void swallow(void *arg, tmsg_message_t *message)
{
    (void)arg;
    tmsg_message_destroy(message);
}

/* A peer that answers only now and then, so that its answer finds everybody
 * asleep. */
static void *answer_slowly(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->over)) {
        tmsg_worker_progress(scene->a.worker);
        usleep(SLOW_US);
    }
    return NULL;
}

static void *spin(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->stop)) {
        tmsg_worker_progress(scene->b.worker);
    }
    return NULL;
}

static void *wait_on(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->stop)) {
        tmsg_status_t status = tmsg_worker_wait(scene->b.worker, 3);

        must_true(status == TMSG_OK || status == TMSG_ERR_TIMED_OUT);
    }
    return NULL;
}

static void arm_and_sleep(tmsg_worker_t *worker, int timeout_ms)
{
    struct pollfd fd = {tmsg_worker_fd(worker), POLLIN, 0};
    tmsg_status_t status = tmsg_worker_arm(worker);

    if (status != TMSG_ERR_BUSY) {
        must(status);
        poll(&fd, 1, timeout_ms);
    }
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* One send that ends while this thread drives by the descriptor. */
static void send_by_fd(scene_t *scene)
{
    tmsg_request_t *sent =
        send_map(scene->endpoint, sample_bytes(1, 100), TMSG_SEND_ACKED);
    uint64_t began = now_ms();

    while (tmsg_request_test(sent) == TMSG_IN_PROGRESS) {
        tmsg_worker_progress(scene->b.worker);
        if (tmsg_request_test(sent) == TMSG_IN_PROGRESS) {
            arm_and_sleep(scene->b.worker, IN_TIME_MS + 1000);
        }
    }
    must(tmsg_request_test(sent));
    if (now_ms() - began > IN_TIME_MS) {
        die("the descriptor stayed silent although a send had ended");
    }
    tmsg_request_destroy(sent);
}

static void *drive_by_fd(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->stop)) {
        send_by_fd(scene);
    }
    return NULL;
}

/* In step with another thread, so that after each round nothing happens by
 * which a sleeper would be woken all the same. */
static void *send_by_fd_in_step(void *arg)
{
    scene_t *scene = arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&scene->step);
        send_by_fd(scene);
    }
    return NULL;
}

static void *wait_in_step(void *arg)
{
    scene_t *scene = arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        tmsg_request_t *sent;

        pthread_barrier_wait(&scene->step);
        sent = send_map(scene->endpoint, sample_bytes(1, 100), TMSG_SEND_ACKED);
        must(tmsg_request_wait(sent, IN_TIME_MS));
        tmsg_request_destroy(sent);
    }
    return NULL;
}

static void post(void *arg, tmsg_status_t status, const char *error)
{
    must_say(error, "");
    must(status);
    sem_post(arg);
}

static void *send_all(void *arg)
{
    scene_t *scene = arg;

    for (unsigned i = 0; i < SENDS; i++) {
        sem_t done;
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_ON_DONE,
            .flags = TMSG_SEND_ACKED,
            .on_done = post,
            .on_done_arg = &done,
        };
        bool waits = scene->hold == HOLD_WAIT ||
                     (scene->hold == HOLD_MIXED && i % 2 == 0);
        tmsg_map_t *map = sample_bytes(i, i % 8 == 0 ? 100000 : 100);
        tmsg_request_t *request;
        struct timespec until;

        sem_init(&done, 0, 0);
        must(tmsg_endpoint_send(scene->endpoint, map, &params, &request));
        tmsg_map_destroy(map);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += IN_TIME_MS / 1000;
        if (waits) {
            must(tmsg_request_wait(request, IN_TIME_MS));
        }
        if (sem_timedwait(&done, &until) != 0) {
            die("send %u: no on_done within %d ms", i, IN_TIME_MS);
        }
        tmsg_request_destroy(request);
        sem_destroy(&done);
    }
    return NULL;
}

static void open_scene(scene_t *scene, drive_t drive, const char *config)
{
    side_options_t options = {
        .quiet = true,
        .ucx_config = config,
        .worker = {.field_mask = TMSG_WORKER_PARAM_HANDLER,
                   .handler = swallow}};
    tmsg_request_t *ready;

    side_open(&scene->a, &options);
    options.drive = drive;
    options.worker.field_mask = TMSG_WORKER_PARAM_FLAGS;
    options.worker.flags = TMSG_WORKER_SHARED;
    side_open(&scene->b, &options);
    must(tmsg_listener_create(scene->a.worker, "tcp://:0", NULL,
                              &scene->a.listener));
    scene->endpoint = side_dial(&scene->b, &scene->a);
    must(tmsg_endpoint_ready(scene->endpoint, &ready));
    while (tmsg_request_test(ready) == TMSG_IN_PROGRESS) {
        tmsg_worker_progress(scene->a.worker);
        tmsg_worker_progress(scene->b.worker);
    }
    must(tmsg_request_test(ready));
    tmsg_request_destroy(ready);
}

static void start(pthread_t *thread, void *(*body)(void *arg), scene_t *scene)
{
    must_eq(pthread_create(thread, NULL, body, scene), 0);
}

static void run(drive_t drive, by_t by, hold_t hold, const char *config)
{
    scene_t scene = {.hold = hold};
    pthread_t peer, drivers[2], senders[SENDERS];
    unsigned driver_count = 0;

    open_scene(&scene, drive, config);
    start(&peer, answer_slowly, &scene);
    if (by == BY_SPINNING) {
        start(&drivers[driver_count++], spin, &scene);
    }
    if (by == BY_FD || by == BY_FD_AND_WAITING) {
        start(&drivers[driver_count++], drive_by_fd, &scene);
    }
    if (by == BY_FD_AND_WAITING) {
        start(&drivers[driver_count++], wait_on, &scene);
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        start(&senders[i], send_all, &scene);
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        must_eq(pthread_join(senders[i], NULL), 0);
    }
    atomic_store(&scene.stop, true);
    tmsg_request_destroy(
        send_map(scene.endpoint, sample_bytes(1, 1), 0)); /* wakes them */
    for (unsigned i = 0; i < driver_count; i++) {
        must_eq(pthread_join(drivers[i], NULL), 0);
    }
    atomic_store(&scene.over, true);
    must_eq(pthread_join(peer, NULL), 0);
    side_close(&scene.b);
    side_close(&scene.a);
}

/* Two threads that sleep on the same worker, each for a send of its own. */
static void run_in_step(void *(*first)(void *arg), void *(*second)(void *arg),
                        const char *config)
{
    scene_t scene = {.hold = HOLD_WAIT};
    pthread_t peer, threads[2];

    pthread_barrier_init(&scene.step, NULL, 2);
    open_scene(&scene, DRIVE_POLLING, config);
    start(&peer, answer_slowly, &scene);
    start(&threads[0], first, &scene);
    start(&threads[1], second, &scene);
    must_eq(pthread_join(threads[0], NULL), 0);
    must_eq(pthread_join(threads[1], NULL), 0);
    atomic_store(&scene.over, true);
    must_eq(pthread_join(peer, NULL), 0);
    side_close(&scene.b);
    side_close(&scene.a);
    pthread_barrier_destroy(&scene.step);
}

static void *wait_briefly(void *arg)
{
    scene_t *scene = arg;

    must_be(tmsg_worker_wait(scene->b.worker, 100), TMSG_ERR_TIMED_OUT);
    return NULL;
}

static void *wait_longer(void *arg)
{
    scene_t *scene = arg;
    uint64_t began = now_ms();

    must_be(tmsg_worker_wait(scene->b.worker, 300), TMSG_ERR_TIMED_OUT);
    must_true(now_ms() - began >= 300);
    return NULL;
}

static void await_leader(tmsg_worker_t *worker)
{
    bool led;

    do {
        sched_yield();
        tmsg_worker_lock(worker);
        led = worker->lead.taken;
        tmsg_worker_unlock(worker);
    } while (!led);
}

/* That somebody's wait timed out is nothing that another waited for. */
static void run_idle(void)
{
    const side_options_t shared = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_SHARED}};
    scene_t scene = {.hold = HOLD_WAIT};
    pthread_t threads[3];

    side_open(&scene.b, &shared);
    start(&threads[0], wait_briefly, &scene);
    await_leader(scene.b.worker);
    start(&threads[1], wait_longer, &scene);
    start(&threads[2], wait_briefly, &scene);
    for (unsigned i = 0; i < 3; i++) {
        must_eq(pthread_join(threads[i], NULL), 0);
    }
    side_close(&scene.b);
}

int main(void)
{
    static const char *const configs[] = {NULL, "TLS=tcp"};

    alarm(290);
    run_idle();
    for (unsigned i = 0; i < 2; i++) {
        for (by_t by = 0; by < BYS; by++) {
            for (hold_t hold = 0; hold < HOLDS; hold++) {
                if (by != BY_NOBODY || hold == HOLD_WAIT) {
                    run(DRIVE_POLLING, by, hold, configs[i]);
                }
            }
        }
        run(DRIVE_THREAD, BY_NOBODY, HOLD_MIXED, configs[i]);
        run(DRIVE_THREAD, BY_SPINNING, HOLD_MIXED, configs[i]);
        run_in_step(wait_in_step, wait_in_step, configs[i]);
        run_in_step(send_by_fd_in_step, wait_in_step, configs[i]);
        printf("%s: everybody woke in time\n",
               configs[i] == NULL ? "shared memory" : configs[i]);
    }
    return 0;
}
