/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* How far behind a viewer may be, by its mode: live, all, or neither. What is
 * asserted are the numbers of frames, not times. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "am/publish/publisher.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { BYTES = 5000, FRAMES = 40 };

typedef struct {
    pair_t pair;
    tmsg_publisher_t *publisher;
    tmsg_subscriber_t *subscriber; /* b */
    uint64_t published;
} scene_t;

/* a publishes to b. */
static void open_scene(scene_t *scene, link_t link, drive_t drive,
                       const tmsg_subscriber_params_t *subscriber)
{
    scene->published = 0;
    pair_open(&scene->pair, link, drive, NULL, NULL);
    must(tmsg_publisher_create(scene->pair.a.worker, NULL, &scene->publisher));
    must(tmsg_publisher_add(scene->publisher, scene->pair.to_b, subscriber));
    scene->subscriber = TMSG_CONTAINER_OF(scene->publisher->subscribers.head,
                                          tmsg_subscriber_t, node);
}

static void close_scene(scene_t *scene)
{
    tmsg_publisher_destroy(scene->publisher);
    pair_drop(&scene->pair);
}

static tmsg_status_t try_publish(scene_t *scene,
                                 const tmsg_send_params_t *params)
{
    tmsg_map_t *map = sample_bytes(scene->published, BYTES);
    tmsg_status_t status =
        tmsg_publisher_publish(scene->publisher, map, params, NULL);

    scene->published += status == TMSG_OK;
    tmsg_map_destroy(map);
    return status;
}

static void publish(scene_t *scene, unsigned frames)
{
    const tmsg_send_params_t bounded = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                        .timeout_ms = PEERS_BOUND_MS};

    for (unsigned i = 0; i < frames; i++) {
        must(try_publish(scene, &bounded));
    }
}

static void expect_frame(scene_t *scene, uint64_t frame)
{
    tmsg_message_t *message = pair_take(&scene->pair, &scene->pair.b);

    sample_check_bytes(frame, BYTES, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* For pair_await(): so many were delivered, and the publisher knows. */
typedef struct {
    const scene_t *scene;
    uint64_t wanted;
} delivered_wait_t;

static bool were_delivered(void *arg)
{
    const delivered_wait_t *wait = arg;

    return wait->scene->publisher->fates[TMSG_FATE_DELIVERED] >= wait->wanted;
}

static void await_delivered(scene_t *scene, uint64_t wanted)
{
    delivered_wait_t wait = {scene, wanted};

    pair_await(&scene->pair, were_delivered, &wait, "deliveries");
}

static void nap(long ms)
{
    nanosleep(
        &(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000},
        NULL);
}

/* Each frame that a live viewer gets is the newest that there was when it took
 * the one before, or the first after that. */
static void is_live(link_t link)
{
    const tmsg_subscriber_params_t live = {.field_mask =
                                               TMSG_SUBSCRIBER_PARAM_FLAGS,
                                           .flags = TMSG_SUBSCRIBER_NEWEST};
    scene_t scene;

    open_scene(&scene, link, DRIVE_POLLING, &live);
    publish(&scene, 10);
    expect_frame(&scene, 0);
    for (uint64_t taken = 1; taken < 20; taken++) {
        uint64_t newest = scene.published - 1;

        await_delivered(&scene, taken);
        publish(&scene, 3);
        expect_frame(&scene, newest);
    }
    must_eq(scene.publisher->drops[TMSG_DROP_MESSAGES],
            scene.publisher->fates[TMSG_FATE_DROPPED]);
    close_scene(&scene);
}

Test(live, is_live_tcp) { is_live(LINK_TCP); }
Test(live, is_live_shm) { is_live(LINK_SHM); }
Test(live, is_live_unix) { is_live(LINK_UNIX); }

static bool has_caught_up(void *arg)
{
    const scene_t *scene = arg;

    return scene->subscriber->waiting.count +
               scene->subscriber->under_way.count ==
           0;
}

/* Takes what comes, in order, from a frame on or later, to the newest. */
static void take_until_newest(scene_t *scene, uint64_t first)
{
    int64_t newest = (int64_t)scene->published - 1, frame = (int64_t)first - 1;

    while (frame < newest) {
        tmsg_message_t *message = pair_take(&scene->pair, &scene->pair.b);
        int64_t next = 0;

        must(tmsg_map_get_i64(tmsg_message_map(message), TMSG_META_SEQUENCE,
                              &next));
        must_true(next > frame);
        frame = next;
        tmsg_message_destroy(message);
    }
    pair_await(&scene->pair, has_caught_up, scene, "the last delivery");
}

/* By default no more is sent to a viewer that has left untaken for 100 ms, and
 * the time that the fastest took, what it was sent: that would only grow old
 * there. */
Test(live, a_viewer_that_is_behind_is_sent_no_more)
{
    scene_t scene;
    uint64_t sent, first;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, NULL);
    publish(&scene, 1);
    expect_frame(&scene, 0);
    await_delivered(&scene, 1);
    publish(&scene, 4);
    sent = scene.subscriber->under_way.count; /* on a slow machine not all */
    must_true(sent >= 1);
    nap(110 + (long)(scene.subscriber->nearest_ns / 1000000));
    publish(&scene, FRAMES);
    must_eq(scene.subscriber->under_way.count, sent);
    must_eq(scene.subscriber->waiting.count, 16);
    must_true(scene.subscriber->overrun);
    for (uint64_t i = 0; i < sent; i++) {
        expect_frame(&scene, 1 + i);
    }
    await_delivered(&scene, 1 + sent);
    must_true(scene.subscriber->under_way.count <= 2);
    must_true(scene.subscriber->room < 16); /* they came so late */
    first = scene.published - 16;
    expect_frame(&scene, first);
    publish(&scene, 1);
    must_true(scene.subscriber->waiting.count <= scene.subscriber->room);
    take_until_newest(&scene, first + 1);
    must_true(!scene.subscriber->overrun); /* it keeps up again */
    publish(&scene, 4);
    must_eq(scene.subscriber->under_way.count, 4);
    close_scene(&scene);
}

/* A window that was asked for is that of all, however late they are. */
Test(live, a_window_that_was_asked_for_is_what_it_is)
{
    const tmsg_subscriber_params_t params = {
        .field_mask = TMSG_SUBSCRIBER_PARAM_WINDOW, .window = 8};
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, &params);
    publish(&scene, 1);
    expect_frame(&scene, 0);
    await_delivered(&scene, 1);
    publish(&scene, 4);
    nap(110);
    publish(&scene, FRAMES);
    must_eq(scene.subscriber->under_way.count, 8);
    close_scene(&scene);
}

static bool dropped_for_age(void *arg)
{
    const scene_t *scene = arg;

    return scene->publisher->drops[TMSG_DROP_AGE] >= 3;
}

Test(live, what_has_waited_for_too_long_is_dropped)
{
    const tmsg_subscriber_params_t params = {.field_mask =
                                                 TMSG_SUBSCRIBER_PARAM_WINDOW |
                                                 TMSG_SUBSCRIBER_PARAM_MOST_MS,
                                             .window = 1,
                                             .most_ms = 30};
    scene_t scene;
    char *json;

    open_scene(&scene, LINK_SHM, DRIVE_FD, &params);
    publish(&scene, 4);
    pair_await(&scene.pair, dropped_for_age, &scene, "the drops");
    must_eq(scene.subscriber->waiting.count, 0);
    expect_frame(&scene, 0);
    must(tmsg_publisher_describe(scene.publisher, &json));
    must_say(json, "\"age\":\t3");
    tmsg_string_free(json);
    close_scene(&scene);
}

Test(live, who_has_left_something_waiting_for_too_long_is_disconnected)
{
    const tmsg_subscriber_params_t params = {.field_mask =
                                                 TMSG_SUBSCRIBER_PARAM_WINDOW |
                                                 TMSG_SUBSCRIBER_PARAM_MOST_MS |
                                                 TMSG_SUBSCRIBER_PARAM_SLOW,
                                             .window = 1,
                                             .slow = TMSG_SLOW_DISCONNECT,
                                             .most_ms = 30};
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, &params);
    publish(&scene, 2);
    must_be(pair_end_of(&scene.pair, scene.pair.to_a), TMSG_ERR_LIMIT_EXCEEDED);
    close_scene(&scene);
}

static const tmsg_subscriber_params_t all = {
    .field_mask = TMSG_SUBSCRIBER_PARAM_WINDOW |
                  TMSG_SUBSCRIBER_PARAM_MESSAGES | TMSG_SUBSCRIBER_PARAM_SLOW,
    .window = 1,
    .messages = 2,
    .slow = TMSG_SLOW_WAIT};

/* The third and fourth find no room until the viewer takes one. */
Test(live, publishing_waits_where_nothing_may_be_lost)
{
    const tmsg_send_params_t try = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                    .flags = TMSG_SEND_TRY};
    const tmsg_send_params_t soon = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                     .timeout_ms = 20};
    tmsg_request_t *room;
    scene_t scene;

    open_scene(&scene, LINK_SHM, DRIVE_POLLING, &all);
    must(tmsg_publisher_ready(scene.publisher, &room));
    must(pair_finish(&scene.pair, room));
    publish(&scene, 3);
    must_be(try_publish(&scene, &try), TMSG_ERR_WOULD_BLOCK);
    must_say(tmsg_error_message(), "has not taken 3 messages");
    must_be(try_publish(&scene, &soon), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), "has not taken 3 messages in 20 ms");
    must(tmsg_publisher_ready(scene.publisher, &room));
    must_be(tmsg_request_test(room), TMSG_IN_PROGRESS);
    expect_frame(&scene, 0);
    must(pair_finish(&scene.pair, room));
    must(try_publish(&scene, &try));
    for (uint64_t i = 1; i < 4; i++) {
        expect_frame(&scene, i);
    }
    await_delivered(&scene, 4);
    must_eq(scene.publisher->fates[TMSG_FATE_DROPPED], 0);
    must_eq(scene.publisher->blocked, 1);
    /* Who waits for room hears of the end. */
    publish(&scene, 3);
    must(tmsg_publisher_ready(scene.publisher, &room));
    tmsg_publisher_destroy(scene.publisher);
    must_be(pair_finish(&scene.pair, room), TMSG_ERR_CANCELED);
    pair_drop(&scene.pair);
}

/* The bytes that wait leave room for a small map, not for that which found
 * none. */
Test(live, who_waits_for_room_waits_for_as_much_as_was_missing)
{
    const tmsg_send_params_t try = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                    .flags = TMSG_SEND_TRY};
    tmsg_subscriber_params_t bounded = all;
    tmsg_request_t *room;
    scene_t scene;

    bounded.field_mask |= TMSG_SUBSCRIBER_PARAM_BYTES;
    bounded.bytes = BYTES + BYTES / 2;
    open_scene(&scene, LINK_SHM, DRIVE_POLLING, &bounded);
    publish(&scene, 2); /* of which one is on its way */
    must_be(try_publish(&scene, &try), TMSG_ERR_WOULD_BLOCK);
    must(tmsg_publisher_ready(scene.publisher, &room));
    must_be(tmsg_request_test(room), TMSG_IN_PROGRESS);
    expect_frame(&scene, 0);
    must(pair_finish(&scene.pair, room));
    must(try_publish(&scene, &try));
    must(tmsg_publisher_ready(scene.publisher, &room)); /* for any map */
    must(pair_finish(&scene.pair, room));
    for (uint64_t i = 1; i < 3; i++) {
        expect_frame(&scene, i);
    }
    close_scene(&scene);
}

static void *take_all(void *arg)
{
    scene_t *scene = arg;

    for (uint64_t i = 0; i < FRAMES; i++) {
        tmsg_message_t *message;

        must(tmsg_worker_recv(scene->pair.b.worker, PEERS_BOUND_MS, &message));
        sample_check_bytes(i, BYTES, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    return NULL;
}

/* The publisher's calls drive its worker while they wait. */
static void loses_nothing(link_t link)
{
    delivered_wait_t wait;
    pthread_t viewer;
    scene_t scene;

    wait = (delivered_wait_t){&scene, FRAMES};
    open_scene(&scene, link, DRIVE_POLLING, &all);
    must_true(pthread_create(&viewer, NULL, take_all, &scene) == 0);
    publish(&scene, FRAMES);
    side_await(&scene.pair.a, were_delivered, &wait, "all deliveries");
    must_true(pthread_join(viewer, NULL) == 0);
    must_eq(scene.publisher->fates[TMSG_FATE_DROPPED], 0);
    close_scene(&scene);
}

Test(live, all_loses_nothing_tcp) { loses_nothing(LINK_TCP); }
Test(live, all_loses_nothing_shm) { loses_nothing(LINK_SHM); }

static bool is_new(void *arg)
{
    const side_t *side = arg;

    return atomic_load(&side->accepts) > side->taken;
}

/* A viewer that asks for the newest alone never makes the publisher wait, and
 * of what is kept it gets the newest, too. */
Test(live, a_live_viewer_does_not_hold_up_those_who_get_all)
{
    const tmsg_endpoint_params_t newest = {.field_mask =
                                               TMSG_ENDPOINT_PARAM_SUBSCRIBE,
                                           .subscribe = TMSG_SUBSCRIBE_NEWEST};
    const tmsg_publisher_params_t params = {.field_mask =
                                                TMSG_PUBLISHER_PARAM_KEEP |
                                                TMSG_PUBLISHER_PARAM_SUBSCRIBER,
                                            .keep = 2,
                                            .subscriber = &all};
    tmsg_endpoint_t *viewer;
    scene_t scene = {.published = 0};

    pair_open(&scene.pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_publisher_create(scene.pair.a.worker, &params, &scene.publisher));
    publish(&scene, 2);
    scene.pair.a.taken = atomic_load(&scene.pair.a.accepts);
    must(tmsg_endpoint_connect(scene.pair.b.worker,
                               tmsg_listener_url(scene.pair.a.listener),
                               &newest, &viewer));
    pair_await(&scene.pair, is_new, &scene.pair.a, "a peer");
    must(tmsg_publisher_add(scene.publisher, side_accept(&scene.pair.a), NULL));
    publish(&scene, 10);
    expect_frame(&scene, 1);
    expect_frame(&scene, 11);
    must_eq(scene.publisher->blocked, 0);
    close_scene(&scene);
}

static bool is_connected(void *arg)
{
    return tmsg_endpoint_status(arg) == TMSG_OK;
}

/* A camera that dials its viewer. */
Test(live, a_viewer_that_listens_asks_for_the_newest)
{
    const tmsg_listener_params_t newest = {.field_mask =
                                               TMSG_LISTENER_PARAM_SUBSCRIBE,
                                           .subscribe = TMSG_SUBSCRIBE_NEWEST};
    const tmsg_listener_params_t odd = {
        .field_mask = TMSG_LISTENER_PARAM_SUBSCRIBE, .subscribe = 2};
    tmsg_listener_t *listener = NULL;
    tmsg_endpoint_t *viewer;
    scene_t scene = {.published = 0};

    pair_open(&scene.pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must_be(tmsg_listener_create(scene.pair.b.worker, "tcp://127.0.0.1:0", &odd,
                                 &listener),
            TMSG_ERR_INVALID_PARAM);
    must_say(tmsg_error_message(), "unknown subscribe bits 0x2");
    must(tmsg_listener_create(scene.pair.b.worker, "tcp://127.0.0.1:0", &newest,
                              &listener));
    must(tmsg_publisher_create(scene.pair.a.worker, NULL, &scene.publisher));
    must(tmsg_endpoint_connect(scene.pair.a.worker, tmsg_listener_url(listener),
                               NULL, &viewer));
    must(tmsg_publisher_add(scene.publisher, viewer, NULL));
    pair_await(&scene.pair, is_connected, viewer, "a connection");
    publish(&scene, 10);
    expect_frame(&scene, 0);
    expect_frame(&scene, 9);
    tmsg_listener_destroy(listener);
    close_scene(&scene);
}
