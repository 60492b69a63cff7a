/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX fails to make a connection although the peer is there: the library dials
 * anew, and neither application hears of it. The tests call the function that
 * the library calls when UCX reports a failure. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>
#include <sys/socket.h>

#include "am/connect/link.h"
#include "am/endpoint/endpoint.h"
#include "am/endpoint/fail.h"
#include "am/endpoint/session.h"
#include "am/engine/endpoint_end.h"
#include "am/session/resume.h"
#include "support/peers.h"
#include "support/seeded_maps.h"
#include "support/session_pair.h"

#define MESSAGES 5

static void open_sides(pair_t *pair, link_t link)
{
    const side_options_t options = {.ucx_config = link_config(link)};

    memset(pair, 0, sizeof(*pair));
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    side_open(&pair->a, &options);
    side_open(&pair->b, &options);
}

/* to_a is the endpoint that dials, and to_b the accepted one. */
static void begin(pair_t *pair, link_t link)
{
    open_sides(pair, link);
    side_listen_link(&pair->a, link);
    pair->to_a = side_dial(&pair->b, &pair->a);
}

/* Returns whether a has had the hello of a connection that is still being made.
 */
static bool is_accepting(void *arg)
{
    pair_t *pair = arg;
    const tmsg_worker_t *worker = pair->a.worker;

    pair->to_b = NULL;
    for (uint32_t i = 0; i < worker->endpoint_slots; i++) {
        tmsg_endpoint_t *endpoint = worker->endpoints[i];

        if (endpoint != NULL && !endpoint->paths.is_bulk &&
            endpoint->state == TMSG_EP_CONNECTING &&
            endpoint->link.hello_done) {
            pair->to_b = endpoint;
        }
    }
    return pair->to_b != NULL && pair->to_a->link.hello_done;
}

static bool is_gone(void *arg) { return !is_accepting(arg); }

static bool is_another(void *arg)
{
    const tmsg_endpoint_t *dialler = ((pair_t *)arg)->to_a;

    return dialler->state == TMSG_EP_CONNECTING && !dialler->link.hello_done;
}

/* UCX gives up the endpoint of one side. */
static void fail(pair_t *pair, bool at_dialler)
{
    pair_await(pair, is_accepting, pair, "a hello");
    tmsg_endpoint_break(at_dialler ? pair->to_a : pair->to_b,
                        TMSG_ERR_PEER_LOST, "UCX gave it up");
}

static void receives(pair_t *pair, uint64_t seed)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check_bytes(seed, 1000, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void fails(link_t link, unsigned times, bool at_dialler)
{
    tmsg_request_t *sent[MESSAGES];
    pair_t pair;

    begin(&pair, link);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        sent[i] = send_map(pair.to_a, sample_bytes(i, 1000), 0);
    }
    for (unsigned i = 0; i < times; i++) {
        fail(&pair, at_dialler);
        pair_await(&pair, is_another, &pair, "another attempt");
        cr_expect(eq(int, tmsg_endpoint_status(pair.to_a), TMSG_IN_PROGRESS));
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        receives(&pair, i);
        must(side_finish(&pair.b, sent[i]));
    }
    cr_expect(eq(uint, pair.a.accepts, 1));
    cr_expect(eq(int, tmsg_endpoint_status(pair.to_a), TMSG_OK));
    must(tmsg_endpoint_close(pair.to_a, NULL));
    must_be(pair_end_of(&pair, pair.to_a), TMSG_ERR_CLOSED);
    cr_expect(eq(ptr, strstr(tmsg_endpoint_error(pair.to_a), "attempt"), NULL));
    pair_drop(&pair);
}

Test(redial, once_of_the_peers_shm) { fails(LINK_SHM, 1, false); }
Test(redial, once_of_the_peers_tcp) { fails(LINK_TCP, 1, false); }
Test(redial, twice_of_the_peers_unix) { fails(LINK_UNIX, 2, false); }
Test(redial, twice_of_the_peers_tcp) { fails(LINK_TCP, 2, false); }
Test(redial, once_of_its_own_tcp) { fails(LINK_TCP, 1, true); }
Test(redial, twice_of_its_own_shm) { fails(LINK_SHM, 2, true); }

static bool has_come_back(void *arg)
{
    const pair_t *pair = arg;

    return pair->to_a->resume->times > 0 && pair->to_a->state == TMSG_EP_OPEN;
}

/* The session then outlives its connection, as any other does. */
static void becomes_a_session(link_t link, bool at_dialler)
{
    const tmsg_reconnect_t reconnect = {.first_backoff_ms = 1,
                                        .give_up_ms = PEERS_BOUND_MS};
    tmsg_request_t *ready;
    pair_t pair;

    open_sides(&pair, link);
    joined_listen(&pair.a, "tcp://127.0.0.1:0", PEERS_BOUND_MS);
    pair.to_a =
        joined_dial(&pair.b, tmsg_listener_url(pair.a.listener), reconnect);
    must(tmsg_endpoint_ready(pair.to_a, &ready));
    fail(&pair, at_dialler);
    must(pair_finish(&pair, ready));
    tmsg_endpoint_break(pair.to_a, TMSG_ERR_PEER_LOST, "it broke");
    pair_await(&pair, has_come_back, &pair, "the session");
    tmsg_request_destroy(send_map(pair.to_a, sample_bytes(7, 1000), 0));
    receives(&pair, 7);
    cr_expect(eq(uint, pair.a.accepts, 1));
    pair_drop(&pair);
}

Test(redial, becomes_a_session_tcp) { becomes_a_session(LINK_TCP, false); }
Test(redial, becomes_a_session_shm) { becomes_a_session(LINK_SHM, true); }

Test(redial, no_more_than_twice)
{
    pair_t pair;

    begin(&pair, LINK_TCP);
    for (unsigned i = 0; i < 2; i++) {
        fail(&pair, false);
        pair_await(&pair, is_another, &pair, "another attempt");
    }
    fail(&pair, false);
    side_await(&pair.a, is_gone, &pair, "the end of it");
    cr_expect(eq(int, side_end_of(&pair.b, pair.to_a), TMSG_ERR_PEER_LOST));
    must_say(tmsg_endpoint_error(pair.to_a), "UCX gave it up");
    cr_expect(eq(uint, pair.a.accepts, 0));
    pair_drop(&pair);
}

/* All attempts together have the time of one: an attempt does not begin it
 * anew. */
Test(redial, within_the_time_of_the_first)
{
    pair_t pair;
    int left_ms;

    begin(&pair, LINK_TCP);
    pair_await(&pair, is_accepting, &pair, "a hello");
    tmsg_link_set_deadline(pair.to_a, 5000); /* 20 s went by */
    fail(&pair, false);
    pair_await(&pair, is_another, &pair, "another attempt");
    left_ms = tmsg_link_left_ms(pair.to_a);
    cr_expect(left_ms > 0 && left_ms <= 5000, "%d", left_ms);
    tmsg_link_set_deadline(pair.to_a, 1);
    cr_expect(eq(int, side_end_of(&pair.b, pair.to_a), TMSG_ERR_TIMED_OUT));
    must_say(tmsg_endpoint_error(pair.to_a), "attempt 2");
    must_say(tmsg_endpoint_error(pair.to_a), "UCX gave it up");
    pair_drop(&pair);
}

static bool has_address(void *arg)
{
    return ((tmsg_endpoint_t *)arg)->link.address_done;
}

static bool is_dialled_anew(void *arg)
{
    return ((tmsg_endpoint_t *)arg)->conn.redials > 0;
}

/* UCX at the peer may have given up without telling. */
static void is_not_answered(link_t link)
{
    tmsg_request_t *sent;
    pair_t pair;

    begin(&pair, link);
    sent = send_map(pair.to_a, sample_bytes(1, 1000), TMSG_SEND_ACKED);
    pair_await(&pair, has_address, pair.to_a, "an address");
    must_be(tmsg_endpoint_status(pair.to_a), TMSG_IN_PROGRESS);
    tmsg_link_set_deadline(pair.to_a, 600);
    side_await(&pair.b, is_dialled_anew, pair.to_a, "another attempt");
    cr_expect(le(int, tmsg_link_left_ms(pair.to_a), 300));
    tmsg_link_set_deadline(pair.to_a, 5000);
    receives(&pair, 1);
    must(pair_finish(&pair, sent));
    cr_expect(eq(uint, pair.to_a->conn.redials, 1));
    cr_expect(eq(uint, pair.a.accepts, 1));
    pair_drop(&pair);
}

Test(redial, halfway_where_ucx_does_not_answer_tcp)
{
    is_not_answered(LINK_TCP);
}
Test(redial, halfway_where_ucx_does_not_answer_shm)
{
    is_not_answered(LINK_SHM);
}

/* If the peer fails, and not UCX, the endpoint ends: the peer refuses with a
 * reason, hangs up, or is silent. */
Test(redial, not_what_the_peer_refuses)
{
    pair_t pair;

    begin(&pair, LINK_TCP);
    pair_await(&pair, is_accepting, &pair, "a hello");
    tmsg_endpoint_break(pair.to_b, TMSG_ERR_LIMIT_EXCEEDED, "enough");
    side_await(&pair.a, is_gone, &pair, "the end of it");
    cr_expect(
        eq(int, side_end_of(&pair.b, pair.to_a), TMSG_ERR_LIMIT_EXCEEDED));
    pair_drop(&pair);
}

Test(redial, not_one_who_hangs_up)
{
    pair_t pair;

    begin(&pair, LINK_TCP);
    pair_await(&pair, is_accepting, &pair, "a hello");
    shutdown(pair.to_b->link.fd, SHUT_RDWR);
    cr_expect(eq(int, side_end_of(&pair.b, pair.to_a), TMSG_ERR_PEER_LOST));
    cr_expect(eq(uint, pair.to_a->conn.redials, 0));
    pair_drop(&pair);
}

Test(redial, not_another_process_that_answers)
{
    tmsg_request_t *ready;
    pair_t pair;

    begin(&pair, LINK_TCP);
    must(tmsg_endpoint_ready(pair.to_a, &ready));
    pair_await(&pair, is_accepting, &pair, "a hello");
    pair.to_a->peer_hello.instance_id[0] ^= 1; /* of the first that answered */
    fail(&pair, false);
    cr_expect(eq(int, pair_wait(&pair, ready), TMSG_ERR_PEER_LOST));
    must_say(tmsg_endpoint_error(pair.to_a), "another process answers");
    cr_expect(eq(uint, pair.a.accepts, 0));
    tmsg_request_destroy(ready);
    pair_drop(&pair);
}

/* As liveness.c ends it. */
Test(redial, not_one_who_is_silent)
{
    pair_t pair;

    begin(&pair, LINK_TCP);
    pair_await(&pair, is_accepting, &pair, "a hello");
    tmsg_worker_lock(pair.b.worker);
    tmsg_endpoint_end(pair.to_a, TMSG_ERR_PEER_LOST, "no sign of life");
    tmsg_worker_unlock(pair.b.worker);
    cr_expect(eq(int, tmsg_endpoint_status(pair.to_a), TMSG_ERR_PEER_LOST));
    pair_drop(&pair);
}

/* The application may close the endpoint at any time. */
Test(redial, it_may_be_closed_meanwhile)
{
    for (unsigned turns = 0; turns < 30; turns++) {
        pair_t pair;

        begin(&pair, LINK_SHM);
        fail(&pair, turns % 2 == 0);
        for (unsigned i = 0; i < turns; i++) {
            tmsg_worker_progress(pair.a.worker);
            tmsg_worker_progress(pair.b.worker);
        }
        tmsg_endpoint_destroy(pair.to_a);
        pair_drop(&pair);
    }
}
