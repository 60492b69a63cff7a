/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads that call, send, receive and ask by one handle, while its peer is
 * restarted again and again: each hears of what it began, once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"
#include "support/test_scale.h"

enum { CALLERS = 3, OTHERS = 5, THREADS = CALLERS + OTHERS };

typedef struct {
    side_t a, b;
    char url[256];
    tmsg_server_t *server;
    tmsg_offer_t *offer;
    tmsg_endpoint_t *endpoint;
    const tmsg_map_t *map;
    atomic_bool over;
    atomic_uint done; /* threads that have ended */
    atomic_uint news, answered, lost, sent, received, streamed, fetched;
    atomic_ulong lent, released;
} scene_t;

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void end_stream(void *arg, tmsg_call_stream_t *stream)
{
    (void)arg;
    (void)tmsg_call_stream_send(stream, tmsg_call_stream_map(stream), NULL,
                                NULL);
    (void)tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL);
}

static void start(scene_t *scene)
{
    const tmsg_offer_params_t named = {.field_mask = TMSG_OFFER_PARAM_NAME,
                                       .name = "thing"};
    const side_options_t options = {.drive = DRIVE_THREAD};

    side_open(&scene->a, &options);
    must(tmsg_offer_create(scene->a.worker, scene->map, &named, &scene->offer));
    must(tmsg_server_create(scene->a.worker, NULL, &scene->server));
    must(tmsg_server_register_stream(scene->server, "stream", end_stream, NULL,
                                     NULL));
    must(tmsg_server_register(scene->server, "echo", echo, NULL, NULL));
    joined_listen(&scene->a, scene->url, scene->news % 2 == 0 ? -1 : 0);
    snprintf(scene->url, sizeof(scene->url), "%s",
             tmsg_listener_url(scene->a.listener));
}

static void stop(scene_t *scene)
{
    tmsg_offer_destroy(scene->offer);
    tmsg_server_destroy(scene->server);
    side_close(&scene->a);
}

static void on_release(void *arg)
{
    atomic_fetch_add(&((scene_t *)arg)->released, 1);
}

static void *make_calls(void *arg)
{
    scene_t *scene = arg;
    tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_RELEASE |
                                               TMSG_CALL_PARAM_TIMEOUT |
                                               TMSG_CALL_PARAM_FLAGS,
                                 .timeout_ms = PEERS_BOUND_MS,
                                 .on_release = on_release,
                                 .on_release_arg = scene,
                                 .flags = TMSG_CALL_IDEMPOTENT,
                                 .retry = {50, 1, 20}};

    for (unsigned i = 0; !atomic_load(&scene->over); i++) {
        bool retries = i % 2 == 1;
        tmsg_call_t *call;
        tmsg_status_t status;

        params.field_mask &= ~(uint64_t)TMSG_CALL_PARAM_RETRY;
        params.field_mask |= retries ? TMSG_CALL_PARAM_RETRY : 0;
        status = tmsg_endpoint_call(scene->endpoint, "echo", scene->map,
                                    &params, &call);
        must(status);
        atomic_fetch_add(&scene->lent, 1);
        status = tmsg_call_wait(call, -1);
        if (status != TMSG_ERR_PEER_LOST || retries) {
            must_be(status, TMSG_OK);
        }
        atomic_fetch_add(status == TMSG_OK ? &scene->answered : &scene->lost,
                         1);
        tmsg_call_destroy(call);
    }
    atomic_fetch_add(&scene->done, 1);
    return NULL;
}

static void *open_streams(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->over)) {
        tmsg_call_stream_t *stream;
        tmsg_message_t *message = NULL;
        tmsg_status_t status = tmsg_endpoint_open_stream(
            scene->endpoint, "stream", scene->map, NULL, &stream);

        if (status == TMSG_OK) {
            status = tmsg_call_stream_recv(stream, PEERS_BOUND_MS, &message);
            tmsg_message_destroy(message);
            if (status == TMSG_OK) {
                status = tmsg_call_stream_wait(stream, PEERS_BOUND_MS);
            }
            must_true(tmsg_call_stream_endpoint(stream) == scene->endpoint);
            tmsg_call_stream_destroy(stream);
        }
        must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST);
        atomic_fetch_add(&scene->streamed, status == TMSG_OK);
    }
    atomic_fetch_add(&scene->done, 1);
    return NULL;
}

static void *fetch_all(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->over)) {
        tmsg_status_t status;
        tmsg_call_t *call;

        must(
            tmsg_endpoint_fetch_name(scene->endpoint, "thing", 0, NULL, &call));
        status = tmsg_call_wait(call, PEERS_BOUND_MS);
        must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST);
        atomic_fetch_add(&scene->fetched, status == TMSG_OK);
        tmsg_call_destroy(call);
    }
    atomic_fetch_add(&scene->done, 1);
    return NULL;
}

static void *send_all(void *arg)
{
    scene_t *scene = arg;
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS |
                                                     TMSG_SEND_PARAM_CHANNEL,
                                       .flags = TMSG_SEND_ACKED,
                                       .channel = 1};

    while (!atomic_load(&scene->over)) {
        tmsg_request_t *request;
        tmsg_status_t status;

        must(
            tmsg_endpoint_send(scene->endpoint, scene->map, &params, &request));
        status = tmsg_request_wait(request, PEERS_BOUND_MS);
        must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST);
        tmsg_request_destroy(request);
        atomic_fetch_add(&scene->sent, 1);
    }
    atomic_fetch_add(&scene->done, 1);
    return NULL;
}

static void *receive_all(void *arg)
{
    scene_t *scene = arg;
    tmsg_message_t *message;

    while (!atomic_load(&scene->over)) {
        tmsg_status_t status =
            tmsg_endpoint_recv(scene->endpoint, 20, &message);

        if (status == TMSG_OK) {
            must_true(tmsg_message_endpoint(message) == scene->endpoint);
            tmsg_message_destroy(message);
            atomic_fetch_add(&scene->received, 1);
        } else {
            must_be(status, TMSG_ERR_TIMED_OUT);
        }
    }
    atomic_fetch_add(&scene->done, 1);
    return NULL;
}

static void *ask(void *arg)
{
    scene_t *scene = arg;

    while (!atomic_load(&scene->over)) {
        char *json;

        must_true(tmsg_endpoint_status(scene->endpoint) >= 0);
        must_true(tmsg_endpoint_peer(scene->endpoint)[0] == 't');
        (void)tmsg_endpoint_error(scene->endpoint);
        (void)tmsg_endpoint_readable(scene->endpoint);
        (void)tmsg_endpoint_waiting(scene->endpoint);
        must(tmsg_endpoint_set_queue(scene->endpoint, NULL));
        must(tmsg_endpoint_describe(scene->endpoint, &json));
        tmsg_string_free(json);
    }
    atomic_fetch_add(&scene->done, 1);
    return NULL;
}

static void on_session(void *arg, tmsg_endpoint_t *endpoint,
                       tmsg_session_event_t event, const char *words)
{
    scene_t *scene = arg;

    must_true(endpoint == scene->endpoint && words[0] != '\0');
    atomic_fetch_add(&scene->news, event == TMSG_SESSION_NEW);
}

typedef struct {
    scene_t *scene;
    unsigned answered, news;
} goal_t;

static bool is_reached(void *arg)
{
    const goal_t *goal = arg;
    tmsg_message_t *message;

    while (tmsg_worker_recv(goal->scene->a.worker, 0, &message) == TMSG_OK) {
        (void)tmsg_endpoint_send(tmsg_message_endpoint(message),
                                 tmsg_message_map(message), NULL, NULL);
        tmsg_message_destroy(message);
    }
    return atomic_load(&goal->scene->news) >= goal->news &&
           atomic_load(&goal->scene->answered) >= goal->answered;
}

static bool is_given_back(void *arg)
{
    scene_t *scene = arg;

    return atomic_load(&scene->released) == atomic_load(&scene->lent);
}

static bool is_quiet(void *arg)
{
    scene_t *scene = arg;
    goal_t goal = {.scene = scene};

    (void)is_reached(&goal); /* what comes is taken */
    return atomic_load(&scene->done) == THREADS;
}

static void dial(scene_t *scene)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_RECONNECT,
        .reconnect = {.first_backoff_ms = 1, .most_backoff_ms = 20}};

    must(tmsg_endpoint_connect(scene->b.worker, scene->url, &params,
                               &scene->endpoint));
    tmsg_endpoint_on_session(scene->endpoint, on_session, scene);
}

int main(void)
{
    void *(*const bodies[OTHERS])(void *) = {send_all, receive_all, ask,
                                             open_streams, fetch_all};
    const side_options_t shared = {.drive = DRIVE_THREAD};
    const unsigned restarts = whole_run() ? 300 : 12;
    tmsg_map_t *map = sample_bytes(1, 100);
    pthread_t threads[THREADS];
    scene_t scene = {.url = "tcp://127.0.0.1:0", .map = map};

    start(&scene);
    side_open(&scene.b, &shared);
    dial(&scene);
    for (unsigned i = 0; i < THREADS; i++) {
        must_eq(pthread_create(&threads[i], NULL,
                               i < CALLERS ? make_calls : bodies[i - CALLERS],
                               &scene),
                0);
    }
    for (unsigned i = 0; i < restarts; i++) {
        goal_t goal = {&scene, scene.answered + 20, i};

        side_await(&scene.a, is_reached, &goal, "calls that are answered");
        tmsg_endpoint_destroy(scene.a.accepted);
        stop(&scene);
        start(&scene);
    }
    atomic_store(&scene.over, true);
    /* Those that wait for an answer still get it. */
    side_await(&scene.a, is_quiet, &scene, "the threads");
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    side_await(&scene.b, is_given_back, &scene, "what was lent");
    printf("%u calls answered, %u lost, %u sends, %u received, %u streams, %u "
           "fetched, %u sessions\n",
           scene.answered, scene.lost, scene.sent, scene.received,
           scene.streamed, scene.fetched, scene.news + 1);
    tmsg_endpoint_destroy(scene.endpoint);
    side_close(&scene.b);
    stop(&scene);
    tmsg_map_destroy(map);
    return 0;
}
