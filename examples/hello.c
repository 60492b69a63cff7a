/* hello recv, then hello send tcp://127.0.0.1:13337 in another terminal */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "hello: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* Both sides close: each then knows that the other has everything. */
static void finish(tmsg_endpoint_t *endpoint)
{
    tmsg_request_t *closed;

    check(tmsg_endpoint_close(endpoint, &closed));
    check(tmsg_request_wait(closed, 10000));
    tmsg_request_destroy(closed);
}

static void send_one(tmsg_worker_t *worker, const char *url)
{
    float pixels[2][3] = {{1, 2, 3}, {4, 5, 6}};
    const int64_t shape[] = {2, 3};
    const tmsg_tensor_t image = {
        pixels, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_FLOAT, 32, 1}, 2, shape,
        NULL};
    tmsg_endpoint_t *endpoint;
    tmsg_map_t *map;

    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "image", &image, NULL, NULL));
    check(tmsg_endpoint_connect(worker, url, NULL, &endpoint));
    check(tmsg_endpoint_send(endpoint, map, NULL, NULL));
    finish(endpoint);
    tmsg_map_destroy(map);
}

static void receive_one(tmsg_worker_t *worker)
{
    tmsg_listener_t *listener;
    tmsg_message_t *message;
    tmsg_tensor_t image;

    check(tmsg_listener_create(worker, "tcp://:13337", NULL, &listener));
    check(tmsg_worker_recv(worker, -1, &message));
    check(tmsg_map_find(tmsg_message_map(message), "image", &image));
    printf("image: %d dimensions, last pixel %g\n", image.ndim,
           ((const float *)image.data)[image.shape[0] * image.shape[1] - 1]);
    finish(tmsg_message_endpoint(message));
    tmsg_message_destroy(message);
}

int main(int argc, char **argv)
{
    tmsg_context_t *context;
    tmsg_worker_t *worker;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    argc > 2 && strcmp(argv[1], "send") == 0 ? send_one(worker, argv[2])
                                             : receive_one(worker);
    tmsg_worker_destroy(worker); /* with its listeners and endpoints */
    tmsg_context_destroy(context);
}
