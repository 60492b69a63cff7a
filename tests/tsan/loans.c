/* SPDX-License-Identifier: BSD-3-Clause */
/* Loans that several threads give back: while the worker sends and receives,
 * when their connection ends, and after their worker's end. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"

enum { BYTES = 100000, ROUNDS = 4, EACH = 60, THREADS = 3 };

typedef struct {
    side_t owner, borrower;
    tmsg_endpoint_t *to_borrower;
    uint8_t *block, *other; /* lent where it lies, and copied */
    uint8_t *mine;          /* what is received into, by this map */
    tmsg_map_t *into;
    atomic_uint taken, releases;
    unsigned sent;
} scene_t;

static void count_release(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

static tmsg_map_t *map_of(uint8_t *memory)
{
    const int64_t shape[] = {BYTES};
    const tmsg_tensor_t tensor = {
        memory, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "x", &tensor, NULL));
    return map;
}

static void lend(scene_t *scene, uint8_t *memory)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_ON_RELEASE,
        .flags = TMSG_SEND_LEND | TMSG_SEND_VERIFY,
        .on_release = count_release,
        .on_release_arg = &scene->releases};
    tmsg_map_t *map = map_of(memory);

    must(tmsg_endpoint_send(scene->to_borrower, map, &params, NULL));
    tmsg_map_destroy(map);
}

/* Takes what comes, reads it, and gives it back. */
static void *take(void *arg)
{
    scene_t *scene = arg;

    while (atomic_load(&scene->taken) < EACH) {
        tmsg_message_t *message;
        tmsg_tensor_t tensor;
        tmsg_status_t status =
            tmsg_worker_recv(scene->borrower.worker, 20, &message);

        if (status == TMSG_ERR_TIMED_OUT) {
            continue;
        }
        must(status);
        must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
        must_eq(((const uint8_t *)tensor.data)[BYTES - 1], 5);
        atomic_fetch_add(&scene->taken, 1);
        tmsg_message_destroy(message);
    }
    return NULL;
}

/* The same, of what is copied into a map, while it arrives or late. */
static void *take_into(void *arg)
{
    scene_t *scene = arg;
    tmsg_endpoint_t *endpoint = scene->borrower.accepted;

    while (atomic_load(&scene->taken) < EACH) {
        tmsg_message_t *message;
        tmsg_status_t status =
            tmsg_endpoint_recv_into(endpoint, scene->into, 20, &message);

        /* BUSY: another thread has taken the message that lies there. */
        if (status == TMSG_ERR_TIMED_OUT || status == TMSG_ERR_BUSY) {
            continue;
        }
        must(status);
        must_eq(scene->mine[BYTES - 1], 5);
        must_true(!tmsg_message_is_lent(message));
        atomic_fetch_add(&scene->taken, 1);
        tmsg_message_destroy(message);
    }
    return NULL;
}

static void *destroy(void *message)
{
    tmsg_message_destroy(message);
    return NULL;
}

static void open_scene(scene_t *scene)
{
    const side_options_t owner = {.drive = DRIVE_THREAD};
    const side_options_t borrower = {
        .drive = DRIVE_THREAD,
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS,
                   .flags = TMSG_WORKER_BORROW}};
    void *block;

    memset(scene, 0, sizeof(*scene));
    must(tmsg_shareable_alloc(BYTES, NULL, &block));
    scene->block = block;
    scene->other = malloc(BYTES);
    scene->mine = calloc(1, BYTES);
    scene->into = map_of(scene->mine);
    memset(scene->block, 5, BYTES);
    memset(scene->other, 5, BYTES);
    side_open(&scene->owner, &owner);
    side_open(&scene->borrower, &borrower);
    side_listen_link(&scene->borrower, LINK_UNIX);
    scene->to_borrower = side_dial(&scene->owner, &scene->borrower);
    (void)side_accept(&scene->borrower);
}

static bool all_released(void *arg)
{
    const scene_t *scene = arg;

    return atomic_load(&scene->releases) == scene->sent;
}

static void play(scene_t *scene)
{
    tmsg_message_t *last[2];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        must_eq(
            pthread_create(&threads[i], NULL, i == 0 ? take_into : take, scene),
            0);
    }
    for (; scene->sent < EACH; scene->sent++) {
        lend(scene, scene->sent % 2 == 0 ? scene->block : scene->other);
    }
    for (int i = 0; i < THREADS; i++) {
        must_eq(pthread_join(threads[i], NULL), 0);
    }
    side_await(&scene->owner, all_released, scene, "all releases");
    must_true(!tmsg_shareable_is_lent(scene->block));

    /* One is given back as the connection ends, one after the worker's end. */
    lend(scene, scene->block);
    lend(scene, scene->other);
    last[0] = side_take(&scene->borrower);
    last[1] = side_take(&scene->borrower);
    must_eq(pthread_create(&threads[0], NULL, destroy, last[0]), 0);
    side_close(&scene->borrower);
    must_eq(pthread_create(&threads[1], NULL, destroy, last[1]), 0);
    side_close(&scene->owner);
    must_eq(pthread_join(threads[0], NULL), 0);
    must_eq(pthread_join(threads[1], NULL), 0);
    must_eq(atomic_load(&scene->releases), EACH + 2);
}

int main(void)
{
    scene_t scene;

    for (int i = 0; i < ROUNDS; i++) {
        open_scene(&scene);
        play(&scene);
        must(tmsg_shareable_free(scene.block));
        free(scene.other);
        tmsg_map_destroy(scene.into);
        free(scene.mine);
    }
    return 0;
}
