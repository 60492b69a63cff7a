/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What an application does in the midst of a break, at any moment of it. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "am/endpoint/endpoint.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define MESSAGES 20

/* One side has told the other where it is, and the connection does not stand
 * yet: what is taken now that other hears later. */
static bool is_between(const tmsg_endpoint_t *endpoint)
{
    return endpoint->state == TMSG_EP_CONNECTING && endpoint->link.hello_done;
}

typedef struct {
    tmsg_endpoint_t *from, *to;
    unsigned taken, taken_between;
    tmsg_request_t *requests[MESSAGES];
} taking_t;

static bool take_one(taking_t *taking)
{
    tmsg_message_t *message;

    if (taking->taken == MESSAGES ||
        tmsg_endpoint_recv(taking->to, 0, &message) != TMSG_OK) {
        return false;
    }
    sample_check_bytes(taking->taken, 100 + taking->taken,
                       tmsg_message_map(message));
    tmsg_message_destroy(message);
    taking->taken++;
    return true;
}

static bool has_all(void *arg)
{
    const taking_t *taking = arg;

    return taking->to->ready.count == MESSAGES;
}

static bool is_taken_between(void *arg)
{
    taking_t *taking = arg;

    if (is_between(taking->to) && taking->taken_between < 2) {
        taking->taken_between += take_one(taking);
    }
    return tmsg_endpoint_status(taking->to) == TMSG_OK &&
           tmsg_endpoint_status(taking->from) == TMSG_OK &&
           taking->taken_between > 0;
}

static bool are_confirmed(void *arg)
{
    taking_t *taking = arg;

    while (take_one(taking)) {
    }
    for (int i = 0; i < MESSAGES; i++) {
        if (tmsg_request_test(taking->requests[i]) == TMSG_IN_PROGRESS) {
            return false;
        }
    }
    return true;
}

static void check_taken_between(link_t link, bool by_dialling)
{
    const how_t how = {.link = link};
    joined_t joined;
    pair_t *pair = &joined.pair;
    taking_t taking = {.taken = 0};

    joined_open(&joined, &how);
    taking.from = by_dialling ? pair->to_b : pair->to_a;
    taking.to = by_dialling ? pair->to_a : pair->to_b;
    for (unsigned i = 0; i < MESSAGES; i++) {
        taking.requests[i] =
            send_map(taking.from, sample_bytes(i, 100 + i), TMSG_SEND_ACKED);
    }
    pair_await(pair, has_all, &taking, "arrivals");
    relay_cut(joined.relay);
    pair_await(pair, is_taken_between, &taking, "a message taken between");
    pair_await(pair, are_confirmed, &taking, "confirmations");
    for (int i = 0; i < MESSAGES; i++) {
        must(pair_finish(pair, taking.requests[i]));
    }
    joined_close(&joined);
}

Test(reconnect, confirms_what_is_taken_amid_it)
{
    check_taken_between(LINK_TCP, true);
    check_taken_between(LINK_TCP, false);
}
Test(reconnect, confirms_what_is_taken_amid_it_by_shared_memory)
{
    check_taken_between(LINK_SHM, true);
    check_taken_between(LINK_SHM, false);
}

/* A ping is of the connection that it was sent on. */
Test(reconnect, pings_the_connection_that_stands)
{
    const how_t how = {.link = LINK_TCP};
    tmsg_request_t *ping;
    joined_t joined;
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    must(tmsg_endpoint_ping(pair->to_a, &ping)); /* which a does not hear */
    relay_shut(joined.relay, true);
    side_await(&pair->b, joined_is_away, pair->to_a, "the break");
    joined_break(&joined);
    must_be(pair_finish(pair, ping), TMSG_ERR_PEER_LOST);
    must_be(tmsg_endpoint_ping(pair->to_a, &ping), TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "reconnecting");
    must_be(tmsg_endpoint_ping(pair->to_b, &ping), TMSG_ERR_BUSY);
    joined_mend(&joined);
    must(tmsg_endpoint_ping(pair->to_a, &ping));
    must(pair_finish(pair, ping));
    must(tmsg_endpoint_ping(pair->to_b, &ping));
    must(pair_finish(pair, ping));
    joined_close(&joined);
}

static void on_refused(void *arg, tmsg_endpoint_t *endpoint, uint16_t channel,
                       uint32_t sequence, tmsg_status_t status,
                       const char *error)
{
    (void)endpoint;
    (void)channel;
    (void)sequence;
    (void)error;
    must_be(status, TMSG_ERR_LIMIT_EXCEEDED);
    ++*(unsigned *)arg;
}

static bool has_one(void *arg) { return *(unsigned *)arg > 0; }

/* As if so many messages had been sent and taken. */
static void pass_by(pair_t *pair, uint32_t count)
{
    tmsg_channel_t *from = &pair->to_a->channels.zero;
    tmsg_channel_t *to = &pair->to_b->channels.zero;

    from->tx_sequence += count;
    from->tx_window += count;
    to->rx_sequence += count;
    to->rx_consumed += count;
    to->rx_credited += count;
    to->rx_taken += count;
    to->received_messages += count;
}

/* A refusal is told for a while, and then nobody can be waiting for it: the
 * numbers of messages begin anew some time. */
Test(reconnect, forgets_refusals_before_their_numbers_come_again)
{
    unsigned refused = 0;
    const how_t how = {
        .link = LINK_UNIX,
        .a = {.limits = {.field_mask = TMSG_LIMIT_HELD_BYTES,
                         .held_bytes = 100000},
              .worker = {.field_mask = TMSG_WORKER_PARAM_ON_REFUSED,
                         .on_refused = on_refused,
                         .on_refused_arg = &refused}}};
    joined_t joined;
    pair_t *pair = &joined.pair;

    joined_open(&joined, &how);
    must_be(pair_finish(pair, send_map(pair->to_a, sample_bytes(1, 200000),
                                       TMSG_SEND_ACKED)),
            TMSG_ERR_LIMIT_EXCEEDED);
    pair_await(pair, has_one, &refused, "on_refused");
    for (int i = 0; i < 9; i++) {
        tmsg_request_t *sent;

        joined_break(&joined);
        sent = send_map(pair->to_a, sample_bytes(2, 100), TMSG_SEND_ACKED);
        joined_mend(&joined);
        tmsg_message_destroy(pair_take(pair, &pair->a));
        must(pair_finish(pair, sent));
        pass_by(pair, 1u << 29);
    }
    cr_expect(eq(long, described(pair->to_a, "reconnected"), 9));
    joined_close(&joined);
}
