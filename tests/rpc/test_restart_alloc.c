/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* Fails every allocation of ours in turn while an endpoint whose peer is gone
 * leaves what it has to the one that takes its place: messages that wait, a
 * call that does and one that was under way, a publisher's. It goes on, or ends
 * and says so; all that was begun ends; nothing is left behind. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>

#include "support/own_code_alloc.h"
#include "support/restarted.h"
#include "support/seeded_maps.h"

enum { ROUNDS_MOST = 300, CALLS = 3, SENDS = 4 };

TestSuite(restart_alloc, .init = watched_alloc_start);

typedef struct {
    restarted_t restarted;
    tmsg_server_t *server;
    tmsg_publisher_t *publisher;
    tmsg_map_t *map;
    tmsg_request_t *sent[SENDS];
    tmsg_call_t *calls[CALLS];
} round_t;

static void keep(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, NULL, NULL));
}

static void serve(restarted_t *restarted)
{
    round_t *round = restarted->arg;

    must(tmsg_server_create(restarted->server.worker, NULL, &round->server));
    must(tmsg_server_register(round->server, "keep", keep, round, NULL));
}

static void leave(restarted_t *restarted)
{
    tmsg_server_destroy(((round_t *)restarted->arg)->server);
}

static void begin(round_t *round)
{
    const tmsg_call_params_t again = {.field_mask = TMSG_CALL_PARAM_FLAGS |
                                                    TMSG_CALL_PARAM_RETRY,
                                      .flags = TMSG_CALL_IDEMPOTENT,
                                      .retry = {5, 1, 1}};
    tmsg_endpoint_t *endpoint = round->restarted.endpoint;

    must(tmsg_publisher_create(round->restarted.client.worker, NULL,
                               &round->publisher));
    must(tmsg_publisher_add(round->publisher, endpoint, NULL));
    for (int i = 0; i < SENDS; i++) { /* of which two go */
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_FLAGS | TMSG_SEND_PARAM_CHANNEL,
            .flags = TMSG_SEND_ACKED,
            .channel = i == SENDS - 1 ? 5 : 0};

        must(
            tmsg_endpoint_send(endpoint, round->map, &params, &round->sent[i]));
    }
    for (int i = 0; i < CALLS; i++) {
        must(tmsg_endpoint_call(endpoint, "keep", round->map,
                                i == 1 ? &again : NULL, &round->calls[i]));
    }
    must(tmsg_publisher_publish(round->publisher, round->map, NULL, NULL));
}

static bool is_away_or_over(void *arg)
{
    return tmsg_endpoint_status(arg) != TMSG_OK;
}

static bool is_over(void *arg)
{
    round_t *round = arg;
    tmsg_message_t *message;

    while (round->restarted.server.worker != NULL &&
           tmsg_worker_recv(round->restarted.server.worker, 0, &message) ==
               TMSG_OK) {
        tmsg_message_destroy(message);
    }
    for (int i = 0; i < SENDS; i++) {
        if (tmsg_request_test(round->sent[i]) == TMSG_IN_PROGRESS) {
            return false;
        }
    }
    for (int i = 0; i < CALLS; i++) {
        if (tmsg_call_status(round->calls[i]) == TMSG_IN_PROGRESS) {
            return false;
        }
    }
    return true;
}

static void check_status(tmsg_status_t status, bool failed)
{
    must_true(status == TMSG_OK || status == TMSG_ERR_PEER_LOST ||
              (failed && status == TMSG_ERR_NO_MEMORY));
}

/* Whether an allocation failed. */
static bool play(const void *arg, unsigned long nth)
{
    round_t round = {
        .restarted = {.link = LINK_TCP, .serve = serve, .leave = leave}};
    restarted_t *restarted = &round.restarted;
    bool failed, goes_on;

    (void)arg;
    restarted->arg = &round;
    restarted->server_options.worker.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH;
    restarted->server_options.worker.queue_depth = 2;
    round.map = sample_bytes(1, 300);
    restarted_open(restarted, DRIVE_POLLING);
    begin(&round);
    restarted_stop(restarted);
    watched_alloc_arm(nth);
    restarted_await(restarted, is_away_or_over, restarted->endpoint,
                    "the loss");
    for (int i = 0; i < 20; i++) {
        tmsg_worker_progress(restarted->client.worker);
    }
    failed = watched_alloc_disarm() != 0;
    goes_on = tmsg_endpoint_status(restarted->endpoint) == TMSG_IN_PROGRESS;
    must_true(goes_on || failed);
    restarted_start(restarted);
    restarted_await(restarted, is_over, &round, "the end of all");
    must_true(goes_on == (restarted->told.ends == 0));
    if (goes_on) { /* which is told whatever memory there is */
        restarted_await_new(restarted);
        must_eq(restarted->told.events[0], TMSG_SESSION_AWAY);
        must_eq(restarted->told.count, 2);
    }
    for (int i = 0; i < SENDS; i++) {
        check_status(tmsg_request_test(round.sent[i]), failed);
        tmsg_request_destroy(round.sent[i]);
    }
    for (int i = 0; i < CALLS; i++) {
        check_status(tmsg_call_status(round.calls[i]), failed);
        tmsg_call_destroy(round.calls[i]);
    }
    tmsg_publisher_destroy(round.publisher);
    restarted_close(restarted);
    tmsg_map_destroy(round.map);
    return failed;
}

Test(restart_alloc, leaves_what_it_has)
{
    unsigned long nth = watched_alloc_play_each(play, NULL, ROUNDS_MOST);

    fprintf(stderr, "%lu allocations\n", nth - 1);
    must_true(nth > 5);
}
