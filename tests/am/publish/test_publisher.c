/* SPDX-License-Identifier: BSD-3-Clause */
/* One map to many peers: all get all, but who is slow, leaves or dies. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "am/endpoint/measures.h"
#include "am/send/shared_plan.h"
#include "core/map.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { VIEWERS = 3, BYTES = 1000 };

typedef struct {
    side_t camera;
    tmsg_publisher_t *publisher;
    side_t viewers[VIEWERS];
    tmsg_endpoint_t *to[VIEWERS]; /* the viewers' */
    unsigned count;
    uint64_t next; /* seed of the next map */
} scene_t;

static void turn(scene_t *scene)
{
    tmsg_worker_progress(scene->camera.worker);
    for (unsigned i = 0; i < scene->count; i++) {
        tmsg_worker_progress(scene->viewers[i].worker);
    }
}

/* Drives all of the scene's until done(arg). */
static void until(scene_t *scene, done_fn done, void *arg, const char *what)
{
    struct timespec now, start;

    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!done(arg)) {
        turn(scene);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > PEERS_BOUND_MS / 1000) {
            die("%s did not happen", what);
        }
    }
}

static void open_camera(scene_t *scene, link_t link,
                        const tmsg_publisher_params_t *params)
{
    const side_options_t options = {.ucx_config = link_config(link)};
    tmsg_listener_params_t door = {.field_mask = TMSG_LISTENER_PARAM_ON_ACCEPT,
                                   .on_accept = tmsg_publisher_accept};
    char url[256] = "tcp://127.0.0.1:0";

    memset(scene, 0, sizeof(*scene));
    side_open(&scene->camera, &options);
    must(
        tmsg_publisher_create(scene->camera.worker, params, &scene->publisher));
    door.on_accept_arg = scene->publisher;
    if (link == LINK_UNIX) {
        snprintf(url, sizeof(url), "unix://%s", scratch_path("camera"));
    } else if (link == LINK_BLOB) {
        snprintf(url, sizeof(url), "blob://");
    }
    must(tmsg_listener_create(scene->camera.worker, url, &door,
                              &scene->camera.listener));
}

typedef struct {
    scene_t *scene;
    size_t wanted;
} size_wait_t;

static bool has_size(void *arg)
{
    const size_wait_t *wait = arg;

    return tmsg_publisher_size(wait->scene->publisher) == wait->wanted;
}

static void await_size(scene_t *scene, size_t wanted)
{
    size_wait_t wait = {scene, wanted};

    until(scene, has_size, &wait, "so many subscribers");
}

static bool is_ready(void *arg) { return tmsg_endpoint_status(arg) == TMSG_OK; }

static void dial(scene_t *scene, unsigned i, uint32_t subscribe)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_SUBSCRIBE, .subscribe = subscribe};
    const tmsg_listener_t *listener = scene->camera.listener;
    const void *blob;
    size_t bytes;

    if (strncmp(tmsg_listener_url(listener), "blob", 4) == 0) {
        must(tmsg_listener_blob(listener, &blob, &bytes));
        must(tmsg_endpoint_connect_blob(scene->viewers[i].worker, blob, bytes,
                                        &params, &scene->to[i]));
    } else {
        must(tmsg_endpoint_connect(scene->viewers[i].worker,
                                   tmsg_listener_url(listener), &params,
                                   &scene->to[i]));
    }
    until(scene, is_ready, scene->to[i], "a connection");
}

static void join(scene_t *scene, uint32_t subscribe)
{
    const side_options_t options = {.ucx_config = "TLS=posix,cma,tcp,self"};
    unsigned i = scene->count++;
    size_t size = tmsg_publisher_size(scene->publisher);

    side_open(&scene->viewers[i], &options);
    dial(scene, i, subscribe);
    await_size(scene, size + 1);
}

static void open_scene(scene_t *scene, link_t link, unsigned viewers,
                       const tmsg_publisher_params_t *params)
{
    open_camera(scene, link, params);
    for (unsigned i = 0; i < viewers; i++) {
        join(scene, 0);
    }
}

static void close_scene(scene_t *scene)
{
    tmsg_publisher_destroy(scene->publisher);
    for (unsigned i = 0; i < scene->count; i++) {
        side_close(&scene->viewers[i]);
    }
    side_close(&scene->camera);
}

static void publish(scene_t *scene)
{
    tmsg_map_t *map = sample_bytes(scene->next++, BYTES);

    must(tmsg_publisher_publish(scene->publisher, map, NULL, NULL));
    tmsg_map_destroy(map);
}

typedef struct {
    tmsg_worker_t *worker;
    tmsg_message_t *message;
} take_t;

static bool has_taken(void *arg)
{
    take_t *take = arg;

    return tmsg_worker_recv(take->worker, 0, &take->message) == TMSG_OK;
}

/* The next map that a viewer gets must be this one. */
static void expect_map(scene_t *scene, unsigned viewer, uint64_t seed)
{
    take_t take = {scene->viewers[viewer].worker, NULL};

    until(scene, has_taken, &take, "a map");
    sample_check_bytes(seed, BYTES, tmsg_message_map(take.message));
    tmsg_message_destroy(take.message);
}

static void squeeze(char *text)
{
    char *to = text;

    for (; *text != '\0'; text++) {
        if (strchr(" \t\n", *text) == NULL) {
            *to++ = *text;
        }
    }
    *to = '\0';
}

/* Whether the publisher's description has a text, but for white space. */
typedef struct {
    scene_t *scene;
    const char *text;
} text_wait_t;

static bool says(void *arg)
{
    const text_wait_t *wait = arg;
    char *json;
    bool found;

    must(tmsg_publisher_describe(wait->scene->publisher, &json));
    squeeze(json);
    found = strstr(json, wait->text) != NULL;
    tmsg_string_free(json);
    return found;
}

static void await_says(scene_t *scene, const char *text)
{
    text_wait_t wait = {scene, text};

    until(scene, says, &wait, text);
}

static void all_get_all(link_t link)
{
    scene_t scene;

    open_scene(&scene, link, VIEWERS, NULL);
    for (uint64_t i = 0; i < 20; i++) {
        publish(&scene);
        for (unsigned j = 0; j < VIEWERS; j++) {
            expect_map(&scene, j, i);
        }
    }
    await_says(&scene, "\"published\":20,\"kept\":0,\"delivered\":60,"
                       "\"dropped\":0,\"failed\":0");
    close_scene(&scene);
}

Test(publisher, all_get_all_tcp) { all_get_all(LINK_TCP); }
Test(publisher, all_get_all_unix) { all_get_all(LINK_UNIX); }
Test(publisher, all_get_all_blob) { all_get_all(LINK_BLOB); }

/* Of every shape and type, with checksums. */
Test(publisher, samples_arrive_as_they_are)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_VERIFY};
    scene_t scene;

    open_scene(&scene, LINK_SHM, VIEWERS, NULL);
    for (uint64_t i = 0; i < 12; i++) {
        const sample_t sample = {.seed = i,
                                 .tensors = 1 + 7 * (i % 4),
                                 .elements = i < 6 ? 0 : 9000};
        tmsg_map_t *map = sample_make(&sample);

        must(tmsg_publisher_publish(scene.publisher, map, &params, NULL));
        tmsg_map_destroy(map);
        for (unsigned j = 0; j < VIEWERS; j++) {
            take_t take = {scene.viewers[j].worker, NULL};

            until(&scene, has_taken, &take, "a map");
            sample_check(&sample, tmsg_message_map(take.message));
            tmsg_message_destroy(take.message);
        }
    }
    await_says(&scene, "\"failed\":0");
    close_scene(&scene);
}

/* The payload and its checksums are made once. */
Test(publisher, sends_share_their_payload)
{
    const sample_t sample = {.seed = 4, .tensors = 30, .elements = 100};
    tmsg_map_t *map = sample_make(&sample);
    tmsg_shared_plan_t *shared_plan = tmsg_shared_plan_create();
    tmsg_measures_t measures;
    tmsg_pool_t pool;
    const void *first = NULL;

    tmsg_pool_init(&pool, 1 << 20, 0);
    must(tmsg_plan_measure(map, UINT64_MAX, 0, &measures));
    for (int i = 0; i < 4; i++) { /* the last one goes another way */
        tmsg_body_extra_t extra = {0};
        tmsg_payload_t payload = {.map = map,
                                  .measures = &measures,
                                  .way = {.gather = i < 3},
                                  .extra = &extra};
        tmsg_plan_t plan = {0};

        must(tmsg_shared_plan_make(shared_plan, &payload, &pool, &plan));
        cr_expect(i == 0 || (plan.contiguous == first) == (i < 3));
        first = plan.contiguous;
        tmsg_plan_free(&plan, &pool);
        cr_expect(eq(sz, pool.count, i == 3 ? 1 : 0),
                  "what is shared is not given back, but another's list is");
    }
    tmsg_shared_plan_drop(shared_plan, &pool);
    cr_expect(eq(sz, pool.count, 2));
    tmsg_pool_free(&pool);
    tmsg_map_destroy(map);
}

static void add_slow(scene_t *scene, const tmsg_subscriber_params_t *params)
{
    tmsg_publisher_params_t publisher = {
        .field_mask = TMSG_PUBLISHER_PARAM_SUBSCRIBER, .subscriber = params};

    open_scene(scene, LINK_UNIX, VIEWERS, &publisher);
}

/* Viewers 1 and 2 take what comes, viewer 0 nothing. */
static void stream(scene_t *scene, unsigned maps)
{
    for (unsigned i = 0; i < maps; i++) {
        uint64_t seed = scene->next;

        publish(scene);
        expect_map(scene, 1, seed);
        expect_map(scene, 2, seed);
    }
}

#define SLOW                                                                   \
    TMSG_SUBSCRIBER_PARAM_MESSAGES | TMSG_SUBSCRIBER_PARAM_WINDOW |            \
        TMSG_SUBSCRIBER_PARAM_SLOW

Test(publisher, drops_the_oldest_for_a_slow_one_alone)
{
    const tmsg_subscriber_params_t params = {.field_mask = SLOW,
                                             .messages = 3,
                                             .window = 2,
                                             .slow = TMSG_SLOW_DROP_OLDEST};
    static const uint64_t seen[] = {0, 1, 47, 48, 49};
    scene_t scene;

    add_slow(&scene, &params);
    stream(&scene, 50);
    await_says(&scene, "\"delivered\":0,\"dropped\":45,\"failed\":0,"
                       "\"waiting\":3,\"under_way\":2");
    for (size_t i = 0; i < 5; i++) {
        expect_map(&scene, 0, seen[i]);
    }
    await_says(&scene, "\"delivered\":105,\"dropped\":45,\"failed\":0");
    close_scene(&scene);
}

Test(publisher, drops_the_newest_for_a_slow_one)
{
    const tmsg_subscriber_params_t params = {.field_mask = SLOW,
                                             .messages = 3,
                                             .window = 2,
                                             .slow = TMSG_SLOW_DROP_NEWEST};
    scene_t scene;

    add_slow(&scene, &params);
    stream(&scene, 50);
    for (uint64_t i = 0; i < 5; i++) {
        expect_map(&scene, 0, i);
    }
    await_says(&scene, "\"delivered\":105,\"dropped\":45");
    close_scene(&scene);
}

static bool has_ended(void *arg) { return tmsg_endpoint_status(arg) < 0; }

Test(publisher, disconnects_a_slow_one)
{
    const tmsg_subscriber_params_t params = {.field_mask = SLOW,
                                             .messages = 3,
                                             .window = 2,
                                             .slow = TMSG_SLOW_DISCONNECT};
    scene_t scene;

    add_slow(&scene, &params);
    stream(&scene, 50);
    until(&scene, has_ended, scene.to[0], "its end");
    cr_expect(eq(sz, tmsg_publisher_size(scene.publisher), 2));
    expect_map(&scene, 0, 0); /* what had come stays */
    must_be(tmsg_endpoint_status(scene.to[0]), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_endpoint_error(scene.to[0]), "too slow");
    close_scene(&scene);
}

Test(publisher, bounds_the_bytes_that_wait)
{
    const tmsg_subscriber_params_t params = {.field_mask =
                                                 TMSG_SUBSCRIBER_PARAM_BYTES |
                                                 TMSG_SUBSCRIBER_PARAM_WINDOW,
                                             .bytes = 2 * BYTES + 1,
                                             .window = 1};
    static const uint64_t seen[] = {0, 8, 9};
    scene_t scene;

    add_slow(&scene, &params);
    stream(&scene, 10);
    for (size_t i = 0; i < 3; i++) {
        expect_map(&scene, 0, seen[i]);
    }
    close_scene(&scene);
}

/* Viewer 0 asks for the newest by its connection. */
static void newest_only(link_t link)
{
    scene_t scene;

    open_camera(&scene, link, NULL);
    join(&scene, TMSG_SUBSCRIBE_NEWEST);
    join(&scene, 0);
    join(&scene, 0);
    stream(&scene, 40);
    expect_map(&scene, 0, 0);
    expect_map(&scene, 0, 39);
    publish(&scene);
    expect_map(&scene, 0, 40);
    await_says(&scene, "\"dropped\":38");
    close_scene(&scene);
}

Test(publisher, sends_the_newest_only_if_asked_tcp) { newest_only(LINK_TCP); }
Test(publisher, sends_the_newest_only_if_asked_blob) { newest_only(LINK_BLOB); }

Test(publisher, sends_the_newest_only_if_told)
{
    const tmsg_subscriber_params_t params = {.field_mask =
                                                 TMSG_SUBSCRIBER_PARAM_FLAGS,
                                             .flags = TMSG_SUBSCRIBER_NEWEST};
    scene_t scene;

    add_slow(&scene, &params);
    stream(&scene, 40);
    expect_map(&scene, 0, 0);
    expect_map(&scene, 0, 39);
    close_scene(&scene);
}

Test(publisher, sends_a_newcomer_what_is_kept)
{
    const tmsg_publisher_params_t params = {
        .field_mask = TMSG_PUBLISHER_PARAM_KEEP, .keep = 4};
    scene_t scene;

    open_scene(&scene, LINK_UNIX, 0, &params);
    for (int i = 0; i < 10; i++) {
        publish(&scene);
    }
    join(&scene, 0);
    join(&scene, TMSG_SUBSCRIBE_NEWEST);
    publish(&scene);
    for (uint64_t i = 6; i < 11; i++) {
        expect_map(&scene, 0, i);
    }
    expect_map(&scene, 1, 9);
    expect_map(&scene, 1, 10);
    await_says(&scene, "\"published\":11,\"kept\":4,\"delivered\":7");
    close_scene(&scene);
}

/* Publishes 100 maps, and expects that a newcomer gets the newest `count`, and
 * `more`, which come then, except the first `lost` of these. */
static void expect_kept(const tmsg_subscriber_params_t *subscriber,
                        uint64_t count, uint64_t more, uint64_t lost)
{
    const tmsg_publisher_params_t params = {.field_mask =
                                                TMSG_PUBLISHER_PARAM_KEEP |
                                                TMSG_PUBLISHER_PARAM_SUBSCRIBER,
                                            .keep = 64,
                                            .subscriber = subscriber};
    scene_t scene;

    open_scene(&scene, LINK_UNIX, 0, &params);
    for (int i = 0; i < 100; i++) {
        publish(&scene);
    }
    join(&scene, 0);
    for (uint64_t i = 0; i < more; i++) {
        publish(&scene);
    }
    for (uint64_t i = 100 - count; i < 100 + more; i++) {
        if (i < 100 || i >= 100 + lost) {
            expect_map(&scene, 0, i);
        }
    }
    close_scene(&scene);
}

/* More than may wait by default, and than the window. */
Test(publisher, sends_a_newcomer_all_that_is_kept)
{
    expect_kept(NULL, 64, 10, 0);
}

/* No more than 16 wait behind what is kept, and none of that is dropped. */
Test(publisher, drops_for_a_newcomer_what_is_not_kept)
{
    expect_kept(NULL, 64, 19, 3);
}

Test(publisher, sends_a_newcomer_as_many_as_may_wait_for_it)
{
    const tmsg_subscriber_params_t params = {
        .field_mask = TMSG_SUBSCRIBER_PARAM_MESSAGES, .messages = 20};

    expect_kept(&params, 20, 0, 0);
}

static void count_release(void *arg) { ++*(unsigned *)arg; }

/* A map of one owned tensor, whose release is counted. */
static tmsg_map_t *counted_map(unsigned *releases)
{
    static uint8_t data[BYTES];
    const int64_t shape[] = {BYTES};
    const tmsg_tensor_t tensor = {
        .data = data,
        .device = {.type = TMSG_DEVICE_CPU},
        .dtype = {.code = TMSG_DTYPE_UINT, .bits = 8, .lanes = 1},
        .ndim = 1,
        .shape = shape};
    const tmsg_map_add_params_t params = {.field_mask =
                                              TMSG_MAP_ADD_PARAM_RELEASE,
                                          .release = count_release,
                                          .release_arg = releases};
    tmsg_map_t *map;

    must(tmsg_map_create(&map));
    must(tmsg_map_add(map, "data", &tensor, &params));
    return map;
}

static bool request_ended(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

Test(publisher, lets_go_of_a_map_when_all_have_it)
{
    scene_t scene;
    tmsg_request_t *request;
    unsigned releases = 0;
    tmsg_map_t *map = counted_map(&releases);
    take_t take;

    open_scene(&scene, LINK_UNIX, VIEWERS, NULL);
    must(tmsg_publisher_publish(scene.publisher, map, NULL, &request));
    must_be(tmsg_map_clear(map), TMSG_ERR_BUSY);
    tmsg_map_destroy(map);
    for (unsigned i = 0; i < VIEWERS; i++) {
        cr_expect(eq(u32, releases, 0));
        must_be(tmsg_request_test(request), TMSG_IN_PROGRESS);
        take = (take_t){scene.viewers[i].worker, NULL};
        until(&scene, has_taken, &take, "a map");
        tmsg_message_destroy(take.message);
    }
    until(&scene, request_ended, request, "the end of a publication");
    must(tmsg_request_test(request));
    turn(&scene);
    cr_expect(eq(u32, releases, 1));
    tmsg_request_destroy(request);
    close_scene(&scene);
}

static void count_done(void *arg, tmsg_status_t status, const char *error)
{
    must(status);
    must_eq(error[0], 0);
    ++*(unsigned *)arg;
}

Test(publisher, ends_at_once_where_nobody_is)
{
    scene_t scene;
    unsigned releases = 0, dones = 0;
    tmsg_map_t *map = counted_map(&releases);
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_ON_DONE,
                                       .on_done = count_done,
                                       .on_done_arg = &dones};
    tmsg_request_t *request;

    open_scene(&scene, LINK_UNIX, 0, NULL);
    must(tmsg_publisher_publish(scene.publisher, map, &params, &request));
    must(tmsg_request_wait(request, 1000));
    tmsg_map_destroy(map);
    turn(&scene);
    cr_expect(eq(u32, releases, 1));
    cr_expect(eq(u32, dones, 1));
    tmsg_request_destroy(request);
    close_scene(&scene);
}

Test(publisher, holds_what_it_keeps)
{
    const tmsg_publisher_params_t params = {
        .field_mask = TMSG_PUBLISHER_PARAM_KEEP, .keep = 2};
    scene_t scene;
    unsigned releases = 0;

    open_scene(&scene, LINK_UNIX, 0, &params);
    for (unsigned i = 0; i < 5; i++) {
        tmsg_map_t *map = counted_map(&releases);

        must(tmsg_publisher_publish(scene.publisher, map, NULL, NULL));
        tmsg_map_destroy(map);
        turn(&scene);
        cr_expect(eq(u32, releases, i < 2 ? 0 : i - 1));
    }
    close_scene(&scene);
    cr_expect(eq(u32, releases, 5));
}

Test(publisher, peers_come_and_go, .timeout = 120)
{
    scene_t scene;

    open_scene(&scene, LINK_UNIX, 2, NULL);
    for (int i = 0; i < 100; i++) {
        uint64_t seed = scene.next;

        publish(&scene);
        publish(&scene);
        expect_map(&scene, 1, seed);
        expect_map(&scene, 1, seed + 1);
        if (i % 3 == 0) { /* leaves with one that it has not taken */
            expect_map(&scene, 0, seed);
        }
        tmsg_endpoint_destroy(scene.to[0]);
        publish(&scene);
        expect_map(&scene, 1, seed + 2);
        await_size(&scene, 1);
        dial(&scene, 0, 0);
        await_size(&scene, 2);
        while (tmsg_worker_recv(scene.viewers[0].worker, 0,
                                &(tmsg_message_t *){NULL}) == TMSG_OK) {
            die("a map of the connection before");
        }
    }
    close_scene(&scene);
}

static void view_for_ever(pipes_t *pipes, void *arg)
{
    char url[256];
    side_t side;

    (void)arg;
    line_get(pipes->in, url, sizeof(url));
    side_open(&side, NULL);
    side_connect(&side, url);
    for (unsigned i = 0;; i++) {
        tmsg_message_destroy(side_take(&side));
        if (i == 10) {
            line_put(pipes->out, "now kill me");
        }
    }
}

Test(publisher, a_killed_peer_leaves, .timeout = 120)
{
    child_t child;
    char line[64];
    scene_t scene;
    tmsg_request_t *request = NULL;

    child_start(&child, view_for_ever, NULL);
    open_scene(&scene, LINK_SHM, 0, NULL);
    line_put(child.out, tmsg_listener_url(scene.camera.listener));
    await_size(&scene, 1);
    join(&scene, 0);
    for (uint64_t i = 0; i < 400; i++) {
        tmsg_map_t *map = sample_bytes(i, BYTES);

        tmsg_request_destroy(request);
        must(tmsg_publisher_publish(scene.publisher, map, NULL, &request));
        tmsg_map_destroy(map);
        expect_map(&scene, 0, i);
        if (i == 20) { /* which may need this side's help to have ten */
            struct pollfd heard = {child.in, POLLIN, 0};

            while (poll(&heard, 1, 0) == 0) {
                tmsg_worker_progress(scene.camera.worker);
            }
            line_get(child.in, line, sizeof(line));
            child_kill(&child);
        }
    }
    await_size(&scene, 1);
    until(&scene, request_ended, request, "the last publication");
    must(tmsg_request_test(request));
    tmsg_request_destroy(request);
    close_scene(&scene);
}

Test(publisher, closes_when_all_have_all)
{
    scene_t scene;
    tmsg_request_t *request;
    tmsg_map_t *map = sample_bytes(0, BYTES);

    open_scene(&scene, LINK_UNIX, 2, NULL);
    for (int i = 0; i < 40; i++) { /* more than a window */
        publish(&scene);
    }
    must(tmsg_publisher_close(scene.publisher, &request));
    must_be(tmsg_publisher_publish(scene.publisher, map, NULL, NULL),
            TMSG_ERR_CLOSED);
    must_be(tmsg_publisher_close(scene.publisher, NULL), TMSG_ERR_CLOSED);
    for (uint64_t i = 0; i < 40; i++) {
        expect_map(&scene, 0, i);
        expect_map(&scene, 1, i);
    }
    for (unsigned i = 0; i < 2; i++) {
        tmsg_endpoint_close(scene.to[i], NULL);
    }
    until(&scene, request_ended, request, "the publisher's end");
    must(tmsg_request_test(request));
    until(&scene, has_ended, scene.to[0], "the viewer's end");
    must_be(tmsg_endpoint_status(scene.to[0]), TMSG_ERR_CLOSED);
    tmsg_request_destroy(request);
    tmsg_map_destroy(map);
    close_scene(&scene);
}

/* What it had not taken is dropped, and the publisher hears of it. */
static void leaves_with_untaken_maps(link_t link)
{
    scene_t scene;
    tmsg_request_t *request;

    open_scene(&scene, link, 2, NULL);
    for (uint64_t i = 0; i < 40; i++) { /* more than a window */
        publish(&scene);
        expect_map(&scene, 1, i);
    }
    expect_map(&scene, 0, 0);
    must(tmsg_endpoint_discard(scene.to[0]));
    must(tmsg_endpoint_close(scene.to[0], &request));
    until(&scene, request_ended, request, "the viewer's end");
    must(tmsg_request_test(request));
    tmsg_request_destroy(request);
    must_be(tmsg_endpoint_recv(scene.to[0], 0, &(tmsg_message_t *){NULL}),
            TMSG_ERR_CLOSED);
    await_size(&scene, 1);
    cr_expect(says(&(text_wait_t){&scene, "\"published\":40,\"kept\":0,"
                                          "\"delivered\":41,"}),
              "the other viewer has all, and this one the first");
    publish(&scene);
    expect_map(&scene, 1, 40);
    close_scene(&scene);
}

Test(publisher, a_viewer_that_discards_leaves_promptly)
{
    leaves_with_untaken_maps(LINK_TCP);
    leaves_with_untaken_maps(LINK_UNIX);
    leaves_with_untaken_maps(LINK_BLOB);
}

Test(publisher, an_endpoint_may_be_added_while_it_connects)
{
    scene_t scene;
    side_t us;
    tmsg_endpoint_t *to;
    tmsg_publisher_t *publisher;
    tmsg_map_t *map = sample_bytes(7, BYTES);

    /* The viewer listens here, and the camera dials. */
    open_scene(&scene, LINK_TCP, 0, NULL);
    side_open(&us, NULL);
    must(tmsg_publisher_create(us.worker, NULL, &publisher));
    to = side_dial(&us, &scene.camera);
    must(tmsg_publisher_add(publisher, to, NULL));
    must_be(tmsg_publisher_add(publisher, to, NULL), TMSG_ERR_ALREADY_EXISTS);
    must_be(tmsg_publisher_add(scene.publisher, to, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "belongs to another worker");
    must_be(tmsg_publisher_remove(scene.publisher, to), TMSG_ERR_NOT_FOUND);
    must_say(tmsg_error_message(), "belongs to another worker");
    must(tmsg_publisher_publish(publisher, map, NULL, NULL));
    tmsg_map_destroy(map);
    scene.viewers[0] = scene.camera; /* that takes */
    scene.count = 1;
    {
        take_t take = {scene.camera.worker, NULL};

        while (!has_taken(&take)) {
            tmsg_worker_progress(us.worker);
            turn(&scene);
        }
        sample_check_bytes(7, BYTES, tmsg_message_map(take.message));
        tmsg_message_destroy(take.message);
    }
    must(tmsg_publisher_remove(publisher, to));
    must_be(tmsg_publisher_remove(publisher, to), TMSG_ERR_NOT_FOUND);
    scene.count = 0;
    side_close(&us); /* which frees the publisher, too */
    close_scene(&scene);
}

Test(publisher, names_what_is_wrong_with_its_params)
{
    side_t side;
    tmsg_publisher_t *publisher = NULL;
    tmsg_subscriber_params_t wrong[] = {
        {.field_mask = 1 << 20},
        {.field_mask = TMSG_SUBSCRIBER_PARAM_FLAGS, .flags = 1 << 9},
        {.field_mask = TMSG_SUBSCRIBER_PARAM_MESSAGES},
        {.field_mask = TMSG_SUBSCRIBER_PARAM_WINDOW},
        {.field_mask = TMSG_SUBSCRIBER_PARAM_SLOW, .slow = 4},
        {.field_mask = TMSG_SUBSCRIBER_PARAM_MOST_MS}};
    static const char *const words[] = {"field_mask", "flags", "messages",
                                        "window",     "slow",  "most_ms"};
    tmsg_publisher_params_t params = {.field_mask = 1 << 20};
    tmsg_send_params_t send = {.field_mask = 1ULL << 60};
    tmsg_endpoint_params_t endpoint = {
        .field_mask = TMSG_ENDPOINT_PARAM_SUBSCRIBE, .subscribe = 2};
    tmsg_endpoint_t *to = NULL;
    tmsg_map_t *map = sample_bytes(0, BYTES);

    side_open(&side, NULL);
    must_be(tmsg_publisher_create(side.worker, &params, &publisher),
            TMSG_ERR_INVALID_PARAM);
    params.field_mask = TMSG_PUBLISHER_PARAM_SUBSCRIBER;
    for (size_t i = 0; i < 6; i++) {
        params.subscriber = &wrong[i];
        must_be(tmsg_publisher_create(side.worker, &params, &publisher),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), words[i]);
    }
    must_true(publisher == NULL);
    must(tmsg_publisher_create(side.worker, NULL, &publisher));
    must_be(tmsg_publisher_publish(publisher, NULL, NULL, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(tmsg_publisher_publish(publisher, map, &send, NULL),
            TMSG_ERR_INVALID_PARAM);
    send = (tmsg_send_params_t){.field_mask = TMSG_SEND_PARAM_FLAGS,
                                .flags = 1u << 31};
    must_be(tmsg_publisher_publish(publisher, map, &send, NULL),
            TMSG_ERR_INVALID_PARAM);
    send =
        (tmsg_send_params_t){.field_mask = TMSG_SEND_PARAM_POLICY, .policy = 9};
    must_be(tmsg_publisher_publish(publisher, map, &send, NULL),
            TMSG_ERR_INVALID_PARAM);
    must_be(
        tmsg_endpoint_connect(side.worker, "tcp://127.0.0.1:1", &endpoint, &to),
        TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "subscribe");
    must_eq(tmsg_map_size(map), 1);
    must(tmsg_map_clear(map)); /* nobody holds it */
    tmsg_map_destroy(map);
    tmsg_publisher_destroy(publisher);
    tmsg_publisher_destroy(NULL);
    side_close(&side);
}

/* An owned endpoint is destroyed with its publisher, others are not. */
Test(publisher, destroys_what_it_owns)
{
    scene_t scene;

    open_scene(&scene, LINK_UNIX, 1, NULL);
    publish(&scene);
    tmsg_publisher_destroy(scene.publisher);
    scene.publisher = NULL;
    until(&scene, has_ended, scene.to[0], "the end of the connection");
    must_be(tmsg_endpoint_status(scene.to[0]), TMSG_ERR_PEER_LOST);
    close_scene(&scene);
}
