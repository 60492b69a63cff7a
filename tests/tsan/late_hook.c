/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker is destroyed while a `message` of an interceptor still runs on a
 * thread that sends: that is waited for, and `end` comes behind it, before the
 * worker is gone. The stream outlives both. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { ROUNDS = 10, NAP_NS = 1000000 };

typedef struct {
    side_t a, b; /* a serves */
    tmsg_call_stream_t *here, *there;
    atomic_bool is_kept;    /* `there` is one */
    atomic_bool is_sending; /* `message` runs; */
    atomic_bool is_ending;  /* the worker is about to be destroyed; */
    atomic_bool has_left;   /* it has returned; */
    atomic_bool heard;      /* `end` was called */
} scene_t;

static void nap(void)
{
    const struct timespec time = {0, NAP_NS};

    nanosleep(&time, NULL);
}

static void await_flag(const atomic_bool *flag)
{
    for (int i = 0; !atomic_load(flag); i++) {
        must_true(i < PEERS_BOUND_MS);
        nap();
    }
}

static void message(void *arg, const tmsg_intercepted_t *call, int sent,
                    const tmsg_map_t *map)
{
    scene_t *scene = arg;

    must_true(sent && map != NULL && call->side == TMSG_SIDE_CALLER);
    atomic_store(&scene->is_sending, true);
    await_flag(&scene->is_ending);
    for (int i = 0; i < 10; i++) { /* it would be gone by then */
        nap();
    }
    atomic_store(&scene->has_left, true);
}

static void end(void *arg, const tmsg_intercepted_t *call)
{
    scene_t *scene = arg;

    must_true(atomic_load(&scene->has_left));
    must_true(call->status < 0);
    must_true(!atomic_exchange(&scene->heard, true));
}

static void *send_one(void *arg)
{
    scene_t *scene = arg;
    tmsg_map_t *map = sample_bytes(1, 10);

    must(tmsg_call_stream_send(scene->here, map, NULL, NULL));
    tmsg_map_destroy(map);
    return NULL;
}

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    scene->there = tmsg_call_stream_keep(stream);
    atomic_store(&scene->is_kept, true);
}

static void play(scene_t *scene)
{
    const side_options_t options = {.drive = DRIVE_THREAD};
    const tmsg_interceptor_t interceptor = {
        .field_mask = TMSG_INTERCEPTOR_MESSAGE | TMSG_INTERCEPTOR_END,
        .message = message,
        .end = end,
        .arg = scene};
    tmsg_server_t *server;
    pthread_t sender;

    side_open(&scene->a, &options);
    side_open(&scene->b, &options);
    must(
        tmsg_worker_intercept(scene->b.worker, TMSG_SIDE_CALLER, &interceptor));
    must(tmsg_server_create(scene->a.worker, NULL, &server));
    must(tmsg_server_register_stream(server, "keep", keep, scene, NULL));
    side_listen_link(&scene->a, LINK_SHM);
    must(tmsg_endpoint_open_stream(side_dial(&scene->b, &scene->a), "keep",
                                   NULL, NULL, &scene->here));
    await_flag(&scene->is_kept);
    must_true(pthread_create(&sender, NULL, send_one, scene) == 0);
    await_flag(&scene->is_sending);
    atomic_store(&scene->is_ending, true);
    side_close(&scene->b);
    must_true(atomic_load(&scene->has_left));
    must_true(atomic_load(&scene->heard));
    pthread_join(sender, NULL);
    must_true(tmsg_call_stream_status(scene->here) < 0);
    tmsg_call_stream_destroy(scene->here);
    tmsg_call_stream_destroy(scene->there);
    tmsg_server_destroy(server);
    side_close(&scene->a);
}

int main(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        scene_t *scene = calloc(1, sizeof(*scene));

        must_true(scene != NULL);
        play(scene);
        free(scene);
    }
    return 0;
}
