/* SPDX-License-Identifier: BSD-3-Clause */
/* Publications that are lent: to all who borrow the same memory, and to the
 * others as before. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/peers.h"

enum { VIEWERS = 3, LENT_BYTES = 1 << 17 };

typedef struct {
    side_t camera, viewers[VIEWERS];
    side_t *sides[1 + VIEWERS];
    tmsg_publisher_t *publisher;
    unsigned count;
} scene_t;

static void until(scene_t *scene, done_fn done, void *arg, const char *what)
{
    await(scene->sides, 1 + scene->count, done, arg, what);
}

static bool all_are_there(void *arg)
{
    scene_t *scene = arg;

    return tmsg_publisher_size(scene->publisher) == scene->count;
}

static void join(scene_t *scene, uint32_t flags)
{
    const side_options_t options = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_FLAGS, .flags = flags}};
    side_t *viewer = &scene->viewers[scene->count++];

    side_open(viewer, &options);
    scene->sides[scene->count] = viewer;
    (void)side_dial(viewer, &scene->camera);
    until(scene, all_are_there, scene, "a subscriber");
}

/* Nothing waits, and nothing is dropped, however many a viewer keeps. */
static void open_camera_keeping(scene_t *scene, uint32_t keep)
{
    const tmsg_subscriber_params_t many = {
        .field_mask = TMSG_SUBSCRIBER_PARAM_WINDOW, .window = 1000};
    const tmsg_publisher_params_t params = {
        .field_mask =
            TMSG_PUBLISHER_PARAM_SUBSCRIBER | TMSG_PUBLISHER_PARAM_KEEP,
        .keep = keep,
        .subscriber = &many};
    tmsg_listener_params_t door = {.field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
                                   .on_accept = tmsg_publisher_accept};
    char url[256];

    memset(scene, 0, sizeof(*scene));
    scene->sides[0] = &scene->camera;
    side_open(&scene->camera, NULL);
    must(tmsg_publisher_create(scene->camera.worker, &params,
                               &scene->publisher));
    door.on_accept_arg = scene->publisher;
    snprintf(url, sizeof(url), "unix://%s", scratch_path("camera"));
    must(tmsg_listener_create(scene->camera.worker, url, &door,
                              &scene->camera.listener));
}

static void open_camera(scene_t *scene) { open_camera_keeping(scene, 0); }

static void close_scene(scene_t *scene)
{
    tmsg_publisher_destroy(scene->publisher);
    for (unsigned i = 0; i < scene->count; i++) {
        side_close(&scene->viewers[i]);
    }
    side_close(&scene->camera);
}

static tmsg_request_t *publish_lent(scene_t *scene, void *memory)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_LEND};
    const int64_t shape[] = {LENT_BYTES};
    const tmsg_tensor_t tensor = {
        memory, {TMSG_DEVICE_CPU, 0}, {TMSG_DTYPE_UINT, 8, 1}, 1, shape, NULL};
    tmsg_request_t *request;
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, NULL));
    must(tmsg_publisher_publish(scene->publisher, map, &params, &request));
    tmsg_map_destroy(map);
    return request;
}

typedef struct {
    side_t *viewer;
    tmsg_message_t *message;
} taking_t;

static bool has_come(void *arg)
{
    taking_t *taking = arg;

    return tmsg_worker_recv(taking->viewer->worker, 0, &taking->message) ==
           TMSG_OK;
}

/* Takes a message of one value from a viewer. */
static tmsg_message_t *take_uniform(scene_t *scene, unsigned viewer,
                                    uint8_t value)
{
    taking_t taking = {.viewer = &scene->viewers[viewer]};
    tmsg_tensor_t tensor;
    const uint8_t *bytes;

    until(scene, has_come, &taking, "a message");
    must(tmsg_map_find(tmsg_message_map(taking.message), "data", &tensor));
    bytes = tensor.data;
    must_eq(bytes[0], value);
    must_true(memcmp(bytes, bytes + 1, LENT_BYTES - 1) == 0);
    return taking.message;
}

static bool request_is_over(void *request)
{
    return tmsg_request_test(request) != TMSG_IN_PROGRESS;
}

static bool is_not_lent(void *memory)
{
    return !tmsg_shareable_is_lent(memory);
}

/* What "key": says in the description of the publisher, or its worker. */
static long figure(scene_t *scene, bool worker, const char *key)
{
    char *json, quoted[64];
    const char *at;
    long value = -1;

    must(worker ? tmsg_worker_describe(scene->camera.worker, &json)
                : tmsg_publisher_describe(scene->publisher, &json));
    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    at = strstr(json, quoted);
    if (at != NULL) {
        value = strtol(at + strlen(quoted), NULL, 10);
    }
    tmsg_string_free(json);
    return value;
}

/* A block is free when the request has ended and every viewer gave it back. */
Test(publisher_loans, lends_blocks_where_they_lie)
{
    tmsg_message_t *messages[VIEWERS];
    static scene_t scene;
    tmsg_request_t *request;
    void *memory;

    open_camera(&scene);
    for (int i = 0; i < VIEWERS; i++) {
        join(&scene, TMSG_WORKER_BORROW);
    }
    must(tmsg_shareable_alloc(LENT_BYTES, NULL, &memory));
    for (uint8_t i = 1; i < 4; i++) {
        memset(memory, i, LENT_BYTES);
        request = publish_lent(&scene, memory);
        for (unsigned j = 0; j < VIEWERS; j++) {
            messages[j] = take_uniform(&scene, j, i);
            cr_expect(tmsg_message_is_lent(messages[j]));
        }
        until(&scene, request_is_over, request, "the end of a publication");
        tmsg_request_destroy(request);
        cr_expect_eq(figure(&scene, false, "lent"), i * VIEWERS);
        cr_expect_eq(figure(&scene, false, "not_lent"), 0);
        cr_expect_eq(figure(&scene, true, "loans"), VIEWERS);
        cr_expect_eq(figure(&scene, true, "loan_copies"), 0);
        for (unsigned j = 0; j < VIEWERS; j++) {
            cr_expect(tmsg_shareable_is_lent(memory));
            tmsg_message_destroy(messages[j]);
        }
        until(&scene, is_not_lent, memory, "the return of a block");
    }
    cr_expect_eq(figure(&scene, true, "loans"), 0);
    close_scene(&scene);
    must(tmsg_shareable_free(memory));
}

/* Who keeps what comes is lent half of the copies at most, and then gets the
 * messages as before. Others are lent all of theirs. */
Test(publisher_loans, lends_others_when_one_keeps_all)
{
    enum { MANY = 70 };
    static tmsg_message_t *kept[MANY];
    uint8_t *memory = malloc(LENT_BYTES);
    unsigned lent[2] = {0};
    static scene_t scene;

    open_camera(&scene);
    join(&scene, TMSG_WORKER_BORROW);
    join(&scene, TMSG_WORKER_BORROW);
    for (uint8_t i = 0; i < MANY; i++) {
        tmsg_message_t *message;
        tmsg_request_t *request;

        memset(memory, i, LENT_BYTES);
        request = publish_lent(&scene, memory);
        kept[i] = take_uniform(&scene, 0, i);
        message = take_uniform(&scene, 1, i);
        lent[0] += (unsigned)tmsg_message_is_lent(kept[i]);
        lent[1] += (unsigned)tmsg_message_is_lent(message);
        tmsg_message_destroy(message);
        until(&scene, request_is_over, request, "the end of a publication");
        tmsg_request_destroy(request);
    }
    cr_expect_eq(lent[0], 32);
    cr_expect_eq(lent[1], MANY);
    cr_expect_eq(figure(&scene, false, "lent"), 32 + MANY);
    cr_expect_eq(figure(&scene, false, "not_lent"), MANY - 32);
    cr_expect(figure(&scene, true, "loan_copies") <= 64);
    cr_expect_eq(figure(&scene, false, "dropped"), 0);
    for (uint8_t i = 0; i < MANY; i++) {
        tmsg_tensor_t tensor;

        must(tmsg_map_find(tmsg_message_map(kept[i]), "data", &tensor));
        cr_expect_eq(((const uint8_t *)tensor.data)[LENT_BYTES - 1], i);
    }
    for (uint8_t i = 0; i < MANY; i++) {
        tmsg_message_destroy(kept[i]);
    }
    close_scene(&scene);
    free(memory);
}

/* Who does not borrow, or is on another machine's way, gets copies beside those
 * who are lent the map; the publisher says why. */
Test(publisher_loans, lends_to_those_who_borrow)
{
    uint8_t *memory = malloc(LENT_BYTES);
    tmsg_message_t *messages[2];
    tmsg_request_t *request;
    static scene_t scene;

    open_camera(&scene);
    join(&scene, TMSG_WORKER_BORROW);
    join(&scene, 0);
    memset(memory, 5, LENT_BYTES);
    request = publish_lent(&scene, memory);
    for (unsigned i = 0; i < 2; i++) {
        messages[i] = take_uniform(&scene, i, 5);
        cr_expect_eq(tmsg_message_is_lent(messages[i]), i == 0);
        tmsg_message_destroy(messages[i]);
    }
    until(&scene, request_is_over, request, "the end of a publication");
    tmsg_request_destroy(request);
    cr_expect_eq(figure(&scene, false, "lent"), 1);
    cr_expect_eq(figure(&scene, false, "not_lent"), 1);
    close_scene(&scene);
    free(memory);
}

/* What is kept for newcomers takes no copies meanwhile. They are lent it, too.
 */
Test(publisher_loans, lends_what_it_keeps_for_newcomers)
{
    enum { MANY = 70 };
    static uint8_t memories[MANY][LENT_BYTES];
    static scene_t scene;
    unsigned lent = 0;

    open_camera_keeping(&scene, MANY);
    join(&scene, TMSG_WORKER_BORROW);
    for (uint8_t i = 0; i < MANY; i++) {
        tmsg_message_t *message;

        memset(memories[i], i, LENT_BYTES);
        tmsg_request_destroy(publish_lent(&scene, memories[i]));
        message = take_uniform(&scene, 0, i);
        lent += (unsigned)tmsg_message_is_lent(message);
        tmsg_message_destroy(message);
    }
    cr_expect_eq(lent, MANY);
    join(&scene, TMSG_WORKER_BORROW);
    for (uint8_t i = 0; i < MANY; i++) {
        tmsg_message_t *message = take_uniform(&scene, 1, i);

        cr_expect(tmsg_message_is_lent(message));
        tmsg_message_destroy(message);
    }
    close_scene(&scene);
}
