/* SPDX-License-Identifier: BSD-3-Clause */
/* ctest: once */
/* What becomes of sends for which the queue has no room: each policy, its
 * counters, and that the sends in the queue arrive in order. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/peers.h"
#include "support/raw_bootstrap.h"
#include "support/seeded_maps.h"

/* a takes one message at a time, so that b's messages wait behind the first. */
static void open_narrow(pair_t *pair, drive_t drive,
                        const tmsg_worker_params_t *b)
{
    const side_options_t narrow = {
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH,
                   .queue_depth = 1}};
    side_options_t options = {0};

    if (b != NULL) {
        options.worker = *b;
    }
    pair_open(pair, LINK_SHM, drive, &narrow, &options);
}

static void set_queue(tmsg_endpoint_t *endpoint, uint32_t messages,
                      tmsg_queue_policy_t policy)
{
    const tmsg_queue_params_t params = {
        .field_mask = TMSG_QUEUE_PARAM_MESSAGES | TMSG_QUEUE_PARAM_POLICY,
        .messages = messages,
        .policy = policy};

    must(tmsg_endpoint_set_queue(endpoint, &params));
}

/* One message whose seed says which it is. */
static tmsg_status_t try_send(tmsg_endpoint_t *endpoint, uint64_t seed,
                              size_t bytes, const tmsg_send_params_t *params,
                              tmsg_request_t **request_p)
{
    tmsg_map_t *map = sample_bytes(seed, bytes);
    tmsg_status_t status = tmsg_endpoint_send(endpoint, map, params, request_p);

    tmsg_map_destroy(map);
    return status;
}

static tmsg_request_t *send_seed(tmsg_endpoint_t *endpoint, uint64_t seed)
{
    tmsg_request_t *request;

    must(try_send(endpoint, seed, 100, NULL, &request));
    return request;
}

static void take_seed(pair_t *pair, uint64_t seed)
{
    tmsg_message_t *message = pair_take(pair, &pair->a);

    sample_check_bytes(seed, 100, tmsg_message_map(message));
    tmsg_message_destroy(message);
}

static void expect_said(const tmsg_endpoint_t *endpoint, const char *words)
{
    char *json;

    must(tmsg_endpoint_describe(endpoint, &json));
    must_say(json, words);
    tmsg_string_free(json);
}

Test(queue, rejects_what_finds_no_room)
{
    tmsg_request_t *sent[3], *none = NULL;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    set_queue(pair.to_a, 2, TMSG_QUEUE_REJECT);
    for (uint64_t i = 0; i < 3; i++) {
        sent[i] = send_seed(pair.to_a, i);
    }
    must_be(try_send(pair.to_a, 3, 100, NULL, &none), TMSG_ERR_BUSY);
    cr_expect(zero(ptr, none));
    must_say(tmsg_error_message(), tmsg_endpoint_peer(pair.to_a));
    must_say(tmsg_error_message(), "2 messages wait, of 2 that may");
    expect_said(pair.to_a, "\"rejected\":\t1,");
    expect_said(pair.to_a, "\"policy\":\t\"reject\"");
    for (uint64_t i = 0; i < 3; i++) {
        take_seed(&pair, i);
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

Test(queue, counts_bytes_but_one_message_is_never_too_large)
{
    const tmsg_queue_params_t params = {.field_mask = TMSG_QUEUE_PARAM_BYTES,
                                        .bytes = 1000};
    tmsg_request_t *sent[3], *none = NULL;
    tmsg_message_t *message;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    must(tmsg_endpoint_set_queue(pair.to_a, &params));
    must(try_send(pair.to_a, 0, 5000, NULL, &sent[0])); /* goes at once */
    must(try_send(pair.to_a, 1, 600, NULL, &sent[1]));
    must_be(try_send(pair.to_a, 2, 401, NULL, &none), TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "600 bytes wait, of 1000 that may, and this "
                                   "message has 401");
    must(try_send(pair.to_a, 2, 400, NULL, &sent[2]));
    for (int i = 0; i < 3; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, sent[i]));
    }
    must(try_send(pair.to_a, 3, 10, NULL, &sent[0]));
    must(pair_finish(&pair, sent[0]));
    must(try_send(pair.to_a, 4, 5000, NULL, &sent[1])); /* waits alone */
    must_be(try_send(pair.to_a, 5, 1, NULL, &none), TMSG_ERR_BUSY);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    message = pair_take(&pair, &pair.a);
    sample_check_bytes(4, 5000, tmsg_message_map(message));
    tmsg_message_destroy(message);
    must(pair_finish(&pair, sent[1]));
    pair_close(&pair);
}

Test(queue, drops_the_oldest_that_waits)
{
    tmsg_request_t *sent[5];
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    set_queue(pair.to_a, 2, TMSG_QUEUE_DROP_OLDEST);
    for (uint64_t i = 0; i < 5; i++) {
        sent[i] = send_seed(pair.to_a, i);
    }
    must_be(tmsg_request_wait(sent[1], 0), TMSG_ERR_DROPPED);
    must_say(tmsg_error_message(), tmsg_endpoint_peer(pair.to_a));
    must_say(tmsg_error_message(), "2 messages wait, of 2 that may");
    must_be(tmsg_request_test(sent[2]), TMSG_ERR_DROPPED);
    expect_said(pair.to_a, "\"dropped_oldest\":\t2,");
    take_seed(&pair, 0); /* it had begun */
    take_seed(&pair, 3);
    take_seed(&pair, 4);
    for (int i = 0; i < 5; i++) {
        must_be(pair_finish(&pair, sent[i]),
                i == 1 || i == 2 ? TMSG_ERR_DROPPED : TMSG_OK);
    }
    pair_close(&pair);
}

/* The oldest is dropped whichever channel it is on. */
Test(queue, drops_the_oldest_of_all_channels)
{
    static const uint16_t channels[] = {0, 1, 2, 1, 2, 0, 1};
    enum { SENDS = sizeof(channels) / sizeof(channels[0]) };
    tmsg_request_t *sent[SENDS];
    tmsg_endpoint_t *second;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    second = side_dial(&pair.b, &pair.a); /* all of it waits */
    set_queue(second, 3, TMSG_QUEUE_DROP_OLDEST);
    for (uint64_t i = 0; i < SENDS; i++) {
        const tmsg_send_params_t params = {
            .field_mask = TMSG_SEND_PARAM_CHANNEL, .channel = channels[i]};

        must(try_send(second, i, 100, &params, &sent[i]));
    }
    for (uint64_t i = 0; i < SENDS; i++) {
        must_be(tmsg_request_test(sent[i]),
                i < SENDS - 3 ? TMSG_ERR_DROPPED : TMSG_IN_PROGRESS);
    }
    for (uint64_t i = SENDS - 3; i < SENDS; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    for (uint64_t i = 0; i < SENDS; i++) {
        tmsg_request_destroy(sent[i]);
    }
    pair_close(&pair);
}

Test(queue, drops_as_many_of_the_oldest_as_take_the_room)
{
    const tmsg_queue_params_t params = {.field_mask = TMSG_QUEUE_PARAM_BYTES |
                                                      TMSG_QUEUE_PARAM_POLICY,
                                        .bytes = 400,
                                        .policy = TMSG_QUEUE_DROP_OLDEST};
    tmsg_request_t *sent[5], *large;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    must(tmsg_endpoint_set_queue(pair.to_a, &params));
    for (uint64_t i = 0; i < 5; i++) {
        sent[i] = send_seed(pair.to_a, i);
    }
    must(try_send(pair.to_a, 5, 250, NULL, &large));
    for (int i = 1; i < 4; i++) {
        must_be(tmsg_request_test(sent[i]), TMSG_ERR_DROPPED);
    }
    take_seed(&pair, 0);
    take_seed(&pair, 4);
    tmsg_message_destroy(pair_take(&pair, &pair.a));
    must(pair_finish(&pair, large));
    for (int i = 0; i < 5; i++) {
        tmsg_request_destroy(sent[i]);
    }
    pair_close(&pair);
}

/* A publisher decides about its own messages, which take no room here. */
/* While the peer's application has not taken the one before, the newest alone
 * waits, though the peer has room for many. */
static void keeps_the_newest(link_t link)
{
    const tmsg_queue_params_t params = {.field_mask = TMSG_QUEUE_PARAM_POLICY,
                                        .policy = TMSG_QUEUE_NEWEST};
    tmsg_request_t *sent[6];
    pair_t pair;

    pair_open(&pair, link, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_set_queue(pair.to_a, &params));
    for (uint64_t i = 0; i < 6; i++) {
        sent[i] = send_seed(pair.to_a, i);
    }
    expect_said(pair.to_a, "\"policy\":\t\"newest\"");
    expect_said(pair.to_a, "\"under_way\":\t1");
    expect_said(pair.to_a, "\"dropped_oldest\":\t4,");
    must_be(tmsg_request_test(sent[0]), TMSG_IN_PROGRESS);
    take_seed(&pair, 0);
    take_seed(&pair, 5);
    for (uint64_t i = 0; i < 6; i++) {
        must_be(pair_finish(&pair, sent[i]),
                i == 0 || i == 5 ? TMSG_OK : TMSG_ERR_DROPPED);
    }
    expect_said(pair.to_a, "\"under_way\":\t0");
    must(tmsg_endpoint_set_queue(pair.to_a, NULL));
    for (uint64_t i = 0; i < 6; i++) { /* as many as the peer has room for */
        must(pair_finish(&pair, send_seed(pair.to_a, i)));
    }
    for (uint64_t i = 0; i < 6; i++) {
        take_seed(&pair, i);
    }
    pair_close(&pair);
}

Test(queue, keeps_the_newest_tcp) { keeps_the_newest(LINK_TCP); }
Test(queue, keeps_the_newest_shm) { keeps_the_newest(LINK_SHM); }

static bool went_by_template(const tmsg_endpoint_t *endpoint)
{
    char *json;
    bool went;

    must(tmsg_endpoint_describe(endpoint, &json));
    went = strstr(json, "\"sent_by_template\":\t0,") == NULL;
    tmsg_string_free(json);
    return went;
}

/* One without metadata, as a template may carry it. */
static tmsg_request_t *send_plain(tmsg_endpoint_t *endpoint)
{
    const sample_t sample = sample_plain(7, 100);

    return send_map(endpoint, sample_make(&sample), 0);
}

Test(queue, what_went_by_a_template_takes_a_place_in_the_window)
{
    const tmsg_queue_params_t params = {.field_mask = TMSG_QUEUE_PARAM_WINDOW,
                                        .window = 1};
    tmsg_request_t *sent[2];
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, NULL, NULL);
    for (int i = 0; i < 1000 && !went_by_template(pair.to_a); i++) {
        must(pair_finish(&pair, send_plain(pair.to_a)));
        tmsg_message_destroy(pair_take(&pair, &pair.a));
    }
    must_true(went_by_template(pair.to_a));
    must(tmsg_endpoint_set_queue(pair.to_a, &params));
    for (int i = 0; i < 2; i++) {
        sent[i] = send_plain(pair.to_a);
    }
    expect_said(pair.to_a, "\"waiting_messages\":\t1,");
    expect_said(pair.to_a, "\"under_way\":\t1");
    for (int i = 0; i < 2; i++) {
        tmsg_message_destroy(pair_take(&pair, &pair.a));
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

/* Those that the peer refuses, or that are given up, leave the window. */
Test(queue, what_is_given_up_leaves_the_window)
{
    const tmsg_queue_params_t params = {.field_mask = TMSG_QUEUE_PARAM_WINDOW,
                                        .window = 2};
    tmsg_request_t *sent[4];
    pair_t pair;

    pair_open(&pair, LINK_TCP, DRIVE_POLLING, NULL, NULL);
    must(tmsg_endpoint_set_queue(pair.to_a, &params));
    for (uint64_t i = 0; i < 4; i++) {
        sent[i] = send_seed(pair.to_a, i);
    }
    expect_said(pair.to_a, "\"waiting_messages\":\t2,");
    for (uint64_t i = 0; i < 2; i++) {
        tmsg_request_cancel(sent[i]);
        must_be(pair_finish(&pair, sent[i]), TMSG_ERR_CANCELED);
    }
    for (uint64_t i = 2; i < 4; i++) {
        take_seed(&pair, i);
        must(pair_finish(&pair, sent[i]));
    }
    expect_said(pair.to_a, "\"under_way\":\t0");
    pair_close(&pair);
}

static bool request_is_over(void *arg)
{
    return tmsg_request_test(arg) != TMSG_IN_PROGRESS;
}

Test(queue, drops_what_has_waited_for_too_long)
{
    tmsg_queue_params_t params = {.field_mask = TMSG_QUEUE_PARAM_POLICY |
                                                TMSG_QUEUE_PARAM_MOST_MS,
                                  .policy = TMSG_QUEUE_DROP_OLDEST,
                                  .most_ms = 30};
    tmsg_request_t *sent[4], *none = NULL;
    pair_t pair;

    open_narrow(&pair, DRIVE_FD, NULL);
    must(tmsg_endpoint_set_queue(pair.to_a, &params));
    for (uint64_t i = 0; i < 3; i++) {
        sent[i] = send_seed(pair.to_a, i);
    }
    for (uint64_t i = 1; i < 3; i++) { /* nothing but time passes */
        pair_await(&pair, request_is_over, sent[i], "the drop");
        must_say(tmsg_request_error(sent[i]), "has waited in the send queue");
        must_be(pair_finish(&pair, sent[i]), TMSG_ERR_DROPPED);
    }
    expect_said(pair.to_a, "\"age\":\t2");
    take_seed(&pair, 0);
    must(pair_finish(&pair, sent[0]));
    /* Where nothing may be dropped there is no room while one is so old. */
    params.policy = TMSG_QUEUE_REJECT;
    params.most_ms = 1;
    must(tmsg_endpoint_set_queue(pair.to_a, &params));
    sent[0] = send_seed(pair.to_a, 3);
    sent[1] = send_seed(pair.to_a, 4);
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    must_be(try_send(pair.to_a, 5, 100, NULL, &none), TMSG_ERR_BUSY);
    must_say(tmsg_error_message(), "has waited for 1 ms");
    take_seed(&pair, 3);
    take_seed(&pair, 4);
    must(pair_finish(&pair, sent[0]));
    must(pair_finish(&pair, sent[1]));
    pair_close(&pair);
}

/* Neither a message that was queued before nor an alarm that is set is passed
 * over. */
Test(queue, applies_a_new_age_to_what_waits)
{
    tmsg_queue_params_t params = {.field_mask = TMSG_QUEUE_PARAM_POLICY |
                                                TMSG_QUEUE_PARAM_MOST_MS,
                                  .policy = TMSG_QUEUE_DROP_OLDEST,
                                  .most_ms = 3600000};
    tmsg_request_t *sent[4];
    pair_t pair;

    open_narrow(&pair, DRIVE_FD, NULL);
    sent[0] = send_seed(pair.to_a, 0);
    sent[1] = send_seed(pair.to_a, 1);
    must(tmsg_endpoint_set_queue(pair.to_a, &params));
    sent[2] = send_seed(pair.to_a, 2);
    params.most_ms = 30;
    must(tmsg_endpoint_set_queue(pair.to_a, &params));
    for (int i = 1; i < 3; i++) {
        pair_await(&pair, request_is_over, sent[i], "the drop");
        must_be(pair_finish(&pair, sent[i]), TMSG_ERR_DROPPED);
    }
    expect_said(pair.to_a, "\"age\":\t2");
    take_seed(&pair, 0);
    must(pair_finish(&pair, sent[0]));
    pair_close(&pair);
}

Test(queue, drops_no_publication)
{
    const tmsg_subscriber_params_t params = {
        .field_mask = TMSG_SUBSCRIBER_PARAM_WINDOW | TMSG_SUBSCRIBER_PARAM_SLOW,
        .window = 3,
        .slow = TMSG_SLOW_DISCONNECT};
    tmsg_publisher_t *publisher;
    tmsg_request_t *sent[4];
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    set_queue(pair.to_a, 2, TMSG_QUEUE_DROP_OLDEST);
    must(tmsg_publisher_create(pair.b.worker, NULL, &publisher));
    must(tmsg_publisher_add(publisher, pair.to_a, &params));
    for (uint64_t i = 0; i < 3; i++) {
        tmsg_map_t *map = sample_bytes(i, 100);

        must(tmsg_publisher_publish(publisher, map, NULL, NULL));
        tmsg_map_destroy(map);
    }
    for (uint64_t i = 0; i < 4; i++) {
        sent[i] = send_seed(pair.to_a, 3 + i);
    }
    for (int i = 0; i < 4; i++) {
        must_be(tmsg_request_test(sent[i]),
                i < 2 ? TMSG_ERR_DROPPED : TMSG_IN_PROGRESS);
    }
    for (uint64_t i = 0; i < 3; i++) {
        take_seed(&pair, i);
    }
    take_seed(&pair, 5);
    take_seed(&pair, 6);
    for (int i = 0; i < 4; i++) {
        must_be(pair_finish(&pair, sent[i]),
                i < 2 ? TMSG_ERR_DROPPED : TMSG_OK);
    }
    tmsg_publisher_destroy(publisher);
    pair_close(&pair);
}

typedef struct {
    unsigned done;
    tmsg_status_t status;
} outcome_t;

static void note_outcome(void *arg, tmsg_status_t status, const char *error)
{
    outcome_t *outcome = arg;

    (void)error;
    outcome->done++;
    outcome->status = status;
}

static bool is_done(void *arg) { return ((outcome_t *)arg)->done > 0; }

Test(queue, drops_the_newest)
{
    outcome_t outcome = {0};
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_ON_DONE,
                                       .on_done = note_outcome,
                                       .on_done_arg = &outcome};
    tmsg_request_t *sent[3], *dropped;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    set_queue(pair.to_a, 2, TMSG_QUEUE_DROP_NEWEST);
    for (uint64_t i = 0; i < 3; i++) {
        sent[i] = send_seed(pair.to_a, i);
    }
    must(try_send(pair.to_a, 3, 100, &params, &dropped));
    must_be(tmsg_request_test(dropped), TMSG_ERR_DROPPED);
    must_eq(outcome.done, 0); /* callbacks come with progress */
    pair_await(&pair, is_done, &outcome, "on_done");
    must_be(outcome.status, TMSG_ERR_DROPPED);
    expect_said(pair.to_a, "\"dropped_newest\":\t1,");
    for (uint64_t i = 0; i < 3; i++) {
        take_seed(&pair, i);
        must(pair_finish(&pair, sent[i]));
    }
    tmsg_request_destroy(dropped);
    pair_close(&pair);
}

static void take_slowly(void *arg, tmsg_message_t *message)
{
    atomic_uint *taken = arg;

    sample_check_bytes(atomic_load(taken), 100, tmsg_message_map(message));
    atomic_fetch_add(taken, 1);
    tmsg_message_destroy(message);
}

static bool has_all(void *arg) { return atomic_load((atomic_uint *)arg) == 60; }

/* The receiver has a thread; the sender waits in its calls, and drives itself
 * or not. */
static void blocks(drive_t drive)
{
    static const tmsg_send_params_t acked = {
        .field_mask = TMSG_SEND_PARAM_FLAGS, .flags = TMSG_SEND_ACKED};
    atomic_uint taken = 0;
    const side_options_t slow = {
        .drive = DRIVE_THREAD,
        .worker = {.field_mask = TMSG_WORKER_PARAM_QUEUE_DEPTH |
                                 TMSG_WORKER_PARAM_HANDLER,
                   .queue_depth = 1,
                   .handler = take_slowly,
                   .handler_arg = &taken}};
    const side_options_t fast = {.drive = drive};
    tmsg_endpoint_t *endpoint;
    side_t a, b;

    side_open(&a, &slow);
    side_listen_link(&a, LINK_SHM);
    side_open(&b, &fast);
    endpoint = side_dial(&b, &a);
    set_queue(endpoint, 1, TMSG_QUEUE_BLOCK);
    for (uint64_t i = 0; i < 60; i++) {
        must(try_send(endpoint, i, 100, &acked, NULL));
    }
    side_await(&b, has_all, &taken, "all messages");
    expect_said(endpoint, "\"policy\":\t\"block\"");
    expect_said(endpoint, "\"rejected\":\t0,");
    side_close(&b);
    side_close(&a);
}

Test(queue, blocks_until_there_is_room_polling) { blocks(DRIVE_POLLING); }
Test(queue, blocks_until_there_is_room_fd) { blocks(DRIVE_FD); }
Test(queue, blocks_until_there_is_room_thread) { blocks(DRIVE_THREAD); }

Test(queue, blocks_no_longer_than_the_send_may_take)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_TIMEOUT,
                                       .timeout_ms = 30};
    tmsg_request_t *sent[2], *none = NULL;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    set_queue(pair.to_a, 1, TMSG_QUEUE_BLOCK);
    sent[0] = send_seed(pair.to_a, 0);
    sent[1] = send_seed(pair.to_a, 1);
    must_be(try_send(pair.to_a, 2, 100, &params, &none), TMSG_ERR_TIMED_OUT);
    cr_expect(zero(ptr, none));
    must_say(tmsg_error_message(), "no room in the send queue of ");
    must_say(tmsg_error_message(), tmsg_endpoint_peer(pair.to_a));
    expect_said(pair.to_a, "\"blocked\":\t1,");
    for (uint64_t i = 0; i < 2; i++) {
        take_seed(&pair, i);
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

/* The listener never answers. */
Test(queue, blocks_no_longer_than_the_connection_lives)
{
    const tmsg_endpoint_params_t params = {
        .field_mask = TMSG_ENDPOINT_PARAM_CONNECT_TIMEOUT,
        .connect_timeout_ms = 50};
    tmsg_endpoint_t *endpoint;
    tmsg_request_t *sent;
    char url[64];
    side_t side;

    raw_listen(url, sizeof(url));
    side_open(&side, NULL);
    must(tmsg_endpoint_connect(side.worker, url, &params, &endpoint));
    set_queue(endpoint, 1, TMSG_QUEUE_BLOCK);
    sent = send_seed(endpoint, 0);
    must_be(try_send(endpoint, 1, 100, NULL, NULL), TMSG_ERR_TIMED_OUT);
    must_say(tmsg_error_message(), url);
    must_be(side_finish(&side, sent), TMSG_ERR_TIMED_OUT);
    side_close(&side);
}

typedef struct {
    tmsg_endpoint_t *endpoint;
    tmsg_status_t status;
    bool called;
} inner_t;

static void send_in_callback(void *arg, tmsg_status_t status, const char *error)
{
    inner_t *inner = arg;

    (void)status;
    (void)error;
    inner->status = try_send(inner->endpoint, 9, 100, NULL, NULL);
    inner->called = true;
}

static bool was_called(void *arg) { return ((inner_t *)arg)->called; }

Test(queue, does_not_block_in_a_callback)
{
    inner_t inner = {0};
    tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_ON_DONE,
                                 .on_done = send_in_callback,
                                 .on_done_arg = &inner};
    tmsg_request_t *sent[2];
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    set_queue(pair.to_a, 1, TMSG_QUEUE_BLOCK);
    inner.endpoint = pair.to_a;
    must(try_send(pair.to_a, 0, 100, &params, &sent[0]));
    sent[1] = send_seed(pair.to_a, 1);
    pair_await(&pair, was_called, &inner, "on_done");
    must_be(inner.status, TMSG_ERR_WOULD_BLOCK);
    for (uint64_t i = 0; i < 2; i++) {
        take_seed(&pair, i);
        must(pair_finish(&pair, sent[i]));
    }
    pair_close(&pair);
}

Test(queue, a_tried_send_goes_at_once_or_not_at_all)
{
    const tmsg_send_params_t params = {.field_mask = TMSG_SEND_PARAM_FLAGS,
                                       .flags = TMSG_SEND_TRY};
    tmsg_endpoint_t *further;
    tmsg_request_t *sent[2], *none = NULL;
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    further = side_dial(&pair.b, &pair.a);
    must_be(try_send(further, 0, 100, &params, &none), TMSG_ERR_WOULD_BLOCK);
    must_say(tmsg_error_message(), "the connection");
    must(try_send(pair.to_a, 0, 100, &params, &sent[0]));
    must_be(try_send(pair.to_a, 1, 100, &params, &none), TMSG_ERR_WOULD_BLOCK);
    must_say(tmsg_error_message(), "to take those before it");
    cr_expect(zero(ptr, none));
    sent[1] = send_seed(pair.to_a, 1); /* this one waits */
    must_be(try_send(pair.to_a, 2, 100, &params, &none), TMSG_ERR_WOULD_BLOCK);
    expect_said(pair.to_a, "\"would_block\":\t2,");
    expect_said(pair.to_a, "\"waiting_messages\":\t1,");
    for (uint64_t i = 0; i < 2; i++) {
        take_seed(&pair, i);
        must(pair_finish(&pair, sent[i]));
    }
    tmsg_endpoint_destroy(further);
    pair_close(&pair);
}

/* Dialled or accepted. */
Test(queue, is_that_of_the_worker_until_an_endpoint_has_its_own)
{
    const tmsg_worker_params_t worker = {
        .field_mask = TMSG_WORKER_PARAM_SEND_QUEUE,
        .send_queue = {.field_mask =
                           TMSG_QUEUE_PARAM_MESSAGES | TMSG_QUEUE_PARAM_POLICY,
                       .messages = 7,
                       .policy = TMSG_QUEUE_DROP_NEWEST}};
    const side_options_t options = {.worker = worker};
    pair_t pair;

    pair_open(&pair, LINK_SHM, DRIVE_POLLING, &options, &options);
    expect_said(pair.to_a, "\"messages\":\t7,");
    expect_said(pair.to_b, "\"messages\":\t7,");
    expect_said(pair.to_b, "\"policy\":\t\"drop newest\"");
    set_queue(pair.to_b, 9, TMSG_QUEUE_BLOCK);
    expect_said(pair.to_b, "\"messages\":\t9,");
    expect_said(pair.to_a, "\"messages\":\t7,");
    must(tmsg_endpoint_set_queue(pair.to_b, NULL));
    expect_said(pair.to_b, "\"messages\":\t7,");
    pair_close(&pair);
}

Test(queue, is_bounded_unless_told_otherwise)
{
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    expect_said(pair.to_a, "\"messages\":\t65536,");
    expect_said(pair.to_a, "\"policy\":\t\"reject\"");
    pair_close(&pair);
}

Test(queue, refuses_settings_that_are_none)
{
    static const struct {
        tmsg_queue_params_t params;
        const char *words;
    } rows[] = {
        {{.field_mask = 32}, "unknown field_mask bits 0x20"},
        {{.field_mask = TMSG_QUEUE_PARAM_MESSAGES},
         "messages is 0: it must be 1 or more"},
        {{.field_mask = TMSG_QUEUE_PARAM_BYTES},
         "bytes is 0: it must be 1 or more"},
        {{.field_mask = TMSG_QUEUE_PARAM_WINDOW},
         "window is 0: it must be 1 or more"},
        {{.field_mask = TMSG_QUEUE_PARAM_MOST_MS},
         "most_ms is 0: it must be 1 or more"},
        {{.field_mask = TMSG_QUEUE_PARAM_POLICY, .policy = 5},
         "unknown policy 5"},
        {{.field_mask = TMSG_QUEUE_PARAM_POLICY, .policy = -1},
         "unknown policy -1"},
    };
    pair_t pair;

    open_narrow(&pair, DRIVE_POLLING, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const tmsg_worker_params_t worker = {.field_mask =
                                                 TMSG_WORKER_PARAM_SEND_QUEUE,
                                             .send_queue = rows[i].params};
        tmsg_worker_t *made = NULL;

        must_be(tmsg_endpoint_set_queue(pair.to_a, &rows[i].params),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), rows[i].words);
        must_be(tmsg_worker_create(pair.a.context, &worker, &made),
                TMSG_ERR_INVALID_PARAM);
        must_say(tmsg_error_message(), rows[i].words);
        cr_expect(zero(ptr, made));
    }
    expect_said(pair.to_a, "\"messages\":\t65536,");
    pair_close(&pair);
}
