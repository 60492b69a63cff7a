/* SPDX-License-Identifier: BSD-3-Clause */
/* A server that refuses what several threads ask of it, in each way that there
 * is, on connections that come and go: whatever it was asked for is counted
 * once, and a `begin` saw it or a `refused` was told of it. Then its worker
 * goes in the midst of it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/test_scale.h"

enum { CALLERS = 3, BATCH = 6, ROUNDS = 200, SOME = 200, LARGE = 200000 };

typedef struct {
    side_t a, b; /* a serves */
    tmsg_server_t *server;
    const tmsg_map_t *small, *large;
    unsigned rounds;
    atomic_uint begins, ends, refusals;
    atomic_bool gone; /* a's worker, or it is about to be */
} scene_t;

static tmsg_status_t begin(void *arg, tmsg_intercepted_t *call)
{
    (void)call;
    atomic_fetch_add(&((scene_t *)arg)->begins, 1);
    return TMSG_OK;
}

static void end(void *arg, const tmsg_intercepted_t *call)
{
    must_true(call->status <= 0);
    atomic_fetch_add(&((scene_t *)arg)->ends, 1);
}

static void refused(void *arg, const tmsg_intercepted_t *call)
{
    must_true(call->status < 0 && call->error[0] != '\0');
    must_true(call->method[0] != '\0');
    must_true(tmsg_endpoint_peer(call->endpoint) != NULL);
    atomic_fetch_add(&((scene_t *)arg)->refusals, 1);
}

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void leave(void *arg, tmsg_call_stream_t *stream)
{
    (void)arg;
    (void)tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL);
}

/* One of them is given up, and the time of one is up at once. */
static void ask(scene_t *scene, tmsg_endpoint_t *endpoint, unsigned round)
{
    static const char *const methods[] = {"echo", "strange", "leave"};
    tmsg_call_t *calls[BATCH] = {NULL};
    tmsg_call_stream_t *stream = NULL;

    for (unsigned i = 0; i < BATCH; i++) {
        const tmsg_call_params_t params = {
            .field_mask = TMSG_CALL_PARAM_TIMEOUT,
            .timeout_ms = i == 2 ? 1 : PEERS_BOUND_MS};

        (void)tmsg_endpoint_call(endpoint, methods[i < 4 ? 0 : i - 3],
                                 i % 2 == 0 ? scene->large : scene->small,
                                 &params, &calls[i]);
    }
    (void)tmsg_endpoint_open_stream(endpoint, methods[round % 3], scene->small,
                                    NULL, &stream);
    if (calls[0] != NULL) {
        tmsg_call_cancel(calls[0]);
    }
    if (stream != NULL && round % 4 == 0) {
        tmsg_call_stream_cancel(stream);
    }
    if (round % 5 == 4) {
        tmsg_endpoint_destroy(endpoint);
    }
    for (unsigned i = 0; i < BATCH; i++) {
        must_true(calls[i] == NULL ||
                  tmsg_call_wait(calls[i], PEERS_BOUND_MS) ==
                      tmsg_call_status(calls[i]));
        tmsg_call_destroy(calls[i]);
    }
    if (stream != NULL) {
        (void)tmsg_call_stream_wait(stream, PEERS_BOUND_MS);
        must_true(tmsg_call_stream_status(stream) != TMSG_IN_PROGRESS);
        tmsg_call_stream_destroy(stream);
    }
}

static void *run(void *arg)
{
    scene_t *scene = arg;
    tmsg_endpoint_t *endpoint = NULL;

    for (unsigned i = 0; i < scene->rounds; i++) {
        if (i % 5 == 0) {
            endpoint = side_dial(&scene->b, &scene->a);
        }
        ask(scene, endpoint, i);
    }
    return NULL;
}

/* Without end, and without an answer. */
static void *flood(void *arg)
{
    scene_t *scene = arg;
    tmsg_endpoint_t *endpoint = side_dial(&scene->b, &scene->a);

    while (!atomic_load(&scene->gone)) {
        tmsg_call_t *call;

        if (tmsg_endpoint_call(endpoint, "strange", scene->small, NULL,
                               &call) == TMSG_OK) {
            (void)tmsg_call_wait(call, PEERS_BOUND_MS);
            tmsg_call_destroy(call);
        }
    }
    return NULL;
}

static void start(scene_t *scene, pthread_t threads[CALLERS],
                  void *(*body)(void *arg))
{
    for (int i = 0; i < CALLERS; i++) {
        must_eq(pthread_create(&threads[i], NULL, body, scene), 0);
    }
}

static void join(pthread_t threads[CALLERS])
{
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Whether all that was asked for is over, and accounted for. */
static bool adds_up(void *arg)
{
    static const char *const methods[] = {"echo", "leave", ""};
    scene_t *scene = arg;
    uint64_t asked = 0, waits = 0;

    for (int i = 0; i < 3; i++) {
        tmsg_call_metrics_t counts;

        must(tmsg_metrics_read(scene->a.worker, TMSG_SIDE_SERVER, methods[i],
                               &counts));
        asked += counts.ended + counts.rejected;
        waits += counts.in_flight;
    }
    return waits == 0 &&
           asked == atomic_load(&scene->begins) + atomic_load(&scene->refusals);
}

static bool has_some(void *arg)
{
    return atomic_load(&((scene_t *)arg)->refusals) >= SOME;
}

static void serve(scene_t *scene)
{
    const tmsg_server_params_t params = {
        .field_mask = TMSG_SERVER_PARAM_THREADS |
                      TMSG_SERVER_PARAM_CONCURRENCY | TMSG_SERVER_PARAM_QUEUE,
        .threads = 2,
        .concurrency = 2,
        .queue = 2};
    const tmsg_interceptor_t interceptor = {
        .field_mask = TMSG_INTERCEPTOR_BEGIN | TMSG_INTERCEPTOR_END |
                      TMSG_INTERCEPTOR_REFUSED,
        .begin = begin,
        .end = end,
        .refused = refused,
        .arg = scene};

    must(tmsg_metrics_start(scene->a.worker));
    must(
        tmsg_worker_intercept(scene->a.worker, TMSG_SIDE_SERVER, &interceptor));
    must(tmsg_server_create(scene->a.worker, &params, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, NULL, NULL));
    must(
        tmsg_server_register_stream(scene->server, "leave", leave, NULL, NULL));
    side_listen(&scene->a, "tcp://127.0.0.1:0");
}

int main(void)
{
    const side_options_t options = {.drive = DRIVE_THREAD};
    tmsg_map_t *small = sample_bytes(1, 100), *large = sample_bytes(1, LARGE);
    static scene_t scene;
    pthread_t threads[CALLERS];

    scene.small = small;
    scene.large = large;
    scene.rounds = whole_run() ? 20 * ROUNDS : ROUNDS;
    side_open(&scene.a, &options);
    side_open(&scene.b, &options);
    serve(&scene);
    start(&scene, threads, run);
    join(threads);
    side_await(&scene.a, adds_up, &scene, "all to be accounted for");
    fprintf(stderr, "%u begun, %u refused\n", atomic_load(&scene.begins),
            atomic_load(&scene.refusals));
    atomic_store(&scene.refusals, 0);
    start(&scene, threads, flood);
    side_await(&scene.a, has_some, &scene, "some refusals");
    tmsg_server_destroy(scene.server);
    tmsg_worker_destroy(scene.a.worker);
    atomic_store(&scene.gone, true);
    join(threads);
    tmsg_context_destroy(scene.a.context);
    side_close(&scene.b);
    must_eq(atomic_load(&scene.ends), atomic_load(&scene.begins));
    tmsg_map_destroy(small);
    tmsg_map_destroy(large);
    return 0;
}
