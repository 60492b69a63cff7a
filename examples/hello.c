/* hello, then hello tcp://127.0.0.1:13337 in another terminal */
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "hello: %s\n", tmsg_error_message());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    float pixels[2][3] = {{1, 2, 3}, {4, 5, 6}};
    const int64_t shape[] = {2, 3};
    tmsg_tensor_t image = {
        .data = pixels,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_FLOAT, .bits = 32, .lanes = 1},
        .ndim = 2,
        .shape = shape,
    };
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *peer;
    tmsg_request_t *closed;
    tmsg_message_t *message = NULL;
    tmsg_map_t *map = NULL;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    if (argc > 1) { /* the URL to send to */
        check(tmsg_map_create(&map));
        check(tmsg_map_add(map, "image", &image, NULL));
        check(tmsg_endpoint_connect(worker, argv[1], NULL, &peer));
        check(tmsg_endpoint_send(peer, map, NULL, NULL));
    } else {
        check(tmsg_listener_create(worker, "tcp://:13337", NULL, &listener));
        check(tmsg_worker_recv(worker, -1, &message));
        check(tmsg_map_find(tmsg_message_map(message), "image", &image));
        printf("image: %d dimensions, first pixel %g\n", image.ndim,
               *(const float *)image.data);
        peer = tmsg_message_endpoint(message);
    }
    /* Both sides close: each then knows that the other has everything. */
    check(tmsg_endpoint_close(peer, &closed));
    check(tmsg_request_wait(closed, 10000));
    tmsg_request_destroy(closed);
    tmsg_message_destroy(message);
    tmsg_map_destroy(map);
    tmsg_worker_destroy(worker); /* with its listeners and endpoints */
    tmsg_context_destroy(context);
}
