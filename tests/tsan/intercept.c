/* SPDX-License-Identifier: BSD-3-Clause */
/* Hooks while several threads make calls and streams, cancel them, answer them
 * from a pool, and the server is drained in the midst of it: each begin that
 * let a call go on has one end, which comes last. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { CALLERS = 3, ROUNDS = 60, MESSAGES = 3 };

typedef struct {
    side_t a, b; /* a serves */
    tmsg_server_t *server;
    tmsg_endpoint_t *to_a;
    atomic_uint begins, ends, refused, numbers, spans;
} scene_t;

/* What an interceptor has for a call: freed by its end, which is the last to
 * see it. */
typedef struct {
    atomic_uint seen;
} own_t;

static tmsg_status_t begin(void *arg, tmsg_intercepted_t *call)
{
    scene_t *scene = arg;
    own_t *own;

    if (call->side == TMSG_SIDE_CALLER) {
        must(tmsg_intercepted_set_string(call, "app.key", "value"));
    }
    if (atomic_fetch_add(&scene->numbers, 1) % 7 == 0) {
        atomic_fetch_add(&scene->refused, 1);
        return tmsg_intercepted_refuse(call, TMSG_ERR_REFUSED, "one in 7");
    }
    own = calloc(1, sizeof(*own));
    must_true(own != NULL);
    call->state = own;
    atomic_fetch_add(&scene->begins, 1);
    return TMSG_OK;
}

static void message(void *arg, const tmsg_intercepted_t *call, int sent,
                    const tmsg_map_t *map)
{
    (void)arg;
    (void)sent;
    must_true(map != NULL);
    atomic_fetch_add(&((own_t *)call->state)->seen, 1);
}

static void end(void *arg, const tmsg_intercepted_t *call)
{
    own_t *own = call->state;

    must_true(call->status <= 0);
    must_true(atomic_load(&own->seen) <= call->sent + call->received);
    free(own);
    atomic_fetch_add(&((scene_t *)arg)->ends, 1);
}

static void note_span(void *arg, const tmsg_span_t *span)
{
    must_true(span->ended_ns >= span->begun_ns);
    atomic_fetch_add(&((scene_t *)arg)->spans, 1);
}

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must_true(tmsg_trace_current() != NULL);
    (void)tmsg_task_reply(task, tmsg_task_map(task), NULL);
}

static void flow(void *arg, tmsg_call_stream_t *stream)
{
    tmsg_message_t *got = NULL;

    (void)arg;
    while (tmsg_call_stream_recv(stream, PEERS_BOUND_MS, &got) == TMSG_OK &&
           got != NULL) {
        (void)tmsg_call_stream_send(stream, tmsg_message_map(got), NULL, NULL);
        tmsg_message_destroy(got);
        got = NULL;
    }
    (void)tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL);
}

static void make_call(scene_t *scene, const tmsg_map_t *map, bool cancels)
{
    tmsg_call_t *call;

    if (tmsg_endpoint_call(scene->to_a, "echo", map, NULL, &call) != TMSG_OK) {
        return;
    }
    if (cancels) {
        tmsg_call_cancel(call);
    }
    must_true(tmsg_call_wait(call, PEERS_BOUND_MS) != TMSG_ERR_TIMED_OUT);
    tmsg_call_destroy(call);
}

static void make_stream(scene_t *scene, const tmsg_map_t *map, bool cancels)
{
    tmsg_call_stream_t *stream;

    if (tmsg_endpoint_open_stream(scene->to_a, "flow", map, NULL, &stream) !=
        TMSG_OK) {
        return;
    }
    for (int i = 0; i < MESSAGES; i++) {
        (void)tmsg_call_stream_send(stream, map, NULL, NULL);
    }
    if (cancels) {
        tmsg_call_stream_cancel(stream);
    } else {
        (void)tmsg_call_stream_finish(stream);
    }
    must_true(tmsg_call_stream_wait(stream, PEERS_BOUND_MS) !=
              TMSG_ERR_TIMED_OUT);
    tmsg_call_stream_destroy(stream);
}

static void *run(void *arg)
{
    tmsg_map_t *map = sample_bytes(1, 100);

    for (int i = 0; i < ROUNDS; i++) {
        make_call(arg, map, i % 5 == 0);
        if (i % 4 == 0) {
            make_stream(arg, map, i % 8 == 0);
        }
    }
    tmsg_map_destroy(map);
    return NULL;
}

static void intercept(scene_t *scene)
{
    const tmsg_interceptor_t interceptor = {
        .field_mask = TMSG_INTERCEPTOR_BEGIN | TMSG_INTERCEPTOR_MESSAGE |
                      TMSG_INTERCEPTOR_END,
        .begin = begin,
        .message = message,
        .end = end,
        .arg = scene};
    const tmsg_tracer_params_t tracer = {.field_mask =
                                             TMSG_TRACER_PARAM_ON_SPAN,
                                         .on_span = note_span,
                                         .on_span_arg = scene};

    must(tmsg_worker_trace(scene->a.worker, &tracer));
    must(tmsg_worker_trace(scene->b.worker, &tracer));
    must(
        tmsg_worker_intercept(scene->a.worker, TMSG_SIDE_SERVER, &interceptor));
    must(
        tmsg_worker_intercept(scene->b.worker, TMSG_SIDE_CALLER, &interceptor));
}

int main(void)
{
    const tmsg_server_params_t params = {
        .field_mask = TMSG_SERVER_PARAM_THREADS, .threads = 3};
    const side_options_t options = {.drive = DRIVE_THREAD};
    scene_t *scene = calloc(1, sizeof(*scene));
    const struct timespec nap = {0, 1000000};
    pthread_t threads[CALLERS];

    must_true(scene != NULL);
    side_open(&scene->a, &options);
    side_open(&scene->b, &options);
    must(tmsg_server_create(scene->a.worker, &params, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, NULL, NULL));
    must(tmsg_server_register_stream(scene->server, "flow", flow, NULL, NULL));
    side_listen_link(&scene->a, LINK_SHM);
    scene->to_a = side_dial(&scene->b, &scene->a);
    intercept(scene);
    for (int i = 0; i < CALLERS; i++) {
        must_true(pthread_create(&threads[i], NULL, run, scene) == 0);
    }
    while (atomic_load(&scene->ends) < CALLERS * ROUNDS) {
        nanosleep(&nap, NULL); /* about half of them have gone */
    }
    (void)tmsg_server_drain(scene->server, 0);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
    }
    tmsg_server_destroy(scene->server);
    side_close(&scene->b);
    side_close(&scene->a);
    must_eq(atomic_load(&scene->ends), atomic_load(&scene->begins));
    must_true(atomic_load(&scene->begins) > 0);
    must_true(atomic_load(&scene->refused) > 0);
    must_true(atomic_load(&scene->spans) > 0);
    free(scene);
    return 0;
}
