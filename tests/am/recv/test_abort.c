/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* ABORT messages from peers that send them in time, too early, or wrongly. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "am/endpoint/control.h"
#include "am/endpoint/endpoint.h"
#include "core/bytes.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

typedef struct {
    pair_t pair;
    unsigned refused;
    uint32_t sequence;
    tmsg_status_t status;
    char why[400];
} scene_t;

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    scene_t *scene = arg;

    (void)channel;
    (void)endpoint;
    scene->refused++;
    scene->sequence = sequence;
    scene->status = status;
    snprintf(scene->why, sizeof(scene->why), "%s", error);
}

static void open_scene(scene_t *scene)
{
    const side_options_t a = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_ON_REFUSED,
                   .on_refused = on_refused,
                   .on_refused_arg = scene}};

    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, &a, NULL);
}

static void drive(scene_t *scene)
{
    for (int i = 0; i < 200; i++) {
        tmsg_worker_progress(scene->pair.b.worker);
        tmsg_worker_progress(scene->pair.a.worker);
    }
}

/* b sends an ABORT, whatever it has sent before. */
static void say_abort(scene_t *scene, uint32_t sequence, int32_t status,
                      size_t body_bytes)
{
    tmsg_endpoint_t *to_a = scene->pair.to_a;
    const tmsg_preamble_t head = {
        .endpoint_id = to_a->peer_id, .message_id = 77, .sequence = sequence};
    uint8_t body[] = "....for a\nreason"; /* which is one line for us */

    tmsg_put_le(body, (uint32_t)status, 4);
    must(tmsg_control_post(to_a, TMSG_KIND_ABORT, &head, body, body_bytes, NULL,
                           0));
    drive(scene);
}

static uint32_t next_sequence(const scene_t *scene)
{
    return scene->pair.to_a->channels.zero.tx_sequence;
}

static void expect_delivered(scene_t *scene, uint64_t seed)
{
    tmsg_request_t *sent =
        send_map(scene->pair.to_a, sample_bytes(seed, 100), TMSG_SEND_ACKED);
    tmsg_message_t *message = pair_take(&scene->pair, &scene->pair.a);

    sample_check_bytes(seed, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&scene->pair, sent));
}

static void before_its_message(size_t bytes)
{
    scene_t scene;

    open_scene(&scene);
    expect_delivered(&scene, 1);
    say_abort(&scene, next_sequence(&scene), TMSG_ERR_TIMED_OUT, 16);
    say_abort(&scene, next_sequence(&scene), TMSG_ERR_CANCELED, 16);
    must_eq(scene.refused, 0);
    tmsg_request_destroy(send_map(scene.pair.to_a, sample_bytes(2, bytes), 0));
    expect_delivered(&scene, 3);
    must_eq(scene.refused, 1);
    must_eq(scene.sequence, 1);
    must_be(scene.status, TMSG_ERR_TIMED_OUT); /* the first counts */
    cr_expect_str_eq(scene.why, "given up by its sender: for a\\x0areason");
    must_eq(scene.pair.to_b->rx.aborts, 0); /* the second is not kept */
    pair_drop(&scene.pair); /* b waits to hear what became of it */
}

Test(abort, several_may_come_before_their_messages_in_any_order)
{
    static const uint32_t order[] = {2, 0, 4, 1, 4, 2};
    scene_t scene;

    open_scene(&scene);
    expect_delivered(&scene, 1);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        say_abort(&scene, next_sequence(&scene) + order[i], TMSG_ERR_TIMED_OUT,
                  16);
    }
    must_eq(scene.pair.to_b->rx.aborts, 4);
    for (uint64_t i = 0; i < 3; i++) {
        tmsg_request_destroy(
            send_map(scene.pair.to_a, sample_bytes(i, 100), 0));
    }
    expect_delivered(&scene, 3);
    must_eq(scene.refused, 3);
    must_eq(scene.pair.to_b->rx.aborts, 1);
    pair_drop(&scene.pair); /* the last is forgotten with the connection */
}

Test(abort, may_be_faster_than_its_message)
{
    before_its_message(100);
    before_its_message(50000);
    before_its_message(3000000);
}

Test(abort, of_a_message_that_never_comes_is_forgotten_with_the_connection)
{
    scene_t scene;

    open_scene(&scene);
    say_abort(&scene, next_sequence(&scene) + 7, TMSG_ERR_CANCELED, 16);
    expect_delivered(&scene, 1);
    pair_close(&scene.pair);
    must_eq(scene.refused, 0);
}

Test(abort, of_what_was_taken_changes_nothing)
{
    scene_t scene;

    open_scene(&scene);
    expect_delivered(&scene, 1);
    say_abort(&scene, 0, TMSG_ERR_CANCELED, 16);
    expect_delivered(&scene, 2);
    pair_close(&scene.pair);
    must_eq(scene.refused, 0);
}

Test(abort, without_a_status_is_ignored)
{
    scene_t scene;

    open_scene(&scene);
    say_abort(&scene, next_sequence(&scene), TMSG_ERR_CANCELED, 3);
    expect_delivered(&scene, 1);
    pair_close(&scene.pair);
}

Test(abort, beyond_the_window_ends_the_connection)
{
    scene_t scene;

    open_scene(&scene);
    say_abort(&scene, next_sequence(&scene) + 256, TMSG_ERR_CANCELED, 16);
    must_be(pair_end_of(&scene.pair, scene.pair.to_b), TMSG_ERR_MALFORMED);
    must_say(tmsg_endpoint_error(scene.pair.to_b),
             "an abort of a message beyond the window");
    pair_drop(&scene.pair);
}

Test(abort, with_an_odd_status_is_a_refusal)
{
    static const int32_t said[] = {TMSG_OK, TMSG_CANCEL_PENDING,
                                   TMSG_ERR_CLOSED, -1000, INT32_MIN};
    scene_t scene;

    open_scene(&scene);
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        say_abort(&scene, next_sequence(&scene), said[i], 4);
        tmsg_request_destroy(
            send_map(scene.pair.to_a, sample_bytes(i, 100), 0));
        expect_delivered(&scene, i);
        must_eq(scene.refused, i + 1);
        must_be(scene.status, TMSG_ERR_REFUSED);
        cr_expect_str_eq(scene.why, "given up by its sender: ");
    }
    pair_close(&scene.pair);
}
