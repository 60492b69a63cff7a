/* stream_server [URL]: streams of "sums" at tcp://127.0.0.1:13339 until it is
 * killed: of each map the running sum of its "x" goes back. */
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "stream_server: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* On a thread of the server's: it may wait. */
static void sums(void *arg, tmsg_call_stream_t *stream)
{
    float sum = 0;
    tmsg_message_t *message;
    tmsg_tensor_t x;

    (void)arg;
    while (tmsg_call_stream_recv(stream, -1, &message) == TMSG_OK && message) {
        if (tmsg_map_find(tmsg_message_map(message), "x", &x) != TMSG_OK ||
            x.ndim != 0 || x.dtype.code != TMSG_DTYPE_FLOAT ||
            x.dtype.bits != 32) {
            tmsg_call_stream_end(stream, TMSG_ERR_INVALID_PARAM, 0,
                                 "'x' is to be a float32", NULL);
        } else {
            *(float *)x.data = sum += *(const float *)x.data;
            tmsg_call_stream_send(stream, tmsg_message_map(message), NULL,
                                  NULL);
        }
        tmsg_message_destroy(message);
    }
    tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL);
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "tcp://127.0.0.1:13339";
    const tmsg_worker_params_t shared = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                                         .flags = TMSG_WORKER_SHARED};
    const tmsg_server_params_t threads = {
        .field_mask = TMSG_SERVER_PARAM_THREADS, .threads = 4};
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_server_t *server;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, &shared, &worker));
    check(tmsg_server_create(worker, &threads, &server));
    check(tmsg_server_register_stream(server, "sums", sums, NULL, NULL));
    check(tmsg_listener_create(worker, url, NULL, &listener));
    for (;;) {
        check(tmsg_worker_wait(worker, -1));
    }
}
