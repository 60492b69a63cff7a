/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Peers that lie about where a session is: it ends in words, and nothing
 * else. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "am/connect/link.h"
#include "am/endpoint/session.h"
#include "am/session/resume.h"
#include "core/bytes.h"
#include "support/channels.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define CAPACITY 4096

/* Both sides away, with messages each way on channels 0 and 2 that were taken,
 * refused, not taken, and not sent yet; `state` is what b would tell a. */
typedef struct {
    joined_t joined;
    tmsg_request_t *sent[4];
    uint8_t state[CAPACITY];
    size_t bytes;
} scene_t;

static bool has_three(void *arg)
{
    const tmsg_endpoint_t *endpoint = arg;

    return endpoint->channels.zero.rx_sequence == 2 &&
           endpoint->channels.count == 2 &&
           endpoint->channels.zero.next->rx_sequence == 1;
}

static void open_scene(scene_t *scene)
{
    const how_t how = {.link = LINK_TCP};
    pair_t *pair = &scene->joined.pair;

    memset(scene, 0, sizeof(*scene));
    joined_open(&scene->joined, &how);
    /* Which would be dialled meanwhile, and taken for b's next attempt. */
    pair_await(pair, endpoint_has_bulk, pair->to_a, "a bulk stream at b");
    pair_await(pair, endpoint_has_bulk, pair->to_b, "a bulk stream at a");
    for (unsigned i = 0; i < 3; i++) {
        scene->sent[i] = send_on(pair->to_a, i == 2 ? 2 : 0,
                                 sample_bytes(i, 100), TMSG_SEND_ACKED);
        send_bytes(pair->to_b, i == 2 ? 2 : 0, i, 100, TMSG_SEND_ACKED);
    }
    pair_await(pair, has_three, pair->to_b, "messages at a");
    pair_await(pair, has_three, pair->to_a, "messages at b");
    tmsg_message_destroy(pair_take(pair, &pair->a));
    tmsg_message_destroy(pair_take(pair, &pair->b));
    must(pair_finish(pair, scene->sent[0]));
    joined_break(&scene->joined);
    scene->sent[0] =
        send_on(pair->to_a, 0, sample_bytes(3, 100), TMSG_SEND_ACKED);
    must(tmsg_resume_encode(pair->to_a, scene->state, CAPACITY, &scene->bytes));
}

static void drop_requests(scene_t *scene, tmsg_status_t wanted)
{
    for (int i = 0; i < 3; i++) {
        must_be(pair_finish(&scene->joined.pair, scene->sent[i]), wanted);
    }
}

/* Goes on as if nothing had been. */
static void close_well(scene_t *scene)
{
    pair_t *pair = &scene->joined.pair;

    joined_mend(&scene->joined);
    for (int i = 0; i < 3; i++) {
        tmsg_message_destroy(pair_take(pair, &pair->a));
    }
    for (int i = 0; i < 2; i++) {
        tmsg_message_destroy(pair_take(pair, &pair->b));
    }
    drop_requests(scene, TMSG_OK);
    joined_close(&scene->joined);
}

/* Where the fields of a record are. */
enum {
    LENGTH = 0,
    CHANNEL = 4,
    RECEIVED = 6,
    TAKEN = 10,
    CONSUMED = 14,
    KNOWN = 18,
    SENT = 22,
    OUTCOMES = 26,
    KEPT = 28,
    LISTS = 30
};

/* `add` to a field of so many bytes of the first record. */
static const struct {
    const char *what;
    size_t at, bytes;
    int32_t add;
    const char *words;
} lies[] = {
    {"received more than was sent", RECEIVED, 4, 1, "never sent"},
    {"received far more", RECEIVED, 4, 1 << 30, "never sent"},
    {"received half the range more", RECEIVED, 4, INT32_MIN, "received"},
    {"received less than none", RECEIVED, 4, -3, "or no more"},
    {"received less than was taken", RECEIVED, 4, -2, "not received"},
    {"taken more than was received", TAKEN, 4, 2, "not received"},
    {"consumed more than was received", CONSUMED, 4, 2, "not received"},
    {"consumed less than none", CONSUMED, 4, -2, "not received"},
    {"known beyond what was received", KNOWN, 4, 3, "not received"},
    {"sent less than came", SENT, 4, -1, "an impossible number of messages"},
    {"sent beyond the window", SENT, 4, 1000,
     "an impossible number of messages"},
    {"sent half the range more", SENT, 4, INT32_MIN,
     "an impossible number of messages"},
    {"does not exist", CHANNEL, 2, 1024, "a channel"},
    {"the second channel first", CHANNEL, 2, 2, "occurs twice"},
    {"the third channel first", CHANNEL, 2, 3, "occurs twice"},
    {"a record that is too short", LENGTH, 4, -40, "length"},
    {"a record that is too long", LENGTH, 4, 200, "length"},
    {"a record without an end", LENGTH, 4, -60, "length"},
    {"more outcomes than there are", OUTCOMES, 2, 9, "longer than"},
    {"more outcomes than there may be", OUTCOMES, 2, -1, "longer than"},
    {"more ranges than there are", KEPT, 2, 9, "longer than"},
    {"more ranges than there may be", KEPT, 2, 65534, "longer than"},
    {"a range from what was never sent", LISTS, 4, 100, "never sent"},
    {"a range of more than was sent", LISTS + 4, 4, 100, "never sent"},
    {"a range of all numbers", LISTS + 4, 4, -2, "never sent"},
};

static void tell(const scene_t *scene, size_t i, uint8_t *state)
{
    uint64_t value;

    memcpy(state, scene->state, scene->bytes);
    value = tmsg_get_le(state + lies[i].at, (unsigned)lies[i].bytes);
    tmsg_put_le(state + lies[i].at, value + (uint64_t)(int64_t)lies[i].add,
                (unsigned)lies[i].bytes);
}

Test(reconnect, judges_every_field)
{
    scene_t scene;
    uint8_t state[CAPACITY];

    open_scene(&scene);
    must(tmsg_resume_judge(scene.joined.pair.to_b, scene.state, scene.bytes));
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        tmsg_status_t status;

        tell(&scene, i, state);
        status = tmsg_resume_judge(scene.joined.pair.to_b, state, scene.bytes);
        cr_expect(eq(int, status, TMSG_ERR_MALFORMED), "%s", lies[i].what);
        if (strstr(tmsg_error_message(), lies[i].words) == NULL) {
            cr_expect(false, "%s: %s", lies[i].what, tmsg_error_message());
        }
    }
    close_well(&scene);
}

/* A record of one outcome in place of what it had. */
static tmsg_status_t judge_outcome(const scene_t *scene, uint32_t sequence,
                                   int32_t outcome)
{
    uint8_t state[CAPACITY];
    size_t first = (size_t)tmsg_get_le(scene->state, 4) + 4;

    memcpy(state, scene->state, LISTS);
    tmsg_put_le(state + LENGTH, LISTS + 4, 4);
    tmsg_put_le(state + OUTCOMES, 1, 2);
    tmsg_put_le(state + KEPT, 0, 2);
    tmsg_put_le(state + LISTS, sequence, 4);
    tmsg_put_le(state + LISTS + 4, (uint32_t)outcome, 4);
    memcpy(state + LISTS + 8, scene->state + first, scene->bytes - first);
    return tmsg_resume_judge(scene->joined.pair.to_b, state,
                             LISTS + 8 + scene->bytes - first);
}

Test(reconnect, judges_what_was_refused)
{
    scene_t scene;

    open_scene(&scene);
    must(judge_outcome(&scene, 1, TMSG_ERR_REFUSED));
    must(judge_outcome(&scene, 1, INT32_MIN));
    must_be(judge_outcome(&scene, 1, TMSG_OK), TMSG_ERR_MALFORMED);
    must_be(judge_outcome(&scene, 1, INT32_MAX), TMSG_ERR_MALFORMED);
    must_be(judge_outcome(&scene, 9, TMSG_ERR_REFUSED), TMSG_ERR_MALFORMED);
    must_say(tmsg_error_message(), "an impossible refusal");
    close_well(&scene);
}

Test(reconnect, judges_states_that_break_off_and_random_ones)
{
    uint8_t state[CAPACITY];
    uint64_t seed = 7;
    scene_t scene;

    open_scene(&scene);
    for (size_t bytes = 0; bytes < scene.bytes; bytes++) {
        uint8_t *exact = malloc(bytes + 1); /* for a sanitizer to watch */

        memcpy(exact + 1, scene.state, bytes);
        must_be(tmsg_resume_judge(scene.joined.pair.to_b, exact + 1, bytes),
                TMSG_ERR_MALFORMED);
        free(exact);
    }
    for (size_t more = 1; more < LISTS; more++) {
        memset(state, 0, sizeof(state));
        memcpy(state, scene.state, scene.bytes);
        must_be(tmsg_resume_judge(scene.joined.pair.to_b, state,
                                  scene.bytes + more),
                TMSG_ERR_MALFORMED);
    }
    for (int i = 0; i < 20000; i++) {
        memcpy(state, scene.state, scene.bytes);
        for (int k = 0; k <= i % 3; k++) {
            state[sample_random(&seed) % scene.bytes] =
                (uint8_t)sample_random(&seed);
        }
        (void)tmsg_resume_judge(scene.joined.pair.to_b, state, scene.bytes);
    }
    /* Channels that it made up are there now, and nothing else. */
    joined_drop(&scene.joined);
    for (int i = 0; i < 3; i++) {
        tmsg_request_destroy(scene.sent[i]);
    }
}

/* Dials a in b's name, and says hello. */
static void dial_as_b(scene_t *scene, raw_reader_t *raw, bool resumes)
{
    tmsg_hello_t hello = scene->joined.pair.to_b->peer_hello;

    *raw = (raw_reader_t){
        .fd = raw_dial(tmsg_listener_url(scene->joined.pair.a.listener))};
    hello.resumes = resumes;
    raw_send_magic(raw->fd);
    raw_send_hello(raw->fd, &hello);
}

static void ask(const scene_t *scene, const raw_reader_t *raw,
                const uint8_t *state, size_t bytes)
{
    uint8_t frame[TMSG_TOKEN_BYTES + CAPACITY];

    memcpy(frame, scene->joined.pair.to_b->resume->id, TMSG_TOKEN_BYTES);
    memcpy(frame + TMSG_TOKEN_BYTES, state, bytes);
    raw_send_frame(raw->fd, TMSG_FRAME_RESUME, frame, TMSG_TOKEN_BYTES + bytes);
}

static void expect_refused(scene_t *scene, raw_reader_t *raw, const char *words)
{
    pair_await(&scene->joined.pair, raw_closed, raw, "the end of the socket");
    must_say(raw_find_frame(raw, TMSG_FRAME_REFUSE, 4), words);
    close(raw->fd);
}

static void close_lost(scene_t *scene, const char *words)
{
    pair_t *pair = &scene->joined.pair;

    must_be(pair_end_of(pair, pair->to_b), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(pair->to_b), words);
    relay_shut(scene->joined.relay, false);
    must_be(pair_end_of(pair, pair->to_a), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(pair->to_a), "this session has ended");
    drop_requests(scene, TMSG_ERR_PEER_LOST);
    joined_drop(&scene->joined);
}

Test(reconnect, a_dialling_peer_that_lies_ends_the_session)
{
    static const size_t some[] = {0, 9, 13, 16};
    uint8_t state[CAPACITY];

    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        raw_reader_t raw;
        scene_t scene;

        open_scene(&scene);
        tell(&scene, some[i], state);
        dial_as_b(&scene, &raw, true);
        ask(&scene, &raw, state, scene.bytes);
        expect_refused(&scene, &raw, lies[some[i]].words);
        close_lost(&scene, lies[some[i]].words);
    }
}

static bool has_answer(void *arg)
{
    (void)raw_closed(arg);
    return raw_find_frame(arg, TMSG_FRAME_RESUMED, 0) != NULL;
}

Test(reconnect, a_dialling_peer_that_asks_twice_ends_the_session)
{
    raw_reader_t raw;
    scene_t scene;

    open_scene(&scene);
    dial_as_b(&scene, &raw, true);
    ask(&scene, &raw, scene.state, scene.bytes);
    pair_await(&scene.joined.pair, has_answer, &raw, "an answer");
    ask(&scene, &raw, scene.state, scene.bytes);
    expect_refused(&scene, &raw, "out of turn");
    close_lost(&scene, "out of turn");
}

/* In one breath: the session has not been found for it yet. */
Test(reconnect, a_dialling_peer_that_asks_twice_at_once_ends_the_session)
{
    uint8_t frames[2 * (TMSG_FRAME_HEADER_BYTES + TMSG_TOKEN_BYTES + CAPACITY)];
    uint8_t *at = frames;
    raw_reader_t raw;
    scene_t scene;

    open_scene(&scene);
    dial_as_b(&scene, &raw, true);
    for (int i = 0; i < 2; i++) {
        at = tmsg_put_le(at, TMSG_TOKEN_BYTES + scene.bytes, 4);
        *at++ = TMSG_FRAME_RESUME;
        memcpy(at, scene.joined.pair.to_b->resume->id, TMSG_TOKEN_BYTES);
        memcpy(at + TMSG_TOKEN_BYTES, scene.state, scene.bytes);
        at += TMSG_TOKEN_BYTES + scene.bytes;
    }
    raw_send(raw.fd, frames, (size_t)(at - frames));
    close_lost(&scene, "out of turn");
    close(raw.fd);
}

/* They cost the session nothing. */
Test(reconnect, strangers_that_ask_are_refused)
{
    uint8_t id[TMSG_TOKEN_BYTES + CAPACITY] = "some other session";
    tmsg_hello_t hello;
    raw_reader_t raw;
    scene_t scene;

    open_scene(&scene);
    dial_as_b(&scene, &raw, true);
    memcpy(id + TMSG_TOKEN_BYTES, scene.state, scene.bytes);
    raw_send_frame(raw.fd, TMSG_FRAME_RESUME, id,
                   TMSG_TOKEN_BYTES + scene.bytes);
    expect_refused(&scene, &raw, "was never here");
    dial_as_b(&scene, &raw, true); /* too short for an id */
    raw_send_frame(raw.fd, TMSG_FRAME_RESUME, id, TMSG_TOKEN_BYTES - 1);
    pair_await(&scene.joined.pair, raw_closed, &raw, "the end of the socket");
    close(raw.fd);
    dial_as_b(&scene, &raw, false); /* it did not say that it would ask */
    ask(&scene, &raw, scene.state, scene.bytes);
    pair_await(&scene.joined.pair, raw_closed, &raw, "the end of the socket");
    close(raw.fd);
    raw = (raw_reader_t){
        .fd = raw_dial(tmsg_listener_url(scene.joined.pair.a.listener))};
    hello = scene.joined.pair.to_b->peer_hello;
    hello.resumes = true;
    hello.instance_id[3] ^= 1; /* another process that knows the id */
    raw_send_magic(raw.fd);
    raw_send_hello(raw.fd, &hello);
    ask(&scene, &raw, scene.state, scene.bytes);
    expect_refused(&scene, &raw, "was never here");
    close_well(&scene);
}

/* Answers b in a's name. */
typedef struct {
    scene_t scene;
    raw_reader_t raw;
    int listener;
} answer_t;

static bool was_dialled(void *arg)
{
    answer_t *answer = arg;

    answer->raw.fd =
        accept4(answer->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return answer->raw.fd >= 0;
}

static bool has_asked(void *arg)
{
    answer_t *answer = arg;

    (void)raw_closed(&answer->raw);
    return raw_find_frame(&answer->raw, TMSG_FRAME_RESUME, 0) != NULL;
}

static void answer_b(answer_t *answer)
{
    pair_t *pair = &answer->scene.joined.pair;
    char url[64];
    int flags;

    open_scene(&answer->scene);
    answer->raw = (raw_reader_t){.fd = -1};
    answer->listener = raw_listen(url, sizeof(url));
    flags = fcntl(answer->listener, F_GETFL);
    fcntl(answer->listener, F_SETFL, flags | O_NONBLOCK);
    relay_turn(answer->scene.joined.relay, url);
    relay_shut(answer->scene.joined.relay, false);
    pair_await(pair, was_dialled, answer, "b's attempt");
    raw_send_magic(answer->raw.fd);
    raw_send_hello(answer->raw.fd, &pair->to_a->peer_hello);
    pair_await(pair, has_asked, answer, "b's question");
}

static void close_answered(answer_t *answer, const char *words)
{
    pair_t *pair = &answer->scene.joined.pair;

    must_be(pair_end_of(pair, pair->to_a), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(pair->to_a), words);
    drop_requests(&answer->scene, TMSG_ERR_PEER_LOST);
    close(answer->raw.fd);
    close(answer->listener);
    joined_drop(&answer->scene.joined);
}

Test(reconnect, a_dialled_peer_that_lies_ends_the_session)
{
    answer_t answer;
    uint8_t state[4] = {1};

    answer_b(&answer);
    raw_send_frame(answer.raw.fd, TMSG_FRAME_RESUMED, state, sizeof(state));
    close_answered(&answer, "a session's state: cut off");
    answer_b(&answer);
    raw_send_frame(answer.raw.fd, TMSG_FRAME_RESUMED, NULL, 0);
    close_answered(&answer, "a session's state: an impossible number");
}

Test(reconnect, a_dialled_peer_that_answers_twice_ends_the_session)
{
    answer_t answer;
    uint8_t state[CAPACITY];
    size_t bytes;

    answer_b(&answer);
    must(tmsg_resume_encode(answer.scene.joined.pair.to_b, state, CAPACITY,
                            &bytes));
    for (int i = 0; i < 2; i++) {
        raw_send_frame(answer.raw.fd, TMSG_FRAME_RESUMED, state, bytes);
    }
    close_answered(&answer, "out of turn");
}
