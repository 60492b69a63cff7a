/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls and streams that a thread cancels, as the headers advise who has to
 * know when the arg of a callback is free: a call whose handle on_done gives
 * back, with a lock; one that is destroyed when on_done has come; a stream with
 * a handle for each. Every other one is ended by its server just before, so
 * that its end and the cancel meet. Some at once, so that the thread that
 * progresses is awake. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "support/peers.h"

enum { ROUNDS = 200, AT_ONCE = 16 };

typedef struct scene {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    pthread_mutex_t lock;  /* of `calls` */
    tmsg_call_t *calls[AT_ONCE];
    tmsg_task_t *tasks[AT_ONCE];
    tmsg_call_stream_t *there[AT_ONCE], *here[AT_ONCE];
    atomic_uint came, gone; /* at the server; what callbacks told, both sides */
} scene_t;

/* What an arg names: freed by its callback, which is told once. */
typedef struct {
    scene_t *scene;
    unsigned index;
} arg_t;

static arg_t *make_arg(scene_t *scene, unsigned index)
{
    arg_t *arg = calloc(1, sizeof(*arg));

    must_true(arg != NULL);
    arg->scene = scene;
    arg->index = index;
    return arg;
}

static void free_arg(arg_t *arg)
{
    scene_t *scene = arg->scene;

    free(arg);
    atomic_fetch_add(&scene->gone, 1);
}

static void expect_end(tmsg_status_t status)
{
    must_true(status == TMSG_OK || status == TMSG_ERR_CANCELED);
}

static void stream_over(void *arg, tmsg_call_stream_t *stream,
                        tmsg_status_t status)
{
    expect_end(status);
    tmsg_call_stream_destroy(stream);
    free_arg(arg);
}

static void watch(scene_t *scene, tmsg_call_stream_t *stream, unsigned index)
{
    const tmsg_call_stream_events_t events = {.field_mask =
                                                  TMSG_CALL_STREAM_EVENT_OVER,
                                              .on_over = stream_over,
                                              .arg = make_arg(scene, index)};

    must(tmsg_call_stream_set_events(tmsg_call_stream_keep(stream), &events));
}

static void keep_stream(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;
    unsigned index = atomic_load(&scene->came);

    scene->there[index] = tmsg_call_stream_keep(stream);
    if (index % 2 == 0) { /* the others are ended here, which tells nobody */
        watch(scene, stream, index);
    }
    atomic_fetch_add(&scene->came, 1);
}

static void task_over(void *arg, tmsg_task_t *task, tmsg_status_t status)
{
    must_be(status, TMSG_ERR_CANCELED);
    tmsg_task_destroy(task);
    free_arg(arg);
}

static void keep_task(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    unsigned index = atomic_load(&scene->came);

    tmsg_task_keep(task);
    if (index % 2 == 0) {
        tmsg_task_on_over(task, task_over, make_arg(scene, index));
    } else {
        scene->tasks[index] = task;
    }
    atomic_fetch_add(&scene->came, 1);
}

/* With the lock the call was made, and is canceled. */
static void destroy_call(void *arg, tmsg_call_t *call)
{
    arg_t *own = arg;

    expect_end(tmsg_call_status(call));
    pthread_mutex_lock(&own->scene->lock);
    own->scene->calls[own->index] = NULL;
    pthread_mutex_unlock(&own->scene->lock);
    tmsg_call_destroy(call);
    free_arg(own);
}

static void note_end(void *arg, tmsg_call_t *call)
{
    expect_end(tmsg_call_status(call));
    free_arg(arg);
}

static void call(scene_t *scene, unsigned i, tmsg_call_fn on_done)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_ON_DONE,
                                       .on_done = on_done,
                                       .on_done_arg = make_arg(scene, i)};

    pthread_mutex_lock(&scene->lock);
    must(tmsg_endpoint_call(scene->pair.to_a, "call", NULL, &params,
                            &scene->calls[i]));
    pthread_mutex_unlock(&scene->lock);
}

static void cancel_call(scene_t *scene, unsigned i)
{
    pthread_mutex_lock(&scene->lock);
    if (scene->calls[i] != NULL) {
        tmsg_call_cancel(scene->calls[i]);
    }
    pthread_mutex_unlock(&scene->lock);
}

static bool have_come(void *arg)
{
    return atomic_load(&((scene_t *)arg)->came) == AT_ONCE;
}

/* At the caller all, at the server those that it did not end itself. */
static bool are_gone(void *arg)
{
    return atomic_load(&((scene_t *)arg)->gone) == AT_ONCE + AT_ONCE / 2;
}

static void begin(scene_t *scene)
{
    atomic_store(&scene->came, 0);
    atomic_store(&scene->gone, 0);
}

static void play_calls(scene_t *scene, bool destroys)
{
    begin(scene);
    for (unsigned i = 0; i < AT_ONCE; i++) {
        call(scene, i, destroys ? destroy_call : note_end);
    }
    pair_await(&scene->pair, have_come, scene, "all at the server");
    for (unsigned i = 0; i < AT_ONCE; i++) {
        if (i % 2 == 1) {
            (void)tmsg_task_reply(scene->tasks[i], NULL, NULL);
            tmsg_task_destroy(scene->tasks[i]);
        }
        cancel_call(scene, i);
    }
    pair_await(&scene->pair, are_gone, scene, "the end of both sides");
    for (unsigned i = 0; i < AT_ONCE; i++) {
        tmsg_call_destroy(scene->calls[i]); /* NULL: on_done has */
    }
}

/* By their opener, or by their server. */
static void play_streams(scene_t *scene, bool by_opener)
{
    begin(scene);
    for (unsigned i = 0; i < AT_ONCE; i++) {
        must(tmsg_endpoint_open_stream(scene->pair.to_a, "stream", NULL, NULL,
                                       &scene->here[i]));
        watch(scene, scene->here[i], i);
    }
    pair_await(&scene->pair, have_come, scene, "all at the server");
    for (unsigned i = 0; i < AT_ONCE; i++) {
        if (i % 2 == 1) {
            (void)tmsg_call_stream_end(scene->there[i], TMSG_OK, 0, NULL, NULL);
        }
        tmsg_call_stream_cancel(by_opener ? scene->here[i] : scene->there[i]);
        tmsg_call_stream_destroy(scene->here[i]);
        tmsg_call_stream_destroy(scene->there[i]);
    }
    pair_await(&scene->pair, are_gone, scene, "the end of both sides");
}

int main(void)
{
    scene_t scene = {.server = NULL};

    pthread_mutex_init(&scene.lock, NULL);
    pair_open(&scene.pair, LINK_SHM, DRIVE_THREAD, NULL, NULL);
    must(tmsg_server_create(scene.pair.a.worker, NULL, &scene.server));
    must(tmsg_server_register(scene.server, "call", keep_task, &scene, NULL));
    must(tmsg_server_register_stream(scene.server, "stream", keep_stream,
                                     &scene, NULL));
    for (unsigned i = 0; i < ROUNDS; i += 4) {
        play_calls(&scene, true);
        play_calls(&scene, false);
        play_streams(&scene, true);
        play_streams(&scene, false);
    }
    tmsg_server_destroy(scene.server);
    pair_close(&scene.pair);
    pthread_mutex_destroy(&scene.lock);
    return 0;
}
