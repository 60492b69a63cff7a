/* SPDX-License-Identifier: BSD-3-Clause */
/* A stream ends while a `message` of an interceptor still runs on a thread that
 * sends: `end` comes behind that, on the thread that progresses, and before
 * on_over; at the opener, and at the server that ends it from a third thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { ROUNDS = 20 };

typedef struct {
    side_t a, b; /* a serves */
    tmsg_server_t *server;
    tmsg_endpoint_t *to_a;
    tmsg_call_stream_t *here, *there;
    pthread_t sender, ender;
    tmsg_side_t side;       /* whose `message` takes its time */
    atomic_bool is_kept;    /* `there` is one */
    atomic_bool is_sending; /* it runs; */
    atomic_bool has_ended;  /* the stream has, from another thread; */
    atomic_bool has_left;   /* it has returned */
    atomic_bool heard;      /* `end` was called, and */
    atomic_bool told;       /* on_over */
} scene_t;

static void await_flag(const atomic_bool *flag)
{
    const struct timespec nap = {0, 1000000};

    for (int i = 0; !atomic_load(flag); i++) {
        must_true(i < PEERS_BOUND_MS);
        nanosleep(&nap, NULL);
    }
}

static void message(void *arg, const tmsg_intercepted_t *call, int sent,
                    const tmsg_map_t *map)
{
    scene_t *scene = arg;

    must_true(map != NULL);
    if (sent && call->side == scene->side) {
        atomic_store(&scene->is_sending, true);
        await_flag(&scene->has_ended);
        atomic_store(&scene->has_left, true);
    }
}

static void end(void *arg, const tmsg_intercepted_t *call)
{
    scene_t *scene = arg;

    if (call->side == scene->side) {
        must_true(atomic_load(&scene->has_left));
        must_true(!pthread_equal(pthread_self(), scene->sender));
        must_true(!pthread_equal(pthread_self(), scene->ender));
        must_be(call->status, TMSG_OK);
        must_eq(call->sent, 1);
        atomic_store(&scene->heard, true);
    }
}

static void stream_over(void *arg, tmsg_call_stream_t *stream,
                        tmsg_status_t status)
{
    scene_t *scene = arg;

    must_be(status, TMSG_OK);
    must_true(stream == scene->here);
    must_true(scene->side == TMSG_SIDE_SERVER || atomic_load(&scene->heard));
    atomic_store(&scene->told, true);
}

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    scene->there = tmsg_call_stream_keep(stream);
    atomic_store(&scene->is_kept, true);
}

static void *send_one(void *arg)
{
    scene_t *scene = arg;
    tmsg_map_t *map = sample_bytes(1, 10);

    scene->sender = pthread_self();
    must(tmsg_call_stream_send(scene->side == TMSG_SIDE_CALLER ? scene->here
                                                               : scene->there,
                               map, NULL, NULL));
    tmsg_map_destroy(map);
    return NULL;
}

static void *end_it(void *arg)
{
    scene_t *scene = arg;

    scene->ender = pthread_self();
    await_flag(&scene->is_sending);
    must(tmsg_call_stream_end(scene->there, TMSG_OK, 0, NULL, NULL));
    if (scene->side == TMSG_SIDE_CALLER) { /* until the opener has heard */
        must_be(tmsg_call_stream_wait(scene->here, PEERS_BOUND_MS), TMSG_OK);
    }
    atomic_store(&scene->has_ended, true);
    return NULL;
}

static void play(scene_t *scene, tmsg_side_t side)
{
    const tmsg_call_stream_events_t events = {.field_mask =
                                                  TMSG_CALL_STREAM_EVENT_OVER,
                                              .on_over = stream_over,
                                              .arg = scene};
    atomic_bool *flags[] = {&scene->is_kept,   &scene->is_sending,
                            &scene->has_ended, &scene->has_left,
                            &scene->heard,     &scene->told};

    pthread_t sender, ender;

    for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        atomic_store(flags[i], false);
    }
    scene->side = side;
    must(tmsg_endpoint_open_stream(scene->to_a, "keep", NULL, NULL,
                                   &scene->here));
    must(tmsg_call_stream_set_events(scene->here, &events));
    await_flag(&scene->is_kept);
    must_true(pthread_create(&ender, NULL, end_it, scene) == 0);
    must_true(pthread_create(&sender, NULL, send_one, scene) == 0);
    pthread_join(sender, NULL);
    pthread_join(ender, NULL);
    await_flag(&scene->heard);
    await_flag(&scene->told);
    tmsg_call_stream_destroy(scene->here);
    tmsg_call_stream_destroy(scene->there);
}

int main(void)
{
    static scene_t scene;
    const side_options_t options = {.drive = DRIVE_THREAD};
    const tmsg_interceptor_t interceptor = {
        .field_mask = TMSG_INTERCEPTOR_MESSAGE | TMSG_INTERCEPTOR_END,
        .message = message,
        .end = end,
        .arg = &scene};

    side_open(&scene.a, &options);
    side_open(&scene.b, &options);
    must(tmsg_worker_intercept(scene.a.worker, TMSG_SIDE_SERVER, &interceptor));
    must(tmsg_worker_intercept(scene.b.worker, TMSG_SIDE_CALLER, &interceptor));
    must(tmsg_server_create(scene.a.worker, NULL, &scene.server));
    must(tmsg_server_register_stream(scene.server, "keep", keep, &scene, NULL));
    side_listen_link(&scene.a, LINK_SHM);
    scene.to_a = side_dial(&scene.b, &scene.a);
    for (int i = 0; i < ROUNDS; i++) {
        play(&scene, i % 2 == 0 ? TMSG_SIDE_CALLER : TMSG_SIDE_SERVER);
    }
    tmsg_server_destroy(scene.server);
    side_close(&scene.b);
    side_close(&scene.a);
    return 0;
}
