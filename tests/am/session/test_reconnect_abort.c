/* SPDX-License-Identifier: BSD-3-Clause */
/* Endpoints with a session that are given up at once, and sends that are, while
 * the connection stands and while it is broken. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "support/seeded_maps.h"
#include "support/session_pair.h"

/* Either side, while the connection stands: that is the end for both. */
static void check_standing(bool dialling)
{
    const how_t how = {.link = LINK_TCP};
    tmsg_endpoint_t *mine, *theirs;
    tmsg_request_t *sent, *received;
    joined_t joined;
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    mine = dialling ? pair->to_a : pair->to_b;
    theirs = dialling ? pair->to_b : pair->to_a;
    sent = send_map(mine, sample_bytes(1, 100), TMSG_SEND_ACKED);
    received = send_map(theirs, sample_bytes(2, 100), TMSG_SEND_ACKED);
    must(tmsg_endpoint_abort(mine, TMSG_ERR_LIMIT_EXCEEDED, "enough"));
    must_be(tmsg_endpoint_status(mine), TMSG_ERR_CANCELED);
    must_be(pair_finish(pair, sent), TMSG_ERR_CANCELED);
    must_be(pair_end_of(pair, theirs), TMSG_ERR_LIMIT_EXCEEDED);
    must_say(tmsg_endpoint_error(theirs), "enough");
    must_be(pair_finish(pair, received), TMSG_ERR_LIMIT_EXCEEDED);
    joined_drop(&joined);
}

Test(reconnect, dialling_side_aborts) { check_standing(true); }
Test(reconnect, dialled_side_aborts) { check_standing(false); }

/* While it is broken nobody can be told: the other side finds out. */
static void check_away(bool dialling)
{
    const how_t how = {.link = LINK_TCP, .resume_ms = dialling ? 300 : -1};
    tmsg_endpoint_t *mine, *theirs;
    tmsg_request_t *sent[2], *received;
    joined_t joined;
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    mine = dialling ? pair->to_a : pair->to_b;
    theirs = dialling ? pair->to_b : pair->to_a;
    sent[0] = send_map(mine, sample_bytes(1, 300000), TMSG_SEND_ACKED);
    joined_break(&joined);
    sent[1] = send_map(mine, sample_bytes(2, 100), 0);
    received = send_map(theirs, sample_bytes(3, 100), TMSG_SEND_ACKED);
    must(tmsg_endpoint_abort(mine, TMSG_ERR_REFUSED, "enough"));
    for (int i = 0; i < 2; i++) {
        must_be(pair_finish(pair, sent[i]), TMSG_ERR_CANCELED);
    }
    relay_shut(joined.relay, false);
    must_be(pair_end_of(pair, theirs), TMSG_ERR_PEER_LOST);
    must_say(tmsg_endpoint_error(theirs),
             dialling ? "did not come back" : "this session has ended");
    must_be(pair_finish(pair, received), TMSG_ERR_PEER_LOST);
    joined_drop(&joined);
}

Test(reconnect, dialling_side_aborts_away) { check_away(true); }
Test(reconnect, dialled_side_aborts_away) { check_away(false); }

#define COUNT 6

/* Messages from b to a: number i has 100 + i bytes. */
typedef struct {
    pair_t *pair;
    tmsg_request_t *sent[COUNT];
    bool came[COUNT];
    size_t latest;
} stream_t;

static void take_all(stream_t *stream)
{
    tmsg_message_t *message;

    while (tmsg_worker_recv(stream->pair->a.worker, 0, &message) == TMSG_OK) {
        tmsg_tensor_t tensor;
        size_t i;

        must(tmsg_map_at(tmsg_message_map(message), 0, NULL, &tensor));
        i = (size_t)tensor.shape[0] - 100;
        must_true(i < COUNT && i >= stream->latest && !stream->came[i]);
        sample_check_bytes(i, 100 + i, tmsg_message_map(message));
        stream->came[i] = true;
        stream->latest = i;
        tmsg_message_destroy(message);
    }
}

static bool are_over(void *arg)
{
    stream_t *stream = arg;

    take_all(stream);
    for (size_t i = 1; i < COUNT; i += 2) {
        if (tmsg_request_test(stream->sent[i]) == TMSG_IN_PROGRESS) {
            return false;
        }
    }
    return true;
}

/* Cancels end at once, and harm nobody else. */
Test(reconnect, cancels_while_it_is_broken)
{
    const how_t how = {.link = LINK_TCP};
    joined_t joined;
    stream_t stream = {.pair = &joined.pair};
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    for (size_t i = 0; i < COUNT; i++) {
        if (i == 3) {
            joined_break(&joined);
        }
        stream.sent[i] =
            send_map(pair->to_a, sample_bytes(i, 100 + i), TMSG_SEND_ACKED);
    }
    for (size_t i = 0; i < COUNT; i += 2) { /* 4 has not left */
        tmsg_request_cancel(stream.sent[i]);
        must_be(pair_finish(pair, stream.sent[i]), TMSG_ERR_CANCELED);
    }
    joined_mend(&joined);
    pair_await(pair, are_over, &stream, "the others");
    for (size_t i = 1; i < COUNT; i += 2) {
        must(pair_finish(pair, stream.sent[i]));
        must_true(stream.came[i]);
    }
    must_true(!stream.came[4]);
    joined_close(&joined);
}
