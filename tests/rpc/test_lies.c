/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that was admitted and lies in its calls: it costs the message or the
 * connection, never the process, and nobody else. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint/consumer.h"
#include "core/bytes.h"
#include "rpc/caller.h"
#include "support/forged.h"
#include "support/sample.h"

typedef struct {
    pair_t pair;
    tmsg_server_t *server; /* a's */
    unsigned seen;
} scene_t;

static void echo(void *arg, tmsg_task_t *task)
{
    ((scene_t *)arg)->seen++;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static void open_scene(scene_t *scene)
{
    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register(scene->server, "echo", echo, scene, NULL));
}

static void close_scene(scene_t *scene)
{
    tmsg_server_destroy(scene->server);
    pair_drop(&scene->pair);
}

/* A correct request without tensors. */
static forged_t forge(scene_t *scene)
{
    tmsg_channel_t *channel;

    must(tmsg_channel_get(scene->pair.to_a, TMSG_CHANNEL_CALLS, &channel));
    return (forged_t){
        .head = {.kind = TMSG_KIND_CALL,
                 .flags = TMSG_HEADER_UNORDERED,
                 .channel = TMSG_CHANNEL_CALLS,
                 .message_id = 77,
                 .endpoint_id = scene->pair.to_a->peer_id,
                 .sequence = channel->tx_sequence,
                 .body_bytes = 1},
        .call = {.type = TMSG_CALL_REQUEST,
                 .id = 1000,
                 .text = "echo",
                 .text_bytes = 4},
    };
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static void expect_serves(scene_t *scene, tmsg_endpoint_t *endpoint)
{
    tmsg_map_t *map = sample_bytes(3, 3000);
    tmsg_call_t *call;

    must(tmsg_endpoint_call(endpoint, "echo", map, NULL, &call));
    tmsg_map_destroy(map);
    pair_await(&scene->pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_OK);
    sample_check_bytes(3, 3000, tmsg_call_reply(call));
    tmsg_call_destroy(call);
}

/* It costs that message; the sender of it goes on. */
static void costs_the_message(scene_t *scene, forged_t *forged, unsigned runs)
{
    tmsg_channel_t *channel =
        tmsg_channel_find(scene->pair.to_a, TMSG_CHANNEL_CALLS);
    unsigned before = scene->seen;

    forged_send(&scene->pair, forged);
    channel->tx_sequence++;
    must_eq(scene->seen - before, runs);
    expect_serves(scene, scene->pair.to_a);
}

static void costs_the_connection(scene_t *scene, forged_t *forged)
{
    forged_send(&scene->pair, forged);
    must_be(pair_end_of(&scene->pair, scene->pair.to_b), TMSG_ERR_MALFORMED);
    expect_serves(scene, side_dial(&scene->pair.b, &scene->pair.a));
}

Test(rpc_lies, what_is_forged_right_is_run)
{
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    forged = forge(&scene);
    forged_encode(&forged);
    costs_the_message(&scene, &forged, 1);
    close_scene(&scene);
}

Test(rpc_lies, a_preamble_that_breaks_off)
{
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    for (uint8_t bytes = 33; bytes < TMSG_CALL_BYTES + 4; bytes++) {
        forged = forge(&scene);
        forged_encode(&forged);
        forged.header[3] = bytes;
        forged.header[bytes] = 0x80;
        forged.bytes = bytes + 1u;
        costs_the_message(&scene, &forged, 0);
    }
    close_scene(&scene);
}

Test(rpc_lies, a_text_longer_than_its_preamble)
{
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    forged = forge(&scene);
    forged_encode(&forged);
    forged.header[35] = 255;
    costs_the_message(&scene, &forged, 0);
    close_scene(&scene);
}

Test(rpc_lies, a_name_that_is_no_text)
{
    static const char *const names[] = {"\xff\xfe"
                                        "ab",
                                        "ec\0o"};
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    for (size_t i = 0; i < 2; i++) {
        forged = forge(&scene);
        forged.call.text = names[i];
        forged_encode(&forged);
        costs_the_message(&scene, &forged, 0);
    }
    close_scene(&scene);
}

Test(rpc_lies, types_and_flags_of_no_meaning)
{
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    for (unsigned type = 0; type < 256; type += type == 3 ? 252 : 1) {
        forged = forge(&scene);
        forged_encode(&forged);
        forged.header[33] = (uint8_t)type;
        forged.header[34] = 0xff;
        costs_the_message(&scene, &forged, type == TMSG_CALL_REQUEST);
    }
    close_scene(&scene);
}

Test(rpc_lies, times_of_no_meaning_are_times)
{
    static const uint64_t times[] = {1, UINT64_MAX, UINT64_C(1) << 63,
                                     UINT64_MAX / 1000 + 1};
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    for (size_t i = 0; i < 4; i++) {
        forged = forge(&scene);
        forged.call.left_us = times[i];
        forged_encode(&forged);
        forged_send(&scene.pair, &forged);
        tmsg_channel_find(scene.pair.to_a, TMSG_CHANNEL_CALLS)->tx_sequence++;
        expect_serves(&scene, scene.pair.to_a);
    }
    close_scene(&scene);
}

Test(rpc_lies, the_id_of_another_call_twice)
{
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    for (int i = 0; i < 3; i++) {
        forged = forge(&scene);
        forged_encode(&forged);
        costs_the_message(&scene, &forged, 1);
    }
    close_scene(&scene);
}

Test(rpc_lies, replies_to_nothing)
{
    static const uint64_t ids[] = {0, 1, UINT64_C(1) << 32,
                                   UINT64_C(7) << 32 | 3, UINT64_MAX};
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    for (size_t i = 0; i < 5; i++) {
        forged = forge(&scene);
        forged.call.type = TMSG_CALL_REPLY;
        forged.call.id = ids[i];
        forged_encode(&forged);
        costs_the_message(&scene, &forged, 0);
    }
    close_scene(&scene);
}

/* A connection's replies are for its own calls: an id is no secret. */
Test(rpc_lies, a_reply_to_the_call_of_another_connection)
{
    scene_t scene;
    tmsg_endpoint_t *other;
    tmsg_call_t *call;
    forged_t forged;

    open_scene(&scene);
    other = side_dial(&scene.pair.b, &scene.pair.a);
    expect_serves(&scene, other);
    must(tmsg_endpoint_call(side_accept(&scene.pair.a), "x", NULL, NULL,
                            &call)); /* the first of a's worker: its id is */
    forged = forge(&scene);
    forged.call.type = TMSG_CALL_REPLY;
    forged.call.id = UINT64_C(1) << 32; /* this */
    forged_encode(&forged);
    costs_the_message(&scene, &forged, 0);
    pair_await(&scene.pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_ERR_UNSUPPORTED); /* b's word */
    tmsg_call_destroy(call);
    close_scene(&scene);
}

static bool is_coming(void *arg) { return ((tmsg_call_t *)arg)->coming; }

/* The first one waits for memory. */
Test(rpc_lies, a_second_reply_while_the_first_comes)
{
    enum { BYTES = 1 << 20 };
    const side_options_t small = {
        .limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                   .held_bytes = BYTES + BYTES / 2}};
    tmsg_map_t *map = sample_bytes(2, BYTES);
    tmsg_message_t *held;
    tmsg_call_t *call;
    forged_t forged;
    scene_t scene = {.seen = 0};

    pair_open(&scene.pair, LINK_SHM, DRIVE_POLLING, &small, NULL);
    must(tmsg_server_create(scene.pair.b.worker, NULL, &scene.server));
    must(tmsg_server_register(scene.server, "echo", echo, &scene, NULL));
    tmsg_request_destroy(send_map(scene.pair.to_a, sample_bytes(1, BYTES), 0));
    held = pair_take(&scene.pair, &scene.pair.a);
    must(tmsg_endpoint_call(scene.pair.to_b, "echo", map, NULL, &call));
    pair_await(&scene.pair, is_coming, call, "the head of a reply");
    forged = forge(&scene);
    forged.call.type = TMSG_CALL_REPLY;
    forged.call.id = call->id;
    forged.call.text_bytes = 0;
    forged_encode(&forged);
    forged_send(&scene.pair, &forged);
    must_be(tmsg_call_status(call), TMSG_IN_PROGRESS);
    tmsg_message_destroy(held);
    pair_await(&scene.pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_OK);
    sample_check_bytes(2, BYTES, tmsg_call_reply(call));
    tmsg_call_destroy(call);
    tmsg_map_destroy(map);
    close_scene(&scene);
}

Test(rpc_lies, a_status_of_no_meaning_is_a_refusal)
{
    static const int32_t statuses[] = {1, -1000, INT32_MIN, INT32_MAX};
    scene_t scene;
    tmsg_call_t *call;
    forged_t forged;

    open_scene(&scene);
    for (size_t i = 0; i < 4; i++) {
        must(tmsg_endpoint_call(scene.pair.to_b, "x", NULL, NULL, &call));
        forged = forge(&scene);
        forged.call.type = TMSG_CALL_REPLY;
        forged.call.id = (uint64_t)(i + 1) << 32;
        forged.call.status = statuses[i];
        forged.call.text_bytes = 0;
        forged_encode(&forged);
        costs_the_message(&scene, &forged, 0);
        pair_await(&scene.pair, has_ended, call, "the end of a call");
        must_true(tmsg_call_status(call) == TMSG_ERR_REFUSED ||
                  tmsg_call_status(call) == TMSG_ERR_UNSUPPORTED);
        tmsg_call_destroy(call);
    }
    close_scene(&scene);
}

Test(rpc_lies, cancels_of_nothing)
{
    scene_t scene;

    open_scene(&scene);
    for (uint64_t id = 0; id < 100; id++) {
        tmsg_calls_cancel(scene.pair.to_a, id);
    }
    expect_serves(&scene, scene.pair.to_a);
    close_scene(&scene);
}

Test(rpc_lies, a_message_on_the_channel_of_calls)
{
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    forged = forge(&scene);
    forged.head.kind = TMSG_KIND_MAP;
    forged_encode(&forged);
    costs_the_connection(&scene, &forged);
    close_scene(&scene);
}

Test(rpc_lies, a_call_on_a_channel_of_messages)
{
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    forged = forge(&scene);
    forged.head.channel = 0;
    forged.head.sequence = 0;
    forged_encode(&forged);
    costs_the_connection(&scene, &forged);
    close_scene(&scene);
}

/* Neither is numbered: the one may overtake the other. */
Test(rpc_lies, a_call_that_was_given_up_before_the_first_came_is_not_run)
{
    scene_t scene;
    forged_t call, uncall;

    open_scene(&scene);
    call = forge(&scene);
    uncall = forge(&scene);
    uncall.head = (tmsg_preamble_t){.kind = TMSG_KIND_UNCALL,
                                    .endpoint_id = call.head.endpoint_id,
                                    .body_bytes = 8};
    tmsg_preamble_encode(&uncall.head, uncall.header);
    tmsg_put_le(uncall.header + TMSG_PREAMBLE_BYTES, call.call.id, 8);
    uncall.bytes = TMSG_PREAMBLE_BYTES + 8;
    forged_send(&scene.pair, &uncall);
    forged_encode(&call);
    forged_send(&scene.pair, &call);
    must_eq(scene.seen, 0);
    close_scene(&scene);
}
