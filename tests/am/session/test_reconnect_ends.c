/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* How endpoints end that come back by themselves: when nobody answers any more,
 * when it is another peer that does, and when either side has had enough. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "am/endpoint/endpoint.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

/* For what is given up, but not before a busy machine has seen it go. */
#define SHORT_MS 1500

typedef struct {
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status;
    char error[512];
    int calls;
} ending_t;

static void on_closed(void *arg, tmsg_endpoint_t *endpoint,
                      tmsg_status_t status, const char *error)
{
    ending_t *ending = arg;

    must_true(endpoint == ending->endpoint);
    ending->status = status;
    ending->calls++;
    snprintf(ending->error, sizeof(ending->error), "%s", error);
}

static void watch(ending_t *ending, tmsg_endpoint_t *endpoint)
{
    *ending = (ending_t){.endpoint = endpoint};
    tmsg_endpoint_on_closed(endpoint, on_closed, ending);
}

static bool was_told(void *arg) { return ((ending_t *)arg)->calls > 0; }

static void check_told(pair_t *pair, ending_t *ending, const char *words)
{
    pair_await(pair, was_told, ending, "on_closed");
    must_be(ending->status, TMSG_ERR_PEER_LOST);
    must_say(ending->error, words);
    must_eq(ending->calls, 1);
}

Test(reconnect, gives_up)
{
    const how_t how = {
        .link = LINK_TCP,
        .resume_ms = SHORT_MS,
        .reconnect = {.first_backoff_ms = 10, .give_up_ms = SHORT_MS}};
    tmsg_request_t *sent, *closed, *ready;
    ending_t endings[2];
    joined_t joined;
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    watch(&endings[0], pair->to_a);
    watch(&endings[1], pair->to_b);
    joined_break(&joined);
    cr_expect(eq(int, endings[0].calls + endings[1].calls, 0));
    sent = send_map(pair->to_a, sample_bytes(1, 100), 0);
    must(tmsg_endpoint_ready(pair->to_a, &ready));
    check_told(pair, &endings[0], "gave up after ");
    must_say(endings[0].error, "the connection broke");
    must_be(pair_finish(pair, sent), TMSG_ERR_PEER_LOST);
    must_be(pair_finish(pair, ready), TMSG_ERR_PEER_LOST);
    check_told(pair, &endings[1], "it did not come back within ");
    must(tmsg_endpoint_close(pair->to_a, &closed));
    must_be(pair_finish(pair, closed), TMSG_ERR_PEER_LOST);
    joined_drop(&joined);
}

/* A connection that breaks at once, again and again, is not dialled faster. */
Test(reconnect, backs_off)
{
    const how_t how = {.link = LINK_TCP,
                       .reconnect = {.first_backoff_ms = 1,
                                     .most_backoff_ms = 1000,
                                     .give_up_ms = 1500}};
    joined_t joined;
    unsigned before;

    joined_open(&joined, &how);
    before = relay_count(joined.relay);
    relay_shut(joined.relay, true);
    must_be(pair_end_of(&joined.pair, joined.pair.to_a), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(joined.pair.to_a), "gave up after ");
    cr_expect(eq(uint, relay_count(joined.relay), before));
    cr_expect_not(strstr(tmsg_endpoint_error(joined.pair.to_a),
                         "gave up after 1 ") != NULL);
    joined_drop(&joined);
}

Test(reconnect, closes_once_it_is_back)
{
    const how_t how = {.link = LINK_TCP};
    tmsg_request_t *sent, *closed;
    joined_t joined;
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    joined_break(&joined);
    sent = send_map(pair->to_a, sample_bytes(1, 100), TMSG_SEND_ACKED);
    must(tmsg_endpoint_close(pair->to_a, &closed));
    must_be(tmsg_endpoint_send(pair->to_a, NULL, NULL, NULL), TMSG_ERR_CLOSED);
    relay_shut(joined.relay, false);
    tmsg_message_destroy(pair_take(pair, &pair->a));
    must(pair_finish(pair, sent));
    must(pair_finish(pair, closed));
    must_be(pair_end_of(pair, pair->to_b), TMSG_ERR_CLOSED);
    joined_drop(&joined);
}

/* It may break at any moment of the orderly end: nothing hangs. */
Test(reconnect, may_break_while_it_closes)
{
    for (int i = 0; i < 12; i++) {
        const how_t how = {.link = i % 2 ? LINK_TCP : LINK_SHM};
        tmsg_request_t *sent, *closed;
        joined_t joined;
        pair_t *pair = &joined.pair;
        tmsg_status_t status;

        joined_open(&joined, &how);
        sent = send_map(pair->to_a, sample_bytes(1, 100), TMSG_SEND_ACKED);
        must(tmsg_endpoint_close(i % 4 < 2 ? pair->to_a : pair->to_b, &closed));
        for (int k = 0; k < i; k++) {
            tmsg_worker_progress(pair->a.worker);
            tmsg_worker_progress(pair->b.worker);
        }
        relay_cut(joined.relay);
        tmsg_message_destroy(pair_take(pair, &pair->a));
        must(pair_finish(pair, sent));
        status = pair_finish(pair, closed);
        must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST);
        pair_end_of(pair, pair->to_a);
        pair_end_of(pair, pair->to_b);
        joined_drop(&joined);
    }
}

static void check_destroyed(bool dialling, bool while_away)
{
    const how_t how = {.link = LINK_TCP,
                       .resume_ms = while_away && dialling ? SHORT_MS : -1};
    tmsg_request_t *sent;
    ending_t ending;
    joined_t joined;
    pair_t *pair = &joined.pair;
    tmsg_endpoint_t *mine, *theirs;

    joined_open(&joined, &how);
    mine = dialling ? pair->to_a : pair->to_b;
    theirs = dialling ? pair->to_b : pair->to_a;
    watch(&ending, theirs);
    if (while_away) {
        joined_break(&joined);
    }
    sent = send_map(mine, sample_bytes(1, 100), TMSG_SEND_ACKED);
    tmsg_endpoint_destroy(mine);
    must_be(pair_finish(pair, sent), TMSG_ERR_CANCELED);
    relay_shut(joined.relay, false);
    check_told(pair, &ending,
               !while_away ? "its application closed it at once"
               : dialling  ? "did not come back"
                           : "this session has ended");
    joined_drop(&joined);
}

Test(reconnect, dialling_side_is_destroyed) { check_destroyed(true, false); }
Test(reconnect, dialled_side_is_destroyed) { check_destroyed(false, false); }
Test(reconnect, dialling_side_is_destroyed_away)
{
    check_destroyed(true, true);
}
Test(reconnect, dialled_side_is_destroyed_away)
{
    check_destroyed(false, true);
}

#define HELD_MS 100

static bool has_rested(void *arg)
{
    const struct timespec *since = arg;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - since->tv_sec) * 1000 +
               (now.tv_nsec - since->tv_nsec) / 1000000 >=
           HELD_MS;
}

/* UCX tells of it long before the network brings what the peer said, and what
 * is sent meanwhile finds no connection. */
Test(reconnect, last_words_that_are_late_count)
{
    const how_t how = {.link = LINK_TCP};
    struct timespec since;
    tmsg_request_t *sent;
    ending_t ending;
    joined_t joined;
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    watch(&ending, pair->to_b);
    relay_hold(joined.relay);
    tmsg_endpoint_destroy(pair->to_a);
    for (int i = 0; i < 3; i++) {
        clock_gettime(CLOCK_MONOTONIC, &since);
        sent = send_map(pair->to_b, sample_bytes(1, 100), 0);
        if (i < 2) {
            tmsg_request_destroy(sent);
        }
        pair_await(pair, has_rested, &since, "some time");
    }
    must_eq(ending.calls, 0);
    relay_let_go(joined.relay);
    check_told(pair, &ending, "its application closed it at once");
    must_be(pair_finish(pair, sent), TMSG_ERR_PEER_LOST);
    joined_drop(&joined);
}

Test(reconnect, workers_are_destroyed_away)
{
    const how_t how = {.link = LINK_SHM};
    tmsg_request_t *sent[2];
    joined_t joined;

    joined_open(&joined, &how);
    sent[0] = send_map(joined.pair.to_a, sample_bytes(1, 9), TMSG_SEND_ACKED);
    joined_break(&joined);
    sent[1] = send_map(joined.pair.to_b, sample_bytes(2, 9), 0);
    joined_drop(&joined);
    for (int i = 0; i < 2; i++) {
        cr_expect(eq(int, tmsg_request_test(sent[i]), TMSG_ERR_CANCELED));
        tmsg_request_destroy(sent[i]);
    }
}

Test(reconnect, who_keeps_no_sessions_has_none)
{
    const how_t how = {.link = LINK_TCP};
    tmsg_listener_t *keeping;
    joined_t joined;
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    keeping = pair->a.listener;
    side_listen(&pair->a, "tcp://127.0.0.1:0");
    relay_turn(joined.relay, tmsg_listener_url(pair->a.listener));
    tmsg_endpoint_destroy(pair->to_a);
    must_be(pair_end_of(pair, pair->to_b), TMSG_ERR_PEER_LOST);
    tmsg_endpoint_destroy(pair->to_b);
    pair->a.accepts = 0;
    pair->to_a = joined_dial(&pair->b, relay_url(joined.relay),
                             (tmsg_reconnect_t){.first_backoff_ms = 1});
    pair_await(pair, joined_is_open, &joined, "a connection");
    pair->to_b = pair->a.accepted;
    cr_expect(eq(long, described(pair->to_a, "reconnects"), 0));
    relay_cut(joined.relay);
    must_be(pair_end_of(pair, pair->to_a), TMSG_ERR_PEER_LOST);
    must_be(pair_end_of(pair, pair->to_b), TMSG_ERR_PEER_LOST);
    tmsg_listener_destroy(keeping);
    joined_drop(&joined);
}

/* A peer, at a URL that it tells; it serves until its pipe ends. */
static void serve(pipes_t *pipes, void *arg)
{
    tmsg_message_t *message;
    side_t side;
    char line[8];

    (void)arg;
    side_open(&side, NULL);
    joined_listen(&side, "tcp://127.0.0.1:0", -1);
    line_put(pipes->out, tmsg_listener_url(side.listener));
    side_accept(&side);
    message = side_take(&side);
    tmsg_message_destroy(message);
    line_put(pipes->out, "taken");
    line_get(pipes->in, line, sizeof(line));
    die("the peer outlived the test");
}

Test(reconnect, does_not_take_another_process_for_its_peer)
{
    child_t first, second;
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *ready, *sent;
    relay_t *relay;
    char url[256];
    side_t side;

    child_start(&first, serve, NULL);
    child_start(&second, serve, NULL);
    line_get(first.in, url, sizeof(url));
    side_open(&side, NULL);
    relay = relay_open(url);
    line_get(second.in, url, sizeof(url));
    endpoint = joined_dial(&side, relay_url(relay),
                           (tmsg_reconnect_t){.first_backoff_ms = 1});
    must(tmsg_endpoint_ready(endpoint, &ready));
    must(side_finish(&side, ready));
    must(side_finish(
        &side, send_map(endpoint, sample_bytes(1, 100), TMSG_SEND_ACKED)));
    relay_shut(relay, true);
    child_kill(&first);
    relay_turn(relay, url);
    side_await(&side, joined_is_away, endpoint, "the break");
    sent = send_map(endpoint, sample_bytes(2, 100), TMSG_SEND_ACKED);
    relay_shut(relay, false);
    must_be(side_end_of(&side, endpoint), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(endpoint), "the peer was restarted");
    must_be(side_finish(&side, sent), TMSG_ERR_PEER_LOST);
    child_kill(&second);
    side_close(&side);
    relay_close(relay);
}

/* Dials where it is told to, keeps its session if it shall, and sends; the
 * second time it also takes what comes, and no more than that. */
typedef struct {
    link_t link;
    bool keeps;
    bool takes;
} dialler_t;

static void dial(pipes_t *pipes, void *arg)
{
    const dialler_t *how = arg;
    const side_options_t options = {.ucx_config = link_config(how->link)};
    tmsg_endpoint_t *endpoint;
    tmsg_message_t *message;
    char url[256], line[8];
    side_t side;

    line_get(pipes->in, url, sizeof(url));
    side_open(&side, &options);
    endpoint =
        how->keeps
            ? joined_dial(&side, url, (tmsg_reconnect_t){.first_backoff_ms = 1})
            : side_connect(&side, url);
    must(side_finish(&side,
                     send_map(endpoint, sample_bytes(how->takes ? 2 : 1, 100),
                              TMSG_SEND_ACKED)));
    if (!how->takes) {
        line_put(pipes->out, "sent");
        line_get(pipes->in, line, sizeof(line));
        die("the dialler outlived the test");
    }
    message = side_take(&side);
    sample_check_bytes(4, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must_be(side_end_of(&side, endpoint), TMSG_ERR_CLOSED);
    must_be(tmsg_endpoint_recv(endpoint, 0, &message), TMSG_ERR_CLOSED);
    side_close(&side);
}

static void take_from(side_t *side, const tmsg_endpoint_t *endpoint,
                      uint64_t seed)
{
    tmsg_message_t *message = side_take(side);

    must_true(tmsg_message_endpoint(message) == endpoint);
    sample_check_bytes(seed, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* The killed one's session is kept meanwhile, if there is one. What it did not
 * confirm is not the other's, whose messages begin with the same numbers. */
static void check_started_again(link_t link, bool keeps)
{
    dialler_t first = {.link = link, .keeps = keeps};
    dialler_t second = {.link = link, .keeps = keeps, .takes = true};
    const side_options_t options = {.ucx_config = link_config(link)};
    tmsg_endpoint_t *killed, *lives;
    tmsg_request_t *unconfirmed, *late = NULL, *closed;
    child_t children[2];
    char line[8];
    side_t side;

    child_start(&children[0], dial, &first);
    child_start(&children[1], dial, &second);
    side_open(&side, &options);
    if (keeps) {
        joined_listen(&side, "tcp://127.0.0.1:0", SHORT_MS);
    } else {
        side_listen(&side, "tcp://127.0.0.1:0");
    }
    line_put(children[0].out, tmsg_listener_url(side.listener));
    killed = side_accept(&side);
    take_from(&side, killed, 1);
    child_await(&side, &children[0]);
    line_get(children[0].in, line, sizeof(line));
    unconfirmed = send_map(killed, sample_bytes(3, 100), TMSG_SEND_ACKED);
    child_kill(&children[0]);
    if (keeps) {
        side_await(&side, joined_is_away, killed, "the break");
        late = send_map(killed, sample_bytes(3, 100), TMSG_SEND_ACKED);
    }
    line_put(children[1].out, tmsg_listener_url(side.listener));
    lives = side_accept(&side);
    take_from(&side, lives, 2);
    must_true(lives != killed);
    must_true(memcmp(lives->peer_hello.instance_id,
                     killed->peer_hello.instance_id, TMSG_INSTANCE_BYTES) != 0);
    must_eq(described(lives, "reconnected"), 0);
    must_be(side_end_of(&side, killed), TMSG_ERR_PEER_LOST);
    must_be(side_finish(&side, unconfirmed), TMSG_ERR_PEER_LOST);
    if (keeps) {
        must_be(side_finish(&side, late), TMSG_ERR_PEER_LOST);
        must_say(tmsg_endpoint_error(killed), "it did not come back within ");
    }
    must(side_finish(&side,
                     send_map(lives, sample_bytes(4, 100), TMSG_SEND_ACKED)));
    must(tmsg_endpoint_close(lives, &closed));
    must(side_finish(&side, closed));
    child_join(&children[1]);
    must_eq(side.accepts, 2);
    side_close(&side);
}

Test(reconnect, who_dials_and_is_started_again_is_another_by_tcp)
{
    check_started_again(LINK_TCP, true);
}
Test(reconnect, who_dials_and_is_started_again_is_another_by_shared_memory)
{
    check_started_again(LINK_SHM, true);
}
Test(reconnect, who_dials_and_is_started_again_is_another_without_a_session)
{
    check_started_again(LINK_TCP, false);
}

Test(reconnect, refuses_what_cannot_be)
{
    static const tmsg_reconnect_t wrong[] = {
        {.first_backoff_ms = -1}, {.most_backoff_ms = -1}, {.give_up_ms = -2}};
    tmsg_endpoint_params_t params = {.field_mask =
                                         TMSG_ENDPOINT_PARAM_RECONNECT};
    tmsg_listener_params_t keeping = {.field_mask = TMSG_LISTENER_PARAM_RESUME,
                                      .resume_ms = -2};
    tmsg_endpoint_t *endpoint;
    tmsg_listener_t *listener;
    const void *blob;
    size_t blob_bytes;
    side_t side;

    side_open(&side, NULL);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        params.reconnect = wrong[i];
        must_be(tmsg_endpoint_connect(side.worker, "tcp://127.0.0.1:9", &params,
                                      &endpoint),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), "backoff_ms");
    }
    params.reconnect = (tmsg_reconnect_t){0};
    must_be(tmsg_endpoint_connect(side.worker, "ucx://127.0.0.1:9", &params,
                                  &endpoint),
            TMSG_ERR_UNSUPPORTED);
    side_listen(&side, "blob://");
    must(tmsg_listener_blob(side.listener, &blob, &blob_bytes));
    must_be(tmsg_endpoint_connect_blob(side.worker, blob, blob_bytes, &params,
                                       &endpoint),
            TMSG_ERR_UNSUPPORTED);
    must_be(tmsg_listener_create(side.worker, "tcp://127.0.0.1:0", &keeping,
                                 &listener),
            TMSG_ERR_INVALID_PARAM);
    keeping.resume_ms = 1000;
    must_be(tmsg_listener_create(side.worker, "blob://", &keeping, &listener),
            TMSG_ERR_UNSUPPORTED);
    must_be(tmsg_listener_create(side.worker, "ucx://127.0.0.1:0", &keeping,
                                 &listener),
            TMSG_ERR_UNSUPPORTED);
    side_close(&side);
}
