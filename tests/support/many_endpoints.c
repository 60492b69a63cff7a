/* SPDX-License-Identifier: BSD-3-Clause */
#include "support/many_endpoints.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "support/held_resources.h"
#include "support/seeded_maps.h"

enum { BYTES = 300, BOUND_MS = 120000 };

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static size_t held(const many_t *many)
{
    return many->held == NULL ? 0 : many->held();
}

/* Within its bound, which is longer than that of peers.h. */
static tmsg_message_t *take(const side_t *side)
{
    tmsg_message_t *message;

    must(tmsg_worker_recv(side->worker, BOUND_MS, &message));
    return message;
}

static void finish(tmsg_request_t *request)
{
    must(tmsg_request_wait(request, BOUND_MS));
    tmsg_request_destroy(request);
}

static tmsg_endpoint_t *dial(const side_t *side, const char *url)
{
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready;

    must(tmsg_endpoint_connect(side->worker, url, NULL, &endpoint));
    must(tmsg_endpoint_ready(endpoint, &ready));
    finish(ready);
    return endpoint;
}

/* By each endpoint comes what went by it. */
static void play_round(const many_t *many, tmsg_endpoint_t **endpoints,
                       unsigned round)
{
    for (unsigned i = 0; i < many->each; i++) {
        tmsg_request_destroy(send_map(
            endpoints[i], sample_bytes(round * many->each + i, BYTES), 0));
    }
    for (unsigned i = 0; i < many->each; i++) {
        tmsg_message_t *message;

        must(tmsg_endpoint_recv(endpoints[i], BOUND_MS, &message));
        sample_check_bytes(round * many->each + i, BYTES,
                           tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

static void client(pipes_t *pipes, void *arg)
{
    const many_t *many = arg;
    const side_options_t options = {.ucx_config = link_config(many->link),
                                    .peer_timeout_ms = BOUND_MS};
    tmsg_endpoint_t **endpoints = malloc(many->each * sizeof(*endpoints));
    tmsg_request_t *closed;
    const left_t first = left_look(many->held);
    char url[256], line[32];
    size_t before;
    side_t side;

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, &options);
    before = held(many);
    for (unsigned i = 0; i < many->each; i++) {
        endpoints[i] = dial(&side, url);
    }
    line_put(pipes->out, "connected");
    line_get(pipes->in, line, sizeof(line));
    for (unsigned i = 0; i < many->rounds; i++) {
        play_round(many, endpoints, i);
    }
    snprintf(line, sizeof(line), "%zu", (held(many) - before) / many->each);
    line_put(pipes->out, line);
    line_get(pipes->in, line, sizeof(line));
    for (unsigned i = 0; i < many->each; i++) {
        must(tmsg_endpoint_close(endpoints[i], &closed));
        finish(closed);
    }
    side_close(&side);
    left_must_be_none(&first, many->held, NULL, NULL, "a client");
    free(endpoints);
}

typedef struct {
    const many_t *many;
    child_t children[MANY_CLIENTS_MAX];
    side_t side;
} server_t;

static void answer_one(const server_t *server)
{
    tmsg_message_t *message = take(&server->side);

    must(tmsg_endpoint_send(tmsg_message_endpoint(message),
                            tmsg_message_map(message), NULL, NULL));
    tmsg_message_destroy(message);
}

static void tell_all(server_t *server, const char *line)
{
    for (unsigned i = 0; i < server->many->clients; i++) {
        line_put(server->children[i].out, line);
    }
}

/* The number that each client says, at most. */
static size_t hear_all(server_t *server)
{
    size_t most = 0;
    char line[32];

    for (unsigned i = 0; i < server->many->clients; i++) {
        size_t number;

        child_await(&server->side, &server->children[i]);
        line_get(server->children[i].in, line, sizeof(line));
        number = strtoul(line, NULL, 10);
        most = number > most ? number : most;
    }
    return most;
}

static void serve(server_t *server, many_result_t *result_p)
{
    const many_t *many = server->many;
    unsigned endpoints = many->clients * many->each;
    size_t before;
    double begin;

    side_listen_link(&server->side, many->link);
    before = held(many);
    tell_all(server, tmsg_listener_url(server->side.listener));
    while (server->side.accepts < endpoints) {
        must(tmsg_worker_wait(server->side.worker, BOUND_MS));
    }
    hear_all(server);
    begin = now();
    tell_all(server, "go");
    for (unsigned i = 0; i < endpoints * many->rounds; i++) {
        answer_one(server);
    }
    result_p->rate = 2 * endpoints * many->rounds / (now() - begin);
    result_p->client_bytes = hear_all(server);
    result_p->server_bytes = (held(many) - before) / endpoints;
}

static void await_end(server_t *server, child_t *child)
{
    char byte;

    child_await(&server->side, child);
    must_eq(read(child->in, &byte, 1), 0);
    child_join(child);
}

void many_run(const many_t *many, many_result_t *result_p)
{
    const side_options_t options = {.ucx_config = link_config(many->link),
                                    .peer_timeout_ms = BOUND_MS};
    server_t server = {.many = many};

    const left_t first = left_look(many->held);

    must_true(many->clients <= MANY_CLIENTS_MAX);
    for (unsigned i = 0; i < many->clients; i++) {
        child_start(&server.children[i], client, (void *)(uintptr_t)many);
    }
    side_open(&server.side, &options);
    serve(&server, result_p);
    tell_all(&server, "end");
    for (unsigned i = 0; i < many->clients; i++) {
        await_end(&server, &server.children[i]);
    }
    side_close(&server.side);
    left_must_be_none(&first, many->held, NULL, NULL, "the server");
}
