/* SPDX-License-Identifier: BSD-3-Clause */
/* The context's small thread beats at its fastest while connections come and
 * go, are destroyed on either side and in callbacks, and contexts end before
 * their workers and after them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { ROUNDS = 6, WORKERS = 2, VISITS = 8, ENDPOINTS = 6, TIMEOUT_MS = 200 };

typedef struct {
    tmsg_context_t *context; /* of both threads' workers */
    side_t listening;
    drive_t drive;
} scene_t;

static const tmsg_context_params_t brief = {.field_mask =
                                                TMSG_CONTEXT_PARAM_PEER_TIMEOUT,
                                            .peer_timeout_ms = TIMEOUT_MS};

static void destroy(void *arg, tmsg_endpoint_t *endpoint, tmsg_status_t status,
                    const char *error)
{
    (void)arg;
    (void)status;
    (void)error;
    tmsg_endpoint_destroy(endpoint);
}

static void accepted(void *arg, tmsg_endpoint_t *endpoint)
{
    (void)arg;
    tmsg_endpoint_on_closed(endpoint, destroy, NULL);
}

/* A busy machine may keep a heart from beating for as long as the timeout. */
static void must_end(tmsg_request_t *request)
{
    tmsg_status_t status = tmsg_request_wait(request, PEERS_BOUND_MS);

    must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST);
    tmsg_request_destroy(request);
}

static void end_one(tmsg_endpoint_t *endpoint, unsigned i)
{
    tmsg_request_t *closed;

    if (i % 3 == 0) {
        must(tmsg_endpoint_close(endpoint, &closed));
        must_end(closed);
    }
    if (i % 3 != 1) { /* else its worker does */
        tmsg_endpoint_destroy(endpoint);
    }
}

/* Connects, lets the hearts beat, and ends what it has in every way. */
static void visit(scene_t *scene, tmsg_worker_t *worker)
{
    tmsg_endpoint_t *endpoints[ENDPOINTS];
    tmsg_request_t *request;

    for (unsigned i = 0; i < ENDPOINTS; i++) {
        must(tmsg_endpoint_connect(worker,
                                   tmsg_listener_url(scene->listening.listener),
                                   NULL, &endpoints[i]));
    }
    for (unsigned i = 0; i < ENDPOINTS; i++) {
        must(tmsg_endpoint_ready(endpoints[i], &request));
        must_end(request);
    }
    usleep(60000); /* more than a beat, less than the timeout */
    for (unsigned i = 0; i < ENDPOINTS; i++) {
        end_one(endpoints[i], i);
    }
}

static void *work(void *arg)
{
    scene_t *scene = arg;
    const tmsg_worker_params_t params = {
        .field_mask = TMSG_WORKER_PARAM_FLAGS,
        .flags = scene->drive == DRIVE_THREAD ? TMSG_WORKER_THREAD : 0};
    tmsg_context_t *context = scene->context;
    tmsg_worker_t *worker;

    for (unsigned i = 0; i < VISITS; i++) {
        if (i % 2) {
            must(tmsg_context_create(&brief, &context));
        }
        must(tmsg_worker_create(context, &params, &worker));
        if (i % 2) {
            tmsg_context_destroy(context); /* the worker has the last hold */
        }
        visit(scene, worker);
        tmsg_worker_destroy(worker);
        context = scene->context;
    }
    return NULL;
}

static void open_scene(scene_t *scene)
{
    const side_options_t options = {.drive = DRIVE_THREAD,
                                    .peer_timeout_ms = TIMEOUT_MS};
    const tmsg_listener_params_t listener = {
        .field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT, .on_accept = accepted};

    side_open(&scene->listening, &options);
    must(tmsg_listener_create(scene->listening.worker, "tcp://:0", &listener,
                              &scene->listening.listener));
    must(tmsg_context_create(&brief, &scene->context));
}

int main(void)
{
    alarm(290);
    for (unsigned i = 0; i < ROUNDS; i++) {
        scene_t scene = {.drive = i % 2 ? DRIVE_THREAD : DRIVE_POLLING};
        pthread_t threads[WORKERS];

        open_scene(&scene);
        for (unsigned j = 0; j < WORKERS; j++) {
            must_eq(pthread_create(&threads[j], NULL, work, &scene), 0);
        }
        for (unsigned j = 0; j < WORKERS; j++) {
            must_eq(pthread_join(threads[j], NULL), 0);
        }
        tmsg_context_destroy(scene.context);
        side_close(&scene.listening);
    }
    printf("%d connections\n", ROUNDS * WORKERS * VISITS * ENDPOINTS);
    return 0;
}
