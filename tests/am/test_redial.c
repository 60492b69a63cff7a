/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection that UCX does not make, though the peer is there: it is dialled
 * anew, and neither application hears of it. UCX's failure is what the library
 * calls when UCX reports one. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>
#include <sys/socket.h>

#include "am/endpoint.h"
#include "am/resume.h"
#include "support/joined.h"
#include "support/peers.h"
#include "support/sample.h"

#define MESSAGES 5

typedef struct {
    side_t a, b;
    side_t *sides[2];
    tmsg_endpoint_t *dialler;   /* b's */
    tmsg_endpoint_t *accepting; /* a's, that the test waits for */
} dialling_t;

/* `resume_ms`: of the sessions that a keeps; 0: none. */
static void begin_with(dialling_t *dialling, link_t link,
                       const tmsg_endpoint_params_t *params, int32_t resume_ms)
{
    const side_options_t options = {.ucx_config = link_config(link)};

    memset(dialling, 0, sizeof(*dialling));
    dialling->sides[0] = &dialling->a;
    dialling->sides[1] = &dialling->b;
    side_open(&dialling->a, &options);
    side_open(&dialling->b, &options);
    if (resume_ms > 0) {
        joined_listen(&dialling->a, "tcp://127.0.0.1:0", resume_ms);
    } else {
        side_listen_link(&dialling->a, link);
    }
    if (params == NULL) {
        dialling->dialler = side_dial(&dialling->b, &dialling->a);
    } else {
        must(tmsg_endpoint_connect(dialling->b.worker,
                                   tmsg_listener_url(dialling->a.listener),
                                   params, &dialling->dialler));
    }
}

static void begin(dialling_t *dialling, link_t link,
                  const tmsg_endpoint_params_t *params)
{
    begin_with(dialling, link, params, 0);
}

static void end(dialling_t *dialling)
{
    side_close(&dialling->b);
    side_close(&dialling->a);
}

/* Whether a has had the hello of a connection, and is not done with it. */
static bool is_accepting(void *arg)
{
    dialling_t *dialling = arg;
    const tmsg_worker_t *worker = dialling->a.worker;

    dialling->accepting = NULL;
    for (uint32_t i = 0; i < worker->endpoint_slots; i++) {
        tmsg_endpoint_t *endpoint = worker->endpoints[i];

        if (endpoint != NULL && !endpoint->is_lane &&
            endpoint->state == TMSG_EP_CONNECTING &&
            endpoint->link.hello_done) {
            dialling->accepting = endpoint;
        }
    }
    return dialling->accepting != NULL && dialling->dialler->link.hello_done;
}

static bool is_gone(void *arg) { return !is_accepting(arg); }

static bool is_another(void *arg)
{
    const tmsg_endpoint_t *dialler = ((dialling_t *)arg)->dialler;

    return dialler->state == TMSG_EP_CONNECTING && !dialler->link.hello_done;
}

/* UCX gives up the endpoint of one side. */
static void fail(dialling_t *dialling, bool at_dialler)
{
    await(dialling->sides, 2, is_accepting, dialling, "a hello");
    tmsg_endpoint_break(at_dialler ? dialling->dialler : dialling->accepting,
                        TMSG_ERR_PEER_LOST, "UCX gave it up");
}

typedef struct {
    tmsg_worker_t *worker;
    tmsg_message_t *message;
    tmsg_status_t status;
} receiver_t;

static bool has_received(void *arg)
{
    receiver_t *receiver = arg;

    receiver->status =
        tmsg_worker_recv(receiver->worker, 0, &receiver->message);
    return receiver->status != TMSG_ERR_TIMED_OUT;
}

static void receives(dialling_t *dialling, uint64_t seed)
{
    receiver_t receiver = {.worker = dialling->a.worker};

    await(dialling->sides, 2, has_received, &receiver, "a message");
    must(receiver.status);
    sample_check_bytes(seed, 1000, tmsg_message_map(receiver.message));
    tmsg_message_destroy(receiver.message);
}

static bool is_closed(void *endpoint)
{
    return tmsg_endpoint_status(endpoint) == TMSG_ERR_CLOSED;
}

static void fails(link_t link, unsigned times, bool at_dialler,
                  const tmsg_endpoint_params_t *params)
{
    tmsg_request_t *sent[MESSAGES];
    dialling_t dialling;

    begin(&dialling, link, params);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        sent[i] = send_map(dialling.dialler, sample_bytes(i, 1000), 0);
    }
    for (unsigned i = 0; i < times; i++) {
        fail(&dialling, at_dialler);
        await(dialling.sides, 2, is_another, &dialling, "another attempt");
        cr_expect(
            eq(int, tmsg_endpoint_status(dialling.dialler), TMSG_IN_PROGRESS));
    }
    for (uint64_t i = 0; i < MESSAGES; i++) {
        receives(&dialling, i);
        must(side_finish(&dialling.b, sent[i]));
    }
    cr_expect(eq(uint, dialling.a.accepts, 1));
    cr_expect(eq(int, tmsg_endpoint_status(dialling.dialler), TMSG_OK));
    must(tmsg_endpoint_close(dialling.dialler, NULL));
    await(dialling.sides, 2, is_closed, dialling.dialler, "its end");
    cr_expect(eq(ptr, strstr(tmsg_endpoint_error(dialling.dialler), "attempt"),
                 NULL));
    end(&dialling);
}

Test(redial, once_of_the_peers_shm) { fails(LINK_SHM, 1, false, NULL); }
Test(redial, once_of_the_peers_tcp) { fails(LINK_TCP, 1, false, NULL); }
Test(redial, twice_of_the_peers_unix) { fails(LINK_UNIX, 2, false, NULL); }
Test(redial, twice_of_the_peers_tcp) { fails(LINK_TCP, 2, false, NULL); }
Test(redial, once_of_its_own_tcp) { fails(LINK_TCP, 1, true, NULL); }
Test(redial, twice_of_its_own_shm) { fails(LINK_SHM, 2, true, NULL); }

static bool has_ended(void *request)
{
    return tmsg_request_test(request) != TMSG_IN_PROGRESS;
}

static bool has_come_back(void *arg)
{
    const dialling_t *dialling = arg;

    return dialling->dialler->resume->times > 0 &&
           dialling->dialler->state == TMSG_EP_OPEN;
}

/* Which then outlives its connection, as any other. */
static void becomes_a_session(link_t link, bool at_dialler)
{
    const tmsg_endpoint_params_t params = {
        .field_mask =
            TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT | TMSG_ENDPOINT_PARAM_RECONNECT,
        .connect_timeout_ms = PEERS_CONNECT_MS,
        .reconnect = {.first_backoff_ms = 1, .give_up_ms = PEERS_BOUND_MS},
    };
    tmsg_request_t *ready;
    dialling_t dialling;

    begin_with(&dialling, link, &params, PEERS_BOUND_MS);
    must(tmsg_endpoint_ready(dialling.dialler, &ready));
    fail(&dialling, at_dialler);
    await(dialling.sides, 2, has_ended, ready, "a connection");
    must(tmsg_request_test(ready));
    tmsg_request_destroy(ready);
    tmsg_endpoint_break(dialling.dialler, TMSG_ERR_PEER_LOST, "it broke");
    await(dialling.sides, 2, has_come_back, &dialling, "the session");
    tmsg_request_destroy(send_map(dialling.dialler, sample_bytes(7, 1000), 0));
    receives(&dialling, 7);
    cr_expect(eq(uint, dialling.a.accepts, 1));
    end(&dialling);
}

Test(redial, becomes_a_session_tcp) { becomes_a_session(LINK_TCP, false); }
Test(redial, becomes_a_session_shm) { becomes_a_session(LINK_SHM, true); }

Test(redial, no_more_than_twice)
{
    dialling_t dialling;

    begin(&dialling, LINK_TCP, NULL);
    for (unsigned i = 0; i < 2; i++) {
        fail(&dialling, false);
        await(dialling.sides, 2, is_another, &dialling, "another attempt");
    }
    fail(&dialling, false);
    side_await(&dialling.a, is_gone, &dialling, "the end of it");
    cr_expect(eq(int, side_end_of(&dialling.b, dialling.dialler),
                 TMSG_ERR_PEER_LOST));
    must_say(tmsg_endpoint_error(dialling.dialler), "UCX gave it up");
    cr_expect(eq(uint, dialling.a.accepts, 0));
    end(&dialling);
}

/* All attempts have the time of one: however far a clock has gone, it is not
 * begun anew. */
Test(redial, within_the_time_of_the_first)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = PEERS_CONNECT_MS,
    };
    dialling_t dialling;
    int left_ms;

    begin(&dialling, LINK_TCP, &params);
    await(dialling.sides, 2, is_accepting, &dialling, "a hello");
    tmsg_link_set_deadline(dialling.dialler, 5000); /* 20 s went by */
    fail(&dialling, false);
    await(dialling.sides, 2, is_another, &dialling, "another attempt");
    left_ms = tmsg_link_left_ms(dialling.dialler);
    cr_expect(left_ms > 0 && left_ms <= 5000, "%d", left_ms);
    tmsg_link_set_deadline(dialling.dialler, 1);
    cr_expect(eq(int, side_end_of(&dialling.b, dialling.dialler),
                 TMSG_ERR_TIMED_OUT));
    must_say(tmsg_endpoint_error(dialling.dialler), "attempt 2");
    must_say(tmsg_endpoint_error(dialling.dialler), "UCX gave it up");
    end(&dialling);
}

/* What is of the peer, and not of UCX, is an end: it refuses with a reason, it
 * hangs up, or nothing is heard of it. */
Test(redial, not_what_the_peer_refuses)
{
    dialling_t dialling;

    begin(&dialling, LINK_TCP, NULL);
    await(dialling.sides, 2, is_accepting, &dialling, "a hello");
    tmsg_endpoint_break(dialling.accepting, TMSG_ERR_LIMIT_EXCEEDED, "enough");
    side_await(&dialling.a, is_gone, &dialling, "the end of it");
    cr_expect(eq(int, side_end_of(&dialling.b, dialling.dialler),
                 TMSG_ERR_LIMIT_EXCEEDED));
    end(&dialling);
}

Test(redial, not_one_who_hangs_up)
{
    dialling_t dialling;

    begin(&dialling, LINK_TCP, NULL);
    await(dialling.sides, 2, is_accepting, &dialling, "a hello");
    shutdown(dialling.accepting->link.fd, SHUT_RDWR);
    cr_expect(eq(int, side_end_of(&dialling.b, dialling.dialler),
                 TMSG_ERR_PEER_LOST));
    cr_expect(eq(uint, dialling.dialler->redials, 0));
    end(&dialling);
}

/* As silence.c ends it. */
Test(redial, not_one_who_is_silent)
{
    dialling_t dialling;

    begin(&dialling, LINK_TCP, NULL);
    await(dialling.sides, 2, is_accepting, &dialling, "a hello");
    tmsg_worker_lock(dialling.b.worker);
    tmsg_endpoint_end(dialling.dialler, TMSG_ERR_PEER_LOST, "no sign of life");
    tmsg_worker_unlock(dialling.b.worker);
    cr_expect(
        eq(int, tmsg_endpoint_status(dialling.dialler), TMSG_ERR_PEER_LOST));
    end(&dialling);
}

/* The application may close it at any time. */
Test(redial, it_may_be_closed_meanwhile)
{
    for (unsigned turns = 0; turns < 30; turns++) {
        dialling_t dialling;

        begin(&dialling, LINK_SHM, NULL);
        fail(&dialling, turns % 2 == 0);
        for (unsigned i = 0; i < turns; i++) {
            tmsg_worker_progress(dialling.a.worker);
            tmsg_worker_progress(dialling.b.worker);
        }
        tmsg_endpoint_destroy(dialling.dialler);
        end(&dialling);
    }
}
