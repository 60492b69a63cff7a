/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/blocked_callback.h"

#include <pthread.h>
#include <sched.h>

#include "support/own_allocator.h"
#include "support/seeded_maps.h"

enum { WAITERS = 2, MAPS = 4 };

const char *const stuck_place_names[STUCK_PLACES] = {
    "the handler", "on_done",   "on_closed",
    "on_accept",   "a release", "allocator.alloc"};

typedef struct {
    stuck_place_t place;
    side_t us, peer;
    own_memory_t memory;            /* of ours */
    tmsg_endpoint_t *ours, *theirs; /* two ends of one connection */
    tmsg_endpoint_t *second;        /* the peer's, to our listener */
    tmsg_map_t *lent;               /* what send_with() sent */
    atomic_bool ended[WAITERS];     /* their waits */
    atomic_bool called, returned;   /* the callback */
    atomic_bool running;            /* one of those that take turns */
    atomic_bool over;
    atomic_uint handled;
} scene_t;

typedef struct {
    scene_t *scene;
    unsigned number;
    pthread_t thread;
} waiter_t;

static _Thread_local const waiter_t *this_waiter;

/* In the callback, once: until whoever else waits has what it waits for. */
static void be_stuck(scene_t *scene)
{
    if (atomic_exchange(&scene->called, true)) {
        return;
    }
    for (unsigned i = 0; i < WAITERS; i++) {
        while (!atomic_load(&scene->ended[i]) &&
               (this_waiter == NULL || this_waiter->number != i)) {
            sched_yield();
        }
    }
    atomic_store(&scene->returned, true);
}

static void take_turn(scene_t *scene, stuck_place_t place)
{
    must_true(!atomic_exchange(&scene->running, true));
    if (scene->place == place) {
        be_stuck(scene);
    }
    atomic_store(&scene->running, false);
}

static void handler(void *arg, tmsg_message_t *message)
{
    scene_t *scene = arg;
    unsigned number = atomic_load(&scene->handled);

    take_turn(scene, STUCK_HANDLER);
    sample_check_bytes(number, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    atomic_store(&scene->handled, number + 1);
}

static void on_done(void *arg, tmsg_status_t status, const char *error)
{
    (void)error;
    must(status);
    take_turn(arg, STUCK_ON_DONE);
}

static void on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error)
{
    (void)endpoint;
    (void)error;
    must_true(status < 0);
    take_turn(arg, STUCK_ON_CLOSED);
}

static void on_accept(void *arg, tmsg_endpoint_t *endpoint)
{
    tmsg_endpoint_on_closed(endpoint, on_closed, arg);
    take_turn(arg, STUCK_ON_ACCEPT);
}

/* Called wherever the map's last owner lets it go. */
static void release(void *arg)
{
    scene_t *scene = arg;

    if (scene->place == STUCK_RELEASE) {
        be_stuck(scene);
    }
}

static tmsg_status_t on_alloc(void *arg)
{
    scene_t *scene = arg;

    if (scene->place == STUCK_ALLOC) {
        be_stuck(scene);
    }
    return TMSG_OK;
}

static void send_with(scene_t *scene)
{
    static uint8_t data[200000]; /* a rendezvous */
    const int64_t shape[] = {sizeof(data)};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    const tmsg_map_add_params_t lent = {.field_mask =
                                            TMSG_MAP_ADD_PARAM_RELEASE,
                                        .release = release,
                                        .release_arg = scene};
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_ON_DONE,
        .on_done = on_done,
        .on_done_arg = scene,
    };

    must(tmsg_map_create(&scene->lent));
    must(tmsg_map_add(scene->lent, "lent", &tensor, &lent));
    must(tmsg_endpoint_send(scene->ours, scene->lent, &params, NULL));
}

/* Releases it here where the worker's own thread is done with it already. */
static void let_go(scene_t *scene)
{
    tmsg_map_destroy(scene->lent);
    scene->lent = NULL;
}

/* Brings about that the callback is called by whoever drives us. */
static void provoke(scene_t *scene)
{
    switch (scene->place) {
    case STUCK_ON_DONE:
    case STUCK_RELEASE:
        send_with(scene);
        break;
    case STUCK_ON_ACCEPT:
        scene->second = side_dial(&scene->peer, &scene->us);
        break;
    case STUCK_ON_CLOSED:
        tmsg_endpoint_destroy(scene->second);
        break;
    default:
        for (unsigned i = 0; i < MAPS; i++) {
            tmsg_request_destroy(
                send_map(scene->theirs, sample_bytes(i, 1000), 0));
        }
    }
}

/* The peer takes nothing before the callback was called. */
static void *take(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->over)) {
        tmsg_message_t *message;

        if (!atomic_load(&scene->called)) {
            sched_yield();
        } else if (tmsg_worker_recv(scene->peer.worker, 1, &message) ==
                   TMSG_OK) {
            tmsg_message_destroy(message);
        }
    }
    return NULL;
}

static void *wait_for_answer(void *arg)
{
    waiter_t *waiter = arg;
    scene_t *scene = waiter->scene;
    tmsg_request_t *request;

    this_waiter = waiter; /* before anything here may call back */
    request = send_map(scene->ours, sample_bytes(9, 100), TMSG_SEND_ACKED);
    must(tmsg_request_wait(request, PEERS_BOUND_MS));
    atomic_store(&scene->ended[waiter->number], true);
    tmsg_request_destroy(request);
    return NULL;
}

static bool is_connected(void *arg)
{
    scene_t *scene = arg;

    return tmsg_endpoint_status(scene->ours) == TMSG_OK &&
           (scene->place != STUCK_ON_CLOSED ||
            tmsg_endpoint_status(scene->second) == TMSG_OK) &&
           atomic_load(&scene->peer.accepts) > 0;
}

static void open_scene(scene_t *scene, drive_t drive)
{
    const tmsg_allocator_t allocator = own_memory_allocator(&scene->memory);
    const bool handles = scene->place == STUCK_HANDLER;
    const side_options_t ours = {
        .drive = drive,
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS |
                                 TMSG_WORKER_PARAM_ALLOCATOR |
                                 (handles ? TMSG_WORKER_PARAM_HANDLER : 0),
                   .flags = TMSG_WORKER_SHARED,
                   .handler = handler,
                   .handler_arg = scene,
                   .allocator = &allocator}};
    const side_options_t theirs = {.drive = DRIVE_THREAD};
    const tmsg_listener_params_t listening = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
        .on_accept = on_accept,
        .on_accept_arg = scene,
    };
    side_t *sides[] = {&scene->us, &scene->peer};

    side_open(&scene->us, &ours);
    side_open(&scene->peer, &theirs);
    must(tmsg_listener_create(scene->us.worker, "tcp://:0", &listening,
                              &scene->us.listener));
    side_listen(&scene->peer, "tcp://:0");
    scene->ours = side_dial(&scene->us, &scene->peer);
    if (scene->place == STUCK_ON_CLOSED) {
        scene->second = side_dial(&scene->peer, &scene->us);
    }
    await(sides, 2, is_connected, scene, "two connected sides");
    scene->theirs = atomic_load(&scene->peer.accepted);
}

static bool is_over(void *arg)
{
    const scene_t *scene = arg;

    return atomic_load(&scene->returned) &&
           (scene->place != STUCK_HANDLER ||
            atomic_load(&scene->handled) == MAPS);
}

void stuck_run(stuck_place_t place, drive_t drive)
{
    scene_t scene = {.place = place, .memory = {.on_alloc = on_alloc}};
    side_t *sides[] = {&scene.us, &scene.peer};
    waiter_t waiters[WAITERS];
    pthread_t taker;
    /* A map that nobody drives yet is released by who does. */
    bool early = place == STUCK_RELEASE || drive == DRIVE_THREAD;

    scene.memory.arg = &scene;
    open_scene(&scene, drive);
    must_eq(pthread_create(&taker, NULL, take, &scene), 0);
    if (early) {
        provoke(&scene);
    }
    if (drive != DRIVE_THREAD) {
        let_go(&scene);
    }
    for (unsigned i = 0; i < WAITERS; i++) {
        waiters[i] = (waiter_t){.scene = &scene, .number = i};
        must_eq(pthread_create(&waiters[i].thread, NULL, wait_for_answer,
                               &waiters[i]),
                0);
    }
    if (!early) {
        provoke(&scene);
    }
    let_go(&scene);
    for (unsigned i = 0; i < WAITERS; i++) {
        must_eq(pthread_join(waiters[i].thread, NULL), 0);
    }
    await(sides, 2, is_over, &scene, stuck_place_names[place]);
    atomic_store(&scene.over, true);
    must_eq(pthread_join(taker, NULL), 0);
    side_close(&scene.us);
    side_close(&scene.peer);
    must_eq(atomic_load(&scene.memory.blocks), 0);
}
