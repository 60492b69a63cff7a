/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that was admitted and lies in its streams: it costs the message, the
 * stream or the connection, never the process, and nobody else. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint/consumer.h"
#include "rpc/server.h"
#include "support/forged_messages.h"
#include "support/seeded_maps.h"

typedef struct {
    pair_t pair;
    tmsg_server_t *server;    /* a's; b lies */
    tmsg_call_stream_t *kept; /* the newest of its handler */
    unsigned seen;
} scene_t;

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    scene_t *scene = arg;

    tmsg_call_stream_destroy(scene->kept);
    scene->kept = tmsg_call_stream_keep(stream);
    scene->seen++;
}

static void echo(void *arg, tmsg_call_stream_t *stream)
{
    (void)arg;
    must(tmsg_call_stream_send(stream, tmsg_call_stream_map(stream), NULL,
                               NULL));
    must(tmsg_call_stream_end(stream, TMSG_OK, 0, NULL, NULL));
}

static void open_scene(scene_t *scene)
{
    memset(scene, 0, sizeof(*scene));
    pair_open(&scene->pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    must(tmsg_server_create(scene->pair.a.worker, NULL, &scene->server));
    must(tmsg_server_register_stream(scene->server, "keep", keep, scene, NULL));
    must(tmsg_server_register_stream(scene->server, "echo", echo, NULL, NULL));
}

static void close_scene(scene_t *scene)
{
    tmsg_call_stream_destroy(scene->kept);
    tmsg_server_destroy(scene->server);
    pair_drop(&scene->pair);
}

/* A message of a stream of that type and id, on that channel. */
static void send_forged(scene_t *scene, uint8_t kind, uint16_t channel,
                        uint32_t sequence, const tmsg_call_head_t *call)
{
    const tmsg_preamble_t head = {
        .kind = kind,
        .flags = kind == TMSG_KIND_STREAM_OVER ? TMSG_HEADER_UNORDERED : 0,
        .channel = channel,
        .message_id = 77,
        .sequence = sequence};
    forged_t forged;

    forged_make_call(&scene->pair, &head, call, &forged);
    forged_send(&scene->pair, &forged);
}

/* One that is right in its place: on the channel of b's streams of that index,
 * or on that of calls. */
static void say(scene_t *scene, unsigned index, uint8_t type, uint64_t id)
{
    bool over = type >= TMSG_STREAM_CANCEL;
    uint16_t number = (uint16_t)(TMSG_CHANNEL_STREAMS + 2 * index);
    const char *text = type == TMSG_STREAM_OPEN ? "keep" : "";
    const tmsg_call_head_t call = {.type = type,
                                   .id = id,
                                   .stream = over ? number : 0,
                                   .text = text,
                                   .text_bytes = strlen(text)};
    tmsg_channel_t *channel;

    must(tmsg_channel_get(scene->pair.to_a, over ? TMSG_CHANNEL_CALLS : number,
                          &channel));
    send_forged(scene, over ? TMSG_KIND_STREAM_OVER : TMSG_KIND_STREAM,
                channel->number, channel->tx_sequence++, &call);
}

static bool is_over(void *arg)
{
    return tmsg_call_stream_status(arg) != TMSG_IN_PROGRESS;
}

static void expect_serves(scene_t *scene, tmsg_endpoint_t *endpoint)
{
    tmsg_map_t *map = sample_bytes(3, 3000);
    tmsg_call_stream_t *stream;
    tmsg_message_t *message;

    must(tmsg_endpoint_open_stream(endpoint, "echo", map, NULL, &stream));
    tmsg_map_destroy(map);
    pair_await(&scene->pair, is_over, stream, "the end of a stream");
    must(tmsg_call_stream_status(stream));
    must(tmsg_call_stream_try_recv(stream, &message));
    sample_check_bytes(3, 3000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    tmsg_call_stream_destroy(stream);
}

static unsigned unread(const tmsg_call_stream_t *stream)
{
    tmsg_call_stream_stats_t stats;

    tmsg_call_stream_stats(stream, &stats);
    return (unsigned)stats.unread;
}

Test(stream_lies, what_is_forged_right_is_a_stream)
{
    scene_t scene;
    tmsg_message_t *message;

    open_scene(&scene);
    say(&scene, 7, TMSG_STREAM_OPEN, 1000);
    must_eq(scene.seen, 1);
    say(&scene, 7, TMSG_STREAM_ITEM, 1000);
    must_eq(unread(scene.kept), 1);
    say(&scene, 7, TMSG_STREAM_FINISH, 1000);
    must(tmsg_call_stream_try_recv(scene.kept, &message));
    tmsg_message_destroy(message);
    must(tmsg_call_stream_try_recv(scene.kept, &message));
    must_true(message == NULL);
    must(tmsg_call_stream_end(scene.kept, TMSG_OK, 0, NULL, NULL));
    expect_serves(&scene, scene.pair.to_a);
    close_scene(&scene);
}

Test(stream_lies, messages_of_streams_that_are_none)
{
    static const uint64_t ids[] = {0, 1, 1001, UINT64_C(1) << 32, UINT64_MAX};
    scene_t scene;

    open_scene(&scene);
    for (uint8_t type = TMSG_STREAM_ITEM; type <= TMSG_STREAM_OVER; type++) {
        for (int i = 0; i < 5; i++) {
            say(&scene, 3, type, ids[i]);
        }
    }
    expect_serves(&scene, scene.pair.to_a);
    must_eq(scene.seen, 0);
    say(&scene, 3, TMSG_STREAM_OPEN, 1000); /* as if nothing had been */
    must_eq(scene.seen, 1);
    must_eq(unread(scene.kept), 0);
    for (int i = 0; i < 5; i++) { /* beside it */
        say(&scene, 3, TMSG_STREAM_ITEM, ids[i]);
        say(&scene, 3, TMSG_STREAM_FINISH, ids[i]);
        say(&scene, 3, TMSG_STREAM_CANCEL, ids[i]);
        say(&scene, 3, TMSG_STREAM_END, 1000);
        say(&scene, 3, TMSG_STREAM_OVER, 1000);
    }
    must_be(tmsg_call_stream_status(scene.kept), TMSG_IN_PROGRESS);
    must_eq(unread(scene.kept), 0);
    close_scene(&scene);
}

Test(stream_lies, what_comes_after_the_last_ends_the_stream)
{
    static const uint8_t types[] = {TMSG_STREAM_ITEM, TMSG_STREAM_FINISH};
    scene_t scene;

    open_scene(&scene);
    for (unsigned i = 0; i < 2; i++) {
        say(&scene, i, TMSG_STREAM_OPEN, 1000 + i);
        say(&scene, i, TMSG_STREAM_FINISH, 1000 + i);
        must_be(tmsg_call_stream_status(scene.kept), TMSG_IN_PROGRESS);
        say(&scene, i, types[i], 1000 + i);
        must_be(tmsg_call_stream_status(scene.kept), TMSG_ERR_MALFORMED);
        say(&scene, i, types[i], 1000 + i);
    }
    expect_serves(&scene, side_dial(&scene.pair.b, &scene.pair.a));
    close_scene(&scene);
}

Test(stream_lies, one_that_is_opened_over_another)
{
    scene_t scene;
    tmsg_call_stream_t *first;

    open_scene(&scene);
    say(&scene, 5, TMSG_STREAM_OPEN, 1000);
    first = scene.kept;
    say(&scene, 5, TMSG_STREAM_OPEN, 1001);
    say(&scene, 5, TMSG_STREAM_OPEN, 1000);
    must_eq(scene.seen, 1);
    must_be(tmsg_call_stream_status(first), TMSG_IN_PROGRESS);
    say(&scene, 5, TMSG_STREAM_CANCEL, 1001); /* which is nobody's */
    must_be(tmsg_call_stream_status(first), TMSG_IN_PROGRESS);
    say(&scene, 5, TMSG_STREAM_CANCEL, 1000);
    must_be(tmsg_call_stream_status(first), TMSG_ERR_CANCELED);
    say(&scene, 5, TMSG_STREAM_OPEN, 1002);
    must_eq(scene.seen, 2);
    close_scene(&scene);
}

Test(stream_lies, a_cancel_that_is_faster_than_its_stream)
{
    scene_t scene;

    open_scene(&scene);
    say(&scene, 5, TMSG_STREAM_CANCEL, 1000);
    say(&scene, 5, TMSG_STREAM_OPEN, 1000);
    must_eq(scene.seen, 0);
    say(&scene, 5, TMSG_STREAM_OPEN, 1001);
    must_eq(scene.seen, 1);
    close_scene(&scene);
}

/* That a stream is over, or let go of, whosever it is. */
static void say_over(scene_t *scene, uint8_t type, uint16_t number, uint64_t id)
{
    const tmsg_call_head_t call = {
        .type = type, .id = id, .stream = number, .text = ""};
    tmsg_channel_t *calls;

    must(tmsg_channel_get(scene->pair.to_a, TMSG_CHANNEL_CALLS, &calls));
    send_forged(scene, TMSG_KIND_STREAM_OVER, TMSG_CHANNEL_CALLS,
                calls->tx_sequence++, &call);
}

/* b's words about streams that a opened, or that nobody can have. */
Test(stream_lies, words_about_the_streams_of_others)
{
    scene_t scene;
    tmsg_call_stream_t *stream;

    open_scene(&scene);
    for (uint16_t number = 1000; number < 2100; number += 7) {
        say_over(&scene, TMSG_STREAM_CANCEL, number, number);
        say_over(&scene, TMSG_STREAM_OVER, number, number);
    }
    expect_serves(&scene, scene.pair.to_a);
    must(tmsg_endpoint_open_stream(scene.pair.to_b, "x", NULL, NULL, &stream));
    say_over(&scene, TMSG_STREAM_OVER, TMSG_CHANNEL_STREAMS + 1,
             UINT64_C(1) << 32); /* OK, which it cannot be */
    pair_await(&scene.pair, is_over, stream, "the end of a stream");
    must_true(tmsg_call_stream_status(stream) == TMSG_ERR_REFUSED ||
              tmsg_call_stream_status(stream) == TMSG_ERR_UNSUPPORTED);
    tmsg_call_stream_destroy(stream);
    expect_serves(&scene, scene.pair.to_a);
    close_scene(&scene);
}

Test(stream_lies, messages_on_channels_of_others)
{
    static const struct {
        uint8_t kind, type;
        uint16_t channel;
    } lies[] = {
        {TMSG_KIND_STREAM, TMSG_STREAM_OPEN, 0},
        {TMSG_KIND_STREAM, TMSG_STREAM_OPEN, 3},
        {TMSG_KIND_STREAM, TMSG_STREAM_OPEN, TMSG_CHANNEL_CALLS},
        {TMSG_KIND_STREAM, TMSG_STREAM_OPEN,
         TMSG_CHANNEL_STREAMS + 2 * TMSG_STREAMS_MOST},
        {TMSG_KIND_STREAM_OVER, TMSG_STREAM_OVER, TMSG_CHANNEL_STREAMS},
        {TMSG_KIND_CALL, TMSG_CALL_REQUEST, TMSG_CHANNEL_STREAMS},
        {TMSG_KIND_MAP, 0, TMSG_CHANNEL_STREAMS},
    };

    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        const tmsg_call_head_t call = {
            .type = lies[i].type, .id = 1, .text = ""};
        scene_t scene;

        open_scene(&scene);
        send_forged(&scene, lies[i].kind, lies[i].channel, 0, &call);
        must_be(pair_end_of(&scene.pair, scene.pair.to_b), TMSG_ERR_MALFORMED);
        expect_serves(&scene, side_dial(&scene.pair.b, &scene.pair.a));
        close_scene(&scene);
    }
}

/* Types that are of another kind, or of none; preambles that break off. */
Test(stream_lies, messages_that_cannot_be_read)
{
    scene_t scene;

    open_scene(&scene);
    for (unsigned type = 0; type < 12; type++) {
        if (type < TMSG_STREAM_OPEN || type > TMSG_STREAM_END) {
            say(&scene, 2, (uint8_t)(type > 8 ? type : 0), 1000);
        }
    }
    say(&scene, 4, TMSG_STREAM_OPEN, 1000);
    say(&scene, 4, 99, 1000); /* a hole in it */
    expect_serves(&scene, scene.pair.to_a);
    close_scene(&scene);
}
