/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that was admitted and lies in its calls: it costs the message or the
 * connection, never the process, and nobody else. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint/consumer.h"
#include "core/bytes.h"
#include "rpc/caller.h"
#include "support/forged_messages.h"
#include "support/seeded_maps.h"

enum { CALL_ID = 1000 };

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

static tmsg_channel_t *channel_of_calls(const scene_t *scene)
{
    tmsg_channel_t *channel;

    must(tmsg_channel_get(scene->pair.to_a, TMSG_CHANNEL_CALLS, &channel));
    return channel;
}

/* A correct request without tensors, of a method with a name of 4 bytes. */
static void forge_call(const scene_t *scene, const char *name, forged_t *forged)
{
    const tmsg_preamble_t head = {.kind = TMSG_KIND_CALL,
                                  .flags = TMSG_HEADER_UNORDERED,
                                  .channel = TMSG_CHANNEL_CALLS,
                                  .message_id = 77,
                                  .sequence =
                                      channel_of_calls(scene)->tx_sequence};
    const tmsg_call_head_t call = {.type = TMSG_CALL_REQUEST,
                                   .id = CALL_ID,
                                   .text = name,
                                   .text_bytes = 4};

    forged_make_call(&scene->pair, &head, &call, forged);
}

/* A correct reply to the call of that id. */
static void forge_reply(const scene_t *scene, uint64_t id, forged_t *forged)
{
    forge_call(scene, "echo", forged);
    forged_set(forged, SAID_CALL_TYPE, TMSG_CALL_REPLY);
    forged_set(forged, SAID_CALL_ID, (int64_t)id);
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

#define ANY_RUNS UINT32_MAX /* its time may be over */

/* It costs that message, and runs so many handlers; its sender goes on. */
static void costs_the_message(scene_t *scene, const forged_t *forged,
                              unsigned runs, const char *what)
{
    unsigned before = scene->seen;

    forged_send(&scene->pair, forged);
    channel_of_calls(scene)->tx_sequence++;
    if (runs != ANY_RUNS && scene->seen - before != runs) {
        die("%s: ran %u times, not %u", what, scene->seen - before, runs);
    }
    expect_serves(scene, scene->pair.to_a);
}

/* Messages on the channel of calls, each of which costs itself and no more. */
static const struct {
    const char *what;
    unsigned runs; /* of the method */
    forged_edit_t edits[FORGED_EDITS];
    const char *name; /* NULL: that of the method */
} lies[] = {
    {"nothing", 1, {{AS_MADE, 0}}, NULL},
    {"a name longer than the preamble", 0, {{SAID_CALL_TEXT, 255}}, NULL},
    {"a name that is not UTF-8", 0, {{AS_MADE, 0}}, "\xff\xfezz"},
    {"a name with a NUL", 0, {{AS_MADE, 0}}, "ec\0o"},
    {"type 0", 0, {{SAID_CALL_TYPE, 0}, {SAID_CALL_FLAGS, 0xff}}, NULL},
    {"unknown flags", 1, {{SAID_CALL_FLAGS, 0xff}}, NULL},
    {"a reply",
     0,
     {{SAID_CALL_TYPE, TMSG_CALL_REPLY}, {SAID_CALL_FLAGS, 0xff}},
     NULL},
    {"a stream",
     0,
     {{SAID_CALL_TYPE, TMSG_STREAM_OPEN}, {SAID_CALL_FLAGS, 0xff}},
     NULL},
    {"type 255", 0, {{SAID_CALL_TYPE, 255}, {SAID_CALL_FLAGS, 0xff}}, NULL},
    {"a time of 1 us", ANY_RUNS, {{SAID_CALL_LEFT_US, 1}}, NULL},
    {"the longest time", ANY_RUNS, {{SAID_CALL_LEFT_US, -1}}, NULL},
    {"half of that", ANY_RUNS, {{SAID_CALL_LEFT_US, INT64_MIN}}, NULL},
    {"a time beyond all in ns",
     ANY_RUNS,
     {{SAID_CALL_LEFT_US, UINT64_MAX / 1000 + 1}},
     NULL},
    {"the id of another call", 1, {{AS_MADE, 0}}, NULL},
    {"the same once more", 1, {{AS_MADE, 0}}, NULL},
    {"the same a third time", 1, {{AS_MADE, 0}}, NULL},
    {"a reply to nothing",
     0,
     {{SAID_CALL_TYPE, TMSG_CALL_REPLY}, {SAID_CALL_ID, 0}},
     NULL},
    {"a reply to 1",
     0,
     {{SAID_CALL_TYPE, TMSG_CALL_REPLY}, {SAID_CALL_ID, 1}},
     NULL},
    {"a reply to the first that there might be",
     0,
     {{SAID_CALL_TYPE, TMSG_CALL_REPLY}, {SAID_CALL_ID, INT64_C(1) << 32}},
     NULL},
    {"a reply to a later one",
     0,
     {{SAID_CALL_TYPE, TMSG_CALL_REPLY}, {SAID_CALL_ID, INT64_C(7) << 32 | 3}},
     NULL},
    {"a reply to the last id",
     0,
     {{SAID_CALL_TYPE, TMSG_CALL_REPLY}, {SAID_CALL_ID, -1}},
     NULL},
};

Test(rpc_lies, each_costs_its_message)
{
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        forge_call(&scene, lies[i].name == NULL ? "echo" : lies[i].name,
                   &forged);
        forged_edit(&forged, lies[i].edits);
        costs_the_message(&scene, &forged, lies[i].runs, lies[i].what);
    }
    close_scene(&scene);
}

Test(rpc_lies, a_preamble_that_breaks_off)
{
    scene_t scene;
    forged_t forged;

    open_scene(&scene);
    for (uint8_t bytes = 33; bytes < TMSG_CALL_BYTES + 4; bytes++) {
        forge_call(&scene, "echo", &forged);
        forged_set(&forged, SAID_LENGTH, bytes);
        forged_set(&forged, SENT_HEADER, bytes + 1);
        forged.header[bytes] = 0x80;
        costs_the_message(&scene, &forged, 0, "a broken preamble");
    }
    close_scene(&scene);
}

/* Kinds of messages on channels of others. */
Test(rpc_lies, each_costs_its_connection)
{
    static const forged_edit_t wrong[][FORGED_EDITS] = {
        {{SAID_KIND, TMSG_KIND_MAP}},
        {{SAID_CHANNEL, 0}, {SAID_SEQUENCE, 0}},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        scene_t scene;
        forged_t forged;

        open_scene(&scene);
        forge_call(&scene, "echo", &forged);
        forged_edit(&forged, wrong[i]);
        forged_send(&scene.pair, &forged);
        must_be(pair_end_of(&scene.pair, scene.pair.to_b), TMSG_ERR_MALFORMED);
        expect_serves(&scene, side_dial(&scene.pair.b, &scene.pair.a));
        close_scene(&scene);
    }
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
    forge_reply(&scene, UINT64_C(1) << 32, &forged); /* this */
    costs_the_message(&scene, &forged, 0, "another's reply");
    pair_await(&scene.pair, has_ended, call, "the end of a call");
    must_be(tmsg_call_status(call), TMSG_ERR_UNAVAILABLE); /* b's word */
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
    forge_reply(&scene, call->id, &forged);
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
        forge_reply(&scene, (uint64_t)(i + 1) << 32, &forged);
        forged_set(&forged, SAID_CALL_STATUS, statuses[i]);
        costs_the_message(&scene, &forged, 0, "an odd status");
        pair_await(&scene.pair, has_ended, call, "the end of a call");
        must_true(tmsg_call_status(call) == TMSG_ERR_REFUSED ||
                  tmsg_call_status(call) == TMSG_ERR_UNAVAILABLE);
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

/* Neither is numbered: the one may overtake the other. */
Test(rpc_lies, a_call_that_was_given_up_before_the_first_came_is_not_run)
{
    scene_t scene;
    forged_t call, uncall;
    uint8_t id[8];

    open_scene(&scene);
    forge_call(&scene, "echo", &call);
    tmsg_put_le(id, CALL_ID, sizeof(id));
    forged_make(&scene.pair, (tmsg_preamble_t){.kind = TMSG_KIND_UNCALL}, id,
                sizeof(id), &uncall);
    forged_send(&scene.pair, &uncall);
    forged_send(&scene.pair, &call);
    must_eq(scene.seen, 0);
    close_scene(&scene);
}
