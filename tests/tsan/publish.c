/* SPDX-License-Identifier: BSD-3-Clause */
/* A publisher on a worker with a thread of its own, fed by two threads, while
 * peers come and go and a third thread looks at it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { MAPS = 300, GUESTS = 15, BYTES = 2000 };

typedef struct {
    side_t camera;
    tmsg_publisher_t *publisher;
    atomic_uint feeding;
    atomic_uint taken;
} scene_t;

static void *feed(void *arg)
{
    scene_t *scene = arg;

    for (uint64_t i = 0; i < MAPS; i++) {
        tmsg_map_t *map = sample_bytes(i, BYTES);

        must(tmsg_publisher_publish(scene->publisher, map, NULL, NULL));
        tmsg_map_destroy(map);
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
    endpoint = side_dial(&side, &scene->camera);
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

int main(void)
{
    const side_options_t options = {.drive = DRIVE_THREAD};
    const tmsg_publisher_params_t params = {
        .field_mask = TMSG_PUBLISHER_PARAM_KEEP, .keep = 3};
    tmsg_listener_params_t door = {.field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
                                   .on_accept = tmsg_publisher_accept};
    pthread_t threads[3];
    scene_t scene = {.feeding = 2};

    side_open(&scene.camera, &options);
    must(tmsg_publisher_create(scene.camera.worker, &params, &scene.publisher));
    door.on_accept_arg = scene.publisher;
    must(tmsg_listener_create(scene.camera.worker, "tcp://:0", &door,
                              &scene.camera.listener));
    must_eq(pthread_create(&threads[0], NULL, feed, &scene), 0);
    must_eq(pthread_create(&threads[1], NULL, feed, &scene), 0);
    must_eq(pthread_create(&threads[2], NULL, look, &scene), 0);
    for (int i = 0; i < GUESTS; i++) {
        visit(&scene);
    }
    for (int i = 0; i < 3; i++) {
        must_eq(pthread_join(threads[i], NULL), 0);
    }
    tmsg_publisher_destroy(scene.publisher);
    side_close(&scene.camera);
    must_true(scene.taken > 0);
    printf("%u maps were taken\n", scene.taken);
    return 0;
}
