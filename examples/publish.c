/* SPDX-License-Identifier: BSD-3-Clause */
/* publish: one camera, three viewers, one of which is slow and asks for the
 * newest frame only. Each is a thread here, and might be a process. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensormsg/tensormsg.h>
#include <time.h>

enum { VIEWERS = 3, FRAMES = 50, WIDTH = 640, HEIGHT = 480 };

typedef struct {
    const char *url;
    int takes_ms; /* for one frame */
    unsigned seen;
    int last; /* frame that it saw */
} viewer_t;

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "publish: %s\n", tmsg_error_message());
        exit(1);
    }
}

static void nap(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static void look_at(viewer_t *viewer, tmsg_message_t *message)
{
    tmsg_tensor_t image;

    check(tmsg_map_find(tmsg_message_map(message), "image", &image));
    viewer->last = *(const unsigned char *)image.data;
    viewer->seen++;
    tmsg_message_destroy(message);
    nap(viewer->takes_ms);
}

static void *view(void *arg)
{
    viewer_t *viewer = arg;
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_SUBSCRIBE,
        .subscribe = viewer->takes_ms > 0 ? TMSG_SUBSCRIBE_NEWEST : 0};
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *camera;
    tmsg_message_t *message;
    tmsg_status_t status;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    check(tmsg_endpoint_connect(worker, viewer->url, &params, &camera));
    while ((status = tmsg_endpoint_recv(camera, -1, &message)) == TMSG_OK) {
        look_at(viewer, message);
    }
    if (status != TMSG_ERR_CLOSED) {
        check(status);
    }
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return NULL;
}

/* The publisher holds the map, and the map owns the pixels: they are freed when
 * the last viewer has them. */
static void publish_frame(tmsg_publisher_t *publisher, int number)
{
    const int64_t shape[] = {HEIGHT, WIDTH};
    const tmsg_tensor_t image = {
        .data = memset(malloc(HEIGHT * WIDTH), number, HEIGHT * WIDTH),
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_UINT, .bits = 8, .lanes = 1},
        .ndim = 2,
        .shape = shape,
    };
    const tmsg_map_add_params_t owned = {
        .field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
        .release = free,
        .release_arg = image.data,
    };
    tmsg_map_t *map;

    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "image", &image, &owned));
    check(tmsg_publisher_publish(publisher, map, NULL, NULL));
    tmsg_map_destroy(map);
}

int main(void)
{
    const tmsg_worker_params_t threaded = {
        .field_mask = TMSG_WORKER_PARAM_FLAGS, .flags = TMSG_WORKER_THREAD};
    tmsg_listener_params_t door = {.field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
                                   .on_accept = tmsg_publisher_accept};
    viewer_t viewers[VIEWERS] = {[2] = {.takes_ms = 70}};
    pthread_t threads[VIEWERS];
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_publisher_t *publisher;
    tmsg_listener_t *listener;
    tmsg_request_t *closed;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, &threaded, &worker));
    check(tmsg_publisher_create(worker, NULL, &publisher));
    door.on_accept_arg = publisher;
    check(tmsg_listener_create(worker, "tcp://:0", &door, &listener));
    for (int i = 0; i < VIEWERS; i++) {
        viewers[i].url = tmsg_listener_url(listener);
        pthread_create(&threads[i], NULL, view, &viewers[i]);
    }
    while (tmsg_publisher_size(publisher) < VIEWERS) {
        nap(1);
    }
    for (int i = 1; i <= FRAMES; i++) {
        publish_frame(publisher, i);
        nap(10);
    }
    check(tmsg_publisher_close(publisher, &closed)); /* when all have all */
    check(tmsg_request_wait(closed, 30000));
    tmsg_request_destroy(closed);
    for (int i = 0; i < VIEWERS; i++) {
        pthread_join(threads[i], NULL);
        printf("viewer %d saw %s of %d frames, the last one %d\n", i + 1,
               viewers[i].seen == FRAMES ? "all" : "some", FRAMES,
               viewers[i].last);
    }
    tmsg_worker_destroy(worker); /* with its publisher and listener */
    tmsg_context_destroy(context);
    return 0;
}
