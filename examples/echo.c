/* SPDX-License-Identifier: BSD-3-Clause */
/* echo: a handler that sends each map back to where it came from. One process
 * plays both sides: a worker with a thread of its own answers, main() asks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensormsg/tensormsg.h>

static void check(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "echo: %s\n", tmsg_error_message());
        exit(1);
    }
}

/* A send keeps what it needs of a map, a received one included: the message
 * is released here, its memory when the last byte has left. */
static void echo(void *arg, tmsg_message_t *message)
{
    (void)arg;
    if (tmsg_endpoint_send(tmsg_message_endpoint(message),
                           tmsg_message_map(message), NULL, NULL) != TMSG_OK) {
        fprintf(stderr, "echo: %s\n", tmsg_error_message());
    }
    tmsg_message_destroy(message);
}

int main(void)
{
    static float ramp[1000000];
    const int64_t shape[] = {1000, 1000};
    tmsg_tensor_t tensor = {
        .data = ramp,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_FLOAT, .bits = 32, .lanes = 1},
        .ndim = 2,
        .shape = shape,
    };
    const tmsg_worker_params_t answering = {
        .field_mask = TMSG_WORKER_PARAM_FLAGS | TMSG_WORKER_PARAM_HANDLER,
        .flags = TMSG_WORKER_THREAD,
        .handler = echo,
    };
    tmsg_context_t *context;
    tmsg_worker_t *server, *client;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *peer;
    tmsg_message_t *message;
    tmsg_map_t *map;
    int same;

    for (int i = 0; i < 1000000; i++) {
        ramp[i] = (float)i;
    }
    check(tmsg_context_create(NULL, &context));
    check(tmsg_worker_create(context, &answering, &server));
    check(tmsg_listener_create(server, "tcp://:0", NULL, &listener));
    check(tmsg_worker_create(context, NULL, &client));
    check(tmsg_endpoint_connect(client, tmsg_listener_url(listener), NULL,
                                &peer));
    check(tmsg_map_create(&map));
    check(tmsg_map_add(map, "ramp", &tensor, NULL));
    check(tmsg_endpoint_send(peer, map, NULL, NULL));
    check(tmsg_endpoint_recv(peer, 10000, &message));
    check(tmsg_map_find(tmsg_message_map(message), "ramp", &tensor));
    same = memcmp(tensor.data, ramp, sizeof(ramp)) == 0;
    printf("ramp came back %s\n", same ? "as it was" : "changed");
    tmsg_message_destroy(message);
    tmsg_map_destroy(map);
    tmsg_worker_destroy(client); /* with its endpoint */
    tmsg_worker_destroy(server);
    tmsg_context_destroy(context);
    return same ? 0 : 1;
}
