/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* A process or its machine is stopped while it connects: neither side times out
 * because of that. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <time.h>

#include "support/peers.h"

#define PAIRS 8         /* each further on when all of them are stopped */
#define TIMEOUT_MS 4000 /* of a handshake and of connecting */
#define STOP_MS 4500
#define LOOKS_MOST 100000

static void stop(unsigned ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

/* Drives both sides until one has done something, or neither has anything to
 * do. */
static void turn(const pair_t *pair)
{
    unsigned done = 0;

    for (unsigned i = 0; i < LOOKS_MOST && done == 0; i++) {
        done = tmsg_worker_progress(pair->a.worker) +
               tmsg_worker_progress(pair->b.worker);
    }
}

static void begin(pair_t *pair, link_t link, tmsg_request_t **ready_p)
{
    /* The keepalive thread goes on here, as it would not if the process stood.
     */
    const side_options_t options = {.ucx_config = link_config(link),
                                    .peer_timeout_ms = 60000};
    const tmsg_listener_params_t listening = {
        .field_mask = TMSG_LISTENER_PARAM_HANDSHAKE_TIMEOUT,
        .handshake_timeout_ms = TIMEOUT_MS,
    };
    const tmsg_endpoint_params_t connecting = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = TIMEOUT_MS,
    };

    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    side_open(&pair->a, &options);
    side_open(&pair->b, &options);
    must(tmsg_listener_create(pair->a.worker, "tcp://127.0.0.1:0", &listening,
                              &pair->a.listener));
    must(tmsg_endpoint_connect(pair->b.worker,
                               tmsg_listener_url(pair->a.listener), &connecting,
                               &pair->to_a));
    must(tmsg_endpoint_ready(pair->to_a, ready_p));
}

Test(stalled, both_connect)
{
    pair_t pairs[PAIRS] = {0};
    tmsg_request_t *ready[PAIRS];
    unsigned under_way = 0;

    for (unsigned i = 0; i < PAIRS; i++) {
        begin(&pairs[i], i % 2 == 0 ? LINK_SHM : LINK_TCP, &ready[i]);
    }
    for (unsigned i = 0; i < PAIRS; i++) {
        for (unsigned j = 0; j <= i; j++) {
            turn(&pairs[i]);
        }
        under_way += tmsg_request_test(ready[i]) == TMSG_IN_PROGRESS;
    }
    cr_assert(ge(uint, under_way, PAIRS / 2));
    stop(STOP_MS);
    for (unsigned i = 0; i < PAIRS; i++) {
        must(pair_finish(&pairs[i], ready[i]));
        tmsg_endpoint_destroy(pairs[i].to_a);
        pair_drop(&pairs[i]);
    }
}

/* A peer that is silent for another reason is given up in time. */
Test(stalled, who_is_silent_is_given_up)
{
    pair_t pair = {0};
    tmsg_request_t *ready;

    begin(&pair, LINK_SHM, &ready);
    turn(&pair);
    stop(STOP_MS);
    cr_expect(eq(int, side_wait(&pair.b, ready), TMSG_ERR_TIMED_OUT));
    tmsg_request_destroy(ready);
    tmsg_endpoint_destroy(pair.to_a);
    pair_drop(&pair);
}
