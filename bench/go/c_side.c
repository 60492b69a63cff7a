/* SPDX-License-Identifier: BSD-3-Clause */
#include "c_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

#define WAIT_MS 30000

struct c_side {
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_listener_t *listener;
    tmsg_endpoint_t *endpoint;
    tmsg_map_t *map;
    tmsg_map_t *into; /* NULL: a handler */
    void *data;
    int in_flight;
    int received;
    unsigned idle; /* turns that brought nothing */
};

static void must(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        fprintf(stderr, "C: %s: %s\n", tmsg_status_name(status),
                tmsg_error_message());
        exit(1);
    }
}

static void arrived(void *arg, tmsg_message_t *message)
{
    tmsg_message_destroy(message);
    ((c_side_t *)arg)->received++;
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    ((c_side_t *)arg)->endpoint = endpoint;
}

static void done(void *arg, tmsg_status_t status, const char *error)
{
    (void)error;
    must(status);
    ((c_side_t *)arg)->in_flight--;
}

c_side_t *c_side_open(const char *url, int dialling, int into)
{
    c_side_t *side = calloc(1, sizeof(*side));
    const tmsg_worker_params_t params = {
        .field_mask = into ? 0 : TMSG_WORKER_PARAM_HANDLER,
        .handler = arrived,
        .handler_arg = side,
    };
    const tmsg_listener_params_t door = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
        .on_accept = accepted,
        .on_accept_arg = side,
    };
    const tmsg_endpoint_params_t peer = {
        .field_mask =
            TMSG_ENDPOINT_PARAM_FLAGS | TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .flags = TMSG_ENDPOINT_WAIT,
        .connect_timeout_ms = WAIT_MS,
    };

    if (into) {
        must(tmsg_map_create(&side->into));
    }
    must(tmsg_context_create(NULL, &side->context));
    must(tmsg_worker_create(side->context, &params, &side->worker));
    if (dialling) {
        tmsg_request_t *ready;

        must(tmsg_endpoint_connect(side->worker, url, &peer, &side->endpoint));
        must(tmsg_endpoint_ready(side->endpoint, &ready));
        must(tmsg_request_wait(ready, WAIT_MS));
        tmsg_request_destroy(ready);
        return side;
    }
    must(tmsg_listener_create(side->worker, url, &door, &side->listener));
    while (side->endpoint == NULL) {
        must(tmsg_worker_wait(side->worker, WAIT_MS));
    }
    return side;
}

void c_side_close(c_side_t *side)
{
    tmsg_worker_destroy(side->worker);
    tmsg_context_destroy(side->context);
    tmsg_map_destroy(side->map);
    tmsg_map_destroy(side->into);
    free(side->data);
    free(side);
}

void c_side_load(c_side_t *side, int tensors, int64_t bytes)
{
    side->data = malloc((size_t)tensors * 2 * (size_t)bytes);
    memset(side->data, 1, (size_t)tensors * 2 * (size_t)bytes);
    must(tmsg_map_create(&side->map));
    for (int i = 0; i < tensors; i++) {
        const int64_t elements = bytes / 4;
        tmsg_tensor_t tensor = {
            .data = (char *)side->data + i * bytes,
            .device = {TMSG_DEVICE_CPU, 0},
            .dtype = {TMSG_DTYPE_FLOAT, 32, 1},
            .ndim = 1,
            .shape = &elements,
        };
        char name[16];

        snprintf(name, sizeof(name), "t%d", i);
        must(tmsg_map_add(side->map, name, &tensor, NULL));
        if (side->into != NULL) {
            tensor.data = (char *)side->data + (tensors + i) * bytes;
            must(tmsg_map_add(side->into, name, &tensor, NULL));
        }
    }
}

static void receive(c_side_t *side)
{
    tmsg_status_t status =
        tmsg_endpoint_recv_into(side->endpoint, side->into, 0, NULL);

    if (status != TMSG_ERR_TIMED_OUT) {
        must(status);
        side->received++;
    }
}

/* Polls, as Go does, while the processor has nothing better to do. */
static void progress(c_side_t *side)
{
    if (tmsg_worker_progress(side->worker) == 0) {
        if (side->idle++ % 1024 == 0) {
            must(tmsg_endpoint_status(side->endpoint)); /* the peer lives */
        }
        if (tmsg_worker_pause(side->worker)) {
            return;
        }
        must(tmsg_worker_wait(side->worker, WAIT_MS));
    }
    if (side->into != NULL) {
        receive(side);
    }
}

static void send(c_side_t *side)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_ON_DONE,
        .on_done = done,
        .on_done_arg = side,
    };

    side->in_flight++;
    must(tmsg_endpoint_send(side->endpoint, side->map, &params, NULL));
}

void c_side_pull(c_side_t *side, int count)
{
    while (side->received < count) {
        progress(side);
    }
    side->received -= count;
}

void c_side_ask(c_side_t *side, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        send(side);
        c_side_pull(side, 1);
    }
}

void c_side_answer(c_side_t *side, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        c_side_pull(side, 1);
        send(side);
    }
}

void c_side_push(c_side_t *side, int count, int window)
{
    for (int i = 0; i < count; i++) {
        send(side);
        while (side->in_flight >= window) {
            progress(side);
        }
    }
    while (side->in_flight > 0) {
        progress(side);
    }
}
