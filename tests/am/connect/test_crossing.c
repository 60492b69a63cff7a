/* SPDX-License-Identifier: BSD-3-Clause */
/* Many connections of one pair of workers, made at once, or given up while they
 * are made. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <sys/socket.h>

#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

Test(crossing, fifty_endpoints_on_a_worker_each_carry_their_own)
{
    enum { PEERS = 50 };
    tmsg_endpoint_t *endpoints[PEERS], *from[PEERS];
    bool seen[PEERS] = {false};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (size_t i = 0; i < PEERS; i++) {
        endpoints[i] = side_dial(&pair.b, &pair.a);
        tmsg_request_destroy(
            send_map(endpoints[i], sample_bytes(100 + i, 100 + i), 0));
    }
    for (size_t i = 0; i < PEERS; i++) {
        tmsg_message_t *message = pair_take(&pair, &pair.a);
        tmsg_tensor_t tensor;
        size_t who;

        must(tmsg_map_find(tmsg_message_map(message), "weights 0", &tensor));
        who = (size_t)tensor.shape[0] - 100;
        must_true(who < PEERS && !seen[who]);
        seen[who] = true;
        from[who] = tmsg_message_endpoint(message);
        tmsg_message_destroy(message);
    }
    for (size_t i = 0; i < PEERS; i++) {
        tmsg_message_t *message = NULL;

        tmsg_request_destroy(
            send_map(from[i], sample_bytes(200 + i, 9), TMSG_SEND_ACKED));
        message = pair_take(&pair, &pair.b);
        must_true(tmsg_message_endpoint(message) == endpoints[i]);
        sample_check_bytes(200 + i, 9, tmsg_message_map(message));
        tmsg_message_destroy(message);
    }
    pair_drop(&pair);
}

/* Each dials the other at the same time. */
static void crossing(link_t link)
{
    tmsg_endpoint_t *a_to_b, *b_to_a;
    tmsg_request_t *ready[2];
    tmsg_message_t *message;
    pair_t pair = {.to_a = NULL};

    pair.sides[0] = &pair.a;
    pair.sides[1] = &pair.b;
    side_open(&pair.a, NULL);
    side_open(&pair.b, NULL);
    side_listen_link(&pair.a, link);
    side_listen_link(&pair.b, link);
    a_to_b = side_dial(&pair.a, &pair.b);
    b_to_a = side_dial(&pair.b, &pair.a);
    must(tmsg_endpoint_ready(a_to_b, &ready[0]));
    must(tmsg_endpoint_ready(b_to_a, &ready[1]));
    must(pair_finish(&pair, ready[0]));
    must(pair_finish(&pair, ready[1]));
    tmsg_request_destroy(send_map(a_to_b, sample_bytes(1, 11), 0));
    tmsg_request_destroy(send_map(b_to_a, sample_bytes(2, 22), 0));
    message = pair_take(&pair, &pair.b);
    must_true(tmsg_message_endpoint(message) == pair.b.accepted);
    sample_check_bytes(1, 11, tmsg_message_map(message));
    tmsg_message_destroy(message);
    message = pair_take(&pair, &pair.a);
    must_true(tmsg_message_endpoint(message) == pair.a.accepted);
    sample_check_bytes(2, 22, tmsg_message_map(message));
    tmsg_message_destroy(message);
    /* One ends, the other goes on. */
    tmsg_endpoint_destroy(a_to_b);
    must_be(pair_end_of(&pair, pair.b.accepted), TMSG_ERR_PEER_LOST);
    tmsg_request_destroy(send_map(b_to_a, sample_bytes(3, 33), 0));
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(3, 33, tmsg_message_map(message));
    tmsg_message_destroy(message);
    pair_drop(&pair);
}

Test(crossing, crossing_connects_stay_two_connections)
{
    for (link_t link = 0; link < LINKS; link++) {
        crossing(link);
    }
}

/* Many connections of one pair of workers at once, whose wireups may overtake
 * each other: each keeps its own two ends. */
static void many_at_once(link_t link)
{
    enum { AT_ONCE = 20 };
    tmsg_endpoint_t *endpoints[AT_ONCE];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < AT_ONCE; i++) {
            endpoints[i] = side_dial(&pair.b, &pair.a);
        }
        for (size_t i = AT_ONCE; i-- > 0;) {
            tmsg_request_t *sent = send_map(
                endpoints[i], sample_bytes(i, 50 + i), TMSG_SEND_ACKED);
            tmsg_message_t *message = pair_take(&pair, &pair.a), *answer;

            sample_check_bytes(i, 50 + i, tmsg_message_map(message));
            must(pair_finish(&pair, sent));
            tmsg_request_destroy(send_map(tmsg_message_endpoint(message),
                                          sample_bytes(~i, 60 + i), 0));
            answer = pair_take(&pair, &pair.b);
            must_true(tmsg_message_endpoint(answer) == endpoints[i]);
            tmsg_message_destroy(answer);
            tmsg_message_destroy(message);
        }
        for (size_t i = 0; i < AT_ONCE; i += 2) {
            tmsg_endpoint_destroy(endpoints[i]);
        }
    }
    pair_drop(&pair);
}

Test(crossing, connections_of_one_pair_keep_their_ends_apart)
{
    for (link_t link = 0; link < LINKS; link++) {
        many_at_once(link);
    }
}

/* Drives the dialling side alone until UCX has an endpoint for it, and gives it
 * up before it can send a connect request. */
static void abandon_a_dial(pair_t *pair)
{
    tmsg_endpoint_t *endpoint = side_dial(&pair->b, &pair->a);

    while (endpoint->ep == NULL) {
        must(tmsg_endpoint_status(endpoint) < 0 ? TMSG_ERR_INTERNAL : TMSG_OK);
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
    tmsg_endpoint_destroy(endpoint);
    for (int i = 0; i < 200; i++) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
}

/* Connects as from another host, so that UCX takes the network. */
static tmsg_status_t dial_again(pair_t *pair, tmsg_endpoint_t **endpoint_p)
{
    tmsg_request_t *ready;

    *endpoint_p = side_dial(&pair->b, &pair->a);
    must(tmsg_endpoint_ready(*endpoint_p, &ready));
    return pair_finish(pair, ready);
}

static void carry(pair_t *pair, tmsg_endpoint_t *endpoint, uint64_t seed)
{
    tmsg_message_t *message;

    tmsg_request_destroy(send_map(endpoint, sample_bytes(seed, 1000), 0));
    message = pair_take(pair, &pair->a);
    sample_check_bytes(seed, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

/* UCX goes on counting the UCX endpoints of two workers whose dials failed. */
Test(crossing, abandoned_dials_do_not_confuse_those_that_follow)
{
    tmsg_endpoint_t *endpoint;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    pair.to_a->ucx->hello.boot_id[0] ^= 1;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 30; i++) {
            abandon_a_dial(&pair);
        }
        must(dial_again(&pair, &endpoint));
        carry(&pair, endpoint, 1);
        carry(&pair, pair.to_a, 2);
        tmsg_endpoint_destroy(endpoint);
    }
    pair_drop(&pair);
}

/* If too many dials failed, the next ones use another UCX worker. */
Test(crossing, too_many_abandoned_dials_are_said_and_survived)
{
    tmsg_endpoint_t *endpoint;
    tmsg_ucx_t *ucx;
    tmsg_status_t status;
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    ucx = pair.to_b->ucx;
    pair.to_a->ucx->hello.boot_id[0] ^= 1;
    for (int i = 0; i < 2 * TMSG_UCX_SPARES; i++) {
        abandon_a_dial(&pair);
    }
    status = dial_again(&pair, &endpoint);
    if (status != TMSG_OK) {
        /* Otherwise all of them had time to send a connect request. */
        must_be(status, TMSG_ERR_BUSY);
        must_say(tmsg_endpoint_error(endpoint), "connect again");
        tmsg_endpoint_destroy(endpoint);
        must_true(ucx->retired);
        must(dial_again(&pair, &endpoint));
        must_true(pair.a.accepted->ucx != ucx);
    }
    carry(&pair, pair.to_a, 1);
    carry(&pair, endpoint, 2);
    carry(&pair, pair.to_a, 3);
    pair_drop(&pair);
}
