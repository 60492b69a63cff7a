/* SPDX-License-Identifier: BSD-3-Clause */
/* ucxx: talks to a program that uses UCXX (docs/how-to/ucxx.md).
 *
 *   ucxx listen [URL]   prints the URL, then every message, and sends each back
 *   ucxx send URL       sends one tensor, and prints what comes back
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "ucxx: %s\n", tmsg_error_message());
        exit(1);
    }
}

static void show(const tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    char dtype[TMSG_DTYPE_NAME_MAX];
    const void *header;
    size_t header_bytes;
    const char *name;
    tmsg_tensor_t tensor;

    check(tmsg_map_at(map, 0, &name, &tensor));
    printf("%s %s [", name,
           tmsg_dtype_format(tensor.dtype, dtype, sizeof(dtype)));
    for (int32_t i = 0; i < tensor.ndim; i++) {
        printf("%s%" PRId64, i == 0 ? "" : ", ", tensor.shape[i]);
    }
    printf("]");
    if (tmsg_map_get_bytes(map, TMSG_META_UCXX_HEADER, &header,
                           &header_bytes) == TMSG_OK) {
        printf(" header of %zu bytes", header_bytes);
    }
    printf("\n");
    fflush(stdout);
}

static void answer(void *arg, tmsg_message_t *message)
{
    (void)arg;
    show(message);
    if (tmsg_endpoint_send(tmsg_message_endpoint(message),
                           tmsg_message_map(message), NULL, NULL) != TMSG_OK) {
        fprintf(stderr, "ucxx: %s\n", tmsg_error_message());
    }
    tmsg_message_destroy(message);
}

static void listen_at(tmsg_context_t *context, const char *url)
{
    const tmsg_worker_params_t answering = {
        .field_mask = TMSG_WORKER_PARAM_HANDLER,
        .handler = answer,
    };
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;

    check(tmsg_worker_create(context, &answering, &worker));
    check(tmsg_listener_create(worker, url, NULL, &listener));
    printf("%s\n", tmsg_listener_url(listener));
    fflush(stdout);
    for (;;) {
        check(tmsg_worker_wait(worker, -1));
    }
}

static void send_to(tmsg_context_t *context, const char *url)
{
    static float ramp[6] = {0, 1, 2, 3, 4, 5};
    const int64_t shape[] = {2, 3};
    const tmsg_tensor_t tensor = {
        .data = ramp,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_FLOAT, .bits = 32, .lanes = 1},
        .ndim = 2,
        .shape = shape,
    };
    tmsg_worker_t *worker;
    tmsg_endpoint_t *peer;
    tmsg_message_t *message;
    tmsg_map_t *map;

    check(tmsg_worker_create(context, NULL, &worker));
    check(tmsg_endpoint_connect(worker, url, NULL, &peer));
    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "ramp", &tensor, NULL));
    check(tmsg_endpoint_send(peer, map, NULL, NULL));
    check(tmsg_endpoint_recv(peer, 10000, &message));
    show(message);
    tmsg_message_destroy(message);
    tmsg_map_destroy(map);
    check(tmsg_endpoint_close_wait(peer, 10000));
    tmsg_worker_destroy(worker);
}

int main(int argc, char **argv)
{
    tmsg_context_t *context;

    check(tmsg_context_create(NULL, &context));
    if (argc >= 2 && argc <= 3 && strcmp(argv[1], "listen") == 0) {
        listen_at(context, argc == 3 ? argv[2] : "ucx://127.0.0.1:0");
    } else if (argc == 3 && strcmp(argv[1], "send") == 0) {
        send_to(context, argv[2]);
    } else {
        fprintf(stderr, "usage: ucxx listen [URL] | ucxx send URL\n");
        tmsg_context_destroy(context);
        return 2;
    }
    tmsg_context_destroy(context);
    return 0;
}
