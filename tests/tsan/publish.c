/* SPDX-License-Identifier: BSD-3-Clause */
/* A publisher on a worker with a thread of its own, fed by two threads, while
 * peers come and go, which is told of each, and a third thread looks at it: one
 * that drops what a slow
 * peer has no time for, and one that waits for it, and is closed meanwhile. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { MAPS = 300, GUESTS = 15, GUESTS_OF_ALL = 5, BYTES = 2000 };

/* Who is there, as a listener or a publisher tells it. */
typedef struct {
    atomic_uint came, gone;
} told_t;

typedef struct {
    side_t camera;
    tmsg_publisher_t *publisher;
    atomic_uint feeding;
    atomic_uint taken;
    told_t peers, subscribers;
    unsigned visits;
} scene_t;

static void came(void *arg, tmsg_endpoint_t *endpoint)
{
    told_t *told = arg;

    must_true(tmsg_endpoint_peer(endpoint)[0] != '\0');
    told->came++;
}

static void went(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                 const char *error)
{
    told_t *told = arg;

    must_true(status < 0 && error[0] != '\0');
    must_true(tmsg_endpoint_peer(endpoint)[0] != '\0');
    told->gone++;
}

static void await_count(const atomic_uint *count, unsigned wanted)
{
    for (int i = 0; *count < wanted; i++) {
        must_true(i < PEERS_BOUND_MS);
        usleep(1000);
    }
    must_eq(*count, wanted);
}

static void *feed(void *arg)
{
    scene_t *scene = arg;

    for (uint64_t i = 0; i < MAPS; i++) {
        tmsg_map_t *map = sample_bytes(i, BYTES);

        tmsg_status_t status =
            tmsg_publisher_publish(scene->publisher, map, NULL, NULL);

        tmsg_map_destroy(map);
        if (status == TMSG_ERR_CLOSED) {
            break;
        }
        must(status);
        usleep(300);
    }
    scene->feeding--;
    return NULL;
}

static void *look(void *arg)
{
    scene_t *scene = arg;

    while (scene->feeding > 0) {
        char *json;

        must(tmsg_publisher_describe(scene->publisher, &json));
        tmsg_string_free(json);
        must_true(tmsg_publisher_size(scene->publisher) <= GUESTS);
        usleep(1000);
    }
    return NULL;
}

/* Comes, takes a few, goes. */
static void visit(scene_t *scene)
{
    side_t side;
    tmsg_endpoint_t *endpoint;

    side_open(&side, NULL);
    endpoint = side_connect(&side, tmsg_listener_url(scene->camera.listener));
    scene->visits++;
    await_count(&scene->peers.came, scene->visits);
    await_count(&scene->subscribers.came, scene->visits);
    for (int i = 0; i < 5 && scene->feeding > 0; i++) {
        tmsg_message_t *message;

        if (tmsg_endpoint_recv(endpoint, 1000, &message) == TMSG_OK) {
            scene->taken++;
            tmsg_message_destroy(message);
        }
    }
    tmsg_endpoint_destroy(endpoint);
    side_close(&side);
}

static void open_scene(scene_t *scene, const tmsg_subscriber_params_t *each,
                       pthread_t threads[3])
{
    const side_options_t options = {.drive = DRIVE_THREAD};
    const tmsg_publisher_params_t params = {
        .field_mask = TMSG_PUBLISHER_PARAM_KEEP |
                      TMSG_PUBLISHER_PARAM_SUBSCRIBER |
                      TMSG_PUBLISHER_PARAM_ON_PEER,
        .keep = 3,
        .subscriber = each,
        .on_peer = came,
        .on_lost = went,
        .on_peer_arg = &scene->subscribers};
    tmsg_listener_params_t door = {.field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT |
                                                 TMSG_LISTENER_PARAM_ON_PEER,
                                   .on_accept = tmsg_publisher_accept,
                                   .on_peer = came,
                                   .on_lost = went,
                                   .on_peer_arg = &scene->peers};

    side_open(&scene->camera, &options);
    must(tmsg_publisher_create(scene->camera.worker, &params,
                               &scene->publisher));
    door.on_accept_arg = scene->publisher;
    must(tmsg_listener_create(scene->camera.worker, "tcp://:0", &door,
                              &scene->camera.listener));
    must_eq(pthread_create(&threads[0], NULL, feed, scene), 0);
    must_eq(pthread_create(&threads[1], NULL, feed, scene), 0);
    must_eq(pthread_create(&threads[2], NULL, look, scene), 0);
}

static void close_scene(scene_t *scene, pthread_t threads[3])
{
    for (int i = 0; i < 3; i++) {
        must_eq(pthread_join(threads[i], NULL), 0);
    }
    tmsg_publisher_destroy(scene->publisher);
    side_close(&scene->camera);
    must_true(scene->taken > 0);
    printf("%u maps were taken\n", scene->taken);
}

static void drops(void)
{
    scene_t scene = {.feeding = 2};
    pthread_t threads[3];

    open_scene(&scene, NULL, threads);
    for (int i = 0; i < GUESTS; i++) {
        visit(&scene);
    }
    await_count(&scene.peers.gone, GUESTS);
    await_count(&scene.subscribers.gone, GUESTS);
    close_scene(&scene, threads);
}

/* Or the feeders have ended, which on a slow machine they have, or do now. */
static bool is_full(void *arg)
{
    const scene_t *scene = arg;
    tmsg_request_t *room;
    bool full;

    if (scene->feeding == 0) {
        return true;
    }
    must(tmsg_publisher_ready(scene->publisher, &room));
    full = tmsg_request_test(room) == TMSG_IN_PROGRESS;
    tmsg_request_destroy(room);
    return full;
}

/* The last guest takes nothing, so that the feeders wait when it is closed. */
static void waits(void)
{
    const tmsg_subscriber_params_t all = {
        .field_mask = TMSG_SUBSCRIBER_PARAM_MESSAGES |
                      TMSG_SUBSCRIBER_PARAM_WINDOW | TMSG_SUBSCRIBER_PARAM_SLOW,
        .messages = 1,
        .window = 1,
        .slow = TMSG_SLOW_WAIT};
    scene_t scene = {.feeding = 2};
    tmsg_endpoint_t *stays;
    pthread_t threads[3];
    side_t side;

    open_scene(&scene, &all, threads);
    for (int i = 0; i < GUESTS_OF_ALL; i++) {
        visit(&scene);
    }
    side_open(&side, NULL);
    stays = side_dial(&side, &scene.camera);
    side_await(&side, is_full, &scene, "a full queue");
    must(tmsg_publisher_close(scene.publisher, NULL));
    close_scene(&scene, threads);
    tmsg_endpoint_destroy(stays);
    side_close(&side);
}

int main(void)
{
    drops();
    waits();
    return 0;
}
