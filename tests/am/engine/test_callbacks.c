/* SPDX-License-Identifier: BSD-3-Clause */
/* What an application may do inside each of its callbacks, whichever call
 * drives the worker meanwhile. Two things are left out because they mean
 * nothing: a worker with a handler has nothing to pull, so that no recv drives
 * it; and what a callback of on_closed does to its endpoint finds that ended.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/own_allocator.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

#define BOUND_S 20 /* of one scene */
#define TURN_MS 10 /* of one call that drives */

typedef enum {
    HANDLER,
    ON_DONE,
    ON_CLOSED,
    ON_ACCEPT,
    RELEASE, /* of a map that was destroyed before its send ended */
    ALLOC,
    FREE, /* of a message that nobody pulled */
    PLACES
} place_t;

typedef enum {
    DESTROY_ENDPOINT,
    DESTROY_LISTENER,
    DESTROY_WORKER,
    CLOSE,
    SEND,
    CONNECT,
    ASK,
    PROGRESS,
    WAIT,
    DEEDS
} deed_t;

typedef enum {
    BY_PROGRESS,
    BY_WAIT,
    BY_REQUEST,
    BY_WORKER_RECV,
    BY_ENDPOINT_RECV,
    BY_THREAD,
    DRIVERS
} driver_t;

static const char *const place_names[PLACES] = {
    "the handler", "on_done",         "on_closed",     "on_accept",
    "a release",   "allocator.alloc", "allocator.free"};
static const char *const deed_names[DEEDS] = {"destroys the endpoint",
                                              "destroys the listener",
                                              "destroys the worker",
                                              "closes the endpoint",
                                              "sends",
                                              "connects",
                                              "asks",
                                              "progresses",
                                              "waits"};
static const char *const driver_names[DRIVERS] = {
    "progress",    "worker_wait",   "request_wait",
    "worker_recv", "endpoint_recv", "the library's thread"};

typedef struct {
    place_t place;
    deed_t deed;
    driver_t driver;
    side_t us, peer; /* the peer has a thread, and is as quick as it can */
    side_t *sides[2];
    tmsg_endpoint_t *first;  /* what it all happens to */
    tmsg_endpoint_t *other;  /* a bystander, with a send that never ends */
    tmsg_endpoint_t *target; /* of the deed */
    tmsg_endpoint_t *theirs; /* the peer's end of the target */
    tmsg_endpoint_t *their_first;
    tmsg_request_t *pending;   /* that send */
    tmsg_request_t *follow_up; /* what the deed began */
    atomic_bool wanted, done;  /* the deed */
    own_memory_t memory;
} scene_t;

static char scene_name[128];

static void say_scene(int number)
{
    ssize_t put = write(2, scene_name, strlen(scene_name));

    (void)put;
    signal(SIGABRT, SIG_DFL);
    if (number != SIGABRT) {
        abort();
    }
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Returns whether the target has ended: it has before on_closed is called. */
static bool target_is_dead(const scene_t *scene)
{
    return scene->place == ON_CLOSED;
}

static void ask(scene_t *scene)
{
    tmsg_endpoint_t *target = scene->target;
    bool dead = target_is_dead(scene);
    char *json;

    must_be(tmsg_endpoint_status(target), dead ? TMSG_ERR_PEER_LOST : TMSG_OK);
    must_say(tmsg_endpoint_error(target), dead ? "pid" : "");
    must_say(tmsg_endpoint_peer(target), "pid");
    must(tmsg_endpoint_describe(target, &json));
    must_say(json, "transports");
    tmsg_string_free(json);
    must(tmsg_context_describe(scene->us.context, &json));
    tmsg_string_free(json);
    must_say(tmsg_listener_url(scene->us.listener), "tcp://");
    must_be(tmsg_request_test(scene->pending), TMSG_IN_PROGRESS);
    must_say(tmsg_request_error(scene->pending), "");
    must_true(tmsg_worker_fd(scene->us.worker) >= 0);
}

static void try_to_wait(scene_t *scene)
{
    tmsg_worker_t *worker = scene->us.worker;
    bool pulled = scene->place != HANDLER;
    tmsg_status_t barred =
        pulled ? TMSG_ERR_WOULD_BLOCK : TMSG_ERR_INVALID_PARAM;
    uint64_t began = now_ms();
    tmsg_map_t *map = sample_bytes(3, 100);
    tmsg_message_t *none;

    must_be(tmsg_worker_wait(worker, 5000), TMSG_ERR_WOULD_BLOCK);
    must_be(tmsg_worker_wait(worker, 0), TMSG_ERR_WOULD_BLOCK);
    must_be(tmsg_worker_recv(worker, 5000, &none), barred);
    must_be(tmsg_endpoint_recv(scene->other, 5000, &none), barred);
    must_be(tmsg_request_wait(scene->pending, 5000), TMSG_ERR_WOULD_BLOCK);
    must_be(tmsg_request_wait(scene->pending, -1), TMSG_ERR_WOULD_BLOCK);
    must_be(tmsg_endpoint_send_wait(scene->other, map, NULL, 5000),
            TMSG_ERR_WOULD_BLOCK);
    must_say(tmsg_error_message(), "call tmsg_endpoint_send() there");
    must(tmsg_map_clear(map)); /* it was not sent */
    must_be(tmsg_endpoint_close_wait(scene->other, 5000), TMSG_ERR_WOULD_BLOCK);
    must_be(tmsg_endpoint_status(scene->other), TMSG_OK);
    tmsg_map_destroy(map);
    must_true(now_ms() - began < 5000);
}

static void begin_send(scene_t *scene)
{
    tmsg_map_t *map = sample_bytes(3, 100);
    tmsg_status_t status =
        tmsg_endpoint_send(scene->target, map, NULL, &scene->follow_up);

    must_be(status, target_is_dead(scene) ? TMSG_ERR_PEER_LOST : TMSG_OK);
    tmsg_map_destroy(map);
}

static void begin_connect(scene_t *scene)
{
    tmsg_endpoint_t *another = side_dial(&scene->us, &scene->peer);

    must_be(tmsg_endpoint_status(another), TMSG_IN_PROGRESS);
    must(tmsg_endpoint_ready(another, &scene->follow_up));
}

static void act(scene_t *scene)
{
    if (!atomic_exchange(&scene->wanted, false)) {
        return;
    }
    switch (scene->deed) {
    case DESTROY_ENDPOINT:
        tmsg_endpoint_destroy(scene->target);
        break;
    case DESTROY_LISTENER:
        tmsg_listener_destroy(scene->us.listener);
        break;
    case DESTROY_WORKER:
        tmsg_worker_destroy(scene->us.worker);
        break;
    case CLOSE:
        must(tmsg_endpoint_close(scene->target, &scene->follow_up));
        break;
    case SEND:
        begin_send(scene);
        break;
    case CONNECT:
        begin_connect(scene);
        break;
    case ASK:
        ask(scene);
        break;
    case PROGRESS:
        must_eq(tmsg_worker_progress(scene->us.worker), 0);
        break;
    default:
        try_to_wait(scene);
        break;
    }
    atomic_store(&scene->done, true);
}

static void handle(void *arg, tmsg_message_t *message)
{
    act(arg);
    sample_check_bytes(7, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void on_done(void *arg, tmsg_status_t status, const char *error)
{
    must_say(error, "");
    must(status);
    act(arg);
}

static void on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error)
{
    const scene_t *scene = arg;

    must_true(endpoint == scene->first);
    must_be(status, TMSG_ERR_PEER_LOST);
    must_say(error, "pid");
    act(arg);
    must_say(error, "pid"); /* valid until this returns */
}

static void on_accept(void *arg, tmsg_endpoint_t *endpoint)
{
    scene_t *scene = arg;

    scene->target = endpoint;
    act(scene);
}

static uint8_t lent[100];

static void release(void *arg) { act(arg); }

static tmsg_status_t on_alloc(void *arg)
{
    scene_t *scene = arg;

    if (scene->place == ALLOC) {
        act(scene);
    }
    return TMSG_OK;
}

static void on_free(void *arg)
{
    scene_t *scene = arg;

    if (scene->place == FREE) {
        act(scene);
    }
}

static void open_sides(scene_t *scene)
{
    const tmsg_allocator_t allocator = own_memory_allocator(&scene->memory);
    side_options_t ours = {.drive = scene->driver == BY_THREAD ? DRIVE_THREAD
                                                               : DRIVE_POLLING,
                           .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                      .flags = TMSG_WORKER_SHARED,
                                      .handler = handle,
                                      .handler_arg = scene,
                                      .allocator = &allocator}};
    const side_options_t theirs = {
        .drive = DRIVE_THREAD,
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = scene->place == RELEASE ? 1 : 16}};
    const tmsg_listener_params_t listening = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
        .on_accept = on_accept,
        .on_accept_arg = scene,
    };

    if (scene->place == HANDLER) {
        ours.worker.field_mask |= TMSG_WORKER_PARAM_HANDLER;
    }
    if (scene->place == ALLOC || scene->place == FREE) {
        ours.worker.field_mask |= TMSG_WORKER_PARAM_ALLOCATOR;
    }
    side_open(&scene->us, &ours);
    side_open(&scene->peer, &theirs);
    side_listen(&scene->peer, "tcp://:0");
    must(tmsg_listener_create(scene->us.worker, "tcp://:0", &listening,
                              &scene->us.listener));
    scene->sides[0] = &scene->us;
    scene->sides[1] = &scene->peer;
}

static bool has_ended(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

static bool was_accepted(void *arg)
{
    const side_t *side = arg;

    return side->accepts > side->taken;
}

static tmsg_status_t finish(scene_t *scene, tmsg_request_t *request)
{
    tmsg_status_t status;

    await(scene->sides, 2, has_ended, request, "a request");
    status = tmsg_request_test(request);
    tmsg_request_destroy(request);
    return status;
}

/* One more connection from us to the peer. */
static tmsg_endpoint_t *join(scene_t *scene, tmsg_endpoint_t **theirs_p)
{
    tmsg_endpoint_t *endpoint = side_dial(&scene->us, &scene->peer);
    tmsg_request_t *ready;

    must(tmsg_endpoint_ready(endpoint, &ready));
    must(finish(scene, ready));
    await(scene->sides, 2, was_accepted, &scene->peer, "an endpoint");
    scene->peer.taken = scene->peer.accepts;
    *theirs_p = scene->peer.accepted;
    return endpoint;
}

static void open_scene(scene_t *scene)
{
    tmsg_endpoint_t *unused;

    open_sides(scene);
    scene->first = join(scene, &scene->their_first);
    scene->other = join(scene, &unused);
    scene->target = scene->first;
    scene->theirs = scene->their_first;
    if (scene->place == FREE) { /* the first one's end is what frees */
        scene->target = join(scene, &scene->theirs);
    }
    scene->pending =
        send_map(scene->other, sample_bytes(1, 10), TMSG_SEND_ACKED);
}

static bool has_pulled(void *arg)
{
    tmsg_message_t *message;
    tmsg_status_t status = tmsg_endpoint_recv(arg, 0, &message);

    if (status == TMSG_OK) {
        tmsg_message_destroy(message);
    }
    return status == TMSG_OK;
}

/* The peer has room for one message: the second waits for a credit, and with it
 * its map, which the application has destroyed. */
static void send_owned_later(scene_t *scene)
{
    const int64_t shape[] = {sizeof(lent)};
    const tmsg_tensor_t tensor = {
        lent, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    tmsg_request_destroy(send_map(scene->first, sample_bytes(1, 10), 0));
    must(tmsg_map_create(&map));
    must(tmsg_map_add(
        map, "lent", &tensor,
        &(tmsg_map_add_params_t){.field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
                                 .release = release,
                                 .release_arg = scene}));
    must(tmsg_endpoint_send(scene->first, map, NULL, NULL));
    tmsg_map_destroy(map);
    must_true(!atomic_load(&scene->done));
    await(scene->sides, 2, has_pulled, scene->their_first, "the first send");
}

static bool has_allocated(void *arg)
{
    return atomic_load(&((scene_t *)arg)->memory.allocs) > 0;
}

static void send_and_tell(scene_t *scene)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_ON_DONE,
        .on_done = on_done,
        .on_done_arg = scene,
    };
    tmsg_map_t *map = sample_bytes(2, 100);

    must(tmsg_endpoint_send(scene->first, map, &params, NULL));
    tmsg_map_destroy(map);
}

/* Makes the callback due: it is called when this side is driven. */
static void provoke(scene_t *scene)
{
    atomic_store(&scene->wanted, scene->place != FREE);
    switch (scene->place) {
    case ON_DONE:
        send_and_tell(scene);
        break;
    case ON_CLOSED:
        tmsg_endpoint_on_closed(scene->first, on_closed, scene);
        tmsg_endpoint_destroy(scene->their_first);
        break;
    case ON_ACCEPT:
        scene->theirs = side_dial(&scene->peer, &scene->us);
        break;
    case RELEASE:
        send_owned_later(scene);
        break;
    default:
        tmsg_request_destroy(
            send_map(scene->their_first, sample_bytes(7, 100), 0));
        break;
    }
    if (scene->place == FREE) {
        await(scene->sides, 2, has_allocated, scene, "a message");
        atomic_store(&scene->wanted, true);
        tmsg_endpoint_destroy(scene->first);
    }
}

/* Checks the status of the call that drove this side. */
static void check_outcome(const scene_t *scene, tmsg_status_t status)
{
    bool done = atomic_load(&scene->done);

    if (done && scene->deed == DESTROY_WORKER) {
        must_be(status, scene->driver == BY_REQUEST ? TMSG_ERR_CANCELED
                                                    : TMSG_ERR_CLOSED);
    } else if (done && scene->driver == BY_ENDPOINT_RECV &&
               scene->place == ON_CLOSED) {
        must_be(status, TMSG_ERR_PEER_LOST);
    } else if (done && scene->driver == BY_ENDPOINT_RECV &&
               scene->deed == DESTROY_ENDPOINT &&
               scene->target == scene->first) {
        must_be(status, TMSG_ERR_CANCELED);
    } else if (status != TMSG_OK && status != TMSG_ERR_TIMED_OUT) {
        must_true(done && scene->driver == BY_ENDPOINT_RECV &&
                  scene->deed == CLOSE);
        must_be(status, TMSG_ERR_CLOSED);
    }
}

static void drive_once(scene_t *scene)
{
    tmsg_worker_t *worker = scene->us.worker;
    tmsg_message_t *message = NULL;
    tmsg_status_t status = TMSG_ERR_TIMED_OUT;

    switch (scene->driver) {
    case BY_PROGRESS:
        tmsg_worker_progress(worker);
        return;
    case BY_WAIT:
        status = tmsg_worker_wait(worker, TURN_MS);
        break;
    case BY_REQUEST:
        status = tmsg_request_wait(scene->pending, TURN_MS);
        break;
    case BY_WORKER_RECV:
        status = tmsg_worker_recv(worker, TURN_MS, &message);
        break;
    case BY_ENDPOINT_RECV:
        status = tmsg_endpoint_recv(scene->place == FREE ? scene->other
                                                         : scene->first,
                                    TURN_MS, &message);
        break;
    default:
        sched_yield();
        return;
    }
    check_outcome(scene, status);
    tmsg_message_destroy(message);
}

/* The peer gives credit for what the deed sends, and for nothing else. */
static bool has_followed_up(void *arg)
{
    scene_t *scene = arg;

    if (scene->place == RELEASE) {
        has_pulled(scene->theirs);
    }
    return has_ended(scene->follow_up);
}

static bool is_over(void *arg) { return tmsg_endpoint_status(arg) < 0; }

/* The worker is gone, or goes with its thread. */
static void see_worker_gone(scene_t *scene, int threads)
{
    side_t *peer = &scene->peer;

    scene->us.worker = NULL;
    while (scene->driver == BY_THREAD && count_threads() >= threads) {
        sched_yield();
    }
    must_be(tmsg_request_test(scene->pending), TMSG_ERR_CANCELED);
    if (scene->place != ON_CLOSED) {
        await(&peer, 1, is_over, scene->theirs, "the loss of the worker");
        must_be(tmsg_endpoint_status(scene->theirs), TMSG_ERR_PEER_LOST);
    }
}

static void see_the_rest(scene_t *scene)
{
    if (scene->follow_up != NULL) {
        bool dead = target_is_dead(scene) && scene->deed != CONNECT;

        await(scene->sides, 2, has_followed_up, scene, "what the deed began");
        must_be(tmsg_request_test(scene->follow_up),
                dead ? TMSG_ERR_PEER_LOST : TMSG_OK);
        tmsg_request_destroy(scene->follow_up);
    }
    if (scene->deed == DESTROY_ENDPOINT && scene->place != ON_CLOSED) {
        await(scene->sides, 2, is_over, scene->theirs, "the endpoint's loss");
        must_be(tmsg_endpoint_status(scene->theirs), TMSG_ERR_PEER_LOST);
    }
    must(tmsg_endpoint_status(scene->other));
    must_be(tmsg_request_test(scene->pending), TMSG_IN_PROGRESS);
    side_close(&scene->us);
    must_be(tmsg_request_test(scene->pending), TMSG_ERR_CANCELED);
}

static void run(place_t place, deed_t deed, driver_t driver)
{
    scene_t scene = {.place = place,
                     .deed = deed,
                     .driver = driver,
                     .memory = {.on_alloc = on_alloc, .on_free = on_free}};
    int threads;

    snprintf(scene_name, sizeof(scene_name), "%s %s, driven by %s\n",
             place_names[place], deed_names[deed], driver_names[driver]);
    alarm(BOUND_S);
    scene.memory.arg = &scene;
    open_scene(&scene);
    threads = count_threads();
    provoke(&scene);
    while (!atomic_load(&scene.done)) {
        drive_once(&scene);
    }
    if (deed == DESTROY_WORKER) {
        see_worker_gone(&scene, threads);
    } else {
        see_the_rest(&scene);
    }
    tmsg_request_destroy(scene.pending);
    side_close(&scene.us);
    side_close(&scene.peer);
    must_eq(atomic_load(&scene.memory.blocks), 0);
    alarm(0);
}

static bool is_meaningless(place_t place, driver_t driver)
{
    return place == HANDLER &&
           (driver == BY_WORKER_RECV || driver == BY_ENDPOINT_RECV);
}

static void run_place(place_t place)
{
    int before = -1;

    signal(SIGABRT, say_scene);
    signal(SIGALRM, say_scene);
    for (deed_t deed = 0; deed < DEEDS; deed++) {
        for (driver_t driver = 0; driver < DRIVERS; driver++) {
            if (!is_meaningless(place, driver) &&
                is_due(place + deed + driver)) {
                run(place, deed, driver);
            }
            if (before < 0) {
                before = count_descriptors();
            }
            must_eq(count_descriptors(), before);
        }
    }
}

Test(callbacks, the_handler_may_do_anything_but_wait) { run_place(HANDLER); }

Test(callbacks, on_done_may_do_anything_but_wait) { run_place(ON_DONE); }

Test(callbacks, on_closed_may_do_anything_but_wait) { run_place(ON_CLOSED); }

Test(callbacks, on_accept_may_do_anything_but_wait) { run_place(ON_ACCEPT); }

Test(callbacks, a_release_may_do_anything_but_wait) { run_place(RELEASE); }

Test(callbacks, an_alloc_may_do_anything_but_wait) { run_place(ALLOC); }

Test(callbacks, a_free_may_do_anything_but_wait) { run_place(FREE); }
