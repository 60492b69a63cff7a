/* SPDX-License-Identifier: BSD-3-Clause */
/* Replies that are received into memory of the caller's, in a loop. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

#define LARGE 3000000

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    tmsg_task_t *task;     /* that was kept */
    tmsg_map_t *out;       /* of "give" */
} scene_t;

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void give(void *arg, tmsg_task_t *task)
{
    must(tmsg_task_reply(task, ((scene_t *)arg)->out, NULL));
}

static void fail(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_fail(task, TMSG_ERR_APPLICATION, 1, "so",
                        tmsg_task_map(task)));
}

static void keep(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->task = tmsg_task_keep(task);
}

static void open_scene(scene_t *scene, link_t link, drive_t drive)
{
    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, link, drive, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, NULL, NULL));
    must(tmsg_server_register(scene->server, "give", give, scene, NULL));
    must(tmsg_server_register(scene->server, "fail", fail, NULL, NULL));
    must(tmsg_server_register(scene->server, "keep", keep, scene, NULL));
}

static void close_scene(scene_t *scene)
{
    tmsg_map_destroy(scene->out);
    tmsg_server_destroy(scene->server);
    pair_close(&scene->pair);
}

/* What sample_bytes() calls its tensor. */
static const char *data_name(void)
{
    static char kept[64];
    tmsg_map_t *map = sample_bytes(0, 1);
    const char *name;
    tmsg_tensor_t tensor;

    must(tmsg_map_at(map, 0, &name, &tensor));
    snprintf(kept, sizeof(kept), "%s", name);
    tmsg_map_destroy(map);
    return kept;
}

/* A map of one tensor of bytes; it owns them. */
static tmsg_map_t *memory(const char *name, size_t bytes, uint8_t **data_p)
{
    uint8_t *data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    const int64_t shape[] = {(int64_t)bytes};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = free,
                                          .release_arg = data};
    tmsg_map_t *map;

    must_true(data != NULL);
    memset(data, 0xee, bytes);
    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, name, &tensor, &params));
    *data_p = data;
    return map;
}

static tmsg_status_t begin(scene_t *scene, const char *method, uint64_t seed,
                           size_t bytes, const tmsg_map_t *into,
                           tmsg_call_t **call_p)
{
    const tmsg_call_params_t params = {.field_mask = TMSG_CALL_PARAM_REPLY_INTO,
                                       .reply_into = into};
    tmsg_map_t *map = sample_bytes(seed, bytes);
    tmsg_status_t status =
        tmsg_endpoint_call(scene->pair.to_a, method, map, &params, call_p);

    tmsg_map_destroy(map);
    return status;
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static tmsg_call_t *call(scene_t *scene, const char *method, uint64_t seed,
                         size_t bytes, const tmsg_map_t *into)
{
    tmsg_call_t *made;

    must(begin(scene, method, seed, bytes, into, &made));
    pair_await(&scene->pair, has_ended, made, "the end of a call");
    return made;
}

static void loop(link_t link, drive_t drive)
{
    static const size_t sizes[] = {1, 64, 5000, 70000, 300000, LARGE};
    scene_t scene;

    open_scene(&scene, link, drive);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        uint8_t *data;
        tmsg_map_t *into = memory(data_name(), sizes[i], &data);

        for (uint64_t seed = 0; seed < 4; seed++) {
            tmsg_call_t *made = call(&scene, "echo", seed, sizes[i], into);
            tmsg_tensor_t tensor;

            must_be(tmsg_call_status(made), TMSG_OK);
            must(tmsg_map_at(tmsg_call_reply(made), 0, NULL, &tensor));
            must_true(tensor.data == data);
            must_eq(sample_compare(seed, data, sizes[i]), sizes[i]);
            tmsg_call_destroy(made); /* and so it is free again */
        }
        tmsg_map_destroy(into);
    }
    close_scene(&scene);
}

Test(reply_into, again_and_again_over_shared_memory)
{
    loop(LINK_SHM, DRIVE_POLLING);
}

Test(reply_into, again_and_again_over_tcp) { loop(LINK_TCP, DRIVE_FD); }

Test(reply_into, again_and_again_by_threads) { loop(LINK_UNIX, DRIVE_THREAD); }

Test(reply_into, takes_what_has_its_names_and_leaves_the_rest)
{
    scene_t scene;
    uint8_t *data, *other, zero = 7;
    const int64_t shape[] = {5}, strides[] = {0};
    const tmsg_tensor_t broadcast = {
        &zero,  {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape,
        strides};
    tmsg_map_t *into, *more;
    tmsg_call_t *made;
    tmsg_tensor_t tensor;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    into = memory(data_name(), 5, &data);
    scene.out = sample_bytes(3, 100);
    must(tmsg_map_add(scene.out, "more", &broadcast, NULL));
    more = memory("more", 5, &other);
    made = call(&scene, "give", 0, 10, more);
    must_be(tmsg_call_status(made), TMSG_OK);
    must(tmsg_map_find(tmsg_call_reply(made), "more", &tensor));
    must_true(tensor.data == other);
    must_eq(memcmp(other, "\7\7\7\7\7", 5), 0);
    must(tmsg_map_find(tmsg_call_reply(made), data_name(), &tensor));
    must_eq(sample_compare(3, tensor.data, 100), 100);
    tmsg_call_destroy(made);

    made = call(&scene, "give", 0, 10, into);
    must_be(tmsg_call_status(made), TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_call_error(made), data_name());
    must_say(tmsg_call_error(made),
             "uint8[100], the map to receive into has uint8[5]");
    must_true(tmsg_call_may_have_run(made));
    must_true(tmsg_call_reply(made) == NULL);
    tmsg_call_destroy(made);
    must_eq(data[0], 0xee);
    tmsg_map_destroy(into);
    tmsg_map_destroy(more);
    close_scene(&scene);
}

Test(reply_into, is_not_for_the_details_of_a_failure)
{
    scene_t scene;
    uint8_t *data;
    tmsg_map_t *into;
    tmsg_call_t *made;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    into = memory(data_name(), 100, &data);
    made = call(&scene, "fail", 1, 100, into);
    must_be(tmsg_call_status(made), TMSG_ERR_APPLICATION);
    sample_check_bytes(1, 100, tmsg_call_reply(made));
    must_eq(data[0], 0xee);
    tmsg_call_destroy(made);
    tmsg_map_destroy(into);
    close_scene(&scene);
}

static bool is_kept(void *arg) { return ((scene_t *)arg)->task != NULL; }

Test(reply_into, lends_a_map_to_one_call_at_a_time)
{
    scene_t scene;
    uint8_t *data;
    tmsg_map_t *into;
    tmsg_call_t *made, *second = NULL;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    into = memory(data_name(), LARGE, &data);
    must(begin(&scene, "keep", 1, LARGE, into, &made));
    must_be(begin(&scene, "echo", 1, LARGE, into, &second), TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "a call has it until it is destroyed");
    must_true(second == NULL);
    must_be(tmsg_map_clear(into), TMSG_ERR_BUSY);
    pair_await(&scene.pair, is_kept, &scene, "a task");
    tmsg_call_cancel(made); /* its reply comes to nobody */
    (void)tmsg_task_reply(scene.task, tmsg_task_map(scene.task), NULL);
    tmsg_task_destroy(scene.task);
    second = call(&scene, "echo", 2, LARGE, into);
    must_be(tmsg_call_status(second), TMSG_OK);
    must_eq(sample_compare(2, data, LARGE), LARGE);
    must_be(tmsg_call_status(made), TMSG_ERR_CANCELED);
    tmsg_call_destroy(made);
    tmsg_call_destroy(second);
    must(tmsg_map_clear(into));
    tmsg_map_destroy(into);
    close_scene(&scene);
}

static void released(void *arg) { ++*(unsigned *)arg; }

Test(reply_into, gives_memory_back_whose_map_was_destroyed)
{
    static uint8_t data[5000];
    const int64_t shape[] = {sizeof(data)};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    unsigned releases = 0;
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = released,
                                          .release_arg = &releases};
    tmsg_call_t *made;
    tmsg_map_t *into;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    must(tmsg_map_create(&into));
    must(tmsg_map_add(into, data_name(), &tensor, &params));
    must(begin(&scene, "echo", 1, sizeof(data), into, &made));
    tmsg_map_destroy(into);
    must_eq(releases, 0);
    pair_await(&scene.pair, has_ended, made, "the end of a call");
    must_be(tmsg_call_status(made), TMSG_OK);
    must_eq(sample_compare(1, data, sizeof(data)), sizeof(data));
    must_eq(releases, 0);
    tmsg_call_destroy(made);
    must_eq(releases, 1);
    close_scene(&scene);
}

Test(reply_into, refuses_what_cannot_be_received_into)
{
    uint8_t data[8];
    const int64_t shape[] = {4}, strides[] = {2};
    const tmsg_tensor_t tensor = {
        data, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, strides};
    tmsg_call_t *made = NULL;
    tmsg_map_t *into;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING);
    must(tmsg_map_create(&into));
    must(tmsg_map_add(into, "data", &tensor, NULL));
    must_be(begin(&scene, "echo", 1, 4, into, &made), TMSG_ERR_UNSUPPORTED);
    must_say(tmsg_error_message(), "tensor 'data'");
    must_true(made == NULL);
    tmsg_map_destroy(into);
    close_scene(&scene);
}
