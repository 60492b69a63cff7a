/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A publisher with subscribers whose connections break and come back: each
 * meets its own policy while it is away, and no other waits for it. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define MAPS 60
#define WAITING 4

/* a publishes, b's connection breaks, c's does not. */
typedef struct {
    joined_t joined;
    side_t c;
    side_t *sides[3];
    tmsg_endpoint_t *c_to_a;
    tmsg_publisher_t *publisher;
    tmsg_request_t *requests[MAPS];
    unsigned published, b_got, c_got;
    int64_t b_latest;
    unsigned next_cut;
    unsigned cut_count;
    bool cuts;
} scene_t;

static bool is_full(void *arg)
{
    const scene_t *scene = arg;

    return tmsg_endpoint_status(scene->c_to_a) == TMSG_OK &&
           scene->joined.pair.a.accepts == 2;
}

static void open_scene(scene_t *scene, link_t link, int32_t slow)
{
    const how_t how = {.link = link};
    const side_options_t c = {.ucx_config = link_config(link)};
    const tmsg_subscriber_params_t usual = {
        .field_mask = TMSG_SUBSCRIBER_PARAM_MESSAGES, .messages = MAPS};
    const tmsg_subscriber_params_t few = {
        .field_mask = TMSG_SUBSCRIBER_PARAM_MESSAGES |
                      TMSG_SUBSCRIBER_PARAM_SLOW | TMSG_SUBSCRIBER_PARAM_WINDOW,
        .messages = WAITING,
        .window = 3,
        .slow = slow};
    pair_t *pair = &scene->joined.pair;

    memset(scene, 0, sizeof(*scene));
    scene->b_latest = -1;
    joined_open(&scene->joined, &how);
    side_open(&scene->c, &c);
    must(tmsg_endpoint_connect(scene->c.worker,
                               tmsg_listener_url(pair->a.listener), NULL,
                               &scene->c_to_a));
    scene->sides[0] = &pair->a;
    scene->sides[1] = &pair->b;
    scene->sides[2] = &scene->c;
    await(scene->sides, 3, is_full, scene, "two subscribers");
    must(tmsg_publisher_create(pair->a.worker, NULL, &scene->publisher));
    must(tmsg_publisher_add(scene->publisher, pair->to_b, &few));
    must(tmsg_publisher_add(scene->publisher, pair->a.accepted, &usual));
}

static void close_scene(scene_t *scene)
{
    for (unsigned i = 0; i < scene->published; i++) {
        tmsg_request_destroy(scene->requests[i]);
    }
    tmsg_publisher_destroy(scene->publisher);
    side_close(&scene->c);
    joined_drop(&scene->joined);
}

static size_t size_of(unsigned i)
{
    return i % 5 == 4 ? 400000 : i % 3 == 2 ? 20000 : 100;
}

static void publish(scene_t *scene)
{
    const tmsg_send_params_t params = {
        .field_mask = TMSG_SEND_PARAM_FLAGS,
        .flags = scene->published % 2 ? TMSG_SEND_VERIFY : 0};
    unsigned i = scene->published;
    tmsg_map_t *map = sample_bytes(i, size_of(i));

    must(tmsg_publisher_publish(scene->publisher, map, &params,
                                &scene->requests[i]));
    tmsg_map_destroy(map);
    scene->published++;
}

static unsigned check(const tmsg_message_t *message)
{
    const tmsg_map_t *map = tmsg_message_map(message);
    int64_t i;

    must(tmsg_map_get_i64(map, TMSG_META_SEQUENCE, &i));
    must_true(i >= 0 && i < MAPS);
    sample_check_bytes((uint64_t)i, size_of((unsigned)i), map);
    return (unsigned)i;
}

static void take(scene_t *scene)
{
    tmsg_message_t *message;

    while (tmsg_worker_recv(scene->c.worker, 0, &message) == TMSG_OK) {
        must_eq(check(message), scene->c_got++);
        tmsg_message_destroy(message);
    }
    while (tmsg_worker_recv(scene->joined.pair.b.worker, 0, &message) ==
           TMSG_OK) {
        int64_t i = check(message);

        must_true(i > scene->b_latest);
        scene->b_latest = i;
        scene->b_got++;
        tmsg_message_destroy(message);
    }
}

static bool are_done(void *arg)
{
    scene_t *scene = arg;

    take(scene);
    for (unsigned i = 0; i < scene->published; i++) {
        if (tmsg_request_test(scene->requests[i]) == TMSG_IN_PROGRESS) {
            return false;
        }
    }
    return true;
}

/* Over shared memory maps may come after a cut, before anybody has seen it. */
static bool is_healed(const scene_t *scene)
{
    return described(scene->joined.pair.to_a, "reconnected") >=
           (long)scene->cut_count;
}

/* c is never more than a few behind, wherever b is. */
static bool is_published(void *arg)
{
    scene_t *scene = arg;

    take(scene);
    if (scene->cuts && scene->published >= scene->next_cut) {
        if (!is_healed(scene)) {
            return false;
        }
        relay_cut(scene->joined.relay);
        scene->cut_count++;
        scene->next_cut += 15;
    }
    if (scene->published < MAPS && scene->published < scene->c_got + 3 &&
        (!scene->cuts || scene->published < scene->b_latest + 15)) {
        publish(scene);
    }
    return scene->c_got == MAPS;
}

static long counted(const scene_t *scene, const char *name)
{
    char *json, key[32];
    const char *at;
    long value;

    snprintf(key, sizeof(key), "\"%s\":", name);
    must(tmsg_publisher_describe(scene->publisher, &json));
    at = strstr(json, key);
    must_true(at != NULL);
    value = strtol(at + strlen(key), NULL, 10);
    tmsg_string_free(json);
    return value;
}

static void finish(scene_t *scene)
{
    await(scene->sides, 3, is_published, scene, "all maps at c");
}

static void settle(scene_t *scene)
{
    await(scene->sides, 3, are_done, scene, "the end of all");
    for (unsigned i = 0; i < MAPS; i++) {
        must_be(tmsg_request_test(scene->requests[i]), TMSG_OK);
    }
}

static void check_counts(const scene_t *scene)
{
    cr_expect(eq(long, counted(scene, "failed"), 0));
    cr_expect(eq(long, counted(scene, "delivered"), MAPS + (long)scene->b_got));
    cr_expect(eq(long, counted(scene, "dropped"), MAPS - (long)scene->b_got));
}

static void check_cuts(link_t link)
{
    scene_t scene;

    open_scene(&scene, link, TMSG_SLOW_DROP_OLDEST);
    scene.cuts = true;
    scene.next_cut = 5;
    finish(&scene);
    settle(&scene);
    cr_expect(eq(i64, scene.b_latest, MAPS - 1));
    cr_expect(ge(uint, scene.b_got, 5));
    cr_expect(ge(long, described(scene.joined.pair.to_a, "reconnected"), 3));
    check_counts(&scene);
    close_scene(&scene);
}

Test(reconnect, subscribers_come_back_by_tcp) { check_cuts(LINK_TCP); }
Test(reconnect, subscribers_come_back_by_shared_memory)
{
    check_cuts(LINK_SHM);
}

/* Of what is published while it is away, it gets as many as may wait. */
static void check_away(int32_t slow, int64_t latest)
{
    scene_t scene;

    open_scene(&scene, LINK_TCP, slow);
    joined_break(&scene.joined);
    finish(&scene);
    joined_mend(&scene.joined);
    settle(&scene);
    cr_expect(eq(uint, scene.b_got, WAITING));
    cr_expect(eq(i64, scene.b_latest, latest));
    check_counts(&scene);
    close_scene(&scene);
}

Test(reconnect, subscribers_that_are_away_keep_the_newest)
{
    check_away(TMSG_SLOW_DROP_OLDEST, MAPS - 1);
}
Test(reconnect, subscribers_that_are_away_keep_the_oldest)
{
    check_away(TMSG_SLOW_DROP_NEWEST, WAITING - 1);
}

/* One that may not be slow has ended when it comes back. */
Test(reconnect, subscribers_that_are_away_may_be_given_up)
{
    scene_t scene;
    pair_t *pair = &scene.joined.pair;

    open_scene(&scene, LINK_TCP, TMSG_SLOW_DISCONNECT);
    joined_break(&scene.joined);
    finish(&scene);
    must_say(tmsg_endpoint_error(pair->to_b), "too slow");
    relay_shut(scene.joined.relay, false);
    must_be(pair_end_of(pair, pair->to_a), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(pair->to_a), "this session has ended");
    settle(&scene);
    cr_expect(eq(uint, scene.b_got, 0));
    close_scene(&scene);
}
