/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A message that is refused as it comes, while another waits before it, keeps
 * its number until its turn, even if the connection breaks or its sender gives
 * it up (am/recv/message.h, tmsg_message_tombstone()). */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define HELD 2000000 /* a has memory for one that waits */
#define WAITS 1500000
#define LARGE 3000000
#define SMALL 1000

typedef struct {
    joined_t joined;
    tmsg_message_t *held;                  /* number 0 */
    tmsg_request_t *waits, *large, *small; /* numbers 1 to 3 */
    unsigned told;
} scene_t;

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    scene_t *scene = arg;

    must_be(status, TMSG_ERR_LIMIT_EXCEEDED);
    must_say(error, "held_bytes");
    must_true(endpoint == scene->joined.pair.to_b);
    must_eq(channel, 0);
    must_eq(sequence, 2);
    scene->told++;
}

static bool is_refused(void *arg)
{
    scene_t *scene = arg;

    return described(scene->joined.pair.to_b, "refused_messages") == 1;
}

static void open_scene(scene_t *scene, link_t link)
{
    const how_t how = {
        .link = link,
        .a = {
            .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = HELD},
            .worker = {.field_mask = TMSG_WORKER_PARAM_ON_REFUSED,
                       .on_refused = on_refused,
                       .on_refused_arg = scene}}};
    pair_t *pair = &scene->joined.pair;

    scene->told = 0;
    joined_open(&scene->joined, &how);
    tmsg_request_destroy(send_map(pair->to_a, sample_bytes(0, WAITS), 0));
    scene->held = pair_take(pair, &pair->a);
    scene->waits =
        send_map(pair->to_a, sample_bytes(1, WAITS), TMSG_SEND_ACKED);
    scene->large =
        send_map(pair->to_a, sample_bytes(2, LARGE), TMSG_SEND_ACKED);
    scene->small =
        send_map(pair->to_a, sample_bytes(3, SMALL), TMSG_SEND_ACKED);
    side_await(&pair->a, is_refused, scene, "a refusal");
    must_eq(scene->told, 0);
}

static void take(scene_t *scene, uint64_t seed, size_t bytes)
{
    pair_t *pair = &scene->joined.pair;
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check_bytes(seed, bytes, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* The other messages arrive, and the refusal is told once. */
static void close_scene(scene_t *scene, tmsg_status_t of_large)
{
    pair_t *pair = &scene->joined.pair;

    tmsg_message_destroy(scene->held);
    take(scene, 1, WAITS);
    take(scene, 3, SMALL);
    must(pair_finish(pair, scene->waits));
    must_be(pair_finish(pair, scene->large), of_large);
    must(pair_finish(pair, scene->small));
    must_eq(scene->told, 1);
    must_eq(described(pair->to_b, "refused_messages"), 1);
    must_eq(described(pair->to_b, "aborted_messages"), 0);
    joined_close(&scene->joined);
}

static void across_a_break(link_t link)
{
    scene_t scene;

    open_scene(&scene, link);
    joined_break(&scene.joined);
    joined_mend(&scene.joined);
    pair_await(&scene.joined.pair, joined_is_open, &scene.joined,
               "the connection");
    must_eq(scene.told, 0);
    close_scene(&scene, TMSG_ERR_LIMIT_EXCEEDED);
}

Test(refused_ahead, tells_across_a_break_tcp) { across_a_break(LINK_TCP); }
Test(refused_ahead, tells_across_a_break_shm) { across_a_break(LINK_SHM); }

/* b has not read the answer yet. */
static void and_given_up(link_t link)
{
    scene_t scene;

    open_scene(&scene, link);
    must_be(tmsg_request_cancel(scene.large), TMSG_ERR_CANCELED);
    close_scene(&scene, TMSG_ERR_CANCELED);
}

Test(refused_ahead, and_given_up_tcp) { and_given_up(LINK_TCP); }
Test(refused_ahead, and_given_up_shm) { and_given_up(LINK_SHM); }

/* Nobody is told any more, and nothing is left of the message. */
static void and_dropped(link_t link)
{
    scene_t scene;

    open_scene(&scene, link);
    tmsg_message_destroy(scene.held);
    tmsg_request_destroy(scene.waits);
    tmsg_request_destroy(scene.large);
    tmsg_request_destroy(scene.small);
    joined_drop(&scene.joined);
    must_eq(scene.told, 0);
}

Test(refused_ahead, and_dropped_tcp) { and_dropped(LINK_TCP); }
Test(refused_ahead, and_dropped_shm) { and_dropped(LINK_SHM); }
