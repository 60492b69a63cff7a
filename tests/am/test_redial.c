/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection that UCX does not make, though the peer is there: it is dialled
 * anew, and neither application hears of it. UCX's failure is what the library
 * calls when UCX reports one. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/endpoint.h"
#include "support/peers.h"
#include "support/sample.h"

#define MESSAGES 5

typedef struct {
    side_t a, b;
    side_t *sides[2];
    tmsg_endpoint_t *dialler;   /* b's */
    tmsg_endpoint_t *accepting; /* a's, that the test waits for */
} dialling_t;

static void begin(dialling_t *dialling, link_t link,
                  const tmsg_endpoint_params_t *params)
{
    const side_options_t options = {.ucx_config = link_config(link)};

    memset(dialling, 0, sizeof(*dialling));
    dialling->sides[0] = &dialling->a;
    dialling->sides[1] = &dialling->b;
    side_open(&dialling->a, &options);
    side_open(&dialling->b, &options);
    side_listen_link(&dialling->a, link);
    if (params == NULL) {
        dialling->dialler = side_dial(&dialling->b, &dialling->a);
    } else {
        must(tmsg_endpoint_connect(dialling->b.worker,
                                   tmsg_listener_url(dialling->a.listener),
                                   params, &dialling->dialler));
    }
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
        tmsg_message_t *message = NULL;

        while (tmsg_worker_recv(dialling.a.worker, 0, &message) ==
               TMSG_ERR_TIMED_OUT) {
            tmsg_worker_progress(dialling.b.worker);
        }
        sample_check_bytes(i, 1000, tmsg_message_map(message));
        tmsg_message_destroy(message);
        must(side_finish(&dialling.b, sent[i]));
    }
    cr_expect(eq(uint, dialling.a.accepts, 1));
    cr_expect(eq(int, tmsg_endpoint_status(dialling.dialler), TMSG_OK));
    end(&dialling);
}

Test(redial, once_of_the_peers_shm) { fails(LINK_SHM, 1, false, NULL); }
Test(redial, once_of_the_peers_tcp) { fails(LINK_TCP, 1, false, NULL); }
Test(redial, twice_of_the_peers_unix) { fails(LINK_UNIX, 2, false, NULL); }
Test(redial, twice_of_the_peers_tcp) { fails(LINK_TCP, 2, false, NULL); }
Test(redial, once_of_its_own_tcp) { fails(LINK_TCP, 1, true, NULL); }
Test(redial, twice_of_its_own_shm) { fails(LINK_SHM, 2, true, NULL); }

Test(redial, of_what_would_be_a_session)
{
    const tmsg_endpoint_params_t params = {
        .field_mask =
            TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT | TMSG_ENDPOINT_PARAM_RECONNECT,
        .connect_timeout_ms = PEERS_CONNECT_MS,
        .reconnect = {.give_up_ms = 10000},
    };

    fails(LINK_TCP, 1, false, &params);
    fails(LINK_SHM, 2, true, &params);
}

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

/* All attempts have the time of one. */
Test(redial, within_the_time_of_the_first)
{
    dialling_t dialling;
    int left_ms;

    begin(&dialling, LINK_TCP, NULL);
    await(dialling.sides, 2, is_accepting, &dialling, "a hello");
    left_ms = tmsg_link_left_ms(dialling.dialler);
    cr_expect(left_ms > 0 && left_ms <= PEERS_CONNECT_MS);
    fail(&dialling, false);
    await(dialling.sides, 2, is_another, &dialling, "another attempt");
    cr_expect(le(int, tmsg_link_left_ms(dialling.dialler), left_ms));
    end(&dialling);
}

/* A refusal with a reason, and a peer that hangs up, are an end. */
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
