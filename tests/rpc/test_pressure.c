/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls beside messages, where there is no room for all of them. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "am/calls/calls.h"
#include "am/endpoint/endpoint.h"
#include "support/peers.h"
#include "support/seeded_maps.h"

enum { CALLS = 4, MESSAGES = 6 };

static void echo(void *arg, tmsg_task_t *task)
{
    (void)arg;
    must(tmsg_task_reply(task, tmsg_task_map(task), NULL));
}

static bool has_ended(void *arg)
{
    return tmsg_call_status(arg) != TMSG_IN_PROGRESS;
}

static void fill(pair_t *pair, tmsg_call_t **calls, tmsg_request_t **sent)
{
    tmsg_map_t *map = sample_bytes(1, 100);

    for (int i = 0; i < CALLS; i++) { /* one goes, three wait */
        must(tmsg_endpoint_call(pair->to_a, "echo", map, NULL, &calls[i]));
    }
    for (int i = 0; i < MESSAGES; i++) { /* one goes, one stays */
        must(tmsg_endpoint_send(pair->to_a, map, NULL, &sent[i]));
    }
    tmsg_map_destroy(map);
}

Test(pressure, the_oldest_message_is_dropped_and_no_call)
{
    const side_options_t narrow = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 1}};
    const tmsg_queue_params_t queue = {.field_mask = TMSG_QUEUE_PARAM_MESSAGES |
                                                     TMSG_QUEUE_PARAM_POLICY,
                                       .messages = CALLS - 1,
                                       .policy = TMSG_QUEUE_DROP_OLDEST};
    tmsg_call_t *calls[CALLS];
    tmsg_request_t *sent[MESSAGES];
    tmsg_server_t *server;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &narrow, NULL);
    must(tmsg_server_create(pair.a.worker, NULL, &server));
    must(tmsg_server_register(server, "echo", echo, NULL, NULL));
    must(tmsg_endpoint_set_queue(pair.to_a, &queue));
    fill(&pair, calls, sent);
    for (int i = 0; i < 2; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    for (int i = 0; i < MESSAGES; i++) {
        must_be(pair_finish(&pair, sent[i]),
                i == 0 || i == MESSAGES - 1 ? TMSG_OK : TMSG_ERR_DROPPED);
    }
    for (int i = 0; i < CALLS; i++) {
        pair_await(&pair, has_ended, calls[i], "a reply");
        must_be(tmsg_call_status(calls[i]), TMSG_OK);
        tmsg_call_destroy(calls[i]);
    }
    tmsg_server_destroy(server);
    pair_close(&pair);
}

static tmsg_status_t call_once(pair_t *pair)
{
    tmsg_status_t status;
    tmsg_call_t *call;

    must(tmsg_endpoint_call(pair->to_a, "echo", NULL, NULL, &call));
    pair_await(pair, has_ended, call, "the end of a call");
    status = tmsg_call_status(call);
    tmsg_call_destroy(call);
    return status;
}

static bool answers_wait(void *arg)
{
    return ((pair_t *)arg)->to_b->queue.answers >= CALLS - 1;
}

/* b takes one reply at a time, and none while it does not progress. */
Test(pressure, a_caller_that_takes_no_answers_is_not_served)
{
    const side_options_t narrow = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 1}};
    tmsg_call_t *calls[CALLS];
    tmsg_call_stream_t *stream;
    tmsg_server_t *server;
    side_t *a;
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, &narrow);
    a = &pair.a;
    must(tmsg_server_create(pair.a.worker, NULL, &server));
    must(tmsg_server_register(server, "echo", echo, NULL, NULL));
    for (int i = 0; i < CALLS; i++) {
        must(tmsg_endpoint_call(pair.to_a, "echo", NULL, NULL, &calls[i]));
    }
    await(&a, 1, answers_wait, &pair, "answers to wait");
    for (int i = 0; i < CALLS; i++) {
        pair_await(&pair, has_ended, calls[i], "a reply");
        must_be(tmsg_call_status(calls[i]), TMSG_OK);
        tmsg_call_destroy(calls[i]);
    }
    must_eq(pair.to_b->queue.answers, 0);
    pair.to_b->queue.answers = TMSG_CALLS_ANSWERS_MOST; /* as if they did */
    must_be(call_once(&pair), TMSG_ERR_RESOURCE_EXHAUSTED);
    pair.to_b->queue.answers = TMSG_CALLS_ANSWERS_MOST - 1;
    must_be(call_once(&pair), TMSG_OK);
    pair.to_b->queue.answers = TMSG_CALLS_ANSWERS_MOST;
    must(tmsg_endpoint_open_stream(pair.to_a, "echo", NULL, NULL, &stream));
    must_be(pair_end_of(&pair, pair.to_b), TMSG_ERR_LIMIT_EXCEEDED);
    tmsg_call_stream_destroy(stream);
    tmsg_server_destroy(server);
    pair_drop(&pair);
}
