/* client [URL]: calls "double" of examples/server.c. */
#include <stdio.h>
#include <stdlib.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "client: %s\n", tmsg_error_message());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "tcp://127.0.0.1:13338";
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT,
                                       .timeout_ms = 5000};
    float numbers[] = {1, 2, 3};
    const int64_t shape[] = {3};
    tmsg_tensor_t x = {
        .data = numbers,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_FLOAT, .bits = 32, .lanes = 1},
        .ndim = 1,
        .shape = shape,
    };
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t *server;
    tmsg_map_t *map;
    tmsg_call_t *call;

    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, NULL, &worker));
    check(tmsg_endpoint_connect(worker, url, NULL, &server));
    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "x", &x, NULL));
    check(tmsg_endpoint_call(server, "double", map, &params, &call));
    check(tmsg_call_wait(call, -1));
    check(tmsg_map_find(tmsg_call_reply(call), "x", &x));
    for (int64_t i = 0; i < x.shape[0]; i++) {
        printf("%g\n", ((const float *)x.data)[i]);
    }
    tmsg_call_destroy(call);
    tmsg_map_destroy(map);
    tmsg_worker_destroy(worker); /* with its endpoint */
    tmsg_context_destroy(context);
}
