/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What a publication may be told, as a send is; and that what it says is
 * encoded once, however many are told. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/publish/publisher.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { PEERS = 3, BYTES = 5000 };

typedef struct {
    pair_t pair;
    tmsg_publisher_t *publisher;
} scene_t;

/* a publishes to b. */
static void open_scene(scene_t *scene, uint32_t window)
{
    const tmsg_subscriber_params_t subscriber = {
        .field_mask = TMSG_SUBSCRIBER_PARAM_WINDOW, .window = window};
    const tmsg_publisher_params_t params = {.field_mask =
                                                TMSG_PUBLISHER_PARAM_KEEP |
                                                TMSG_PUBLISHER_PARAM_SUBSCRIBER,
                                            .keep = 2,
                                            .subscriber = &subscriber};

    pair_open(&scene->pair, LINK_UNIX, DRIVE_POLLING, NULL, NULL);
    must(tmsg_publisher_create(scene->pair.a.worker, &params,
                               &scene->publisher));
    must(tmsg_publisher_add(scene->publisher, scene->pair.to_b, NULL));
}

static void close_scene(scene_t *scene)
{
    tmsg_publisher_destroy(scene->publisher);
    pair_drop(&scene->pair);
}

/* The state of the newest publication, which is kept. */
static const tmsg_body_shared_t *newest_body(const scene_t *scene)
{
    return &TMSG_CONTAINER_OF(scene->publisher->kept.tail, tmsg_publication_t,
                              node)
                ->shared_plan->body;
}

static void take_all(scene_t *scene, const sample_t *sample)
{
    for (unsigned i = 0; i < PEERS; i++) {
        tmsg_message_t *message = pair_take(&scene->pair, &scene->pair.b);

        sample_check(sample, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

static bool is_new(void *arg)
{
    const pair_t *pair = arg;

    return atomic_load(&pair->a.accepts) > pair->a.taken;
}

static bool delivered(void *arg)
{
    scene_t *scene = arg;

    return scene->publisher->fates[TMSG_FATE_DELIVERED] ==
           scene->publisher->published * PEERS;
}

Test(publish_params, what_all_are_told_is_encoded_once)
{
    static const unsigned encoded[] = {2, 1, 1}; /* then tensors go by number */
    sample_t sample = {.seed = 9, .tensors = 40};
    scene_t scene;

    open_scene(&scene, PEERS);
    scene.pair.a.taken = atomic_load(&scene.pair.a.accepts);
    for (unsigned i = 1; i < PEERS; i++) { /* b is several peers */
        side_dial(&scene.pair.b, &scene.pair.a);
        pair_await(&scene.pair, is_new, &scene.pair, "a peer");
        must(tmsg_publisher_add(scene.publisher, side_accept(&scene.pair.a),
                                NULL));
    }
    for (int i = 0; i < 3; i++) {
        tmsg_map_t *map = sample_make(&sample);

        must(tmsg_publisher_publish(scene.publisher, map, NULL, NULL));
        tmsg_map_destroy(map);
        take_all(&scene, &sample);
        pair_await(&scene.pair, delivered, &scene, "all deliveries");
        must_eq(newest_body(&scene)->encoded, encoded[i]);
    }
    close_scene(&scene);
}

Test(publish_params, a_publication_has_a_channel_and_a_way)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_CHANNEL |
                                                     TMSG_SEND_PARAM_WAY,
                                       .channel = 5,
                                       .way = TMSG_WAY_FRAGMENTS};
    tmsg_map_t *map = sample_bytes(3, BYTES);
    tmsg_request_t *request;
    tmsg_message_t *message;
    scene_t scene;
    char *json;

    open_scene(&scene, 4);
    must(tmsg_publisher_publish(scene.publisher, map, &params, &request));
    tmsg_map_destroy(map);
    message = pair_take(&scene.pair, &scene.pair.b);
    must_eq(tmsg_message_channel(message), 5);
    sample_check_bytes(3, BYTES, tmsg_message_map(message));
    tmsg_message_destroy(message);
    tmsg_request_destroy(request); /* it is kept, and so goes on */
    must(tmsg_endpoint_describe(scene.pair.to_b, &json));
    must_say(json, "\"channel\":\t5");
    tmsg_string_free(json);
    close_scene(&scene);
}

/* The peer takes fewer channels: that one's failed, the publication is not. */
Test(publish_params, a_channel_that_a_peer_does_not_take_fails_for_it)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_CHANNEL,
                                       .channel = 5000};
    tmsg_map_t *map = sample_bytes(3, BYTES);
    tmsg_request_t *request;
    scene_t scene;

    open_scene(&scene, 4);
    must(tmsg_publisher_publish(scene.publisher, map, &params, &request));
    tmsg_map_destroy(map);
    must_eq(scene.publisher->fates[TMSG_FATE_FAILED], 1);
    must_eq(scene.publisher->subscribers.count, 1);
    tmsg_request_destroy(request);
    close_scene(&scene);
}

/* One is under way to a peer that does not take it, one waits for that one. */
Test(publish_params, what_is_late_is_dropped_and_kept_no_longer)
{
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                 .timeout_ms = 400};
    tmsg_request_t *requests[2];
    tmsg_message_t *message;
    tmsg_map_t *map;
    scene_t scene;

    open_scene(&scene, 1);
    for (uint64_t i = 0; i < 2; i++) {
        map = sample_bytes(i, BYTES);
        must(tmsg_publisher_publish(scene.publisher, map, &params,
                                    &requests[i]));
        tmsg_map_destroy(map);
        params.timeout_ms = 20; /* of the one that waits */
    }
    must_eq(scene.publisher->kept.count, 2);
    for (int i = 0; i < 2; i++) {
        must(pair_finish(&scene.pair, requests[i]));
    }
    must_eq(scene.publisher->fates[TMSG_FATE_FAILED], 1);
    must_eq(scene.publisher->fates[TMSG_FATE_DROPPED], 1);
    must_eq(scene.publisher->kept.count, 0);
    map = sample_bytes(7, BYTES);
    must(tmsg_publisher_publish(scene.publisher, map, NULL, NULL));
    tmsg_map_destroy(map);
    message = pair_take(&scene.pair, &scene.pair.b);
    sample_check_bytes(7, BYTES, tmsg_message_map(message));
    tmsg_message_destroy(message);
    close_scene(&scene);
}

/* The time of what is kept runs on without subscribers; and nothing is left of
 * it where the publisher goes first. */
Test(publish_params, what_is_kept_ends_with_its_time_or_its_publisher)
{
    const tmsg_send_params_t soon = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                     .timeout_ms = 20};
    const tmsg_send_params_t never = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                      .timeout_ms = 1000000};
    tmsg_map_t *map = sample_bytes(1, BYTES);
    tmsg_request_t *first, *second;
    scene_t scene;

    open_scene(&scene, 1);
    must(tmsg_publisher_remove(scene.publisher, scene.pair.to_b));
    must(tmsg_publisher_publish(scene.publisher, map, &soon, &first));
    must(tmsg_publisher_publish(scene.publisher, map, &never, &second));
    must(pair_finish(&scene.pair, first));
    must_be(tmsg_request_test(second), TMSG_IN_PROGRESS);
    must_be(tmsg_map_clear(map), TMSG_ERR_BUSY);
    tmsg_publisher_destroy(scene.publisher);
    must(pair_finish(&scene.pair, second));
    must(tmsg_map_clear(map));
    tmsg_map_destroy(map);
    pair_drop(&scene.pair);
}

/* What waits, what is on the way and what is kept, each with its time. */
Test(publish_params, its_worker_may_end_before_its_time)
{
    const tmsg_send_params_t later = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                      .timeout_ms = 1000000};
    tmsg_map_t *map = sample_bytes(1, BYTES);
    tmsg_request_t *requests[3];
    scene_t scene;

    open_scene(&scene, 1);
    for (int i = 0; i < 3; i++) {
        must(
            tmsg_publisher_publish(scene.publisher, map, &later, &requests[i]));
    }
    pair_drop(&scene.pair);
    for (int i = 0; i < 3; i++) {
        must(tmsg_request_test(requests[i]));
        tmsg_request_destroy(requests[i]);
    }
    must(tmsg_map_clear(map));
    tmsg_map_destroy(map);
}

Test(publish_params, what_is_wrong_is_named_at_once)
{
    static const struct {
        tmsg_send_params_t params;
        const char *words;
    } rows[] = {
        {{.field_mask = TMSG_SEND_PARAM_TIMEOUT}, "timeout_ms 0"},
        {{.field_mask = TMSG_SEND_PARAM_TIMEOUT, .timeout_ms = -2},
         "timeout_ms -2"},
        {{.field_mask = TMSG_SEND_PARAM_WAY, .way = 4}, "way 4"},
        {{.field_mask = TMSG_SEND_PARAM_WAY, .protocol = -1}, "protocol -1"},
        {{.field_mask = TMSG_SEND_PARAM_ON_RELEASE}, "field_mask"},
        {{.field_mask = TMSG_SEND_PARAM_FLAGS, .flags = TMSG_SEND_UNORDERED},
         "flags"},
    };
    tmsg_map_t *map = sample_bytes(1, BYTES);
    scene_t scene;

    open_scene(&scene, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        must_be(
            tmsg_publisher_publish(scene.publisher, map, &rows[i].params, NULL),
            TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), rows[i].words);
    }
    must(tmsg_map_clear(map)); /* nobody holds it */
    tmsg_map_destroy(map);
    close_scene(&scene);
}
