/* stream_client [URL]: a stream of "sums" of examples/stream_server.c. */
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "stream_client: %s\n", tmsg_error_message());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "tcp://127.0.0.1:13339";
    float numbers[] = {1, 2, 3, 4};
    tmsg_tensor_t x = {
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_FLOAT, .bits = 32, .lanes = 1},
    };
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *server;
    tmsg_call_stream_t *stream;
    tmsg_message_t *message;
    tmsg_map_t *map;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    check(tmsg_endpoint_connect(worker, url, NULL, &server));
    check(tmsg_endpoint_open_stream(server, "sums", NULL, NULL, &stream));
    for (int i = 0; i < 4; i++) {
        x.data = &numbers[i];
        check(tmsg_map_create(&map));
        check(tmsg_map_add(map, "x", &x, NULL));
        check(tmsg_call_stream_send(stream, map, NULL, NULL));
        tmsg_map_destroy(map);
    }
    check(tmsg_call_stream_finish(stream));
    while (tmsg_call_stream_recv(stream, -1, &message) == TMSG_OK && message) {
        check(tmsg_map_find(tmsg_message_map(message), "x", &x));
        printf("%g\n", *(const float *)x.data);
        tmsg_message_destroy(message);
    }
    check(tmsg_call_stream_wait(stream, -1));
    tmsg_call_stream_destroy(stream);
    tmsg_worker_destroy(worker); /* with its endpoint */
    tmsg_context_destroy(context);
}
