/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two sides of a session tell each other of streams, whose messages
 * are not taken in the order they came in: a FINISH is at once, and what is
 * before it when it is read. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/session/resume.h"
#include "core/bytes.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define CAPACITY 4096
#define CHANNEL 1025 /* of the first stream that b opens */

/* b has sent a its OPEN, two maps and a FINISH, all of which has come and
 * nothing of which was read. Then the connection broke. */
typedef struct {
    joined_t joined;
    tmsg_server_t *server;
    tmsg_call_stream_t *stream, *kept;
    tmsg_request_t *sent[2];
} scene_t;

static void keep(void *arg, tmsg_call_stream_t *stream)
{
    *(tmsg_call_stream_t **)arg = tmsg_call_stream_keep(stream);
}

static bool all_have_come(void *arg)
{
    scene_t *scene = arg;
    const tmsg_channel_t *channel =
        tmsg_channel_find(scene->joined.pair.to_b, CHANNEL);

    return channel != NULL && channel->rx_sequence == 4 &&
           channel->rx_consumed == 2 && scene->kept != NULL;
}

static void open_scene(scene_t *scene)
{
    const how_t how = {.link = LINK_TCP};
    pair_t *pair = &scene->joined.pair;

    memset(scene, 0, sizeof(*scene));
    joined_open(&scene->joined, &how);
    must(tmsg_server_create(pair->a.worker, NULL, &scene->server));
    must(tmsg_server_register_stream(scene->server, "keep", keep, &scene->kept,
                                     NULL));
    must(tmsg_endpoint_open_stream(pair->to_a, "keep", NULL, NULL,
                                   &scene->stream));
    for (unsigned i = 0; i < 2; i++) {
        tmsg_map_t *map = sample_bytes(i, 100);

        must(tmsg_call_stream_send(scene->stream, map, NULL, &scene->sent[i]));
        tmsg_map_destroy(map);
    }
    must(tmsg_call_stream_finish(scene->stream));
    pair_await(pair, all_have_come, scene, "all that b sent");
    joined_break(&scene->joined);
}

static void read_both(scene_t *scene)
{
    for (unsigned i = 0; i < 2; i++) {
        tmsg_message_t *message = NULL;

        must(tmsg_call_stream_try_recv(scene->kept, &message));
        sample_check_bytes(i, 100, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
}

static void close_scene(scene_t *scene)
{
    joined_mend(&scene->joined);
    for (unsigned i = 0; i < 2; i++) {
        must(pair_finish(&scene->joined.pair, scene->sent[i]));
    }
    must(tmsg_call_stream_end(scene->kept, TMSG_OK, 0, NULL, NULL));
    tmsg_call_stream_destroy(scene->kept);
    tmsg_call_stream_destroy(scene->stream);
    tmsg_server_destroy(scene->server);
    joined_close(&scene->joined);
}

/* Where the fields of a record are. */
enum { RECEIVED = 6, TAKEN = 10, OUTCOMES = 26, KEPT = 28, LISTS = 30 };

/* What a would tell of the stream's channel, and where its `ahead` is. */
static uint8_t *state_of(const scene_t *scene, uint8_t *state, size_t *bytes_p,
                         uint8_t **ahead_p)
{
    uint8_t *at = state;

    must(tmsg_resume_encode(scene->joined.pair.to_b, state, CAPACITY, bytes_p));
    while (tmsg_get_le(at + 4, 2) != CHANNEL) {
        at += 4 + tmsg_get_le(at, 4);
        must_true(at < state + *bytes_p);
    }
    must_eq(tmsg_get_le(at + RECEIVED, 4), 4);
    must_eq(tmsg_get_le(at + OUTCOMES, 2), 0);
    *ahead_p = at + LISTS + 8 * tmsg_get_le(at + KEPT, 2);
    return at;
}

Test(stream_resume, tells_what_was_taken_in_whatever_order)
{
    uint8_t state[CAPACITY], *record, *ahead;
    size_t bytes;
    scene_t scene;

    open_scene(&scene);
    record = state_of(&scene, state, &bytes, &ahead);
    must_eq(tmsg_get_le(record + TAKEN, 4), 1);
    must_eq(tmsg_get_le(ahead, 4), 1);
    must_eq(tmsg_get_le(ahead + 4, 4), 3); /* the FINISH */
    must_eq(tmsg_get_le(ahead + 8, 4), 1);
    read_both(&scene);
    record = state_of(&scene, state, &bytes, &ahead);
    must_eq(tmsg_get_le(record + TAKEN, 4), 4);
    must_eq(tmsg_get_le(ahead, 4), 0);
    close_scene(&scene);
}

Test(stream_resume, sends_that_were_taken_ahead_are_done)
{
    uint8_t state[CAPACITY], *ahead;
    size_t bytes;
    scene_t scene;

    open_scene(&scene);
    (void)state_of(&scene, state, &bytes, &ahead);
    tmsg_put_le(ahead + 4, 2, 4); /* the second map, and the FINISH */
    tmsg_put_le(ahead + 8, 2, 4);
    must(tmsg_resume_judge(scene.joined.pair.to_a, state, bytes));
    must(tmsg_resume_apply(scene.joined.pair.to_a, state, bytes));
    must_be(tmsg_request_test(scene.sent[0]), TMSG_IN_PROGRESS);
    must_be(tmsg_request_test(scene.sent[1]), TMSG_OK);
    read_both(&scene);
    close_scene(&scene);
}

Test(stream_resume, judges_what_was_taken_ahead)
{
    static const struct {
        uint32_t count, first, numbers;
        const char *words;
    } lies[] = {
        {2, 3, 1, "longer than"},           {UINT32_MAX, 3, 1, "longer than"},
        {1, 0, 1, "not received"},          {1, 3, 2, "not received"},
        {1, 3, UINT32_MAX, "not received"}, {1, 5, 0, "not received"},
        {1, UINT32_MAX, 1, "not received"},
    };
    uint8_t state[CAPACITY], *ahead;
    size_t bytes;
    scene_t scene;

    open_scene(&scene);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        (void)state_of(&scene, state, &bytes, &ahead);
        tmsg_put_le(ahead, lies[i].count, 4);
        tmsg_put_le(ahead + 4, lies[i].first, 4);
        tmsg_put_le(ahead + 8, lies[i].numbers, 4);
        must_be(tmsg_resume_judge(scene.joined.pair.to_a, state, bytes),
                TMSG_ERR_MALFORMED);
        must_say(tmsg_error_message(), lies[i].words);
    }
    read_both(&scene);
    close_scene(&scene);
}

/* A record without the list is one of a list of none. */
Test(stream_resume, the_list_may_be_missing)
{
    uint8_t state[CAPACITY], *record, *ahead;
    size_t bytes;
    scene_t scene;

    open_scene(&scene);
    record = state_of(&scene, state, &bytes, &ahead);
    must_true(ahead + 12 == state + bytes);
    tmsg_put_le(record, tmsg_get_le(record, 4) - 12, 4);
    must(tmsg_resume_judge(scene.joined.pair.to_a, state, bytes - 12));
    read_both(&scene);
    close_scene(&scene);
}
