/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include <tensormsg/tensormsg.h>

#include "many.h"
#include "side.h"

#define CONNECT_MS 60000

typedef struct {
    const bench_player_t *player;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t **endpoints; /* a client's */
    unsigned accepted;
    uint64_t received;
    unsigned in_flight;
} maps_t;

static void must(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        bench_die("tensormsg: %s", tmsg_error_message());
    }
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    (void)endpoint;
    ((maps_t *)arg)->accepted++;
}

static void arrived(void *arg, tmsg_message_t *message)
{
    tmsg_message_destroy(message);
    ((maps_t *)arg)->received++;
}

static void open_player(maps_t *self)
{
    const tmsg_context_params_t context_params = {
        .field_mask =
            TMSG_CONTEXT_PARAM_UCX_CONFIG | TMSG_CONTEXT_PARAM_PEER_TIMEOUT,
        .ucx_config = self->player->many->transport == BENCH_SHM
                          ? "TLS=posix,cma,self"
                          : "TLS=tcp,self",
        .peer_timeout_ms = CONNECT_MS};
    const tmsg_worker_params_t worker_params = {.field_mask =
                                                    TMSG_WORKER_PARAM_HANDLER,
                                                .handler = arrived,
                                                .handler_arg = self};

    must(tmsg_context_create(&context_params, &self->context));
    must(tmsg_worker_create(self->context, &worker_params, &self->worker));
}

static void serve(maps_t *self)
{
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = self};
    tmsg_listener_t *listener;
    double rates[BENCH_BLOCKS_MAX];
    unsigned long ours, in_ucx;
    long held = 0;

    must(tmsg_listener_create(self->worker, "tcp://127.0.0.1:0", &params,
                              &listener));
    bench_tell(self->player->socket, tmsg_listener_url(listener),
               strlen(tmsg_listener_url(listener)));
    bench_counts_start();
    while (self->accepted < self->player->share) {
        must(tmsg_worker_wait(self->worker, CONNECT_MS));
    }
    for (unsigned i = 0; i <= self->player->many->blocks; i++) {
        uint64_t wanted = self->received + self->player->many->messages;
        double begin;

        bench_many_meet(self->player);
        begin = bench_now();
        while (self->received < wanted) {
            tmsg_worker_progress(self->worker);
        }
        if (i == 0) { /* the warm-up */
            held = bench_counts_held();
            bench_counts_stop(&ours, &in_ucx);
        } else {
            rates[i - 1] = self->player->many->messages / (bench_now() - begin);
        }
    }
    bench_many_tell(self->player, rates, held);
}

static void done(void *arg, tmsg_status_t status, const char *error)
{
    ((maps_t *)arg)->in_flight--;
    if (status != TMSG_OK) {
        bench_die("tensormsg: a send failed: %s", error);
    }
}

static void connect_all(maps_t *self)
{
    char url[256] = "";
    tmsg_request_t *ready;

    bench_hear(self->player->socket, url, sizeof(url) - 1);
    self->endpoints =
        bench_memory(self->player->share * sizeof(*self->endpoints));
    bench_counts_start();
    for (unsigned i = 0; i < self->player->share; i++) {
        must(tmsg_endpoint_connect(self->worker, url, NULL,
                                   &self->endpoints[i]));
        must(tmsg_endpoint_ready(self->endpoints[i], &ready));
        must(tmsg_request_wait(ready, CONNECT_MS));
        tmsg_request_destroy(ready);
    }
}

static tmsg_map_t *make_map(void)
{
    static uint8_t data[BENCH_MANY_TENSORS][BENCH_MANY_TENSOR_BYTES];
    static const int64_t shape[] = {BENCH_MANY_TENSOR_BYTES};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (int i = 0; i < BENCH_MANY_TENSORS; i++) {
        const tmsg_tensor_t tensor = {
            data[i], {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
            NULL};
        char name[32];

        snprintf(name, sizeof(name), "tensor%d", i);
        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

static void send_block(maps_t *self, const tmsg_map_t *map)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_ON_DONE,
                                       .on_done = done,
                                       .on_done_arg = self};
    unsigned messages =
        self->player->many->messages / self->player->many->clients;

    for (unsigned i = 0; i < messages; i++) {
        while (self->in_flight >= BENCH_MANY_AHEAD) {
            tmsg_worker_progress(self->worker);
        }
        self->in_flight++;
        must(tmsg_endpoint_send(self->endpoints[i % self->player->share], map,
                                &params, NULL));
    }
    while (self->in_flight > 0) {
        tmsg_worker_progress(self->worker);
    }
}

static void be_client(maps_t *self)
{
    tmsg_map_t *map;
    unsigned long ours, in_ucx;
    long held = 0;

    connect_all(self);
    map = make_map();
    for (unsigned i = 0; i <= self->player->many->blocks; i++) {
        bench_many_meet(self->player);
        send_block(self, map);
        if (i == 0) {
            held = bench_counts_held();
            bench_counts_stop(&ours, &in_ucx);
        }
    }
    bench_many_tell(self->player, NULL, held);
}

void bench_many_play_maps(const bench_player_t *self, bool serving)
{
    maps_t maps = {.player = self};

    open_player(&maps);
    if (serving) {
        serve(&maps);
    } else {
        be_client(&maps);
    }
}
