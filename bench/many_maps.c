/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include <tensormsg/tensormsg.h>

#include "many.h"
#include "side.h"

#define CONNECT_MS 60000

typedef struct {
    const bench_player_t *player;
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t **endpoints; /* a client's, */
    tmsg_map_t *map;             /* which it sends */
    unsigned accepted;
    uint64_t received;
    unsigned in_flight;
} maps_t;

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

    bench_must(tmsg_context_create(&context_params, &self->context));
    bench_must(
        tmsg_worker_create(self->context, &worker_params, &self->worker));
}

static void accept_all(maps_t *self)
{
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = self};
    tmsg_listener_t *listener;

    bench_must(tmsg_listener_create(self->worker, "tcp://127.0.0.1:0", &params,
                                    &listener));
    bench_tell(self->player->socket, tmsg_listener_url(listener),
               strlen(tmsg_listener_url(listener)));
    bench_counts_start();
    while (self->accepted < self->player->share) {
        bench_must(tmsg_worker_wait(self->worker, CONNECT_MS));
    }
}

static void take_block(void *arg)
{
    maps_t *self = arg;
    uint64_t wanted = self->received + self->player->many->messages;

    while (self->received < wanted) {
        tmsg_worker_progress(self->worker);
    }
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
        bench_must(tmsg_endpoint_connect(self->worker, url, NULL,
                                         &self->endpoints[i]));
        bench_must(tmsg_endpoint_ready(self->endpoints[i], &ready));
        bench_must(tmsg_request_wait(ready, CONNECT_MS));
        tmsg_request_destroy(ready);
    }
}

static void send_block(void *arg)
{
    maps_t *self = arg;
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
        bench_must(tmsg_endpoint_send(self->endpoints[i % self->player->share],
                                      self->map, &params, NULL));
    }
    while (self->in_flight > 0) {
        tmsg_worker_progress(self->worker);
    }
}

void bench_many_play_maps(const bench_player_t *self)
{
    maps_t maps = {.player = self};

    open_player(&maps);
    if (self->serves) {
        accept_all(&maps);
    } else {
        connect_all(&maps);
        maps.map = bench_small_map();
    }
    bench_many_blocks(self, self->serves ? take_block : send_block, &maps);
}
