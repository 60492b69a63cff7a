/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts among threads: all give a map the same number, and maps that share a
 * layout come and go on each. */
#include <pthread.h>
#include <stdio.h>

#include "core/map.h"
#include "support/must.h"

enum { THREADS = 4, TENSORS = 20, MAPS = 300, ROUNDS = 500 };

typedef struct {
    tmsg_map_t *maps[MAPS]; /* everyone's */
    tmsg_map_t *layout;
    pthread_barrier_t barrier;
} scene_t;

typedef struct {
    scene_t *scene;
    uint64_t stamps[MAPS];
    tmsg_map_t *map; /* its own, of the layout */
} player_t;

static tmsg_map_t *make_map(void)
{
    static uint8_t data[1];
    static const int64_t shape[] = {1};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    for (int i = 0; i < TENSORS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "t%d", i);
        must(tmsg_map_add(map, name, &tensor, NULL));
    }
    return map;
}

static void *play(void *arg)
{
    player_t *player = arg;
    scene_t *scene = player->scene;

    pthread_barrier_wait(&scene->barrier);
    for (int i = 0; i < MAPS; i++) {
        player->stamps[i] = tmsg_map_stamp(scene->maps[i]);
    }
    must(tmsg_map_create(&player->map));
    must(tmsg_map_share(player->map, scene->layout));
    must_eq(tmsg_map_stamp(player->map), tmsg_map_stamp(scene->layout));
    pthread_barrier_wait(&scene->barrier);
    pthread_barrier_wait(&scene->barrier);
    must(tmsg_map_find(player->map, "t7", NULL));
    tmsg_map_destroy(player->map);
    return NULL;
}

static void open_scene(scene_t *scene)
{
    tmsg_map_t *map = make_map();

    must(tmsg_map_copy_layout(map, &scene->layout));
    tmsg_map_destroy(map);
    for (int i = 0; i < MAPS; i++) {
        must(tmsg_map_create(&scene->maps[i]));
    }
    must_eq(pthread_barrier_init(&scene->barrier, NULL, THREADS + 1), 0);
}

static void check_stamps(const scene_t *scene, const player_t *players)
{
    for (int i = 0; i < MAPS; i++) {
        for (int j = 0; j < THREADS; j++) {
            must_eq(players[j].stamps[i], tmsg_map_stamp(scene->maps[i]));
        }
    }
}

static void close_scene(scene_t *scene)
{
    pthread_barrier_destroy(&scene->barrier);
    for (int i = 0; i < MAPS; i++) {
        tmsg_map_destroy(scene->maps[i]);
    }
}

static void play_round(void)
{
    static player_t players[THREADS];
    static scene_t scene;
    pthread_t threads[THREADS];

    open_scene(&scene);
    for (int i = 0; i < THREADS; i++) {
        players[i].scene = &scene;
        must_eq(pthread_create(&threads[i], NULL, play, &players[i]), 0);
    }
    pthread_barrier_wait(&scene.barrier);
    pthread_barrier_wait(&scene.barrier);
    check_stamps(&scene, players);
    tmsg_map_destroy(scene.layout); /* the last of the maps frees it */
    pthread_barrier_wait(&scene.barrier);
    for (int i = 0; i < THREADS; i++) {
        must_eq(pthread_join(threads[i], NULL), 0);
    }
    close_scene(&scene);
}

int main(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        play_round();
    }
    return 0;
}
