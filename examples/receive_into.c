/* SPDX-License-Identifier: BSD-3-Clause */
/* receive_into.c - the same map, frame after frame, into the same memory. */
#include <stdio.h>

#include <tensormsg/tensormsg.h>

#define FRAMES 5
#define WIDTH 640
#define HEIGHT 480

#define CHECK(call)                                                            \
    do {                                                                       \
        if ((call) != TMSG_OK) {                                               \
            fprintf(stderr, "%s: %s\n", #call, tmsg_error_message());          \
            return 1;                                                          \
        }                                                                      \
    } while (0)

static uint8_t camera[HEIGHT][WIDTH], screen[HEIGHT][WIDTH];

/* A map of one image, which borrows its memory. */
static tmsg_status_t image_map(void *pixels, tmsg_map_t **map_p)
{
    static const int64_t shape[] = {HEIGHT, WIDTH};
    const tmsg_tensor_t image = {.data = pixels,
                                 .device = {TMSG_DEVICE_CPU, 0},
                                 .dtype = {TMSG_DTYPE_UINT, 8, 1},
                                 .ndim = 2,
                                 .shape = shape};
    tmsg_status_t status = tmsg_map_create(map_p);

    return status == TMSG_OK ? tmsg_map_add(*map_p, "image", &image, NULL)
                             : status;
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    *(tmsg_endpoint_t **)arg = endpoint;
}

int main(void)
{
    tmsg_endpoint_t *from = NULL, *to = NULL;
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = &from};
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_map_t *seen, *shown;

    CHECK(tmsg_context_create(NULL, &context));
    CHECK(tmsg_worker_create(context, NULL, &worker));
    CHECK(
        tmsg_listener_create(worker, "tcp://127.0.0.1:0", &params, &listener));
    CHECK(
        tmsg_endpoint_connect(worker, tmsg_listener_url(listener), NULL, &to));
    while (from == NULL) {
        CHECK(tmsg_worker_wait(worker, 10000));
    }
    CHECK(image_map(camera, &seen));
    CHECK(image_map(screen, &shown));
    for (int frame = 0; frame < FRAMES; frame++) {
        tmsg_request_t *sent;
        tmsg_message_t *message;

        camera[HEIGHT / 2][WIDTH / 2] = (uint8_t)(frame + 1);
        CHECK(tmsg_endpoint_send(to, seen, NULL, &sent));
        CHECK(tmsg_endpoint_recv_into(from, shown, 10000, &message));
        printf("frame %d: the middle is %d\n", frame,
               screen[HEIGHT / 2][WIDTH / 2]);
        tmsg_message_destroy(message); /* `screen` is ours again */
        CHECK(tmsg_request_wait(sent, 10000));
        tmsg_request_destroy(sent);
    }
    tmsg_map_destroy(shown);
    tmsg_map_destroy(seen);
    tmsg_worker_destroy(worker);
    tmsg_context_destroy(context);
    return 0;
}
