/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A refusal is told to the receiver's own application, too: once, in the
 * message's turn, and in a callback that may call the library. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/channels.h"
#include "support/failing_alloc.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

#define SMALL 1000
#define LARGE 3000000
#define HELD 2000000

/* What happened at a, in letters: a digit for the seed of a message, 'r' for a
 * refusal. */
typedef struct {
    pair_t pair;
    char story[32];
    bool ends;    /* the callback destroys the endpoint */
    bool starved; /* it was called without the words */
    uint16_t channel;
} scene_t;

static void write_down(scene_t *scene, char what)
{
    scene->story[strlen(scene->story)] = what;
}

static void on_message(void *arg, tmsg_message_t *message)
{
    tmsg_tensor_t tensor;

    must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
    for (char seed = 0; seed < 10; seed++) {
        if (sample_compare((uint64_t)seed, tensor.data, SMALL) == SMALL) {
            write_down(arg, (char)('0' + seed));
        }
    }
    tmsg_message_destroy(message);
}

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    scene_t *scene = arg;
    char *json;

    must_be(status, TMSG_ERR_LIMIT_EXCEEDED);
    must_eq(channel, scene->channel);
    must_eq(sequence, strlen(scene->story));
    scene->starved = strstr(error, "held_bytes") == NULL;
    must_true(endpoint == scene->pair.to_b);
    must(tmsg_endpoint_describe(endpoint, &json)); /* no lock is held */
    must_say(json, "\"refused_messages\":\t");
    tmsg_string_free(json);
    write_down(scene, 'r');
    if (scene->ends) {
        tmsg_endpoint_destroy(endpoint);
        scene->pair.to_b = NULL;
    }
}

static void open_scene(scene_t *scene, drive_t drive, bool pulls)
{
    const side_options_t options = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES, .held_bytes = HELD},
        .worker = {.field_mask =
                       TMSG_WORKER_PARAM_ON_REFUSED | TMSG_WORKER_PARAM_HANDLER,
                   .handler = pulls ? NULL : on_message,
                   .handler_arg = scene,
                   .on_refused = on_refused,
                   .on_refused_arg = scene}};

    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, drive, &options, NULL);
}

static void send_two_and_a_large_one_between(scene_t *scene)
{
    tmsg_endpoint_t *to_a = scene->pair.to_a;
    tmsg_request_t *small[2], *large;

    small[0] = send_map(to_a, sample_bytes(1, SMALL), TMSG_SEND_ACKED);
    large = send_map(to_a, sample_bytes(2, LARGE), TMSG_SEND_ACKED);
    small[1] = send_map(to_a, sample_bytes(3, SMALL), TMSG_SEND_ACKED);
    must(pair_finish(&scene->pair, small[0]));
    must_be(pair_finish(&scene->pair, large), TMSG_ERR_LIMIT_EXCEEDED);
    must(pair_finish(&scene->pair, small[1]));
}

static bool told(void *arg) { return strlen(((scene_t *)arg)->story) > 0; }

static void in_its_turn(drive_t drive)
{
    scene_t scene;

    open_scene(&scene, drive, false);
    send_two_and_a_large_one_between(&scene);
    pair_close(&scene.pair);
    cr_expect_str_eq(scene.story, "1r3");
    cr_expect_not(scene.starved);
}

Test(refused, is_told_in_its_turn_polling) { in_its_turn(DRIVE_POLLING); }
Test(refused, is_told_in_its_turn_thread) { in_its_turn(DRIVE_THREAD); }

Test(refused, is_told_where_messages_are_pulled)
{
    tmsg_request_t *large;
    scene_t scene;

    open_scene(&scene, DRIVE_POLLING, true);
    large = send_map(scene.pair.to_a, sample_bytes(2, LARGE), 0);
    pair_await(&scene.pair, told, &scene, "the refusal");
    tmsg_request_destroy(large);
    pair_close(&scene.pair);
    cr_expect_str_eq(scene.story, "r");
}

/* Each channel has numbers of its own: the second on 7 is number 1 there. */
Test(refused, says_on_which_channel)
{
    tmsg_request_t *small, *large;
    scene_t scene;

    open_scene(&scene, DRIVE_POLLING, false);
    scene.channel = 7;
    small =
        send_on(scene.pair.to_a, 7, sample_bytes(1, SMALL), TMSG_SEND_ACKED);
    must(pair_finish(&scene.pair, small));
    large =
        send_on(scene.pair.to_a, 7, sample_bytes(2, LARGE), TMSG_SEND_ACKED);
    must_be(pair_finish(&scene.pair, large), TMSG_ERR_LIMIT_EXCEEDED);
    pair_close(&scene.pair);
    cr_expect_str_eq(scene.story, "1r");
}

Test(refused, may_destroy_its_endpoint)
{
    tmsg_request_t *large;
    scene_t scene;

    open_scene(&scene, DRIVE_POLLING, false);
    scene.ends = true;
    large = send_map(scene.pair.to_a, sample_bytes(2, LARGE), 0);
    pair_await(&scene.pair, told, &scene, "the refusal");
    must_true(pair_end_of(&scene.pair, scene.pair.to_a) < 0);
    tmsg_request_destroy(large);
    pair_drop(&scene.pair);
    cr_expect_str_eq(scene.story, "r");
}

/* Without memory for the words on_refused is called without them. */
Test(refused, is_told_without_memory, .init = by_ucx_alone)
{
    bool starved = false;

    for (unsigned long n = 1; n < 60 && !starved; n++) {
        tmsg_request_t *large;
        scene_t scene;

        open_scene(&scene, DRIVE_POLLING, true);
        large = send_map(scene.pair.to_a, sample_bytes(2, LARGE), 0);
        tmsg_worker_progress(scene.pair.b.worker);
        failing_alloc_arm(n);
        for (int i = 0; i < 1000 && !told(&scene); i++) {
            tmsg_worker_progress(scene.pair.a.worker);
        }
        failing_alloc_disarm();
        starved = scene.starved;
        tmsg_request_destroy(large);
        pair_drop(&scene.pair);
    }
    cr_expect(starved);
}
