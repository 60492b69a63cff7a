/* SPDX-License-Identifier: BSD-3-Clause */
/* Many endpoints on one worker: what each costs in memory, and how fast small
 * messages come over all of them in turn. A server process on a core of its
 * own, its clients on the other. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tensormsg/tensormsg.h>

#include "bench.h"
#include "side.h"

#define BLOCKS_MAX 64
#define CONNECT_MS 60000
#define RUN_SECONDS_MAX 180
#define TENSORS 8
#define TENSOR_BYTES 64
#define AHEAD 16

typedef struct {
    const bench_many_t *many;
    unsigned share; /* endpoints of this process */
    int socket;     /* to the parent, who says when to begin */
    tmsg_context_t *context;
    tmsg_worker_t *worker;
    tmsg_endpoint_t **endpoints; /* a client's */
    unsigned accepted;
    uint64_t received;
    unsigned in_flight;
} player_t;

static void must(tmsg_status_t status)
{
    if (status != TMSG_OK) {
        bench_die("tensormsg: %s", tmsg_error_message());
    }
}

static void meet(const player_t *self)
{
    char byte = 0;

    bench_tell(self->socket, &byte, 1);
    bench_hear(self->socket, &byte, 1);
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    (void)endpoint;
    ((player_t *)arg)->accepted++;
}

static void arrived(void *arg, tmsg_message_t *message)
{
    tmsg_message_destroy(message);
    ((player_t *)arg)->received++;
}

static void open_player(player_t *self)
{
    const tmsg_context_params_t context_params = {
        .field_mask =
            TMSG_CONTEXT_PARAM_UCX_CONFIG | TMSG_CONTEXT_PARAM_PEER_TIMEOUT,
        .ucx_config = self->many->transport == BENCH_SHM ? "TLS=posix,cma,self"
                                                         : "TLS=tcp,self",
        .peer_timeout_ms = CONNECT_MS};
    const tmsg_worker_params_t worker_params = {.field_mask =
                                                    TMSG_WORKER_PARAM_HANDLER,
                                                .handler = arrived,
                                                .handler_arg = self};

    must(tmsg_context_create(&context_params, &self->context));
    must(tmsg_worker_create(self->context, &worker_params, &self->worker));
}

/* A sample of each process: a client's rate is 0. */
static void report(const player_t *self, const double *rates, long held)
{
    bench_many_sample_t sample = {
        (double)held / self->share,
        rates == NULL ? 0 : bench_median(rates, self->many->blocks)};

    bench_tell(self->socket, &sample, sizeof(sample));
}

static void serve(player_t *self)
{
    const tmsg_listener_params_t params = {.field_mask =
                                               TMSG_LISTENER_PARAM_ON_ACCEPT,
                                           .on_accept = accepted,
                                           .on_accept_arg = self};
    tmsg_listener_t *listener;
    double rates[BLOCKS_MAX];
    unsigned long ours, in_ucx;
    long held = 0;

    must(tmsg_listener_create(self->worker, "tcp://127.0.0.1:0", &params,
                              &listener));
    bench_tell(self->socket, tmsg_listener_url(listener),
               strlen(tmsg_listener_url(listener)));
    bench_counts_start();
    while (self->accepted < self->share) {
        must(tmsg_worker_wait(self->worker, CONNECT_MS));
    }
    for (unsigned i = 0; i <= self->many->blocks; i++) {
        uint64_t wanted = self->received + self->many->messages;
        double begin;

        meet(self);
        begin = bench_now();
        while (self->received < wanted) {
            tmsg_worker_progress(self->worker);
        }
        if (i == 0) { /* the warm-up */
            held = bench_counts_held();
            bench_counts_stop(&ours, &in_ucx);
        } else {
            rates[i - 1] = self->many->messages / (bench_now() - begin);
        }
    }
    report(self, rates, held);
}

static void done(void *arg, tmsg_status_t status, const char *error)
{
    ((player_t *)arg)->in_flight--;
    if (status != TMSG_OK) {
        bench_die("tensormsg: a send failed: %s", error);
    }
}

static void connect_all(player_t *self)
{
    char url[256] = "";
    tmsg_request_t *ready;

    bench_hear(self->socket, url, sizeof(url) - 1);
    self->endpoints = bench_memory(self->share * sizeof(*self->endpoints));
    bench_counts_start();
    for (unsigned i = 0; i < self->share; i++) {
        must(tmsg_endpoint_connect(self->worker, url, NULL,
                                   &self->endpoints[i]));
        must(tmsg_endpoint_ready(self->endpoints[i], &ready));
        must(tmsg_request_wait(ready, CONNECT_MS));
        tmsg_request_destroy(ready);
    }
}

static tmsg_map_t *make_map(void)
{
    static uint8_t data[TENSORS][TENSOR_BYTES];
    static const int64_t shape[] = {TENSOR_BYTES};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (int i = 0; i < TENSORS; i++) {
        const tmsg_tensor_t tensor = {
            data[i], {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
            NULL};
        char name[32];

        snprintf(name, sizeof(name), "tensor%d", i);
        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

static void send_block(player_t *self, const tmsg_map_t *map)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_ON_DONE,
                                       .on_done = done,
                                       .on_done_arg = self};
    unsigned messages = self->many->messages / self->many->clients;

    for (unsigned i = 0; i < messages; i++) {
        while (self->in_flight >= AHEAD) {
            tmsg_worker_progress(self->worker);
        }
        self->in_flight++;
        must(tmsg_endpoint_send(self->endpoints[i % self->share], map, &params,
                                NULL));
    }
    while (self->in_flight > 0) {
        tmsg_worker_progress(self->worker);
    }
}

static void be_client(player_t *self)
{
    tmsg_map_t *map;
    unsigned long ours, in_ucx;
    long held = 0;

    connect_all(self);
    map = make_map();
    for (unsigned i = 0; i <= self->many->blocks; i++) {
        meet(self);
        send_block(self, map);
        if (i == 0) {
            held = bench_counts_held();
            bench_counts_stop(&ours, &in_ucx);
        }
    }
    report(self, NULL, held);
}

/* Two descriptors an endpoint on either side: ours and UCX's. */
static void allow_descriptors(unsigned endpoints)
{
    rlim_t wanted = 100 + 2 * (rlim_t)endpoints;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    if (limit.rlim_max < wanted) {
        bench_die("%u endpoints take %lu descriptors; RLIMIT_NOFILE is %lu",
                  endpoints, (unsigned long)wanted,
                  (unsigned long)limit.rlim_max);
    }
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
}

typedef struct {
    pid_t pid;
    int socket;
} played_t;

static played_t start(const bench_many_t *many, bool serving)
{
    player_t self = {.many = many};
    played_t played;
    int sockets[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0 ||
        (played.pid = fork()) < 0) {
        bench_die("a process: %s", strerror(errno));
    }
    if (played.pid > 0) {
        close(sockets[1]);
        played.socket = sockets[0];
        return played;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    alarm(RUN_SECONDS_MAX);
    close(sockets[0]);
    self.socket = sockets[1];
    self.share = many->endpoints / (serving ? 1 : many->clients);
    bench_bind_core(serving ? 0 : 1);
    allow_descriptors(self.share);
    open_player(&self);
    if (serving) {
        serve(&self);
    } else {
        be_client(&self);
    }
    meet(&self); /* nobody goes before all are done */
    _exit(0);
}

/* Everybody begins when all have come. */
static void let_all_meet(const played_t *players, unsigned count)
{
    char byte = 0;

    for (unsigned i = 0; i < count; i++) {
        bench_hear(players[i].socket, &byte, 1);
    }
    for (unsigned i = 0; i < count; i++) {
        bench_tell(players[i].socket, &byte, 1);
    }
}

void bench_many_run(const bench_many_t *many, bench_many_sample_t *sample_p)
{
    played_t players[1 + BENCH_CLIENTS_MAX];
    unsigned count = 1 + many->clients;
    char url[256];
    size_t bytes;

    memset(sample_p, 0, sizeof(*sample_p));
    players[0] = start(many, true);
    bytes = bench_hear(players[0].socket, url, sizeof(url));
    for (unsigned i = 1; i < count; i++) {
        players[i] = start(many, false);
        bench_tell(players[i].socket, url, bytes);
    }
    for (unsigned i = 0; i <= many->blocks; i++) {
        let_all_meet(players, count);
    }
    for (unsigned i = 0; i < count; i++) {
        bench_many_sample_t sample;

        bench_hear(players[i].socket, &sample, sizeof(sample));
        if (sample.bytes_each > sample_p->bytes_each) {
            sample_p->bytes_each = sample.bytes_each;
        }
        sample_p->rate += sample.rate;
    }
    let_all_meet(players, count);
    for (unsigned i = 0; i < count; i++) {
        close(players[i].socket);
        waitpid(players[i].pid, NULL, 0);
    }
}
