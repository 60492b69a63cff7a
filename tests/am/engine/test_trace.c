/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* The tracing hook: each step of each message, in its order. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "support/peers.h"
#include "support/seeded_maps.h"

enum { STEPS_MAX = 4096 };

typedef struct {
    tmsg_trace_event_t events[STEPS_MAX];
    size_t count;
} log_t;

static log_t of_a, of_b;

static void note(void *arg, const tmsg_trace_event_t *event)
{
    log_t *log = arg;

    must_true(log->count < STEPS_MAX);
    must_true(strncmp(event->peer, "unix://", 7) == 0);
    log->events[log->count++] = *event;
}

/* A side whose context is traced. */
static void open_traced(side_t *side, log_t *log)
{
    const tmsg_context_params_t params = {.field_mask =
                                              TMSG_CONTEXT_PARAM_ON_TRACE,
                                          .on_trace = note,
                                          .on_trace_arg = log};

    memset(side, 0, sizeof(*side));
    must(tmsg_context_create(&params, &side->context));
    must(tmsg_worker_create(side->context, NULL, &side->worker));
}

static void open_pair(pair_t *pair)
{
    open_traced(&pair->a, &of_a);
    open_traced(&pair->b, &of_b);
    pair->sides[0] = &pair->a;
    pair->sides[1] = &pair->b;
    side_listen_link(&pair->a, LINK_UNIX);
    pair->to_a = side_dial(&pair->b, &pair->a);
    while (tmsg_endpoint_status(pair->to_a) != TMSG_OK ||
           pair->a.accepts == 0) {
        tmsg_worker_progress(pair->a.worker);
        tmsg_worker_progress(pair->b.worker);
    }
    pair->to_b = pair->a.accepted;
}

/* The steps of one message must be these, at times that do not go back. */
static void expect_steps(const log_t *log, uint32_t message_id,
                         const uint32_t *steps, size_t count)
{
    uint64_t before = 0;
    size_t found = 0;

    for (size_t i = 0; i < log->count; i++) {
        const tmsg_trace_event_t *event = &log->events[i];

        if (event->message_id != message_id) {
            continue;
        }
        must_true(found < count);
        must_eq(event->step, steps[found++]);
        must_true(event->time_ns >= before);
        before = event->time_ns;
    }
    must_eq(found, count);
}

Test(trace, tells_each_step)
{
    static const uint32_t sent[] = {
        TMSG_TRACE_SEND_QUEUED, TMSG_TRACE_SEND_POSTED, TMSG_TRACE_SEND_DONE};
    static const uint32_t acked[] = {
        TMSG_TRACE_SEND_QUEUED, TMSG_TRACE_SEND_POSTED, TMSG_TRACE_SEND_DONE,
        TMSG_TRACE_SEND_ACKED};
    static const uint32_t received[] = {
        TMSG_TRACE_RECV_ARRIVED, TMSG_TRACE_RECV_FETCHED,
        TMSG_TRACE_RECV_DELIVERED, TMSG_TRACE_RECV_TAKEN};
    pair_t pair;

    open_pair(&pair);
    for (uint32_t i = 0; i < 40; i++) {
        tmsg_request_t *request =
            send_map(pair.to_a, sample_bytes(i, i < 30 ? 500 : 200000),
                     i % 2 ? TMSG_SEND_ACKED : 0);

        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, request));
    }
    for (uint32_t i = 0; i < 40; i++) {
        expect_steps(&of_b, i, i % 2 ? acked : sent, i % 2 ? 4 : 3);
        expect_steps(&of_a, i, received, 4);
    }
    for (size_t i = 0; i < of_a.count; i++) {
        const tmsg_trace_event_t *event = &of_a.events[i];

        must_eq(event->bytes, event->message_id < 30 ? 500 : 200000);
        must_eq(event->sequence, event->message_id);
        must_eq(event->channel, 0);
        must_eq(event->status, TMSG_OK);
        must_true(event->endpoint == pair.to_b);
    }
    pair_close(&pair);
}

Test(trace, tells_what_failed_and_why)
{
    static const uint32_t failed[] = {TMSG_TRACE_SEND_QUEUED,
                                      TMSG_TRACE_SEND_FAILED};
    pair_t pair;
    tmsg_request_t *request;

    open_pair(&pair);
    tmsg_endpoint_destroy(pair.to_a);
    pair.to_a = side_dial(&pair.b, &pair.a);
    of_b.count = 0;
    request = send_map(pair.to_a, sample_bytes(1, 100), 0);
    tmsg_endpoint_destroy(pair.to_a); /* before it is connected */
    must_be(tmsg_request_test(request), TMSG_ERR_CANCELED);
    tmsg_request_destroy(request);
    must_eq(of_b.count, 2);
    expect_steps(&of_b, 0, failed, 2);
    must_eq(of_b.events[1].status, TMSG_ERR_CANCELED);
    pair_drop(&pair);
}
