/* SPDX-License-Identifier: BSD-3-Clause */
/* camera: live data for a viewer that is too slow. The newest frame alone
 * waits, none is sent when it is old, and the last one is given up. One process
 * plays both sides. */
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

enum { FRAMES = 100, ROWS = 480, COLUMNS = 640 };

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "camera: %s\n", tmsg_error_message());
        exit(1);
    }
}

static void prefer_new_frames(tmsg_endpoint_t *camera)
{
    const tmsg_queue_params_t queue = {
        .field_mask = TMSG_QUEUE_PARAM_POLICY,
        .policy = TMSG_QUEUE_NEWEST,
    };

    check(tmsg_endpoint_set_queue(camera, &queue));
}

/* A frame that owns its pixels. */
static tmsg_map_t *make_frame(int number)
{
    const int64_t shape[] = {ROWS, COLUMNS};
    tmsg_tensor_t pixels = {
        .data = calloc(ROWS, COLUMNS),
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_UINT, .bits = 8, .lanes = 1},
        .ndim = 2,
        .shape = shape,
    };
    const tmsg_map_add_params_t owned = {
        .field_mask = TMSG_MAP_ADD_PARAM_RELEASE,
        .release = free,
        .release_arg = pixels.data,
    };
    tmsg_map_t *map;

    if (pixels.data == NULL) {
        abort();
    }
    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "pixels", &pixels, &owned));
    check(tmsg_map_set_i64(map, TMSG_META_FRAME, number));
    return map;
}

static void film(tmsg_endpoint_t *camera, int number)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_TIMEOUT,
        .timeout_ms = 10000, /* nobody wants to see it later */
    };
    tmsg_map_t *frame = make_frame(number);

    check(tmsg_endpoint_send(camera, frame, &params, NULL));
    tmsg_map_destroy(frame);
}

/* The number of the next frame that the viewer gets; -1: none. */
static int64_t view(tmsg_worker_t *viewer, int timeout_ms)
{
    tmsg_message_t *message;
    int64_t number = -1;

    if (tmsg_worker_recv(viewer, timeout_ms, &message) == TMSG_OK) {
        check(tmsg_map_get_i64(tmsg_message_map(message), TMSG_META_FRAME,
                               &number));
        tmsg_message_destroy(message);
    }
    return number;
}

/* How many of the frames the viewer has seen when it has the last one. */
static int run(tmsg_endpoint_t *camera, tmsg_worker_t *viewer)
{
    int64_t last = -1;
    int seen = 0;

    for (int i = 0; i < FRAMES; i++) {
        film(camera, i);
        if (i % 10 == 0) { /* it is slow */
            last = view(viewer, 1000);
            seen += last >= 0;
        }
    }
    while (last < FRAMES - 1 && (last = view(viewer, 10000)) >= 0) {
        seen++;
    }
    return last == FRAMES - 1 ? seen : -1;
}

static void send_and_give_up(tmsg_endpoint_t *camera)
{
    tmsg_map_t *frame = make_frame(FRAMES);
    tmsg_request_t *sent;
    tmsg_status_t status;

    check(tmsg_endpoint_send(camera, frame, NULL, &sent));
    status = tmsg_request_cancel(sent);
    if (status == TMSG_CANCEL_PENDING) { /* of a map that borrows its data */
        status = tmsg_request_wait_released(sent, -1);
    }
    printf("a further one is %s\n",
           status == TMSG_OK ? "gone already" : tmsg_status_name(status));
    tmsg_request_destroy(sent);
    tmsg_map_destroy(frame);
}

int main(void)
{
    const tmsg_worker_params_t params = {
        .field_mask = TMSG_WORKER_PARAM_FLAGS,
        .flags = TMSG_WORKER_THREAD,
    };
    tmsg_context_t *context;
    tmsg_worker_t *here, *there;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *camera;
    int seen;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, &params, &there));
    check(tmsg_listener_create(there, "tcp://:0", NULL, &listener));
    check(tmsg_worker_create(context, &params, &here));
    check(tmsg_endpoint_connect(here, tmsg_listener_url(listener), NULL,
                                &camera));
    prefer_new_frames(camera);
    seen = run(camera, there);
    printf("the last frame came, %s\n",
           seen < FRAMES ? "others were dropped" : "and all others");
    send_and_give_up(camera);
    tmsg_worker_destroy(here);
    tmsg_worker_destroy(there);
    tmsg_context_destroy(context);
    return seen < 0;
}
