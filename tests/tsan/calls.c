/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends of one call at the same time, every pair of them: its answer, a
 * cancel, its deadline, the end of the server, the end of the connection. Each
 * call ends once, each handler that kept its task learns why no answer is
 * wanted, and nothing is left behind. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "rpc/server.h"
#include "support/peers.h"
#include "support/sample.h"
#include "support/whole.h"

typedef enum { REPLY, CANCEL, DEADLINE, DRAIN, DISCONNECT, ENDS } end_t;

static const char *const names[] = {"reply", "cancel", "deadline", "drain",
                                    "disconnect"};

enum { OPEN, TAKEN, SHUT }; /* whether its handler may keep the task */

typedef struct {
    struct scene *scene;
    tmsg_task_t *task;
    tmsg_call_t *call;
    atomic_int state;
    atomic_uint ends, overs, answers, releases;
} round_t;

typedef struct scene {
    side_t a, b; /* a serves */
    tmsg_server_t *server;
    tmsg_endpoint_t *to_a, *to_b;
    round_t *rounds;
    round_t *now;
    end_t other; /* what the second thread does */
    pthread_barrier_t begin, end;
    atomic_bool stop;
} scene_t;

static void on_over(void *arg, tmsg_task_t *task, tmsg_status_t status)
{
    must_be(tmsg_task_status(task), status);
    atomic_fetch_add(&((round_t *)arg)->overs, 1);
}

static void keep(void *arg, tmsg_task_t *task)
{
    scene_t *scene = arg;
    round_t *round;
    int64_t index;
    int open = OPEN;

    must(tmsg_map_get_i64(tmsg_task_map(task), "round", &index));
    round = &scene->rounds[index];
    tmsg_task_on_over(task, on_over, round);
    round->task = tmsg_task_keep(task);
    if (!atomic_compare_exchange_strong(&round->state, &open, TAKEN)) {
        tmsg_task_destroy(task); /* it is over at its caller */
    }
}

static void on_done(void *arg, tmsg_call_t *call)
{
    must_true(tmsg_call_status(call) != TMSG_IN_PROGRESS);
    atomic_fetch_add(&((round_t *)arg)->ends, 1);
}

static void on_release(void *arg)
{
    atomic_fetch_add(&((round_t *)arg)->releases, 1);
}

static void reply(round_t *round)
{
    if (tmsg_task_reply(round->task, tmsg_task_map(round->task), NULL) ==
        TMSG_OK) {
        atomic_fetch_add(&round->answers, 1);
    }
}

static void act(scene_t *scene, end_t end)
{
    switch (end) {
    case REPLY:
        reply(scene->now);
        break;
    case CANCEL:
        tmsg_call_cancel(scene->now->call);
        break;
    case DRAIN:
        (void)tmsg_server_drain(scene->server, 0);
        break;
    case DISCONNECT:
        must(tmsg_endpoint_abort(scene->to_b, TMSG_ERR_PEER_LOST, "so"));
        break;
    default:
        break; /* comes by itself */
    }
}

static void *second(void *arg)
{
    scene_t *scene = arg;

    for (;;) {
        pthread_barrier_wait(&scene->begin);
        if (atomic_load(&scene->stop)) {
            return NULL;
        }
        act(scene, scene->other);
        pthread_barrier_wait(&scene->end);
    }
}

static bool has_ended(void *arg)
{
    round_t *round = arg;

    return atomic_load(&round->ends) > 0 && atomic_load(&round->releases) > 0;
}

static bool has_task(void *arg)
{
    round_t *round = arg;

    return atomic_load(&round->state) == TAKEN || has_ended(arg);
}

static bool is_over(void *arg)
{
    return tmsg_task_status(((round_t *)arg)->task) != TMSG_OK;
}

static bool is_empty(void *arg)
{
    scene_t *scene = arg;
    bool empty;

    tmsg_hub_lock(scene->server->hub);
    empty = scene->server->load.inside == 0 && scene->server->load.running == 0;
    tmsg_hub_unlock(scene->server->hub);
    return empty;
}

static void call(scene_t *scene, size_t index, int32_t timeout_ms)
{
    round_t *round = &scene->rounds[index];
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_TIMEOUT |
                                                     TMSG_CALL_PARAM_ON_DONE |
                                                     TMSG_CALL_PARAM_ON_RELEASE,
                                       .timeout_ms = timeout_ms,
                                       .on_done = on_done,
                                       .on_done_arg = round,
                                       .on_release = on_release,
                                       .on_release_arg = round};
    tmsg_map_t *map = sample_bytes(index, index % 2 == 0 ? 100 : 50000);

    must(tmsg_map_set_i64(map, "round", (int64_t)index));
    must(tmsg_endpoint_call(scene->to_a, "keep", map, &params, &round->call));
    tmsg_map_destroy(map);
}

/* Both at once. */
static void meet(scene_t *scene, end_t first)
{
    round_t *round = scene->now;

    pthread_barrier_wait(&scene->begin);
    act(scene, first);
    pthread_barrier_wait(&scene->end);
    side_await(&scene->a, is_over, round, "the end of a task");
    /* An answer may find that the connection is gone. */
    must_true((tmsg_task_status(round->task) == TMSG_ERR_ALREADY_EXISTS) ==
                  (round->answers == 1) ||
              scene->other == DISCONNECT);
    must_true(tmsg_task_reply(round->task, NULL, NULL) != TMSG_OK);
    tmsg_task_destroy(round->task);
}

static void race(scene_t *scene, size_t index, end_t first, end_t other)
{
    round_t *round = &scene->rounds[index];
    bool timed = first == DEADLINE || other == DEADLINE;
    int open = OPEN;

    scene->now = round;
    scene->other = other;
    call(scene, index, timed ? 1 + (int)(index % 5) : 60000);
    side_await(&scene->b, has_task, round, "a task");
    if (!atomic_compare_exchange_strong(&round->state, &open, SHUT)) {
        meet(scene, first);
    }
    side_await(&scene->b, has_ended, round, "the end of a call");
    must_true(round->answers + round->overs <= 1);
    tmsg_call_destroy(round->call);
}

static void serve(scene_t *scene)
{
    must(tmsg_server_create(scene->a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "keep", keep, scene, NULL));
}

static void unserve(scene_t *scene)
{
    side_await(&scene->a, is_empty, scene, "the end of all tasks");
    tmsg_server_destroy(scene->server);
}

static void join(scene_t *scene)
{
    scene->to_a = side_dial(&scene->b, &scene->a);
    scene->to_b = side_accept(&scene->a);
}

static void part(scene_t *scene)
{
    tmsg_endpoint_destroy(scene->to_a);
    tmsg_endpoint_destroy(scene->to_b);
}

static void race_pair(scene_t *scene, end_t first, end_t other, size_t count)
{
    unsigned long answers = 0, overs = 0;

    scene->rounds = calloc(count, sizeof(*scene->rounds));
    join(scene);
    serve(scene);
    for (size_t i = 0; i < count; i++) {
        race(scene, i, first, other);
        if (first == DRAIN || other == DRAIN) {
            unserve(scene);
            serve(scene);
        }
        if (other == DISCONNECT) {
            part(scene);
            join(scene);
        }
    }
    unserve(scene);
    part(scene);
    for (size_t i = 0; i < count; i++) {
        must_eq(scene->rounds[i].ends, 1);
        must_eq(scene->rounds[i].releases, 1);
        answers += scene->rounds[i].answers;
        overs += scene->rounds[i].overs;
    }
    fprintf(stderr,
            "%s and %s: %zu rounds, %lu answers taken, %lu handlers told\n",
            names[first], names[other], count, answers, overs);
    free(scene->rounds);
}

int main(void)
{
    const side_options_t shared = {.drive = DRIVE_THREAD};
    size_t many = whole_run() ? 100000 : 1000;
    size_t few = whole_run() ? 1000 : 10;
    scene_t scene = {0};
    pthread_t thread;

    pthread_barrier_init(&scene.begin, NULL, 2);
    pthread_barrier_init(&scene.end, NULL, 2);
    side_open(&scene.a, &shared);
    side_open(&scene.b, &shared);
    side_listen(&scene.a, "tcp://127.0.0.1:0");
    must_eq(pthread_create(&thread, NULL, second, &scene), 0);
    for (end_t first = REPLY; first < ENDS; first++) {
        for (end_t other = first + 1; other < ENDS; other++) {
            race_pair(&scene, first, other, other == DISCONNECT ? few : many);
        }
    }
    atomic_store(&scene.stop, true);
    pthread_barrier_wait(&scene.begin);
    pthread_join(thread, NULL);
    side_close(&scene.b);
    side_close(&scene.a);
    pthread_barrier_destroy(&scene.begin);
    pthread_barrier_destroy(&scene.end);
    return 0;
}
